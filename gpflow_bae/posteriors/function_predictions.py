"""GPflow's predictions of a function, for posteriors that average over samples."""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import Any, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..core.arguments import as_numbers, check_arguments
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

    Beside them ``predict_cell_log_density``, by which held-out cells are scored.

    f is the latent function of each code channel, whose inputs are X. Results have no axis of tasks
    where neither the data nor ``Xnew`` have one.
    """

    model: Autoencoder
    data: Any

    @abstractmethod
    def _given(self, given: Given) -> tuple[tf.Tensor | None, tf.Tensor, tf.Tensor | None]:
        """What is conditioned on: inputs, observations with zeros where missing, and the mask."""

    @abstractmethod
    def _single(self, Xnew: TensorType | None, given: Given) -> bool:
        """Whether neither data nor ``Xnew`` have an axis of tasks."""

    @abstractmethod
    def _latent_samples(
        self, Xnew: TensorType | None, given: Given, num_draws: int, seed: int, rows: slice
    ) -> LatentSamples:
        """Conditionals of the codes for each of these samples, with the axis of tasks."""

    @abstractmethod
    def _latent_bytes(self, Xnew: TensorType | None, Y: TensorType) -> int:
        """Of the conditionals under one sample."""

    @abstractmethod
    def _samples(self, given: Given, seed: int, rows: slice) -> tuple[Any, Any, Any, np.ndarray]:
        """Parameters, encoders, known codes (an empty list if none) and seeds of these samples.

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
        """Posterior mean and variance of the latent function at ``Xnew``.

        :param Xnew: inputs [N', D] or [T or 1, N', D]; None for those of ``given``.
        :param full_cov: covariances between points.
        :param full_output_cov: and between channels, whose conditionals are independent; their
            means are not, over the samples, and that part is left out.
        :param given: ``(X, Y)`` to condition on instead of the training data.
        :param num_draws: draws of a stochastic encoder for each point.
        :return: mean [T, N', L] and variance [T, N', L], or covariance [T, L, N', N'] between
            points, [T, N', L, L] between channels, [T, N', L, N', L] of both.
        :raises ValueError: for inputs of another width than in training, and more points with
            ``full_cov`` than memory has room for.
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
        """Where a function is asked for: new inputs, or those of what is conditioned on."""
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
        """
        :param channels: with which each has a covariance.
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
        """Draws of the latent function, [num_samples, T, N', L]; without a number one, [T, N', L].

        Each is a draw under one posterior sample, taken in turn. Arguments as in :meth:`predict_f`.

        :param full_cov: whether a draw is a function, or independent at each point.
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
        """Draws of the codes of the training data, [S, num_codes, T, n, L], for each sample apart.

        Codes that were sampled with the parameters are repeated as they are. Else draws are those
        of :meth:`~gpflow_bae.latent_priors.LatentProcess.draw_codes`: of a
        :class:`~gpflow_bae.latent_priors.TitsiasGP` jointly over points, which averages over
        points want; of most priors from the marginals.

        :param rows: which points [n]; None for all.
        :param num_codes: draws for each posterior sample.
        :param num_draws: of a stochastic encoder for each point.
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
        """Log predictive density of each row of new observations, in nats: [T, N'].

        The outputs of a row are taken together, rows apart; averaged over samples and codes.

        :param data: ``(Xnew, Ynew)`` of new rows, as ``predict(Xnew)`` has them; or
            ``(None, Ynew)`` of the rows of the data themselves, as ``predict()`` has them: for
            cells of them that were hidden from the fit. Ynew [T, N', P] or [N', P] is NaN where
            missing.
        :param num_codes: draws of the codes for each posterior sample; by default 16, or as many
            as make 256 of all samples.
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
        """Log predictive density of each cell of new observations, in nats: [T, N', P].

        Of each output of each row apart, log of the mean over posterior samples and draws of the
        codes of p(y | f): the density of the mixture that the prediction is, not of a Gaussian with
        its moments. To score cells that were hidden in the data pass ``(None, Yhidden)`` with NaN
        at the others; ``(X, Yhidden)`` scores the prediction of other rows at their inputs.
        Arguments as in :meth:`predict_log_density`.

        :return: NaN where Ynew is missing. An estimate of a logarithm, so below the truth on
            average, by less with more draws.
        :raises ValueError: for shapes that do not fit the model or each other.
        """
        density, seen = self._log_density(data, given, num_draws, num_codes, seed, of_cells=True)
        return np.where(seen, density, np.nan)

    def _num_codes(self, asked: int | None, least: int, in_all: int) -> int:
        """Draws of the codes for each sample: those that were asked for, or enough of all samples.

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
        """Of rows or of cells, and which cells were observed."""
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
