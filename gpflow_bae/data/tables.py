"""Tables of several outputs with missing cells, and cells that are hidden to be predicted.

A table holds T independent tasks (recordings, weeks), each with N rows of D inputs and P outputs.
Some outputs were never measured, and some are hidden to be predicted. A model sees ``X`` and ``Y``
alone; the scores see ``test_truth``.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Sequence

import numpy as np

from ..core.arguments import as_numbers, check_arguments

__all__ = ["MultiOutputTable", "column_names", "hold_out", "pad_tasks"]


@dataclasses.dataclass(frozen=True, eq=False)
class MultiOutputTable:
    """Inputs, outputs with missing cells, and which of the missing ones are predicted and scored.

    * X [T, N, D]: inputs, float64, finite. Tasks with fewer rows than N are padded, see
      :func:`pad_tasks`.
    * Y [T, N, P]: outputs, float64; NaN where never measured, hidden, or padding. A row without any
      output is allowed: it says nothing, and predictions there follow from the other rows.
    * truth [T, N, P]: outputs as far as they are known, the hidden ones included; NaN where
      unknown. Y itself if None.
    * test_mask [T, N, P]: True where a prediction is scored: cells whose truth is known and that Y
      does not show. Nowhere if None.
    * output_names, input_names: of the P and D columns; ``y0, y1, ...`` and ``x0, x1, ...`` if
      empty.
    * lengths [T]: number of rows of each task, the first of its N; N for all tasks if None.

    Arrays are copied and read-only.

    :raises ValueError: For shapes that disagree, inputs that are not finite, infinite outputs, two
        rows of a task with equal inputs, outputs in padding rows, or test cells that are shown in
        Y or unknown. A column without any observation is allowed here (a single week may have no
        snow depth), but not in :meth:`Standardiser.fit`.
    """

    X: np.ndarray
    Y: np.ndarray
    # None until __post_init__ puts what it stands for, so that readers need not ask.
    truth: np.ndarray = None  # type: ignore[assignment]
    test_mask: np.ndarray = None  # type: ignore[assignment]
    output_names: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    lengths: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        X, Y = as_numbers(self.X, "X").copy(), as_numbers(self.Y, "Y").copy()
        if X.ndim != 3 or Y.ndim != 3 or X.shape[:2] != Y.shape[:2] or 0 in X.shape + Y.shape:
            raise ValueError(
                f"X has shape {X.shape} and Y {Y.shape}; expected X [T, N, D] and Y [T, N, P] with "
                "the same T and N and nothing empty. Add the axis of a single task: X[None]."
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
        """T."""
        return len(self.Y)

    @property
    def num_outputs(self) -> int:
        """P."""
        return self.Y.shape[-1]

    @property
    def observed(self) -> np.ndarray:
        """Cells that a model sees: Booleans [T, N, P]."""
        return ~np.isnan(self.Y)

    @property
    def rows(self) -> np.ndarray:
        """Rows that are no padding: Booleans [T, N]."""
        return np.arange(self.Y.shape[1]) < self.lengths[:, None]

    @property
    def test_truth(self) -> np.ndarray:
        """The truth of the test cells [T, N, P], NaN elsewhere: what metrics take."""
        return np.where(self.test_mask, self.truth, np.nan)

    def select(self, tasks: Sequence[int] | np.ndarray) -> MultiOutputTable:
        """The table of some tasks only: indices, or Booleans [T]."""
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
    """Hides a share of what is observed, to choose settings by: no test cell is ever seen.

    :param table: Whose test cells are forgotten: their truth is NaN in the result.
    :param fraction: Share of the observed cells of each output that is hidden, in (0, 1); rounded,
        and at least one cell.
    :param seed: Integer >= 0.
    :param outputs: Names of the outputs to hide cells of; all if None.
    :param block: Cells are hidden in runs of up to that many consecutive rows of a task, because
        a lone missing cell in a series is easier to guess than a gap.
    :return: The same table with more cells missing, whose ``test_mask`` shows these.
    :raises ValueError: If an argument is out of range, an output is unknown, or an output would
        have no observation left.
    """
    if not isinstance(fraction, numbers.Real) or not 0.0 < fraction < 1.0:
        raise ValueError(f"fraction is {fraction!r}; it must lie strictly between 0 and 1.")
    for name, value, least in (("seed", seed, 0), ("block", block, 1)):
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} is {value!r}; it must be an integer of at least {least}.")
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
    return dataclasses.replace(
        table, Y=np.where(hidden, np.nan, table.Y), truth=table.Y, test_mask=hidden
    )


@check_arguments()
def pad_tasks(arrays: Sequence[np.ndarray], *, is_input: bool) -> tuple[np.ndarray, np.ndarray]:
    """Stacks tasks of unequal length.

    Padding rows of inputs repeat the task's last row, because models want finite inputs; those of
    outputs are NaN, so no likelihood counts them.

    :param arrays: One array [N_t, columns] per task, none of them empty.
    :param is_input: Whether they are inputs.
    :return: The stack [T, max N_t, columns] and the lengths [T].
    :raises ValueError: If there is no task, a task is empty, or numbers of columns disagree.
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
    """``names``, or ``letter`` with the columns' numbers where they are empty; all different."""
    names = tuple(names) or tuple(f"{letter}{i}" for i in range(number))
    if len(names) != number or len(set(names)) != number:
        raise ValueError(f"{what} is {names}; expected {number} different names, one per column.")
    return names


def _first(wrong: np.ndarray, outputs: tuple[str, ...]) -> str:
    """The first cell of a mask [T, N, P], in words."""
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
