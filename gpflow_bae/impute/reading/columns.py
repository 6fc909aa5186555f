"""Kinds of all outputs of a table, which outputs are constant, and the scaling of inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.output_transforms import Log
from ...core.scales import spread, varies
from .kinds.column_kind import ColumnKind, decide_kind, make_kind, said_kind
from .kinds.limits import limits_of, notes_on
from .kinds.logarithms import better_as_they_are, functions_alike
from .problems import Problems

__all__ = ["FittedColumns", "OutputKinds", "in_order", "output_kinds", "scale_inputs"]

# After n equal values the next is another with a probability of 1 / (n + 2) (Laplace): from eight
# on the value itself is a 90 % interval.
_SURELY_CONSTANT = 8


class FittedColumns(NamedTuple):
    """How the columns of a fit's table are read, and those of other tables after it.

    * centre, scale [D]: models see the inputs ``(X - centre) / scale``.
    * kinds: of the P outputs that vary.
    * constants: values of the other outputs, by name; models do not see them.
    * doubtful: names of the constants that were observed too rarely to be sure of them.
    * still [D]: which inputs had one value throughout.
    * origin: the date from which days of the first input count, if it is a date.
    """

    centre: np.ndarray
    scale: np.ndarray
    kinds: tuple[ColumnKind, ...]
    constants: Mapping[Any, float]
    doubtful: frozenset[Any] = frozenset()
    still: np.ndarray | bool = False
    origin: np.datetime64 | None = None


class OutputKinds(NamedTuple):
    """The result of :func:`output_kinds`.

    * kinds: kinds of the columns that vary, in their order.
    * constants: values of the others, by name.
    * notes: notes for the user, in sentences.
    * doubtful: names of the constants that were observed too rarely to be sure of them.
    """

    kinds: tuple[ColumnKind, ...]
    constants: dict[Any, float]
    notes: tuple[str, ...]
    doubtful: frozenset[Any] = frozenset()


def scale_inputs(
    names: Sequence[Any],
    X: np.ndarray,
    times: np.ndarray,
    found: OutputKinds,
    fitted: FittedColumns | None = None,
) -> tuple[np.ndarray, FittedColumns, tuple[str, ...]]:
    """Replace inputs that had one value throughout the fit by that value, and find the scaling.

    An input counts as constant where its values agree up to rounding: dividing by their standard
    deviation would make the next value infinitely far away.

    :param X: inputs [N, D].
    :param times: timestamps of the rows, if the first input is a date; else numbers.
    :param found: kinds of the outputs.
    :param fitted: how the table of an earlier fit was read; None if this is the table of the fit.
    :return: the inputs, how columns are read, and notes on constant inputs.
    """
    if fitted is None:
        still, value = ~varies(X), _middle(X)
        constant = still
        origin = times.min() if np.issubdtype(times.dtype, np.datetime64) else None
        words = "has one value in all rows: it tells nothing, and the model does not see it."
    else:
        still, value, origin = np.array(fitted.still), fitted.centre, fitted.origin
        constant = still & varies(np.concatenate([X, value[None]]))
        words = (
            "had one value in all rows of the fit, which says nothing of others: filled values are "
            "as if it had that value here."
        )
    notes = tuple(f"Input {names[d]!r} {words}" for d in np.flatnonzero(constant))
    X = np.where(still, value, X)
    centre, scale = (X.mean(0), spread(X)) if fitted is None else (fitted.centre, fitted.scale)
    centre = np.where(still, value, centre)
    columns = FittedColumns(
        centre, scale, found.kinds, found.constants, found.doubtful, still, origin
    )
    return X, columns, notes


def in_order(tasks: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Numbers of the rows [rows], sorted by task, and within a task by inputs [rows, D]."""
    _, task = np.unique(tasks, return_inverse=True)
    return np.lexsort((*X.T[::-1], task))


def output_kinds(
    names: Sequence[str],
    Y: np.ndarray,
    said: Mapping[str, Any] | str | None = None,
    fitted: FittedColumns | None = None,
    problems: Problems | None = None,
    order: np.ndarray | None = None,
) -> OutputKinds:
    """The kinds of all columns to fill: of an earlier fit, as the user says, or inferred.

    An inferred logarithm is dropped where it makes predictions from the other columns worse, see
    :func:`~gpflow_bae.impute.reading.kinds.logarithms.better_as_they_are`.

    :param names: names of the Q columns.
    :param Y: cells [rows, Q]; NaN where missing.
    :param said: kinds that the user names, by column: one of :data:`KINDS`, or the two bounds of a
        bounded column; a single one is that of all.
    :param fitted: how the table of an earlier fit was read.
    :param problems: problems are added to these; None to raise them here.
    :param order: numbers of the rows [rows] in the order of their tasks and inputs
        (:func:`in_order`), so that kinds do not depend on the order of the table; as they come if
        None.
    :raises TableError: for columns that are never observed, values that a column of the kind cannot
        have, unknown kinds, or no column that varies.
    """
    found = Problems() if problems is None else problems
    kinds: list[ColumnKind] = []
    constants: dict[str, float] = {}
    doubtful = set() if fitted is None else set(fitted.doubtful)
    notes: list[str] = []
    said = dict.fromkeys(names, said) if isinstance(said, str) else dict(said or {})
    unknown = sorted(set(said) - set(names), key=str)
    if unknown:
        found.add(f"A kind is given for {unknown}, and the outputs are {list(names)}")
    earlier = {} if fitted is None else {kind.name: kind for kind in fitted.kinds}
    for name, column in zip(names, Y.T, strict=True):
        values = column[np.isfinite(column)]
        often = "once" if len(values) == 1 else f"{len(values)} times"
        if fitted is not None and name in fitted.constants:
            constants[name], often = fitted.constants[name], "in the table of the fit"
        elif fitted is None and len(values) == 0:
            found.add(
                f"Column {name!r} is never observed: all {len(column)} cells are missing",
                "Leave it out of the outputs.",
            )
            continue
        elif fitted is None and not varies(values):
            constants[name] = float(_middle(values))
            doubtful |= {name} if len(values) < _SURELY_CONSTANT else set()
        if name in constants:
            rare = " That is too rare to say how sure this is." if name in doubtful else ""
            notes.append(
                f"Column {name!r} is {constants[name]:.15g} wherever it is observed ({often}): its "
                f"holes are filled with that, and the model does not see it.{rare}"
            )
            continue
        kind: ColumnKind | None = earlier.get(name)
        if kind is None and name in said:
            kind = said_kind(name, said[name], values, found)
        elif kind is None:
            kind = decide_kind(name, values)
        if fitted is None:
            notes += notes_on(name, column, name in said, found.place)
        if kind is not None:
            kinds.append(kind)
            wrong = np.flatnonzero(np.isfinite(column) & ~kind.allows(column))
            if len(wrong):
                found.add_rows(
                    f"Column {name!r} is {kind.describe()}, and holds",
                    wrong,
                    "Correct the cells or leave them empty, or say another kind of column.",
                    cells=[float(v) for v in column[wrong]],
                )
    if fitted is None and not found.found:
        rows = Y if order is None else Y[order]
        kinds = _as_they_are(kinds, said, dict(zip(names, rows.T, strict=True)))
    if not kinds and not found.found:
        found.add(f"All outputs, {list(names)}, are constant: there is nothing to model")
    if problems is None:
        found.raise_if_any()
    return OutputKinds(tuple(kinds), constants, tuple(notes), frozenset(doubtful))


def _as_they_are(
    kinds: list[ColumnKind], said: Mapping[str, Any], columns: Mapping[str, np.ndarray]
) -> list[ColumnKind]:
    """The kinds, without inferred logarithms that predict worse, and with limits.

    Columns that are functions of each other are all logarithms, or none is.
    """
    if not kinds:
        return kinds
    transforms = [
        kind.transform if isinstance(kind.transform, Log) and kind.name not in said else None
        for kind in kinds
    ]
    Y = np.stack([columns[kind.name] for kind in kinds], axis=-1)
    kinds = [
        make_kind(kind.name, kind.kind) if plain else kind
        for kind, plain in zip(kinds, better_as_they_are(Y, transforms), strict=True)
    ]
    logged = np.array([isinstance(kind.transform, Log) for kind in kinds])
    free = np.array(
        [
            kind.name not in said
            and kind.kind in ("continuous", "positive")
            and np.nanmin(columns[kind.name]) > 0.0
            for kind in kinds
        ]
    )
    found = []
    for kind, was, now in zip(kinds, logged, functions_alike(Y, logged, free), strict=True):
        if was != now:
            kind = make_kind(kind.name, "positive", 0.0 if now else None)
        if kind.name not in said and kind.kind in ("continuous", "positive", "count"):
            values = columns[kind.name]
            kind = dataclasses.replace(kind, limits=limits_of(values[np.isfinite(values)]))
        found.append(kind)
    return found


def _middle(values: np.ndarray) -> np.ndarray:
    """One of the values in the middle, of each column: the same for any order of the rows."""
    return np.asarray(np.sort(values, axis=0)[len(values) // 2])
