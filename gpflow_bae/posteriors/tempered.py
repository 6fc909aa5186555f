"""Posterior of a :class:`~gpflow_bae.models.TemperedBAE`, with a chain for each replica."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from .. import diagnostics
from ..core.arguments import as_numbers
from ..data import mask_missing
from ..models import TemperedBAE
from .base import BankPosterior
from .predictions import Prediction
from .sample_loop import ChainAfterChain, chain_after_chain
from .stored.bank import Bank

__all__ = ["TemperedPosterior"]


class TemperedPosterior(BankPosterior):
    """Samples of all R replicas at temperature 1, which are chains of the same posterior.

    Predictions use all R S samples and are ordered replica after replica; reshape them to
    [R, S, ...] to get the chains.
    """

    def __init__(
        self,
        model: TemperedBAE,
        bank: Bank,
        *,
        swap_rate: np.ndarray,
    ):
        """
        :param bank: its chains are the replicas; its trace has statistics of every step (see
            :class:`~gpflow_bae.inference.TemperedTrace`), or of every round from
            ``sample_amortized``.
        :param swap_rate: acceptance rate [R - 1] of swaps between neighbouring temperatures while
            they differed; NaN if there were no swaps.
        :raises ValueError: for samples of another model.
        """
        super().__init__(model, bank)
        self.swap_rate = np.asarray(swap_rate)

    @property
    def parameters(self) -> list[np.ndarray]:
        """Unconstrained values [R, S, ...] in the order of ``model.sampled.paths``."""
        return list(self.bank.parameters.values())

    @property
    def trace(self) -> dict[str, np.ndarray]:
        """Statistics [steps, R] of every step or round, by name."""
        return {name: np.moveaxis(values, 0, 1) for name, values in self.bank.trace.items()}

    @property
    def num_replicas(self) -> int:
        """Number of replicas R; after the tempered stage each is a chain of the posterior."""
        return self.bank.num_chains

    def hyperparameters(self, include_weights: bool = False) -> dict[str, np.ndarray]:
        """Return constrained samples [R, S, ...] by parameter path.

        :param include_weights: whether to include those of decoder and encoder.
        """
        return self.chains(include_weights)

    def encode(self, Y: TensorType) -> np.ndarray:
        """Encode rows ``Y [N, P]``, NaN where missing, to codes [R * S, N, L]."""
        rows, _ = self._rows(Y)
        size = 4 * len(rows) * self.model.latent_dim
        return self._loop(_encoded).map((self._values,), rows, dtypes=tf.float32, result_bytes=size)

    def decode(self, codes: TensorType) -> np.ndarray:
        """Decode codes ``[N, L]``, or ``[R * S, N, L]`` for each sample, to rows [R * S, N, P]."""
        codes = as_numbers(codes, "codes", np.float32, rank=2)
        if codes.shape[-1] != self.model.latent_dim or codes.ndim not in (2, 3):
            raise ValueError(
                f"codes must have shape [N, {self.model.latent_dim}] or [{self.num_samples}, N, "
                f"{self.model.latent_dim}], got {codes.shape}."
            )
        if codes.ndim == 3 and len(codes) != self.num_samples:
            raise ValueError(
                f"codes of each sample need {self.num_samples} samples, got {len(codes)}."
            )
        if not np.isfinite(codes).all():
            raise ValueError("codes hold NaN or infinity; every code has to be known.")
        own = np.broadcast_to(codes, (self.num_samples, *codes.shape[-2:]))
        size = 4 * own.shape[1] * self.model.decoder.output_dim
        return self._loop(_decoded).map((self._values, own), dtypes=tf.float32, result_bytes=size)

    def reconstructions(self, Y: TensorType) -> np.ndarray:
        """Return reconstructed means [R * S, N, P] of rows ``Y [N, P]``, NaN where missing."""
        rows, _ = self._rows(Y)
        kind, size = gpflow.default_float(), 8 * int(tf.size(rows))
        return self._loop(_mean).map((self._values,), rows, dtypes=kind, result_bytes=size)

    def reconstruct(self, Y: TensorType) -> Prediction:
        """Predict rows [N, P]: mean, noise variance and variance over samples."""
        rows, _ = self._rows(Y)
        zeros = tuple(np.zeros(rows.shape, gpflow.default_float()) for _ in range(3))
        sums = self._loop(_moments).sum((self._values,), rows, zeros=zeros)
        mean, mean_square, noise = (total / self.num_samples for total in sums)
        return Prediction(mean, noise, np.maximum(mean_square - np.square(mean), 0.0))

    def squared_errors(self, Y: TensorType) -> np.ndarray:
        """Return the mean squared reconstruction error [R, S] of observed entries per sample."""
        rows, mask = self._rows(Y)
        kind = gpflow.default_float()
        errors = self._loop(_squared_error).map((self._values,), rows, mask, dtypes=kind)
        return errors.reshape(self.num_replicas, -1)

    def function_space_diagnostics(
        self, Y: TensorType, **kwargs: Any
    ) -> diagnostics.ConvergenceDiagnostics:
        """Return R-hat and effective sample sizes of reconstructions of ``Y`` over replicas."""
        predictions = self.reconstructions(Y)
        shaped = predictions.reshape(self.num_replicas, -1, *predictions.shape[1:])
        return diagnostics.function_space_diagnostics(shaped, **kwargs)

    def to_inference_data(self, include_weights: bool = False) -> Any:
        """Convert to what ArviZ reads, with replicas as chains, and the trace."""
        return self._inference_data(include_weights, step_stats=self.bank.trace)

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"swap_rate": self.swap_rate}

    @classmethod
    def _restored(
        cls, model: TemperedBAE, bank: Bank, arrays: dict[str, np.ndarray]
    ) -> TemperedPosterior:
        return cls(model, bank, swap_rate=arrays["swap_rate"])

    @property
    def _values(self) -> list[np.ndarray | ChainAfterChain]:
        return [chain_after_chain(values) for values in self.bank.parameters.values()]

    def _rows(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        Y = as_numbers(Y, "Y", np.float32)
        width = self.model.decoder.output_dim
        if Y.ndim != 2 or Y.shape[1] != width:
            raise ValueError(f"Y must have shape [N, {width}], got {Y.shape}.")
        values, mask = mask_missing(Y[None])
        return tf.constant(values[0]), tf.constant(mask[0])


def _encoded(model: TemperedBAE, values: list[tf.Tensor], rows: tf.Tensor) -> tf.Tensor:
    return tf.cast(model.bind(values).encode(rows), tf.float32)


def _decoded(model: TemperedBAE, values: list[tf.Tensor], codes: tf.Tensor) -> tf.Tensor:
    return tf.cast(model.bind(values).decoder(codes), tf.float32)


def _mean(model: TemperedBAE, values: list[tf.Tensor], rows: tf.Tensor) -> tf.Tensor:
    return _moments(model, values, rows)[0]


def _moments(
    model: TemperedBAE, values: list[tf.Tensor], rows: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the mean of reconstructed rows, its square, and the noise variance [N, P]."""
    bound = model.bind(values)
    moments = bound.likelihood.moments(bound.reconstruct(rows))
    mean, variance = (tf.cast(m, gpflow.default_float()) for m in moments)
    return mean, tf.square(mean), variance


def _squared_error(
    model: TemperedBAE, values: list[tf.Tensor], rows: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
    mean = _mean(model, values, rows)
    squares = tf.square(mean - tf.cast(rows, mean.dtype))
    return tf.reduce_mean(tf.boolean_mask(squares, mask))
