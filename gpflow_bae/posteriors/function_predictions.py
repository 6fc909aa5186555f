"""Predictions of the latent function with GPflow's names, averaged over posterior samples."""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import Any, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from ..data import as_inputs, as_pair, mask_missing
from ..data.memory import check_full_cov
from ..data.model_checks import check_support
from ..models import Autoencoder
from ..models.gpflow_interface import full_output_covariance
from .base import BankPosterior
from .conditionals import code_draws, function_draw, function_second_moments, log_density_of
from .given import check_new_inputs
from .predictions import LatentSamples
from .sample_loop import ALL, SampleLoop, blocks

__all__ = ["FunctionPredictions", "Given"]

Given: TypeAlias = tuple[TensorType | None, TensorType] | None


class FunctionPredictions(BankPosterior):
    """``predict_f``, ``predict_f_samples`` and ``predict_log_density``, as in GPflow's models.

    In addition, ``predict_cell_log_density`` scores held-out cells. f is the latent function of
    each code channel, a function of X. Results have no task axis if neither the data nor ``Xnew``
    have one.
    """

    model: Autoencoder
    data: Any

    @abstractmethod
    def _given(self, given: Given) -> tuple[tf.Tensor | None, tf.Tensor, tf.Tensor | None]:
        """Return the conditioning data: inputs, observations with zeros if missing, and mask."""

    @abstractmethod
    def _single(self, Xnew: TensorType | None, given: Given) -> bool:
        """Whether neither data nor ``Xnew`` have a task axis."""

    @abstractmethod
    def _latent_samples(
        self, Xnew: TensorType | None, given: Given, num_draws: int, seed: int, rows: slice
    ) -> LatentSamples:
        """Return conditionals of the codes for the samples ``rows``, with the task axis."""

    @abstractmethod
    def _latent_bytes(self, Xnew: TensorType | None, Y: TensorType) -> int:
        """Return the bytes of the conditionals of one sample."""

    @abstractmethod
    def _samples(self, given: Given, seed: int, rows: slice) -> tuple[Any, Any, Any, np.ndarray]:
        """Return parameters, encoders, sampled codes (or an empty list) and seeds of samples.

        Each is [S, ...], chain after chain.
        """

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
        if full_cov:
            channels = self.model.latent_dim if full_output_cov else 1
            mean, variance = self._full_cov(Xnew, given, num_draws, seed, channels)
        else:
            samples = self._latent_samples(Xnew, given, num_draws, seed, ALL)
            mean, variance = samples.moments()
        if full_output_cov:
            variance = full_output_covariance(tf.constant(variance), full_cov).numpy()
        return (mean[0], variance[0]) if self._single(Xnew, given) else (mean, variance)

    def _inputs(self, Xnew: TensorType | None, data: Any) -> tf.Tensor:
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
        loop = SampleLoop(functools.partial(function_second_moments, self.model))
        sums = loop.sum(self._samples(given, seed, ALL), data, at, zeros=zeros, num_draws=num_draws)
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
        count = 1 if num_samples is None else int(num_samples)
        data = self._given(given)
        at = self._inputs(Xnew, data)
        if full_cov:
            check_full_cov(data[1].shape[0], self.model.latent_dim, num_points=at.shape[-2])
        order = np.random.default_rng(seed).permutation(self.num_samples)
        chosen = np.resize(order, count)
        *parts, _ = self._samples(given, seed, ALL)
        parts = tf.nest.map_structure(lambda v: v[chosen], parts)
        seeds = np.array([[seed, i] for i in range(count)], np.int32)
        loop = SampleLoop(functools.partial(function_draw, self.model))
        draws = loop.map(
            (*parts, seeds),
            data,
            at,
            dtypes=gpflow.default_float(),
            result_bytes=8 * int(data[1].shape[0]) * int(at.shape[-2]) * self.model.latent_dim,
            num_draws=num_draws,
            full_cov=full_cov,
        )
        draws = draws[:, 0] if self._single(Xnew, given) else draws
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
        parameters, encoder, known, seeds = self._samples(None, seed, ALL)
        if known:
            codes = np.asarray(known[0][np.arange(self.num_samples)])
            codes = codes if rows is None else codes[:, :, np.asarray(rows)]
            found = np.repeat(codes[:, None], num_codes, 1)
        else:
            count = data[1].shape[-2] if rows is None else len(rows)
            width = num_codes * int(data[1].shape[0]) * int(count) * self.model.latent_dim
            loop = SampleLoop(functools.partial(code_draws, self.model))
            found = loop.map(
                (parameters, encoder, seeds),
                data,
                None if rows is None else tf.constant(rows, tf.int32),
                dtypes=gpflow.default_float(),
                result_bytes=8 * width,
                num_draws=num_draws,
                num_codes=num_codes,
            )
        return found[:, :, 0] if self._single(None, None) else found

    @check_arguments(num_draws=1)
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
        density, _ = self._log_density(data, given, num_draws, num_codes, seed, of_cells=False)
        return density

    @check_arguments(num_draws=1)
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
        density, seen = self._log_density(data, given, num_draws, num_codes, seed, of_cells=True)
        return np.where(seen, density, np.nan)

    def _num_codes(self, asked: int | None, least: int, in_all: int) -> int:
        """Return the number of code draws per sample: the given one, or a default.

        :raises ValueError: for fewer than one.
        """
        if asked is None:
            return max(least, -(-in_all // self.num_samples))
        if asked < 1:
            raise ValueError(f"num_codes must be at least 1, got {asked}.")
        return int(asked)

    def _log_density(
        self,
        data: tuple[TensorType | None, TensorType],
        given: Given,
        num_draws: int,
        num_codes: int | None,
        seed: int,
        of_cells: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return log densities of rows or cells, and the mask of observed cells."""
        num_codes = self._num_codes(num_codes, 16, 256)
        Xnew, Ynew = as_pair(data)
        Ynew = as_numbers(Ynew, "Ynew", np.float32)
        single = self._single(Xnew, given)
        X, Y, _ = self._given(given)
        if Xnew is not None:
            X = as_inputs(Xnew, self.data.X, "Xnew", self.model.inputs)
        values, seen = mask_missing(Ynew[None] if Ynew.ndim == 2 else Ynew, "Ynew")
        check_support(self.model, values, seen, "Ynew")
        loop = SampleLoop(functools.partial(log_density_of, self.model))
        total: Any = None
        for rows in blocks(self.num_samples, self._latent_bytes(Xnew, Y)):
            latents = self._latent_samples(Xnew, given, num_draws, seed, rows)
            if total is None:
                expected = (*latents.mean.shape[1:3], self.data.num_outputs)
                if values.shape != expected:
                    raise ValueError(
                        f"Ynew must have shape {expected[1:] if single else expected} to go with "
                        f"Xnew and the data, got {Ynew.shape}."
                    )
                shape = expected if of_cells else expected[:-1]
                total = np.full(shape, -np.inf, gpflow.default_float())
            parameters, encoder, _, seeds = self._samples(given, seed + 1, rows)
            total = loop.log_sum_exp(
                (parameters, encoder, tuple(latents), seeds),
                X,
                tf.constant(values),
                tf.constant(seen),
                start=total,
                num_codes=num_codes,
                add_code_noise=Xnew is not None,
                of_cells=of_cells,
            )
        density = total - np.log(self.num_samples)
        return (density[0], seen[0]) if single else (density, seen)
