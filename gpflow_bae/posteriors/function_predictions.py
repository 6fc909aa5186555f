"""Predictions of the latent function and of codes, averaged over posterior samples."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..data.memory import check_full_cov
from ..models.gpflow_interface import covariance_rows, full_output_covariance
from .autoencoder_samples import AutoencoderSamples
from .conditionals import code_draws, function_draw, function_second_moments, mean_draw
from .given import Data, Given, check_new_inputs
from .predictions import LatentSamples
from .sample_loop import ALL

__all__ = ["FunctionPredictions"]


class FunctionPredictions(AutoencoderSamples):
    """Codes, and the latent function of each code channel, a function of X, as GPflow names them.

    Results have no task axis if neither the data nor ``Xnew`` have one. Tasks of unequal lengths
    are lists of arrays, as ``Xnew``, in ``given`` and as data of the fit; results then have the
    rows of the longest task, and NaN in rows that another task does not have.
    """

    @check_arguments(num_draws=1)
    def latent_samples(
        self,
        Xnew: TensorType | None = None,
        given: Given = None,
        *,
        num_draws: int = 16,
        seed: int = 0,
    ) -> LatentSamples:
        """Return the latent function at ``Xnew`` for each posterior sample, [S, T, N, L].

        As in all methods, the axis T is dropped if neither the data (``given``, or the training
        data) nor ``Xnew`` have one.

        The prior is conditioned on codes. Sampled codes of the training data are used as they are,
        except for rows without observations, whose codes are predicted like those of new rows. For
        other data the encoder's draws give Gaussian pseudo-observations of the codes;
        docs/inference.md describes the error of this approximation.

        :param Xnew: inputs [T or 1, N, D] (or [N, D], or a list of [N_t, D]); None for the codes of
            ``given``.
        :param given: ``(X, Y)`` to encode and condition on, Y with NaN where missing; None for the
            training data, without the encoder if their codes were sampled.
        :param num_draws: draws of a stochastic encoder for each point.
        :param seed: seed of those draws.
        """
        Xnew, rows = self._rows(Xnew, given)
        found = self._latent_samples(Xnew, given, num_draws, seed, ALL)
        return LatentSamples(*map(rows.of, found))

    @check_arguments(num_draws=1)
    def predict_latent(
        self,
        Xnew: TensorType | None = None,
        given: Given = None,
        *,
        num_draws: int = 16,
        seed: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean and variance of the latent function, [T, N, L].

        Arguments as in :meth:`latent_samples`.
        """
        return self.latent_samples(Xnew, given, num_draws=num_draws, seed=seed).moments()

    @check_arguments(num_draws=1)
    def predict_f(
        self,
        Xnew: TensorType | None,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        given: Given = None,
        num_draws: int = 16,
        seed: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean and variance of the latent function at ``Xnew``.

        :param Xnew: inputs [N', D] or [T or 1, N', D]; None for those of ``given``.
        :param full_cov: return covariances between points.
        :param full_output_cov: return covariances between channels. Conditionals of channels are
            independent; the covariance of their means over samples is left out.
        :param given: ``(X, Y)`` to condition on instead of the training data.
        :param num_draws: draws of a stochastic encoder for each point.
        :return: mean [T, N', L] and variance [T, N', L], or covariance [T, L, N', N'] between
            points, [T, N', L, L] between channels, [T, N', L, N', L] of both.
        :raises ValueError: for inputs of another width than in training, and for ``full_cov`` of
            more points than fit memory.
        :raises NotImplementedError: for ``full_cov`` of a prior without covariances.
        """
        Xnew, rows = self._rows(Xnew, given)
        if full_cov:
            channels = self.model.latent_dim if full_output_cov else 1
            mean, variance = self._full_cov(Xnew, given, num_draws, seed, channels)
        else:
            samples = self._latent_samples(Xnew, given, num_draws, seed, ALL)
            mean, variance = samples.moments()
        if full_output_cov:
            variance = full_output_covariance(tf.constant(variance), full_cov).numpy()
        axes = covariance_rows(full_cov, full_output_cov)
        return rows.of(mean), rows.of(variance, *axes, tasks=0)

    def _inputs(self, Xnew: TensorType | None, data: Data) -> tf.Tensor:
        """Return the inputs to predict at: ``Xnew``, or those of the conditioning data."""
        if Xnew is not None:
            return check_new_inputs(self.model, Xnew, self.data.X, data)
        if data[0] is None:
            raise ValueError(
                f"{self.model.latent_prior_name} is a prior without inputs, whose codes are no "
                "function of anything: use predict_latent, or pass Xnew."
            )
        return data[0]

    def _full_cov(
        self, Xnew: TensorType | None, given: Given, num_draws: int, seed: int, channels: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the covariance between points of the latent function.

        :param channels: L with ``full_output_cov``, else 1; for the estimate of memory.
        """
        data = self._given(given)
        at = self._inputs(Xnew, data)
        tasks, points, width = data[1].shape[0], at.shape[-2], self.model.latent_dim
        check_full_cov(tasks, width, channels, num_points=points)
        zeros = tuple(
            np.zeros(shape, gpflow.default_float())
            for shape in ((tasks, points, width), (tasks, width, points, points))
        )
        samples = self._samples(given, seed, ALL)
        loop = self._loop(function_second_moments)
        sums = loop.sum(samples, data, at, zeros=zeros, num_draws=num_draws)
        mean, second = (total / self.num_samples for total in sums)
        outer = np.einsum("tnl,tml->tlnm", mean, mean)
        return mean, second - outer

    @check_arguments(num_draws=1, num_samples=1)
    def predict_f_samples(
        self,
        Xnew: TensorType | None,
        num_samples: int | None = None,
        full_cov: bool = True,
        *,
        given: Given = None,
        num_draws: int = 16,
        seed: int = 0,
    ) -> np.ndarray:
        """Draw the latent function [num_samples, T, N', L]; [T, N', L] without ``num_samples``.

        Draws cycle through the posterior samples. Arguments as in :meth:`predict_f`.

        :param full_cov: whether points are drawn jointly, or independently.
        """
        width = self.model.latent_dim
        return self._draws(
            function_draw, width, Xnew, num_samples, full_cov, given, num_draws, seed
        )

    @check_arguments(num_draws=1, num_samples=1)
    def predict_mean_samples(
        self,
        Xnew: TensorType | None,
        num_samples: int | None = None,
        full_cov: bool = True,
        *,
        given: Given = None,
        num_draws: int = 16,
        seed: int = 0,
    ) -> np.ndarray:
        """Draw the observations of new rows without their noise, [num_samples, T, N', P].

        These are the means of the likelihood given a draw of the latent function, with code noise,
        and the decoder of the same posterior sample. Arguments as in :meth:`predict_f_samples`.
        """
        width = self.data.num_outputs
        return self._draws(mean_draw, width, Xnew, num_samples, full_cov, given, num_draws, seed)

    def _draws(
        self,
        function: Callable[..., tf.Tensor],
        width: int,
        Xnew: TensorType | None,
        num_samples: int | None,
        full_cov: bool,
        given: Given,
        num_draws: int,
        seed: int,
    ) -> np.ndarray:
        """Return draws of a function of :mod:`~gpflow_bae.posteriors.conditionals`.

        :param width: size of the last axis of a draw.
        """
        count = 1 if num_samples is None else int(num_samples)
        Xnew, rows = self._rows(Xnew, given)
        data = self._given(given)
        at = self._inputs(Xnew, data)
        if full_cov:
            check_full_cov(data[1].shape[0], self.model.latent_dim, num_points=at.shape[-2])
        order = np.random.default_rng(seed).permutation(self.num_samples)
        chosen = np.resize(order, count)
        *parts, _ = self._samples(given, seed, ALL)
        parts = tf.nest.map_structure(lambda v: v[chosen], parts)
        seeds = np.array([[seed, i] for i in range(count)], np.int32)
        draws = self._loop(function).map(
            (*parts, seeds),
            data,
            at,
            dtypes=gpflow.default_float(),
            result_bytes=self._latent_bytes(at, data[1]) * width // self.model.latent_dim,
            num_draws=num_draws,
            full_cov=full_cov,
        )
        draws = rows.of(draws)
        return draws[0] if num_samples is None else draws

    @check_arguments(num_draws=1, num_codes=1)
    def code_samples(
        self,
        rows: TensorType | None = None,
        num_codes: int = 1,
        *,
        num_draws: int = 16,
        seed: int = 0,
    ) -> np.ndarray:
        """Draw codes [S, num_codes, T, n, L] of the training data for each posterior sample.

        Sampled codes are repeated. Otherwise draws are those of
        :meth:`~gpflow_bae.latent_priors.LatentProcess.draw_codes`: joint over points for a
        :class:`~gpflow_bae.latent_priors.TitsiasGP`, as averages over points need them; from the
        marginals for most priors.

        :param rows: indices of points [n]; None for all.
        :param num_codes: number of draws for each posterior sample.
        :param num_draws: draws of a stochastic encoder for each point.
        """
        data = self._given(None)
        samples = self._samples(None, seed, ALL)
        if self.latents is not None:
            codes = np.asarray(samples[2][0][np.arange(self.num_samples)])
            codes = codes if rows is None else codes[:, :, np.asarray(rows)]
            found = np.repeat(codes[:, None], num_codes, 1)
        else:
            count = data[1].shape[-2] if rows is None else len(rows)
            width = num_codes * int(data[1].shape[0]) * int(count) * self.model.latent_dim
            found = self._loop(code_draws).map(
                samples,
                data,
                None if rows is None else tf.constant(rows, tf.int32),
                dtypes=gpflow.default_float(),
                result_bytes=8 * width,
                num_draws=num_draws,
                num_codes=num_codes,
            )
        return self.data.rows.of(found, points=rows)
