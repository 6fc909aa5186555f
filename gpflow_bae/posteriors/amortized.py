"""Posterior of an autoencoder: predictions that average over a bank of samples."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers, check_integer
from ..data import Observations, as_inputs, as_pair, in_memory, prepare_data
from ..data.compressed_rows import from_arrays, rows_seen, to_arrays
from ..models import Autoencoder
from .conditionals import (
    decode_draws,
    encoder_draws,
    hidden_codes,
    latent_given_codes,
    latent_given_pseudo,
)
from .function_predictions import FunctionPredictions, Given
from .given import check_given, check_new_inputs
from .predictions import LatentSamples, Prediction
from .sample_loop import ALL, SampleLoop, blocks, chain_after_chain
from .stored.bank import Bank
from .stored.lists import HISTORY, bank_of_lists

__all__ = ["Posterior"]

_EQUAL_SAMPLES = 16  # for a fit with drawn inputs: estimates their part of variances within a third


class Posterior(FunctionPredictions):
    """Joint posterior samples of decoder, latent prior and encoder, and their predictions.

    Predictions average over all C S samples, ordered chain after chain. The latent space has
    symmetries (rotations, for channels that share a kernel) by which chains may differ; averages of
    codes over chains are then meaningless, so compare chains by predicted observations.
    """

    def __init__(self, model: Autoencoder, bank: Bank, data: Any):
        """
        :param bank: the samples, a :class:`~gpflow_bae.posteriors.Bank`.
        :param data: training data, which predictions condition on by default:
            :class:`~gpflow_bae.data.Observations`, or ``(X, Y)`` with NaN where missing. Ten
            thousand random points are kept of a :class:`~gpflow_bae.data.StreamedObservations`.
        :raises ValueError: if ``bank`` holds samples of another model, or codes of other data.
        """
        super().__init__(model, bank)
        data = prepare_data(model, data)
        self.num_points = data.num_points  # number of points of the fit
        self.data = data if isinstance(data, Observations) else in_memory(data)
        points = tuple(self.data.Y.shape[:2])
        if bank.latents is not None and bank.latents.shape[2:4] != points:
            raise ValueError(
                f"bank has codes of {bank.latents.shape[2:4]} tasks and points, data has {points}; "
                "pass the data that the codes were sampled for."
            )
        self._latent = SampleLoop(functools.partial(latent_given_pseudo, model))
        self._from_codes = SampleLoop(functools.partial(latent_given_codes, model))
        self._hidden = SampleLoop(functools.partial(hidden_codes, model))
        self._decode = SampleLoop(functools.partial(decode_draws, model))
        self._draw = SampleLoop(functools.partial(encoder_draws, model))

    @classmethod
    def from_arrays(
        cls,
        model: Autoencoder,
        data: Observations,
        parameters: Sequence[np.ndarray],
        encoder: Sequence[np.ndarray],
        latents: np.ndarray | None = None,
        **kwargs: Any,
    ) -> Posterior:
        """Build the posterior of one chain from arrays.

        :param parameters: unconstrained values [S, ...] in the order of ``model.sampled.paths``.
        :param encoder: encoder weights [S, ...] in the order of ``model.amortized.paths``.
        :param latents: sampled codes [S, T, N, L]; None for a variational model, whose codes come
            from the encoder.
        :param kwargs: ``temperature``; ``history``, log prior, log likelihood and encoder loss of
            each round [rounds, 3]; ``seconds`` by phase; ``warm_start_losses`` [steps].
        """
        return cls(model, bank_of_lists(model, parameters, encoder, latents, **kwargs), data)

    @classmethod
    def from_point(
        cls,
        model: Autoencoder,
        data: Any,
        draws: Sequence[np.ndarray] | None = None,
        num_samples: int | None = None,
        **kwargs: Any,
    ) -> Posterior:
        """Build a posterior of one sample from a model's present values, e.g. a variational fit.

        If inputs have distributions (``model.inputs.draws``) there are several equal samples, and
        predictions draw inputs for each.

        :param data: ``(X, Y)`` with NaN where missing, or the result of
            :func:`~gpflow_bae.data.prepare_data`.
        :param draws: unconstrained parameters [S, ...] drawn from an approximate posterior, in the
            order of ``model.sampled.paths``, used instead; all share the encoder.
        :param num_samples: number of equal samples without ``draws``; by default 16 if inputs have
            distributions, else 1.
        :param kwargs: as in :meth:`from_arrays`.
        """
        if draws is None:
            if num_samples is None:
                draws_inputs = model.inputs is not None and model.inputs.draws
                num_samples = _EQUAL_SAMPLES if draws_inputs else 1
            check_integer("num_samples", num_samples, 1)
            draws = [np.repeat(v.numpy()[None], num_samples, 0) for v in model.sampled.values()]
        count = len(draws[0])
        encoder = [np.repeat(v.numpy()[None], count, 0) for v in model.amortized.variables]
        return cls.from_arrays(model, prepare_data(model, data), draws, encoder, **kwargs)

    @property
    def parameters(self) -> list[np.ndarray]:
        """Unconstrained values [C S, ...] in the order of ``model.sampled.paths``."""
        return [_flat(v) for v in self.bank.parameters.values()]

    @property
    def encoder(self) -> list[np.ndarray]:
        """Encoder weights [C S, ...] in the order of ``model.amortized.paths``; may be empty."""
        return [_flat(v) for v in self.bank.encoder.values()]

    @property
    def latents(self) -> np.ndarray | None:
        """Sampled codes [C S, T, N, L]; None if codes come from the encoder."""
        return None if self.bank.latents is None else _flat(self.bank.latents)

    @property
    def X(self) -> TensorType | None:
        """Training inputs [T or 1, N, D]."""
        return self.data.X

    @property
    def Y(self) -> TensorType:
        """Training observations [T, N, P], zeros where missing."""
        return self.data.Y

    @property
    def mask(self) -> TensorType | None:
        """Where ``Y`` is observed [T, N, P]; None if nothing is missing."""
        return self.data.mask

    @property
    def history(self) -> np.ndarray | None:
        """Log prior, log likelihood and encoder loss of each round [rounds, 3].

        [C, rounds, 3] for several chains; None if the bank has no trace of them.
        """
        if not set(HISTORY) <= set(self.bank.trace):
            return None
        return self._of_chains(np.stack([self.bank.trace[name] for name in HISTORY], -1))

    @property
    def warm_start_losses(self) -> np.ndarray | None:
        """Losses of the warm start [steps], or [C, steps] for several chains; None without one."""
        found = self.bank.trace.get("warm_start_loss")
        return None if found is None else self._of_chains(found)

    def _of_chains(self, values: np.ndarray) -> np.ndarray:
        return values[0] if len(values) == 1 else values

    def select(self, samples: Sequence[int] | slice) -> Posterior:
        """Return the posterior of some of the C S samples by index, without the run's trace."""
        chosen = copy.copy(self)  # shares compiled functions
        chosen.bank = dataclasses.replace(self.bank.as_one_chain(samples), trace={})
        return chosen

    def hyperparameters(self, include_decoder: bool = False) -> dict[str, np.ndarray]:
        """Return constrained samples [C S, ...] by parameter path.

        :param include_decoder: whether to include the weights of decoder and encoder.
        """
        return {path: _flat(v) for path, v in self.chains(include_decoder).items()}

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

        :param Xnew: inputs [T or 1, N, D] (or [N, D]); None for the codes of ``given``.
        :param given: ``(X, Y)`` to encode and condition on, Y with NaN where missing; None for the
            training data, without the encoder if their codes were sampled.
        :param num_draws: draws of a stochastic encoder for each point.
        :param seed: seed of those draws.
        """
        found = self._latent_samples(Xnew, given, num_draws, seed, ALL)
        if self._single(Xnew, given):
            return type(found)(*(v[:, 0] for v in found))
        return found

    def _latent_samples(
        self, Xnew: TensorType | None, given: Given, num_draws: int, seed: int, rows: slice
    ) -> LatentSamples:
        """Return conditionals of the samples ``rows``, always with the task axis."""
        data = self._given(given)
        X, Y, mask = data
        if Xnew is not None:
            Xnew = check_new_inputs(self.model, Xnew, self.data.X, data)
        parameters, encoder, known, seeds = self._samples(given, seed, rows)
        if known and Xnew is None:
            return self._sampled_codes(parameters, known[0], self._seeds(seed + 2, rows))
        moments: dict[str, Any] = {
            "dtypes": (gpflow.default_float(),) * 2,
            "result_bytes": self._latent_bytes(Xnew, Y),
        }
        if known:
            seeds = self._seeds(seed + 2, rows)
            return LatentSamples(
                *self._from_codes.map((parameters, *known, seeds), X, mask, Xnew, **moments)
            )
        samples = (parameters, encoder, seeds)
        found = self._latent.map(samples, data, Xnew, **moments, num_draws=num_draws)
        return LatentSamples(*found)

    def _sampled_codes(self, parameters: Any, codes: Any, seeds: np.ndarray) -> LatentSamples:
        """Return sampled codes of the training data; those of rows without observations are
        replaced by their moments given the other codes.
        """
        latents = np.asarray(codes[np.arange(len(codes))])
        seen = np.ones((1, 1, 1), bool) if self.mask is None else rows_seen(self.mask).numpy()
        points = np.flatnonzero(~seen.all((0, 2)))
        spread = np.zeros(latents.shape, latents.dtype)
        if len(points):
            size = 8 * int(np.prod(latents.shape[1:])) // latents.shape[2] * len(points)
            mean, variance = self._hidden.map(
                (parameters, codes, seeds),
                self.X,
                self.mask,
                tf.constant(points, tf.int32),
                dtypes=(gpflow.default_float(),) * 2,
                result_bytes=size,
            )
            hidden = ~seen[:, points]  # [T, H, 1]
            latents = np.array(latents)
            latents[:, :, points] = np.where(hidden, mean, latents[:, :, points])
            spread[:, :, points] = np.where(hidden, variance, 0.0)
        return LatentSamples(latents, spread)

    def _latent_bytes(self, Xnew: TensorType | None, Y: TensorType) -> int:
        """Return the bytes of the conditionals of one sample."""
        points = Y.shape[-2] if Xnew is None else np.shape(Xnew)[-2]
        return 16 * int(Y.shape[0]) * int(points) * self.model.latent_dim

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

        :param Xnew: inputs [T or 1, N, D] (or [N, D]) of new rows; None for the rows of ``given``,
            or of the data.
        :param num_codes: draws of the codes from each sample's conditional, in antithetic pairs;
            by default four, or enough for 128 over all samples.
        """
        num_codes = self._num_codes(num_codes, 4, 128)
        single = self._single(Xnew, given)
        X, Y, _ = self._given(given)
        if Xnew is not None:
            X = as_inputs(Xnew, self.data.X, "Xnew", self.model.inputs)
        sums: tuple[Any, ...] | None = None
        for rows in blocks(self.num_samples, self._latent_bytes(Xnew, Y)):
            latents = self._latent_samples(Xnew, given, num_draws, seed, rows)
            if sums is None:
                shape = [*latents.mean.shape[1:3], self.data.Y.shape[-1]]
                sums = tuple(np.zeros(shape, gpflow.default_float()) for _ in range(3))
            parameters, encoder, _, seeds = self._samples(given, seed + 1, rows)
            sums = self._decode.sum(
                (parameters, encoder, tuple(latents), seeds),
                X,
                zeros=sums,
                num_codes=num_codes,
                add_code_noise=Xnew is not None,
            )
        assert sums is not None
        mean, mean_square, noise = (total / self.num_samples for total in sums)
        found = Prediction(mean, noise, np.maximum(mean_square - np.square(mean), 0.0))
        return Prediction(*(v[0] for v in found)) if single else found

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
        """Return ``Y`` with NaN filled by predictive means, and standard deviations (else 0)."""
        Y = as_numbers(Y, "Y")
        prediction = self.reconstruct(Y, X, **kwargs)
        missing = np.isnan(Y)
        filled = np.where(missing, prediction.mean, Y)
        return filled, np.where(missing, np.sqrt(prediction.variance), 0.0)

    @check_arguments(num_draws=1)
    def encode(self, Y: TensorType, *, num_draws: int = 16, seed: int = 0) -> np.ndarray:
        """Draw codes [S, num_draws, T, N, L] from the encoders, without the prior."""
        single = np.ndim(Y) == 2
        _, Y, mask = self._given((self.X, Y), needs_inputs=False)
        count = num_draws * int(np.prod(Y.shape[:-1])) * self.model.latent_dim
        parameters, encoder, _, seeds = self._samples((self.X, Y), seed, ALL)
        draws = self._draw.map(
            (parameters, encoder, seeds),
            Y,
            mask,
            dtypes=gpflow.default_float(),
            result_bytes=8 * count,
            num_draws=num_draws,
        )
        return draws[:, :, 0] if single else draws

    def to_inference_data(self, include_decoder: bool = False) -> Any:
        """Convert to what ArviZ reads, with a chain axis, for R-hat and ESS.

        See :func:`gpflow_bae.diagnostics.to_inference_data`.
        """
        history = (
            None if self.history is None else self.history.reshape(self.bank.num_chains, -1, 3)
        )
        kinetic = self.bank.trace.get("kinetic_temperature")
        rounds = {} if kinetic is None else {"kinetic_temperature": kinetic}
        return self._inference_data(include_decoder, history=history, round_stats=rounds)

    def _arrays(self) -> dict[str, np.ndarray]:
        # The latent prior computes neighbours again.
        held = self.data._replace(neighbours=None)._asdict().items()
        return {k: v for name, values in held for k, v in to_arrays(name, values).items()}

    @classmethod
    def _restored(cls, model: Autoencoder, bank: Bank, arrays: dict[str, np.ndarray]) -> Posterior:
        X, Y, mask = (from_arrays(k, arrays) for k in ("X", "Y", "mask"))
        # Old files have no has_tasks.
        data = Observations(X, Y, mask, bool(arrays.get("has_tasks", True)))
        return cls(model, bank, data)

    def _samples(self, given: Given, seed: int, rows: slice) -> tuple[Any, Any, Any, np.ndarray]:
        bank = self.bank
        parameters, encoder = (
            [chain_after_chain(v)[rows] for v in part.values()]
            for part in (bank.parameters, bank.encoder)
        )
        known = []
        if given is None and bank.latents is not None:
            known = [chain_after_chain(bank.latents, gpflow.default_float())[rows]]
        return parameters, encoder, known, self._seeds(seed, rows)

    def _seeds(self, seed: int, rows: slice) -> np.ndarray:
        """Return a seed for each of the samples ``rows``, [S, 2]."""
        numbers = np.arange(self.num_samples, dtype=np.int32)[rows]
        return np.stack([np.full_like(numbers, seed), numbers], -1)

    def _single(self, Xnew: TensorType | None, given: Given) -> bool:
        """Whether neither data nor ``Xnew`` have a task axis."""
        has_tasks = (
            self.data.has_tasks if given is None else np.ndim(as_pair(given, "given")[1]) == 3
        )
        return not has_tasks and (Xnew is None or np.ndim(Xnew) == 2)

    def _given(
        self, given: Given, needs_inputs: bool = True
    ) -> tuple[tf.Tensor | None, tf.Tensor, tf.Tensor | None]:
        """Return inputs, observations with zeros where missing, and the mask (None if complete)."""
        X, Y, mask = self.data.X, self.data.Y, self.data.mask
        training = X, Y if self.data.is_compressed else tf.convert_to_tensor(Y), mask
        if given is None:
            return training
        return check_given(self.model, training, given, needs_inputs)


def _flat(values: np.ndarray) -> np.ndarray:
    """Flatten samples [C, S, ...] to [C S, ...]."""
    return values.reshape(-1, *values.shape[2:])
