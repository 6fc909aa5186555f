"""Kinds of outputs (their values, and their transform for a Gaussian model), scaling of inputs.

The user names the kind of an output, or :func:`decide_kind` infers it from the observed values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.arguments import below_one, spread, varies
from ...core.output_transforms import Identity, Log, Logit, OutputTransform
from .limits import limits_of, notes_on
from .logarithms import better_as_they_are, functions_alike
from .problems import Problems

__all__ = [
    "KINDS",
    "ColumnKind",
    "FittedColumns",
    "OutputKinds",
    "decide_kind",
    "in_order",
    "output_kinds",
    "scale_inputs",
]

KINDS = ("continuous", "positive", "count", "bounded", "binary", "category")

_LEAST_VALUES = 20  # with fewer, the shape of a distribution is not known
_SKEWNESS = 0.5  # above it a column counts as skewed
_LEFT = 0.9  # largest share of the skewness that a logarithm may leave
_LARGEST_COUNT = 2.0**53  # floats above it are all whole
# After n equal values the next is another with a probability of 1 / (n + 2) (Laplace): from eight
# on the value itself is a 90 % interval.
_SURELY_CONSTANT = 8


@dataclasses.dataclass(frozen=True)
class ColumnKind:
    """The values that an output can have, and its transform.

    * name: name of the column.
    * kind: ``"continuous"`` (any number), ``"positive"`` (also zero, if there are zeros),
      ``"count"`` (0, 1, 2, ...), ``"bounded"`` or ``"binary"`` (0 and 1).
    * transform: the model sees transformed values, standardised.
    * lower, upper: the range; filled values and their intervals stay inside.
    * limits: ends of the range that many observed values are at, see
      :func:`~gpflow_bae.impute.reading.limits.limits_of`; filled values stay inside of these, too.
    """

    name: str
    kind: str = "continuous"
    transform: OutputTransform = Identity()
    lower: float = -np.inf
    upper: float = np.inf
    limits: tuple[float, float] = (-np.inf, np.inf)

    @property
    def range(self) -> tuple[float, float]:
        """Least and largest value that is filled in."""
        return max(self.lower, self.limits[0]), min(self.upper, self.limits[1])

    @property
    def whole(self) -> bool:
        """Whether only whole numbers occur."""
        return self.kind in ("count", "binary")

    def allows(self, values: np.ndarray) -> np.ndarray:
        """Which values a column of this kind can have: Booleans."""
        with np.errstate(invalid="ignore"):
            inside = (values >= self.lower) & (values <= self.upper)
            inside &= np.isfinite(self.transform.forward(values))
        return inside & (values == np.round(values)) if self.whole else inside

    def describe(self) -> str:
        """The kind in a few words, for messages and reports."""
        if isinstance(self.transform, Log):
            shift = self.transform.shift
            seen = f"log(value + {shift:g})" if shift else "its logarithm"
            return f"{self.kind}, as {seen}"
        if isinstance(self.transform, Logit):
            return f"between {self.lower:g} and {self.upper:g}, as its logit"
        plain = {"count": "count", "binary": "binary (0 or 1)", "positive": "positive, as it is"}
        return plain.get(self.kind, "continuous")

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name, as :meth:`from_dict` takes them."""
        shift = self.transform.shift if isinstance(self.transform, Log) else None
        bounds = [self.lower, self.upper] if self.kind == "bounded" else None
        record = {"name": self.name, "kind": self.kind, "shift": shift, "bounds": bounds}
        return record | {"limits": [v if np.isfinite(v) else None for v in self.limits]}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> ColumnKind:
        """The kind of plain values."""
        found = _make(record["name"], record["kind"], record["shift"], record["bounds"])
        low, high = record.get("limits", (None, None))
        limits = -np.inf if low is None else low, np.inf if high is None else high
        return dataclasses.replace(found, limits=limits)

    def settle(
        self, mean: np.ndarray, variance: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Values, standard deviations and interval ends that this kind of column can have.

        All are inside of the range. The interval of a count ends at whole numbers, rounded
        outwards; the value of a binary output is the probability of 1, and its interval holds 0, 1
        or both.

        :param mean, variance: of cells, in their units.
        :param lower, upper: ends of their 90 % interval.
        """
        value, deviation = np.clip(mean, *self.range), np.sqrt(variance)
        if self.kind == "binary":
            ends = np.where(value > 0.95, 1.0, 0.0), np.where(value < 0.05, 0.0, 1.0)
            return value, np.sqrt(value * (1.0 - value)), *ends
        if self.kind == "count":
            lower, upper = np.floor(lower), np.ceil(upper)
        lower, upper = (np.clip(end, *self.range) for end in (lower, upper))
        return value, deviation, lower, upper


def decide_kind(name: str, values: np.ndarray) -> ColumnKind:
    """Infer the kind of a column from its values.

    * Zeros and ones alone: binary.
    * Whole numbers from 0 on, at least three different ones: count; as its logarithm if that is
      less skewed.
    * No negative number, and a less skewed logarithm: positive, as its logarithm.
    * Others: continuous, untransformed. So is a column with fewer than 20 values, and one whose
      numbers merely happen to be positive. A bounded column is never inferred.

    A logarithm is less skewed if the skewness is above 0.5 and less than 90 % of it, of either
    sign, is left: exponential and gamma variables are positive, uniform ones are not.

    :param values: its observed values, finite.
    """
    values = np.sort(values)  # sums then have the same rounding for any order of the rows
    distinct = np.unique(values)
    if set(distinct) == {0.0, 1.0}:
        return _make(name, "binary")
    if len(distinct) < 3 or distinct[0] < 0.0 or len(values) < _LEAST_VALUES:
        return _make(name, "continuous")
    count = bool((distinct == np.round(distinct)).all()) and distinct[-1] <= _LARGEST_COUNT
    shift = 1.0 if count else _shift(values)
    skewness = _skewness_of(values)
    of_logarithm = _skewness_of(np.log(values + shift))
    as_logarithm = skewness > _SKEWNESS and abs(of_logarithm) < _LEFT * skewness
    if count:
        return _make(name, "count", shift if as_logarithm else None)
    return _make(name, "positive", shift) if as_logarithm else _make(name, "continuous")


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
    :func:`~gpflow_bae.impute.reading.logarithms.better_as_they_are`.

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
            kind = _said_kind(name, said[name], values, found)
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
        _make(kind.name, kind.kind) if plain else kind
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
            kind = _make(kind.name, "positive", 0.0 if now else None)
        if kind.name not in said and kind.kind in ("continuous", "positive", "count"):
            values = columns[kind.name]
            kind = dataclasses.replace(kind, limits=limits_of(values[np.isfinite(values)]))
        found.append(kind)
    return found


def _said_kind(name: str, said: Any, values: np.ndarray, problems: Problems) -> ColumnKind | None:
    """The kind that a user names, or None with a problem if there is no such kind.

    A count is modelled as its logarithm where :func:`decide_kind` would; a positive column always.
    """
    if isinstance(said, str):
        if said in ("continuous", "binary"):
            return _make(name, said)
        if said == "positive":
            return _make(name, said, _shift(values))
        if said == "count":
            logarithm = decide_kind(name, values).transform
            return _make(name, said, logarithm.shift if isinstance(logarithm, Log) else None)
    else:
        try:
            low, high = map(float, said)
        except (TypeError, ValueError):
            low, high = np.nan, np.nan
        if low < high and np.isfinite([low, high]).all():
            return _make(name, "bounded", bounds=(low, high))
    problems.add(
        f"The kind of {name!r} is {said!r}",
        "Expected 'continuous', 'positive', 'count', 'binary' or 'category', or two bounds, the "
        "lower one first.",
    )
    return None


def _make(name: str, kind: str, shift: float | None = None, bounds: Any = None) -> ColumnKind:
    if kind == "bounded":
        low, high = map(float, bounds)
        return ColumnKind(name, kind, Logit(low, high), low, high)
    transform = Identity() if shift is None else Log(shift)
    lower, upper = {
        "continuous": (-np.inf, np.inf),
        "binary": (0.0, 1.0),
    }.get(kind, (0.0, np.inf))
    return ColumnKind(name, kind, transform, lower, upper)


def _middle(values: np.ndarray) -> np.ndarray:
    """One of the values in the middle, of each column: the same for any order of the rows."""
    return np.asarray(np.sort(values, axis=0)[len(values) // 2])


def _shift(values: np.ndarray) -> float:
    """The shift before a logarithm: the first quartile of positive values if there are zeros, or 0.

    Zeros then lie a factor of two below values that are small themselves, and are no outliers.
    """
    positive = values[values > 0.0]
    if len(positive) == len(values) or len(positive) == 0:
        return 0.0
    return float(np.quantile(positive, 0.25))


def _skewness_of(values: np.ndarray) -> float:
    """Skewness of values; infinite where they differ by rounding only."""
    if not varies(values):
        return np.inf
    values, _ = below_one(values)
    centred, _ = below_one(values - values.mean())
    return float(np.mean(centred**3) / np.mean(centred**2) ** 1.5)
