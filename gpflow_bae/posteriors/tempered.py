"""Posterior samples of a :class:`~gpflow_bae.models.TemperedBAE`, replica by replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from .. import diagnostics, functional
from ..models import TemperedBAE
from .amortized import Prediction

__all__ = ["TemperedPosterior"]


class TemperedPosterior:
    """Samples at temperature 1 of all replicas: R chains of the same posterior.

    Samples are stored as they were drawn [S, R, ...]; predictions treat all S R of them alike and
    return them replica after replica, so that a reshape to [R, S, ...] gives the chains.
    """

    def __init__(
        self,
        model: TemperedBAE,
        parameters: Sequence[np.ndarray],
        trace: Mapping[str, np.ndarray],
        *,
        swap_rate: np.ndarray,
        seconds: Mapping[str, float] | None = None,
    ):
        """
        :param parameters: unconstrained values [S, R, ...] in the order of
            ``model.sampled_paths``.
        :param trace: statistics of every step [steps, R]; see
            :class:`~gpflow_bae.inference.TemperedTrace`.
        :param swap_rate: share of swaps accepted between neighbouring rungs [R - 1], while their
            temperatures differed.
        """
        self.model = model
        self.parameters = [np.moveaxis(p, 1, 0) for p in parameters]  # [R, S, ...]
        self.trace = dict(trace)
        self.swap_rate = np.asarray(swap_rate)
        self.seconds = dict(seconds or {})
        self._encode = tf.function(lambda v, Y: self.model.bind(v).encode(Y), autograph=False)
        self._decode = tf.function(lambda v, z: self.model.bind(v).decoder(z), autograph=False)
        self._both = tf.function(self._reconstruct, autograph=False)

    @property
    def num_replicas(self) -> int:
        """Number of replicas R; after the tempered stage each is a chain of the posterior."""
        return int(self.parameters[0].shape[0])

    @property
    def num_samples(self) -> int:
        """Number of samples of all replicas together."""
        return self.num_replicas * int(self.parameters[0].shape[1])

    def hyperparameters(self, include_weights: bool = False) -> dict[str, np.ndarray]:
        """Constrained samples [R, S, ...] by parameter path; weights only when asked."""
        result = {}
        for path, parameter, values in zip(
            self.model.sampled_paths, self.model.sampled_parameters, self.parameters, strict=True
        ):
            if include_weights or path.startswith(".likelihood"):
                (constrained,) = functional.constrain([parameter], [tf.constant(values)])
                result[path] = constrained.numpy()
        return result

    def encode(self, Y: TensorType) -> np.ndarray:
        """Codes [R * S, N, L] of rows ``Y [N, P]``, NaN where missing."""
        rows, _ = self._rows(Y)
        return np.stack([self._encode(v, rows).numpy() for v in self._samples()])

    def decode(self, codes: TensorType) -> np.ndarray:
        """Rows [R * S, N, P] of codes ``[N, L]``, or of each sample's own ``[R * S, N, L]``."""
        codes = np.asarray(codes, np.float32)
        if codes.shape[-1] != self.model.latent_dim or codes.ndim not in (2, 3):
            raise ValueError(
                f"codes must have shape [N, {self.model.latent_dim}] or [{self.num_samples}, N, "
                f"{self.model.latent_dim}], got {codes.shape}."
            )
        if codes.ndim == 3 and len(codes) != self.num_samples:
            raise ValueError(
                f"codes of each sample need {self.num_samples} samples, got {len(codes)}."
            )
        own = codes if codes.ndim == 3 else [codes] * self.num_samples
        return np.stack(
            [
                self._decode(v, tf.constant(z)).numpy()
                for v, z in zip(self._samples(), own, strict=True)
            ]
        )

    def reconstructions(self, Y: TensorType) -> np.ndarray:
        """Reconstructed means [R * S, N, P] of rows ``Y [N, P]``, NaN where missing."""
        rows, _ = self._rows(Y)
        return np.stack([self._both(v, rows)[0].numpy() for v in self._samples()])

    def reconstruct(self, Y: TensorType) -> Prediction:
        """Predicted rows [N, P]: mean, noise variance and spread over samples, apart."""
        rows, _ = self._rows(Y)
        total = square = noise = np.zeros(rows.shape)
        for values in self._samples():
            mean, variance = (m.numpy().astype(float) for m in self._both(values, rows))
            total, square, noise = total + mean, square + mean**2, noise + variance
        count = self.num_samples
        mean = total / count
        return Prediction(mean, noise / count, np.maximum(square / count - mean**2, 0.0))

    def squared_errors(self, Y: TensorType) -> np.ndarray:
        """Mean squared reconstruction error of each sample over the observed entries: [R, S]."""
        rows, mask = self._rows(Y)
        errors = []
        for values in self._samples():
            mean, _ = self._both(values, rows)
            errors.append(float(np.mean(np.square(mean.numpy() - rows.numpy())[mask])))
        return np.reshape(errors, [self.num_replicas, -1])

    def function_space_diagnostics(
        self, Y: TensorType, **kwargs: Any
    ) -> diagnostics.ConvergenceDiagnostics:
        """R-hat and effective sample sizes of reconstructions of ``Y`` over replicas."""
        predictions = self.reconstructions(Y)
        shaped = predictions.reshape(self.num_replicas, -1, *predictions.shape[1:])
        return diagnostics.function_space_diagnostics(shaped, **kwargs)

    def to_inference_data(self, include_weights: bool = False) -> Any:
        """ArviZ ``InferenceData`` with replicas as chains, and the statistics of every step."""
        return diagnostics.to_inference_data(
            self.hyperparameters(include_weights),
            chains=True,
            step_stats={name: np.moveaxis(v, 0, 1) for name, v in self.trace.items()},
        )

    def _samples(self) -> Any:
        for replica in range(self.num_replicas):
            for s in range(self.parameters[0].shape[1]):
                yield [tf.constant(values[replica, s]) for values in self.parameters]

    def _rows(self, Y: TensorType) -> tuple[tf.Tensor, np.ndarray]:
        Y = np.asarray(Y, np.float32)
        width = self.model.decoder.output_dim
        if Y.ndim != 2 or Y.shape[1] != width:
            raise ValueError(f"Y must have shape [N, {width}], got {Y.shape}.")
        if np.isinf(Y).any():
            raise ValueError("Y holds infinity; missing observations are NaN.")
        mask = ~np.isnan(Y)
        return tf.constant(np.where(mask, Y, np.float32(0.0))), mask

    def _reconstruct(self, values: list[tf.Tensor], rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        bound = self.model.bind(values)
        mean, variance = bound.likelihood.moments(bound.reconstruct(rows))
        return tf.cast(mean, gpflow.default_float()), variance
