"""Tables of several outputs with missing cells, and held-out cells for scoring.

A table holds T independent tasks (recordings, weeks), each with N rows of D inputs and P outputs.
Some outputs were never measured, and some are held out. Models use ``X`` and ``Y`` only; scores use
``test_truth``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers, check_integer

__all__ = ["MultiOutputTable", "column_names", "hold_out", "pad_tasks"]


@dataclasses.dataclass(frozen=True, eq=False)
class MultiOutputTable:
    """Inputs, outputs with missing cells, and a mask of the held-out cells that are scored.

    * X [T, N, D]: inputs, float64, finite. Tasks with fewer rows than N are padded, see
      :func:`pad_tasks`. Without inputs (D = 0) rows have no order, and may be equal.
    * Y [T, N, P]: outputs, float64; NaN if never measured, held out, or padding. A row without
      outputs is allowed: it is uninformative, and predicted from the other rows.
    * truth [T, N, P]: all known outputs, held-out ones included; NaN where unknown. None for Y.
    * test_mask [T, N, P]: True where a prediction is scored: cells with known truth that are NaN
      in Y. None for no cells.
    * output_names, input_names: names of the P and D columns; ``y0, y1, ...`` and ``x0, x1, ...``
      if empty.
    * lengths [T]: number of rows of each task, before padding; None for N rows in all tasks.

    Arrays are copied and read-only.

    :raises ValueError: for shapes that disagree, inputs that are not finite, infinite outputs, two
        rows of a task with equal inputs, outputs in padding rows, or test cells that are observed
        in Y or unknown. A column without observations is allowed here (a single week may have no
        snow depth), but not in :meth:`Standardiser.fit`.
    """

    X: np.ndarray
    Y: np.ndarray
    # __post_init__ replaces None by the default, so that attributes are never None.
    truth: np.ndarray = None  # type: ignore[assignment]
    test_mask: np.ndarray = None  # type: ignore[assignment]
    output_names: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    lengths: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        X, Y = as_numbers(self.X, "X").copy(), as_numbers(self.Y, "Y").copy()
        if X.ndim != 3 or Y.ndim != 3 or X.shape[:2] != Y.shape[:2] or 0 in Y.shape:
            raise ValueError(
                f"X has shape {X.shape} and Y {Y.shape}; expected X [T, N, D] and Y [T, N, P] with "
                "the same T and N and no empty Y. Add the axis of a single task: X[None]."
            )
        truth = Y.copy() if self.truth is None else as_numbers(self.truth, "truth").copy()
        mask = np.zeros(Y.shape, bool) if self.test_mask is None else np.array(self.test_mask)
        for name, array in (("truth", truth), ("test_mask", mask)):
            if array.shape != Y.shape:
                raise ValueError(f"{name} has shape {array.shape}; expected that of Y, {Y.shape}.")
        if mask.dtype != bool:
            raise ValueError(f"test_mask has the type {mask.dtype}; expected Booleans.")
        lengths = np.full(len(Y), Y.shape[1]) if self.lengths is None else np.array(self.lengths)
        outputs = column_names("output_names", self.output_names, "y", Y.shape[-1])
        inputs = column_names("input_names", self.input_names, "x", X.shape[-1])

        _check_lengths(lengths, Y)
        _check_inputs(X, lengths)
        for name, array in (("Y", Y), ("truth", truth)):
            if np.isinf(array).any():
                raise ValueError(
                    f"{name} is infinite in {_first(np.isinf(array), outputs)}; use NaN for "
                    "missing outputs, and remove readings that overflowed."
                )
        observed = ~np.isnan(Y)
        for problem, wrong in (
            ("the model sees there (Y is not NaN)", mask & observed),
            ("nobody knows (truth is NaN)", mask & np.isnan(truth)),
        ):
            if wrong.any():
                raise ValueError(
                    f"test_mask asks to score {np.count_nonzero(wrong)} outputs that {problem}, "
                    f"first in {_first(wrong, outputs)}. A test cell is NaN in Y and known in "
                    "truth."
                )
        conflict = observed & (Y != truth)
        if conflict.any():
            raise ValueError(
                f"Y and truth disagree in {_first(conflict, outputs)}: {Y[conflict][0]:g} and "
                f"{truth[conflict][0]:g}. Where Y is observed, truth is the same number."
            )
        for name, value in (
            ("X", X),
            ("Y", Y),
            ("truth", truth),
            ("test_mask", mask),
            ("lengths", lengths.astype(np.int64)),
        ):
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "output_names", outputs)
        object.__setattr__(self, "input_names", inputs)

    @property
    def num_tasks(self) -> int:
        """Number of tasks T."""
        return len(self.Y)

    @property
    def num_outputs(self) -> int:
        """Number of outputs P."""
        return self.Y.shape[-1]

    @property
    def observed(self) -> np.ndarray:
        """Mask of observed cells [T, N, P]."""
        return ~np.isnan(self.Y)

    @property
    def rows(self) -> np.ndarray:
        """Mask of rows that are not padding [T, N]."""
        return np.arange(self.Y.shape[1]) < self.lengths[:, None]

    @property
    def test_truth(self) -> np.ndarray:
        """True outputs of the test cells [T, N, P], NaN elsewhere, for metrics."""
        return np.where(self.test_mask, self.truth, np.nan)

    def hide(self, cells: np.ndarray) -> MultiOutputTable:
        """Return the table without the cells of a mask [T, N, P], which become its test cells.

        Other outputs that are missing here become unknown: their truth is NaN in the result.
        """
        return dataclasses.replace(
            self, Y=np.where(cells, np.nan, self.Y), truth=self.Y, test_mask=cells
        )

    def select(self, tasks: Sequence[int] | np.ndarray) -> MultiOutputTable:
        """Return the table of some tasks, given by indices or a mask [T]."""
        index = np.arange(self.num_tasks)[np.asarray(tasks)]
        return dataclasses.replace(
            self,
            X=self.X[index],
            Y=self.Y[index],
            truth=self.truth[index],
            test_mask=self.test_mask[index],
            lengths=self.lengths[index],
        )


@check_arguments()
def hold_out(
    table: MultiOutputTable,
    fraction: float,
    seed: int,
    *,
    outputs: Sequence[str] | None = None,
    block: int = 1,
) -> MultiOutputTable:
    """Hold out some of the observed cells for validation; test cells are not used.

    :param table: its test cells become unknown: their truth is NaN in the result.
    :param fraction: fraction of the observed cells of each output to hold out, in (0, 1); rounded,
        and at least one cell.
    :param seed: integer >= 0.
    :param outputs: names of the outputs to hold out cells of; None for all.
    :param block: cells are held out in runs of up to this many consecutive rows of a task, because
        a single missing cell in a series is easier to predict than a gap.
    :return: the table with more cells missing, which are its ``test_mask``.
    :raises ValueError: if an argument is out of range, an output is unknown, or an output would
        have no observation left.
    """
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"fraction is {fraction!r}; it must lie strictly between 0 and 1.")
    check_integer("seed", seed, 0)
    check_integer("block", block, 1)
    names = table.output_names if outputs is None else tuple(outputs)
    unknown = sorted(set(names) - set(table.output_names))
    if unknown:
        raise ValueError(f"outputs names {unknown}; the table has {list(table.output_names)}.")

    rng = np.random.default_rng(seed)
    observed, hidden = table.observed, np.zeros(table.Y.shape, dtype=bool)
    num_rows = table.Y.shape[1]
    for name in names:
        column = table.output_names.index(name)
        shown = observed[..., column]
        count = max(1, round(fraction * np.count_nonzero(shown)))
        if count >= np.count_nonzero(shown):
            raise ValueError(
                f"Output {name!r} is observed {np.count_nonzero(shown)} times, of which fraction "
                f"{fraction:g} hides {count}: none would be left. Lower it, or leave {name!r} out."
            )
        for start in rng.permutation(np.flatnonzero(shown)):
            task, first = divmod(int(start), num_rows)
            window = slice(first, first + block)
            free = np.flatnonzero(shown[task, window] & ~hidden[task, window, column])
            hidden[task, first + free[:count], column] = True
            count -= len(free[:count])
            if count == 0:
                break
    return table.hide(hidden)


@check_arguments()
def pad_tasks(arrays: Sequence[np.ndarray], *, is_input: bool) -> tuple[np.ndarray, np.ndarray]:
    """Stack tasks of unequal length.

    Padding rows of inputs repeat the task's last row, because models need finite inputs; those of
    outputs are NaN, so likelihoods ignore them.

    :param arrays: one array [N_t, columns] per task, none of them empty.
    :param is_input: whether they are inputs.
    :return: the stack [T, max N_t, columns] and the lengths [T].
    :raises ValueError: if there is no task, a task is empty, or numbers of columns disagree.
    """
    arrays = [as_numbers(a, f"arrays[{i}]") for i, a in enumerate(arrays)]
    shapes = [array.shape for array in arrays]
    if not arrays or any(len(shape) != 2 or shape[0] == 0 for shape in shapes):
        raise ValueError(f"arrays have the shapes {shapes}; expected at least one [N_t > 0, .].")
    if len({shape[1] for shape in shapes}) > 1:
        raise ValueError(f"arrays have the shapes {shapes}; expected equal numbers of columns.")
    lengths = np.array([len(array) for array in arrays])
    stack = np.full((len(arrays), lengths.max(), shapes[0][1]), np.nan)
    for padded, array in zip(stack, arrays, strict=True):
        padded[: len(array)] = array
        if is_input:
            padded[len(array) :] = array[-1]
    return stack, lengths


def column_names(what: str, names: tuple[str, ...], letter: str, number: int) -> tuple[str, ...]:
    """Return ``names``, checked to be unique; if empty, ``letter`` with column numbers."""
    names = tuple(names) or tuple(f"{letter}{i}" for i in range(number))
    if len(names) != number or len(set(names)) != number:
        raise ValueError(f"{what} is {names}; expected {number} different names, one per column.")
    return names


def _first(wrong: np.ndarray, outputs: tuple[str, ...]) -> str:
    """Describe the first True cell of a mask [T, N, P]."""
    task, row, column = np.argwhere(wrong)[0]
    return f"task {task}, row {row}, output {outputs[column]!r}"


def _check_lengths(lengths: np.ndarray, Y: np.ndarray) -> None:
    num_tasks, num_rows = Y.shape[:2]
    if (
        lengths.shape != (num_tasks,)
        or not np.issubdtype(lengths.dtype, np.integer)
        or (lengths < 1).any()
        or (lengths > num_rows).any()
    ):
        raise ValueError(
            f"lengths is {lengths.tolist()}; expected {num_tasks} integers from 1 to {num_rows}."
        )
    padding = np.arange(num_rows) >= lengths[:, None]
    filled = padding & ~np.isnan(Y).all(-1)
    if filled.any():
        task, row = np.argwhere(filled)[0]
        raise ValueError(
            f"Y has an output in task {task}, row {row}, but lengths gives that task "
            f"{lengths[task]} rows only. Padding rows are NaN."
        )


def _check_inputs(X: np.ndarray, lengths: np.ndarray) -> None:
    if not np.isfinite(X).all():
        task, row, column = np.argwhere(~np.isfinite(X))[0]
        raise ValueError(
            f"X is NaN or infinite in task {task}, row {row}, column {column}; inputs must be "
            "complete. Drop those rows, or fill the input in."
        )
    if X.shape[-1] == 0:
        return
    for task, (inputs, length) in enumerate(zip(X, lengths, strict=True)):
        distinct, first = np.unique(inputs[:length], axis=0, return_index=True)
        if len(distinct) < length:
            twice = int(np.setdiff1d(np.arange(length), first)[0])
            earlier = int(np.flatnonzero((inputs[:twice] == inputs[twice]).all(-1))[0])
            raise ValueError(
                f"Task {task} has the input {inputs[twice].tolist()} in rows {earlier} and "
                f"{twice}; rows of a task must differ. Merge them (average what both observed), or "
                "add the input that tells them apart."
            )
