"""Posterior of an autoencoder: predictions that average over a bank of samples."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from ..data import as_inputs, as_pair, mask_missing
from ..data.model_checks import check_support
from ..data.unequal_tasks import check_same_lengths, rows_of
from .conditionals import decode_draws, encoder_draws, log_density_of
from .function_predictions import FunctionPredictions
from .given import Given
from .predictions import Prediction
from .sample_loop import ALL

__all__ = ["Posterior"]


class Posterior(FunctionPredictions):
    """Joint posterior samples of decoder, latent prior and encoder, and their predictions.

    Predictions average over all C S samples, ordered chain after chain. The latent space has
    symmetries (rotations, for channels that share a kernel) by which chains may differ; averages of
    codes over chains are then meaningless, so compare chains by predicted observations.
    """

    @check_arguments(num_draws=1, num_codes=1)
    def predict(
        self,
        Xnew: TensorType | None = None,
        given: Given = None,
        *,
        num_draws: int = 16,
        num_codes: int | None = None,
        seed: int = 0,
    ) -> Prediction:
        """Predict observations [T, N, P], with separate noise and epistemic variances.

        ``predict()`` predicts the rows of the data, including missing cells of partly observed
        rows, by each row's own code. ``predict(Xnew)`` predicts new rows, whose code is the latent
        function there (:meth:`predict_latent`) plus code noise, as in the model's joint density; at
        an input of the data it predicts another row. Rows of the data without observations are
        treated as new, so both agree there.

        :param Xnew: inputs [T or 1, N, D] (or [N, D], or a list of [N_t, D]) of new rows; None for
            the rows of ``given``, or of the data.
        :param num_codes: draws of the codes from each sample's conditional, in antithetic pairs;
            by default four, or enough for 128 over all samples.
        """
        num_codes = self._num_codes(num_codes, 4, 128)
        Xnew, rows = self._rows(Xnew, given)
        X = self._decoder_inputs(Xnew, given)
        sums: tuple[Any, ...] | None = None
        for samples in self._blocks_of_codes(Xnew, given, num_draws, seed):
            if sums is None:
                shape = [*samples[2][0].shape[1:3], self.data.num_outputs]
                sums = tuple(np.zeros(shape, gpflow.default_float()) for _ in range(3))
            sums = self._loop(decode_draws).sum(
                samples,
                X,
                zeros=sums,
                num_codes=num_codes,
                add_code_noise=Xnew is not None,
            )
        assert sums is not None
        mean, mean_square, noise = (total / self.num_samples for total in sums)
        found = Prediction(mean, noise, np.maximum(mean_square - np.square(mean), 0.0))
        return Prediction(*map(rows.of, found))

    def predict_y(
        self,
        Xnew: TensorType | None = None,
        given: Given = None,
        **kwargs: Any,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the predictive mean and variance [T, N, P] of observations; see :meth:`predict`.

        The variance includes noise.
        """
        prediction = self.predict(Xnew, given, **kwargs)
        return prediction.mean, prediction.variance

    def reconstruct(self, Y: TensorType, X: TensorType | None = None, **kwargs: Any) -> Prediction:
        """Encode ``Y`` (NaN where missing), condition the prior on its codes, and decode."""
        return self.predict(None, (X, Y), **kwargs)

    def impute(
        self, Y: TensorType, X: TensorType | None = None, **kwargs: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ``Y`` with NaN filled by predictive means, and standard deviations (else 0).

        :param Y, X: arrays, or lists of tasks of unequal lengths; both results are then padded with
            NaN.
        """
        prediction = self.reconstruct(Y, X, **kwargs)
        Y = as_numbers(as_pair((X, Y))[1], "Y")
        missing = np.isnan(Y)
        filled = np.where(missing, prediction.mean, Y)
        return filled, np.where(missing, np.sqrt(prediction.variance), 0.0)

    @check_arguments(num_draws=1)
    def encode(self, Y: TensorType, *, num_draws: int = 16, seed: int = 0) -> np.ndarray:
        """Draw codes [S, num_draws, T, N, L] from the encoders, without the prior."""
        rows = rows_of(Y)
        _, Y, mask = self._given((self.X, as_pair((None, Y))[1]), needs_inputs=False)
        count = num_draws * int(np.prod(Y.shape[:-1])) * self.model.latent_dim
        parameters, encoder, _, seeds = self._samples((self.X, Y), seed, ALL)
        draws = self._loop(encoder_draws).map(
            (parameters, encoder, seeds),
            Y,
            mask,
            dtypes=gpflow.default_float(),
            result_bytes=8 * count,
            num_draws=num_draws,
        )
        return rows.of(draws)

    @check_arguments(num_draws=1, num_codes=1)
    def predict_log_density(
        self,
        data: tuple[TensorType | None, TensorType],
        *,
        given: Given = None,
        num_draws: int = 16,
        num_codes: int | None = None,
        seed: int = 0,
    ) -> np.ndarray:
        """Return the log predictive density [T, N'] of each row of new observations, in nats.

        The density is joint over the outputs of a row, averaged over posterior samples and codes.

        :param data: ``(Xnew, Ynew)`` of new rows, as in ``predict(Xnew)``; or ``(None, Ynew)``
            with held-out cells of the rows of the data, as in ``predict()``. Ynew [T, N', P] or
            [N', P] is NaN where missing.
        :param num_codes: draws of the codes for each posterior sample; by default 16, or enough
            for 256 over all samples.
        :raises ValueError: for shapes that do not fit the model or each other.
        """
        return self._log_density(data, given, num_draws, num_codes, seed, of_cells=False)

    @check_arguments(num_draws=1, num_codes=1)
    def predict_cell_log_density(
        self,
        data: tuple[TensorType | None, TensorType],
        *,
        given: Given = None,
        num_draws: int = 16,
        num_codes: int | None = None,
        seed: int = 0,
    ) -> np.ndarray:
        """Return the log predictive density [T, N', P] of each cell of observations, in nats.

        The log of p(y | f) averaged over posterior samples and draws of the codes: the density of
        the predictive mixture, not of a Gaussian with its moments. To score held-out cells of the
        data pass ``(None, Yhidden)`` with NaN elsewhere; ``(X, Yhidden)`` scores predictions of
        other rows at their inputs. Arguments as in :meth:`predict_log_density`.

        :return: NaN where Ynew is missing. It is biased downwards, as the log of a Monte Carlo
            average; the bias shrinks with more draws.
        :raises ValueError: for shapes that do not fit the model or each other.
        """
        return self._log_density(data, given, num_draws, num_codes, seed, of_cells=True)

    def _log_density(
        self,
        data: tuple[TensorType | None, TensorType],
        given: Given,
        num_draws: int,
        num_codes: int | None,
        seed: int,
        of_cells: bool,
    ) -> np.ndarray:
        """Return log densities of rows or cells; NaN for cells that are missing."""
        num_codes = self._num_codes(num_codes, 16, 256)
        Xnew, Ynew = as_pair(data)
        Ynew = as_numbers(Ynew, "Ynew", np.float32)
        _, rows = self._rows(data[0], given)
        check_same_lengths(data, rows)
        X = self._decoder_inputs(Xnew, given)
        values, seen = mask_missing(Ynew[None] if Ynew.ndim == 2 else Ynew, "Ynew")
        check_support(self.model, values, seen, "Ynew")
        total: Any = None
        for samples in self._blocks_of_codes(Xnew, given, num_draws, seed):
            if total is None:
                expected = (*samples[2][0].shape[1:3], self.data.num_outputs)
                if values.shape != expected:
                    raise ValueError(
                        f"Ynew must have shape {expected[not rows.has_tasks :]} to go with Xnew "
                        f"and the data, got {Ynew.shape}."
                    )
                shape = expected if of_cells else expected[:-1]
                total = np.full(shape, -np.inf, gpflow.default_float())
            total = self._loop(log_density_of).log_sum_exp(
                samples,
                X,
                tf.constant(values),
                tf.constant(seen),
                start=total,
                num_codes=num_codes,
                add_code_noise=Xnew is not None,
                of_cells=of_cells,
            )
        density = total - np.log(self.num_samples)
        if of_cells:
            return rows.of(np.where(seen, density, np.nan))
        return rows.of(density, -1)

    def _decoder_inputs(self, Xnew: TensorType | None, given: Given) -> tf.Tensor | None:
        """Return the inputs of the rows to predict: ``Xnew``, or those of the data."""
        if Xnew is None:
            return self._given(given)[0]
        return as_inputs(Xnew, self.data.X, "Xnew", self.model.inputs)

    def _num_codes(self, asked: int | None, least: int, in_all: int) -> int:
        """Return the number of code draws per sample: the given one, or a default."""
        return max(least, -(-in_all // self.num_samples)) if asked is None else asked
