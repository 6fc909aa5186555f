"""Predictions of linear models of coregionalisation, exact in blocks of neighbouring rows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..core.arguments import as_numbers
from ..core.row_blocks import in_threads
from ..core.tracing import compiled
from ..data import MultiOutputTable, as_pair, pad_tasks
from ..data.blocks import Place, block_at, joined, places_of_blocks
from ..data.unequal_tasks import TaskRows, rows_at, unequal_lengths
from ..models import LinearCoregionalisation
from .stored.archive import part_of, read_archive, write_archive
from .stored.parts import check_parts, parts_of

__all__ = ["SIGNATURE", "CoregionalisationPosterior", "as_table"]

KIND = "coregionalisation"
_MOST_TOGETHER = 2000  # cells that are drawn together
_MANY_BLOCKS = 300  # of which predictions take several seconds

#: Signature of a :class:`~gpflow_bae.data.blocks.Block` with any number of rows and cells.
SIGNATURE = (
    tf.TensorSpec([None, None], tf.float64),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None], tf.float64),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None], tf.int32),
)


def as_table(data: Any, num_outputs: int) -> MultiOutputTable:
    """Convert inputs and outputs to a table, of one task if they have no task axis.

    :param data: ``(X, Y)``, or a table. Tasks of unequal lengths are lists of arrays.
    :param num_outputs: number of outputs P of the model.
    :raises ValueError: for other shapes.
    """
    if not isinstance(data, MultiOutputTable):
        X, Y = (as_numbers(v, name) for v, name in zip(as_pair(data), ("X", "Y"), strict=True))
        X, Y = (X[None], Y[None]) if X.ndim == 2 else (X, Y)
        lengths = unequal_lengths(data[1])
        if lengths is None:
            data = MultiOutputTable(X, Y)
        else:
            data = MultiOutputTable(X, Y, lengths=np.array(lengths))
    if data.num_outputs != num_outputs:
        raise ValueError(f"Y has {data.num_outputs} outputs; the model has {num_outputs}.")
    return data


@dataclasses.dataclass(eq=False)
class CoregionalisationPosterior:
    """Posterior of fitted linear models of coregionalisation, and the data of the fit.

    Predictions of several models are their equally weighted mixture, whose variance includes their
    disagreement.

    * models: at least one.
    * cells_per_block: number of observed cells that a prediction conditions on; it is exact if a
      task has no more than that.
    * table: the data; None if predictions always get ``given``.
    * progress: whether predictions of many blocks show a bar.
    """

    models: tuple[LinearCoregionalisation, ...]
    cells_per_block: int = 900
    table: MultiOutputTable | None = None
    progress: bool = False

    def predict_y(
        self, Xnew: TensorType | None = None, *, given: tuple[TensorType, TensorType] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances of observations, noise included.

        :param Xnew: inputs [N', D] or [T or 1, N', D] of new rows, or a list of [N'_t, D]; None for
            all cells of the rows of the data, which other cells of the same row also inform.
        :param given: ``(X, Y)`` to condition on instead of the data of the fit.
        :return: [N', P] each; [T, N', P] if the data have a task axis, with NaN in rows that a task
            does not have.
        :raises ValueError: for inputs of another width, or without data.
        """
        table, of_given = self._given(given)
        X, Y, lengths = table.X, table.Y, table.lengths
        where = np.broadcast_to(table.rows[..., None], Y.shape)
        if Xnew is None:
            mean, variance = self.predict_cells(X, Y, lengths, where)
            return of_given.of(mean), of_given.of(variance)
        Xnew, rows = rows_at(Xnew, of_given)
        new = as_numbers(Xnew, "Xnew")
        new = new[None] if new.ndim == 2 else new
        if new.ndim != 3 or new.shape[2] != X.shape[2] or new.shape[0] not in (1, len(X)):
            raise ValueError(
                f"Xnew has shape {np.shape(Xnew)}; expected rows of {X.shape[2]} inputs, of one "
                f"task or of {len(X)}."
            )
        self.models[0].check_inputs(new.reshape(-1, new.shape[2]), "Xnew")
        # New rows of a task come first, so that padding, of new rows or others, is last.
        new = np.broadcast_to(new, (len(X), *new.shape[1:]))
        most = new.shape[1]
        counts = [most] * len(X) if rows.lengths is None else rows.lengths
        both = [(at[:k], x[:n]) for at, k, x, n in zip(new, counts, X, lengths, strict=True)]
        holes = np.full((most, Y.shape[2]), np.nan)
        outputs = [(holes[:k], y[:n]) for k, y, n in zip(counts, Y, lengths, strict=True)]
        X, lengths = pad_tasks([np.concatenate(v) for v in both], is_input=True)
        Y, _ = pad_tasks([np.concatenate(v) for v in outputs], is_input=False)
        where = np.arange(X.shape[1]) < np.array(counts)[:, None]
        where = np.broadcast_to(where[..., None], Y.shape)
        moments = self.predict_cells(X, Y, lengths, where)
        mean, variance = (rows.of(moment[:, :most]) for moment in moments)
        return mean, variance

    def impute(
        self, *, given: tuple[TensorType, TensorType] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return outputs with missing cells filled by predictive means, and predictive variances.

        :param given: ``(X, Y)`` to fill instead of the data of the fit.
        :return: [N, P] or [T, N, P] each; variances are zero where ``Y`` was observed, and both are
            NaN in rows that a task does not have.
        """
        table, rows = self._given(given)
        where = table.rows[..., None] & ~table.observed
        mean, variance = self.predict_cells(table.X, table.Y, table.lengths, where)
        filled, variance = np.where(where, mean, table.Y), np.where(where, variance, 0.0)
        return rows.of(filled), rows.of(variance)

    @check_shapes("X: [T, N, D]", "Y: [T, N, P]", "lengths: [T]", "where: [T, N, P]")
    def predict_cells(
        self, X: np.ndarray, Y: np.ndarray, lengths: np.ndarray, where: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances [T, N, P] of the cells in ``where``, noise included.

        Other cells are NaN.

        :param X, Y: inputs and outputs of tasks, NaN where missing.
        :param lengths: number of rows of each task; later ones are padding.
        :param where: True for cells to predict, which may be observed ones.
        """
        places = places_of_blocks(X, Y, lengths, self.cells_per_block, of_empty=True)
        found = [
            _moments(model, X, Y, lengths, where, places, self.progress) for model in self.models
        ]
        means, variances = (np.stack(part) for part in zip(*found, strict=True))
        return means.mean(0), variances.mean(0) + means.var(0)

    @check_shapes("X: [T, N, D]", "Y: [T, N, P]", "lengths: [T]", "where: [T, N, P]")
    def draw_residuals(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        lengths: np.ndarray,
        where: np.ndarray,
        rngs: Sequence[np.random.Generator],
    ) -> np.ndarray:
        """Draw standard normal numbers [S, T, N, P], correlated as the cells in ``where`` are.

        Given the observed cells, by one of the models, which is drawn; noise included. Cells of
        different blocks are independent of each other. Other cells are NaN.

        :param X, Y, lengths, where: as in :meth:`predict_cells`.
        :param rngs: of each of the S draws.
        """
        chosen = np.array([int(rng.integers(len(self.models))) for rng in rngs])
        found = np.full((len(rngs), *Y.shape), np.nan)
        for place in places_of_blocks(X, Y, lengths, self.cells_per_block, of_empty=True):
            if not where[place.task, place.leaf].any():
                continue
            (x, _, row, column, _, at, of), targets = block_at(X, Y, lengths, place, where)
            for part in np.array_split(np.arange(len(at)), -(-len(at) // _MOST_TOGETHER)):
                cells = targets[part]
                for k in np.unique(chosen):
                    covariance = self.models[k].predict_covariance(
                        x, row, column, at[part], of[part]
                    )
                    root = _root_of_correlation(covariance.numpy())
                    for s in np.flatnonzero(chosen == k):
                        drawn = root @ rngs[s].standard_normal(len(part))
                        found[s, place.task, cells[:, 0], cells[:, 1]] = drawn
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write models and data to one file, atomically."""
        arrays = self.to_arrays()
        if self.table is not None:
            arrays |= {name: getattr(self.table, name) for name in ("X", "Y", "lengths")}
        header = {"kind": KIND, "cells_per_block": self.cells_per_block}
        write_archive(path, header | {"parts": _parts_of(self.models[0])}, arrays)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], model: LinearCoregionalisation
    ) -> CoregionalisationPosterior:
        """Read a posterior that :meth:`save` wrote.

        :param model: built as for the fit; it is not changed.
        :raises ValueError: for a damaged file, or one of another model: other kernels, other
            columns that they read, or other numbers of outputs and channels.
        """
        arrays, header = read_arrays(path)
        check_parts(model, header["parts"], _parts_of(model))
        table = None
        if "X" in arrays:
            table = MultiOutputTable(arrays["X"], arrays["Y"], lengths=arrays["lengths"])
        cells = int(header.get("cells_per_block", cls.cells_per_block))
        models = models_of(arrays, lambda _: gpflow.utilities.deepcopy(model))
        return cls(models, cells, table)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the constrained parameters of all models by name."""
        return {
            f"models[{i}]{name}": np.asarray(parameter.numpy())
            for i, model in enumerate(self.models)
            for name, parameter in gpflow.utilities.parameter_dict(model).items()
        }

    def _given(
        self, given: tuple[TensorType, TensorType] | None
    ) -> tuple[MultiOutputTable, TaskRows]:
        """Return the data to condition on, and the tasks and rows of predictions of them."""
        table = self.table
        if given is not None:
            table = as_table(given, self.models[0].num_outputs)
            self.models[0].check_inputs(table.X[table.rows])
        if table is None:
            raise ValueError("This posterior does not have its data: pass given=(X, Y).")
        single = table.num_tasks == 1 and (given is None or np.ndim(given[0]) == 2)
        return table, TaskRows(not single, table.lengths.tolist())


@check_shapes("covariance: [M, M]", "return: [M, M]")
def _root_of_correlation(covariance: np.ndarray) -> np.ndarray:
    """A matrix R with R R^T equal to the correlations."""
    deviations = np.sqrt(np.maximum(np.diagonal(covariance), 1e-12))
    variances, directions = np.linalg.eigh(covariance / deviations[:, None] / deviations)
    root: np.ndarray = directions * np.sqrt(np.maximum(variances, 0.0))
    return root


def _parts_of(model: LinearCoregionalisation) -> dict[str, str]:
    """Describe the parts of a model other than parameter values."""
    return parts_of(model, model.parameters, transforms=False)


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read arrays and header of the file of a fit.

    :raises ValueError: for a damaged file, or one of another kind.
    """
    header, arrays = read_archive(path)
    if header.get("kind") != KIND:
        raise ValueError(f"{path} holds no linear model of coregionalisation.")
    return arrays, header


def models_of(
    arrays: Mapping[str, np.ndarray],
    build: Callable[[Mapping[str, np.ndarray]], LinearCoregionalisation],
) -> tuple[LinearCoregionalisation, ...]:
    """Build the models from the arrays of :meth:`CoregionalisationPosterior.to_arrays`.

    :param build: returns a model for parameter values by name, which are then assigned to it.
    :raises ValueError: for values of another model.
    """
    found: list[LinearCoregionalisation] = []
    while f"models[{len(found)}].decoder" in arrays:
        values = part_of(arrays, f"models[{len(found)}]")
        model = build(values)
        own = {k: tuple(v.shape) for k, v in gpflow.utilities.parameter_dict(model).items()}
        kept = {name: value.shape for name, value in values.items()}
        if own != kept:
            raise ValueError(
                f"The file is of another model: it holds {kept}, and the model has {own}. Build "
                "the model as it was built for the fit."
            )
        gpflow.utilities.multiple_assign(model, values)
        found.append(model)
    return tuple(found)


def _moments(
    model: LinearCoregionalisation,
    X: np.ndarray,
    Y: np.ndarray,
    lengths: np.ndarray,
    where: np.ndarray,
    places: list[Place],
    progress: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the predictive moments of one model, computed block by block."""
    mean, variance = np.full(Y.shape, np.nan), np.full(Y.shape, np.nan)

    def of_block(X, task, row, column, value, at, of):  # type: ignore[no-untyped-def]
        return model.predict(X, row, column, value, at, of, task)

    predict = compiled(of_block, input_signature=SIGNATURE)

    places = [place for place in places if where[place.task, place.leaf].any()]
    found = in_threads(lambda place: block_at(X, Y, lengths, place, where), [(p,) for p in places])
    groups = joined([block for block, _ in found])
    bar = "predict" if progress and len(groups) > _MANY_BLOCKS else None
    moments = in_threads(lambda block: predict(*block), [(block,) for block, _ in groups], bar)
    for (_, members), values in zip(groups, moments, strict=True):
        cells = [np.insert(found[i][1], 0, places[i].task, axis=1) for i in members]
        at = tuple(np.concatenate(cells).T)
        for array, moment in zip((mean, variance), values, strict=True):
            array[at] = moment.numpy()
    return mean, variance
