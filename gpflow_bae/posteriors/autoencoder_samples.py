"""Posterior samples of an autoencoder, with the data that its predictions condition on."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..core.arguments import check_integer
from ..data import Observations, as_pair, in_memory, prepare_data
from ..data.compressed_rows import from_arrays, rows_seen, to_arrays
from ..data.unequal_tasks import TaskRows, rows_at, rows_of
from ..models import Autoencoder
from .base import BankPosterior
from .conditionals import hidden_codes, latent_moments
from .given import Data, Given, check_given, check_new_inputs
from .predictions import LatentSamples
from .sample_loop import blocks, chain_after_chain
from .stored.bank import Bank
from .stored.lists import HISTORY, bank_of_lists

__all__ = ["AutoencoderSamples"]

_EQUAL_SAMPLES = 16  # for a fit with drawn inputs: estimates their part of variances within a third

SamplesT = TypeVar("SamplesT", bound="AutoencoderSamples")


class AutoencoderSamples(BankPosterior):
    """Joint samples of decoder, latent prior and encoder, and the codes of data under each."""

    model: Autoencoder
    data: Any
    inputs_made_by: str | None = None
    """The estimator that makes the columns of X from a user's data, if there is one."""

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
                f"samples have codes of {bank.latents.shape[2:4]} tasks and points, data {points}; "
                "pass the data that the codes were sampled for."
            )

    @classmethod
    def from_arrays(
        cls: type[SamplesT],
        model: Autoencoder,
        data: Observations,
        parameters: Sequence[np.ndarray],
        encoder: Sequence[np.ndarray],
        latents: np.ndarray | None = None,
        **kwargs: Any,
    ) -> SamplesT:
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
        cls: type[SamplesT],
        model: Autoencoder,
        data: Any,
        draws: Sequence[np.ndarray] | None = None,
        num_samples: int | None = None,
        **kwargs: Any,
    ) -> SamplesT:
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
        :raises ValueError: if neither a parameter nor an encoder weight is trainable.
        """
        if not model.sampled.paths and not model.amortized.paths:
            raise ValueError(
                f"Every parameter of this {type(model).__name__} is fixed, encoder weights too, so "
                "its posterior would hold nothing: leave one trainable (gpflow.set_trainable)."
            )
        if draws is None:
            if num_samples is None:
                draws_inputs = model.inputs is not None and model.inputs.draws
                num_samples = _EQUAL_SAMPLES if draws_inputs else 1
            check_integer("num_samples", num_samples, 1)
            draws = [np.repeat(v.numpy()[None], num_samples, 0) for v in model.sampled.values()]
        else:
            num_samples = len(draws[0])
        encoder = [np.repeat(v.numpy()[None], num_samples, 0) for v in model.amortized.variables]
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
        return _of_chains(np.stack([self.bank.trace[name] for name in HISTORY], -1))

    @property
    def warm_start_losses(self) -> np.ndarray | None:
        """Losses of the warm start [steps], or [C, steps] for several chains; None without one."""
        found = self.bank.trace.get("warm_start_loss")
        return None if found is None else _of_chains(found)

    def select(self: SamplesT, samples: Sequence[int] | slice) -> SamplesT:
        """Return the posterior of some of the C S samples by index, without the run's trace."""
        chosen = copy.copy(self)  # shares compiled functions
        chosen.bank = dataclasses.replace(self.bank.as_one_chain(samples), trace={})
        return chosen

    def hyperparameters(self, include_decoder: bool = False) -> dict[str, np.ndarray]:
        """Return constrained samples [C S, ...] by parameter path.

        :param include_decoder: whether to include the weights of decoder and encoder.
        """
        return {path: _flat(v) for path, v in self.chains(include_decoder).items()}

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
    def _restored(
        cls: type[SamplesT], model: Autoencoder, bank: Bank, arrays: dict[str, np.ndarray]
    ) -> SamplesT:
        X, Y, mask = (from_arrays(k, arrays) for k in ("X", "Y", "mask"))
        # Old files have neither has_tasks nor lengths.
        lengths = arrays["lengths"].tolist() if "lengths" in arrays else None
        data = Observations(X, Y, mask, bool(arrays.get("has_tasks", True)), lengths=lengths)
        return cls(model, bank, data)

    # Codes of each sample

    def _samples(self, given: Given, seed: int, rows: slice) -> tuple[Any, Any, Any, np.ndarray]:
        """Return parameters, encoders, sampled codes and seeds of the samples ``rows``.

        Each is [S, ...], chain after chain. Sampled codes are a list, which is empty if codes come
        from the encoder; otherwise the list of encoders is.
        """
        bank = self.bank
        parameters, encoder = (
            [chain_after_chain(v)[rows] for v in part.values()]
            for part in (bank.parameters, bank.encoder)
        )
        numbers = np.arange(self.num_samples, dtype=np.int32)[rows]
        seeds = np.stack([np.full_like(numbers, seed), numbers], -1)
        if given is None and bank.latents is not None:
            codes = chain_after_chain(bank.latents, gpflow.default_float())[rows]
            return parameters, [], [codes], seeds
        return parameters, encoder, [], seeds

    def _latent_samples(
        self, Xnew: TensorType | None, given: Given, num_draws: int, seed: int, rows: slice
    ) -> LatentSamples:
        """Return conditionals of the samples ``rows``, always with the task axis."""
        data = self._given(given)
        if Xnew is not None:
            Xnew = check_new_inputs(self.model, Xnew, self.data.X, data)
        samples = self._samples(given, seed, rows)
        if Xnew is None and samples[2]:
            return self._sampled_codes(samples, data)
        moments = self._loop(latent_moments).map(
            samples,
            data,
            Xnew,
            dtypes=(gpflow.default_float(),) * 2,
            result_bytes=2 * self._latent_bytes(Xnew, data[1]),
            num_draws=num_draws,
        )
        return LatentSamples(*moments)

    def _sampled_codes(self, samples: Any, data: Data) -> LatentSamples:
        """Return sampled codes of the training data; those of rows without observations are
        replaced by their moments given the other codes.
        """
        codes = samples[2][0]
        latents = np.asarray(codes[np.arange(len(codes))])
        seen = np.ones((1, 1, 1), bool) if self.mask is None else rows_seen(self.mask).numpy()
        points = np.flatnonzero(~seen.all((0, 2)))
        spread = np.zeros(latents.shape, latents.dtype)
        if len(points):
            mean, variance = self._loop(hidden_codes).map(
                samples,
                data,
                tf.constant(points, tf.int32),
                dtypes=(gpflow.default_float(),) * 2,
                result_bytes=8 * int(np.prod(latents.shape[1:])) // latents.shape[2] * len(points),
            )
            hidden = ~seen[:, points]  # [T, H, 1]
            latents = np.array(latents)
            latents[:, :, points] = np.where(hidden, mean, latents[:, :, points])
            spread[:, :, points] = np.where(hidden, variance, 0.0)
        return LatentSamples(latents, spread)

    def _blocks_of_codes(
        self, Xnew: TensorType | None, given: Given, num_draws: int, seed: int
    ) -> Iterator[tuple[Any, Any, tuple[np.ndarray, ...], np.ndarray]]:
        """Yield parameters, encoders, moments of the codes and seeds of samples to decode.

        The moments [S, T, N, L] of a block of samples fit memory.
        """
        _, Y, _ = self._given(given)
        for rows in blocks(self.num_samples, 2 * self._latent_bytes(Xnew, Y)):
            moments = tuple(self._latent_samples(Xnew, given, num_draws, seed, rows))
            parameters, encoder, _, seeds = self._samples(given, seed + 1, rows)
            yield parameters, encoder, moments, seeds

    def _latent_bytes(self, Xnew: TensorType | None, Y: TensorType) -> int:
        """Return the bytes of the codes [T, N, L] at ``Xnew`` (None: of ``Y``) for one sample."""
        points = Y.shape[-2] if Xnew is None else np.shape(Xnew)[-2]
        return 8 * int(Y.shape[0]) * int(points) * self.model.latent_dim

    def _given(self, given: Given, needs_inputs: bool = True) -> Data:
        """Return the data to condition on: inputs, observations, and the mask."""
        X, Y, mask = self.data.X, self.data.Y, self.data.mask
        training = X, Y if self.data.is_compressed else tf.convert_to_tensor(Y), mask
        if given is None:
            return training
        return check_given(self.model, training, given, needs_inputs)

    def _rows(self, Xnew: Any, given: Given) -> tuple[TensorType | None, TaskRows]:
        """Return ``Xnew``, padded if it is a list, and the tasks and rows of predictions."""
        if given is None:
            return rows_at(Xnew, self.data.rows)
        as_pair(given, "given")  # raises errors of another form
        return rows_at(Xnew, rows_of(given[1]))


def _flat(values: np.ndarray) -> np.ndarray:
    """Flatten samples [C, S, ...] to [C S, ...]."""
    return values.reshape(-1, *values.shape[2:])


def _of_chains(values: np.ndarray) -> np.ndarray:
    """Drop the axis of chains if there is one chain."""
    return values[0] if len(values) == 1 else values
