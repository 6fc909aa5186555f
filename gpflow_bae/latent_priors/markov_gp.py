"""The exact GP prior over codes along time, at cost N instead of N^3 per task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.mean_functions import MeanFunction

from ..base import LatentPosterior
from ..core.annotations import check_arguments
from . import kalman
from .base import gaussian_log_density
from .gp import GP
from .kernel_prior import KernelLike, channels_first
from .state_space import StateSpace, check_state_space, harmonics_of, state_space

__all__ = ["MarkovGP"]


class _Moments(NamedTuple):
    """Moments of the latent function given all observations, and given the earlier ones."""

    mean: tf.Tensor  # [batch..., channels, N]
    variance: tf.Tensor
    mean_ahead: tf.Tensor
    variance_ahead: tf.Tensor


class MarkovGP(GP):
    """An exact GP prior over time, computed by a Kalman filter and smoother.

    Density, conditionals and predictions are those of :class:`GP` with the same kernel, which needs
    a state-space form (Hartikainen and Särkkä 2010). The cost is N d^3 for N points and d states
    (1 to 3 for a Matérn kernel); times may be irregular, repeated and in any order. Filter and
    smoother are parallel scans (Särkkä and García-Fernández 2021), and so are their gradients.

    Covariances between points (``code_covariance``, ``predict_full_cov``) are the dense ones of
    ``GP``, at its cost.
    """

    takes_distances = False
    is_dense = False

    @check_arguments()
    def __init__(
        self,
        kernel: KernelLike,
        latent_dim: int,
        code_noise_variance: float | None = 1e-3,
        mean_function: MeanFunction | None = None,
    ):
        """
        :param kernel: one kernel of one input, or one for each channel: Matern12, Matern32,
            Matern52, Exponential, Cosine, Constant, Periodic over SquaredExponential, and sums
            and products of them.
        :raises ValueError: for a kernel without a state-space form, with its name.
        """
        super().__init__(kernel, latent_dim, code_noise_variance, mean_function)
        for found in self.kernels:
            check_state_space(found)
        self._harmonics = max(harmonics_of(found) for found in self.kernels)

    def _channels(self) -> Iterator[tuple[StateSpace, slice]]:
        """Yield each process with the slice of channels that have it."""
        for i, kernel in enumerate(self.kernels):
            process = state_space(kernel, self._harmonics)
            yield process, slice(None) if self.shares_kernel else slice(i, i + 1)

    def _chain(self, process: StateSpace, times: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return A and Q [xbatch..., 1, N, d, d] of a process between sorted times."""
        gaps = times[..., 1:] - times[..., :-1]
        first = tf.zeros_like(times[..., :1])
        A = process.transition(tf.concat([first, gaps], axis=-1))
        Q = process.noise(A)
        start = tf.broadcast_to(process.covariance, tf.shape(Q[..., :1, :, :]))
        Q = tf.concat([start, Q[..., 1:, :, :]], axis=-3)
        return A[..., None, :, :, :], Q[..., None, :, :, :]

    def _function(self, times: tf.Tensor, y: tf.Tensor, precision: tf.Tensor) -> _Moments:
        """Return moments of the latent function at sorted times [xbatch..., N].

        :param y: [batch..., L, N], or [batch..., C, N] for observations that channels share.
        :param precision: as ``y``; 0 for missing observations.
        """
        found = []
        for process, which in self._channels():
            A, Q = self._chain(process, times)
            observed, weight = y[..., which, :, None], precision[..., which, :]
            ahead = kalman.filtered(A, Q, process.projection, observed, weight)
            mean, variance = kalman.smoothed(ahead)
            mean_ahead = ahead.predicted_mean[..., 0]
            found.append((mean[..., 0], variance, mean_ahead, ahead.predicted_variance))
        return _Moments(*(tf.concat(v, -2) for v in zip(*found, strict=True)))

    @check_shapes(
        "X: [xbatch..., N, 1]",
        "mean: [batch..., N, L]",
        "variance: [batch..., N, L]",
    )
    def condition(self, X: TensorType, mean: TensorType, variance: TensorType) -> LatentPosterior:
        order, times = _in_order(X)
        target = _take(channels_first(self.centred(mean, X)), order)  # [batch..., L, N]
        pseudo = _take(channels_first(variance), order)
        noise = self._noise()
        total = noise + pseudo
        f = self._function(times, target, 1.0 / total)
        densities = gaussian_log_density(target - f.mean_ahead, f.variance_ahead + total)
        # Given the function, a code's mean is between it and the pseudo-observation.
        rest = pseudo / total
        posterior_mean = rest * f.mean + (1.0 - rest) * target
        posterior_variance = noise * rest + tf.square(rest) * f.variance
        back = tf.argsort(order, axis=-1)
        return LatentPosterior(
            self.shifted(channels_first(_take(posterior_mean, back)), X),
            channels_first(_take(posterior_variance, back)),
            tf.reduce_sum(densities, axis=[-2, -1]),
        )

    @check_shapes(
        "X: [xbatch..., N, 1]",
        "latents: [batch..., N, L]",
        "noise: [batch..., N, 1]",
        "return: [batch...]",
    )
    def log_prob(
        self, X: TensorType, latents: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        """Return the log density of the codes; one filter for channels that share a kernel."""
        latents = self.centred(tf.cast(latents, gpflow.default_float()), X)
        order, times = _in_order(X)
        target = _take(channels_first(latents), order)
        total = tf.fill(tf.shape(times[..., None, :]), self._noise())
        total = total if noise is None else total + _take(channels_first(noise), order)
        evidence = tf.zeros([], target.dtype)
        for process, which in self._channels():
            y = channels_first(target[..., which, :])[..., None, :, :]  # [batch..., 1, N, columns]
            A, Q = self._chain(process, times)
            densities = kalman.log_density(A, Q, process.projection, y, total)
            evidence += tf.reduce_sum(densities, axis=-1)
        return evidence

    def precision_diagonal(
        self, X: TensorType, shape: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        """Return the diagonal of (K + S)^-1 = S^-1 - S^-1 Cov(f | codes) S^-1, S of the noise."""
        order, times = _in_order(X)
        total = tf.repeat(tf.zeros_like(times)[..., None, :], len(self.kernels), axis=-2)
        total += self._noise()
        if noise is not None:
            total += _take(channels_first(noise), order)
        variance = self._function(times, tf.zeros_like(total), 1.0 / total).variance
        found = (1.0 - variance / total) / total
        return channels_first(_take(found, tf.argsort(order, axis=-1)))

    @check_shapes(
        "Xnew: [newbatch..., Nnew, 1]",
        "X: [xbatch..., N, 1]",
        "mean: [batch..., N, L]",
        "variance: [batch..., N, L]",
    )
    def predict(
        self, Xnew: TensorType, X: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Predict at new times by treating them as times without an observation."""
        lead = tf.shape(mean)[:-2]
        for inputs in (X, Xnew):
            lead = tf.broadcast_dynamic_shape(lead, tf.shape(inputs)[:-2])
        given, number = tf.shape(mean)[-2], tf.shape(Xnew)[-2]
        both = tf.concat([_spread(X, lead), _spread(Xnew, lead)], axis=-2)
        order, times = _in_order(both)
        target = _spread(self.centred(mean, X), lead)
        precision = 1.0 / (_spread(variance, lead) + self._noise())
        nothing = tf.zeros(tf.concat([lead, [number, self.latent_dim]], 0), target.dtype)
        target = _take(channels_first(tf.concat([target, nothing], -2)), order)
        precision = _take(channels_first(tf.concat([precision, nothing], -2)), order)
        f = self._function(times, target, precision)
        back = tf.argsort(order, axis=-1)[..., given:]
        new_mean, new_variance = (channels_first(_take(v, back)) for v in (f.mean, f.variance))
        return self.shifted(new_mean, Xnew), new_variance


def _in_order(X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the permutation that sorts the times, and the sorted times: [xbatch..., N]."""
    times = tf.cast(X, gpflow.default_float())[..., 0]
    order = tf.argsort(times, axis=-1, stable=True)
    return order, tf.gather(times, order, axis=-1, batch_dims=times.shape.rank - 1)


def _take(values: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
    """Gather ``values [batch..., L, N]`` at ``order [xbatch..., K]``: [batch..., L, K]."""
    number = tf.shape(order)[-1:]
    lead = tf.broadcast_dynamic_shape(tf.shape(values)[:-1], tf.shape(order[..., None, :])[:-1])
    places = tf.broadcast_to(order[..., None, :], tf.concat([lead, number], 0))
    values = tf.broadcast_to(values, tf.concat([lead, tf.shape(values)[-1:]], 0))
    return tf.gather(values, places, axis=-1, batch_dims=places.shape.rank - 1)


def _spread(values: TensorType, lead: tf.Tensor) -> tf.Tensor:
    """Broadcast ``values [batch..., N, K]`` to the leading dimensions ``lead``."""
    values = tf.cast(values, gpflow.default_float())
    return tf.broadcast_to(values, tf.concat([lead, tf.shape(values)[-2:]], 0))
