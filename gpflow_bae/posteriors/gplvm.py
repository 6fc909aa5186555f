"""Codes of the rows of a table under a GPLVM, and predictions of its cells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..core.arguments import as_numbers
from ..core.tracing import compiled
from ..data import SparseTable, prepare_data
from ..data.model_checks import check_support
from ..guides import BoundGuide
from ..likelihoods import entrywise
from .fitted import FittedModel

__all__ = ["GPLVMPosterior"]

_CHUNK = 4096  # number of cells that one call predicts


class GPLVMPosterior(FittedModel):
    """A fitted GPLVM with codes of the rows of the fit, or of new rows.

    ``gpflow_bae.inference.latents_for_new(model, Ynew)`` returns one for new rows.
    """

    def __init__(self, model: Any, data: Any, guide: BoundGuide | None = None):
        """
        :param model: a fitted :class:`~gpflow_bae.models.StochasticGPLVM`.
        :param data: the rows, as returned by :func:`gpflow_bae.data.prepare_data`.
        :param guide: q of the codes of these rows; by default the model's guide.
        """
        super().__init__(model)
        self.data = data
        self.guide = model.guide if guide is None else guide
        self._moments = compiled(self._cell_moments)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without compiled functions, which cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name != "_moments"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._moments = compiled(self._cell_moments)

    @property
    def num_rows(self) -> int:
        """Number of rows N."""
        return int(self.data.num_items)

    def _draw(self, rows: tf.Tensor | None, num_draws: int, seed: TensorType) -> tf.Tensor:
        batch = self.data.gather(rows)
        return self.guide.draw(self.model.latent_prior, batch, num_draws, seed).latents[:, 0]

    def sample(self, num_draws: int = 1, seed: int = 0) -> np.ndarray:
        """Draw the codes of all rows [S, N, L]."""
        return self._draw(None, num_draws, tf.constant([seed, 0x6B], tf.int32)).numpy()

    def moments(self, num_draws: int = 100, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances [N, L] of the codes, estimated from draws."""
        draws = self.sample(num_draws, seed)
        return draws.mean(0), draws.var(0)

    def _cell_moments(
        self,
        rows: tf.Tensor,
        row_of: tf.Tensor,
        columns: tf.Tensor,
        num_draws: int,
        seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return means and variances [S, K] of f at the cells (rows[row_of], columns)."""
        # Once for each row: its cells share draws, and features are the most expensive part.
        decoder, latents = self.model.decoder, self._draw(rows, num_draws, seed)
        of_cells = (tf.gather(v, row_of, axis=1) for v in (latents, *decoder.features(latents)))
        mean, variance = decoder.moments_of_features(*of_cells, columns[:, None])
        return mean[..., 0], variance[..., 0]

    def _chunks(
        self, rows: TensorType, columns: TensorType, num_draws: int, seed: int
    ) -> Iterator[tuple[slice, tf.Tensor, tf.Tensor]]:
        rows, columns = np.asarray(rows), np.asarray(columns)
        for name, index, size in (
            ("rows", rows, self.num_rows),
            ("columns", columns, self.model.decoder.output_dim),
        ):
            if not np.issubdtype(index.dtype, np.integer) or (
                index.size and (index.min() < 0 or index.max() >= size)
            ):
                raise ValueError(f"{name} must be integers from 0 to {size - 1}, got {index}.")
        base = tf.constant([seed, 0x6C], tf.int32)
        for start in range(0, len(rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            chunk_seed = tf.random.fold_in(base, start, alg="philox")
            distinct, row_of = np.unique(rows[part], return_inverse=True)
            # Padded to a multiple of 64, so that few shapes are traced.
            distinct = np.pad(distinct, (0, -len(distinct) % 64), mode="edge")
            indices = (tf.constant(v, tf.int32) for v in (distinct, row_of, columns[part]))
            yield part, *self._moments(*indices, num_draws, chunk_seed)

    @check_shapes("rows: [K]", "columns: [K]", "return[0]: [K]", "return[1]: [K]")
    def predict_y(
        self, rows: TensorType, columns: TensorType, num_draws: int = 20, seed: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return predictive means and variances [K] of cells (row, column), noise included.

        They are moments of the mixture over draws of the codes.

        :raises ValueError: for an index out of range.
        """
        mean, variance = np.empty(len(rows)), np.empty(len(rows))
        for part, f_mean, f_variance in self._chunks(rows, columns, num_draws, seed):
            y_mean, y_variance = entrywise(
                self.model.likelihood,
                "predict_mean_and_var",
                f_mean,
                f_variance,
                columns=columns[part],
            )
            mean[part] = tf.reduce_mean(y_mean, 0)
            spread = tf.math.reduce_variance(y_mean, 0)
            variance[part] = tf.reduce_mean(y_variance, 0) + spread
        return mean, variance

    @check_shapes("rows: [K]", "columns: [K]", "values: [K]", "return: [K]")
    def predict_log_density(
        self,
        rows: TensorType,
        columns: TensorType,
        values: TensorType,
        num_draws: int = 20,
        seed: int = 0,
    ) -> np.ndarray:
        r"""Return log E_{x ~ q}[p(y | x)] [K] of held-out cells, in nats.

        Lalchand et al. (2021), appendix A.6. The log of a Monte Carlo average is biased downwards;
        the bias shrinks with more draws.

        :raises ValueError: for an index out of range.
        """
        values = as_numbers(values, "values")
        check_support(self.model, values, name="values", columns=np.asarray(columns))
        result = np.empty(len(values))
        for part, f_mean, f_variance in self._chunks(rows, columns, num_draws, seed):
            y = tf.constant(values[part], f_mean.dtype)
            density = entrywise(
                self.model.likelihood,
                "predict_log_density",
                f_mean,
                f_variance,
                y,
                columns=columns[part],
            )
            result[part] = tf.reduce_logsumexp(density, 0) - math.log(num_draws)
        return result

    def impute(self, num_draws: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the table [N, P] with missing cells filled, and standard deviations (else 0).

        :raises ValueError: for triplets, whose table would be dense; predict cells instead.
        """
        if not hasattr(self.data, "to_numpy"):
            raise ValueError(
                "impute fills complete tables; of a SparseTable use predict_y(rows, columns)."
            )
        Y = np.asarray(self.data.to_numpy()[1][0], dtype=np.float64)
        rows, columns = np.nonzero(np.isnan(Y))
        deviations = np.zeros(Y.shape)
        mean, variance = self.predict_y(rows, columns, num_draws, seed)
        Y[rows, columns], deviations[rows, columns] = mean, np.sqrt(variance)
        return Y, deviations

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the rows as a table or as triplets."""
        if self.guide is not self.model.guide:
            raise ValueError(
                "save keeps a fitted model with the rows of its fit; codes of other rows are made "
                "again by gpflow_bae.inference.latents_for_new."
            )
        if isinstance(self.data, SparseTable):
            arrays = self.data.triplets() | {"max_entries": np.array(self.data.max_entries)}
        else:
            arrays = {"Y": self.data.to_numpy()[1]}
        return {"shape": np.array([self.num_rows, self.model.decoder.output_dim]), **arrays}

    @classmethod
    def _restored(cls, model: Any, arrays: dict[str, np.ndarray]) -> GPLVMPosterior:
        if "Y" in arrays:
            return cls(model, prepare_data(model, (None, arrays["Y"])))
        num_rows, num_columns = map(int, arrays["shape"])
        table = SparseTable(
            arrays["rows"],
            arrays["columns"],
            arrays["values"],
            num_rows,
            num_columns,
            max_entries=int(arrays["max_entries"]),
        )
        return cls(model, prepare_data(model, table))
