"""Random draws whose covariance is the Fisher information on a model's parameters and codes.

Noise whose variance is the information of each cell, -d^2 log p(y | f) / df^2, is backpropagated
through the decoder, so that the covariance of gradients is the generalised Gauss-Newton matrix,
which for an exponential family is the Fisher information.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ...base import Batch
from ...data import Observations, draw_indices
from ...mcmc.noise import split, standard_noise
from ...models import BayesianAutoencoder, TemperedBAE
from ..chain_state import Point
from ..loops import repeat
from .prior import prior_precision

__all__ = ["FisherInformation", "cell_information"]

_MOST_ENTRIES = 16  # of a parameter whose entries may interact
_ZERO = tf.UnconnectedGradients.ZERO
_CODE_DRAWS = 64  # at least, or 4 for each channel; 64 give a relative standard error of 18 %


class FisherInformation:
    """Estimates of the Fisher information of the data at any position."""

    def __init__(
        self, model: BayesianAutoencoder | TemperedBAE, data: Observations, size: int | None = None
    ):
        """
        :param size: number of items in a draw; None for all.
        """
        self.model, self.data, self._size = model, data, size
        own = {id(p) for p in model.likelihood.parameters}
        self._of_likelihood = [id(p) in own for p in model.sampled.parameters]

    def precision(self, position: Point, least: float) -> tuple[tf.Tensor, ...]:
        """Return precisions by prior and, for parameters of the likelihood, its curvature.

        :param least: lower limit of prior precisions.
        """
        values = position.parameters
        precision = prior_precision(self.model.sampled, values, least)
        return self._with_likelihood(precision, position, self.data.gather(None))

    def of_codes(self, position: Point, seed: tf.Tensor) -> tf.Tensor:
        """Return the Fisher information [T, N, L, L] of observations on their codes."""
        number = max(_CODE_DRAWS, 4 * self.model.latent_dim)
        seeds, batch, codes = split(seed, number), self.data.gather(None), position.codes

        def add(i: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(codes)
                objective = self._noisy(position.parameters, codes, batch, seeds[i])
            g = tape.gradient(objective, codes)
            return total + g[..., :, None] * g[..., None, :]

        start = tf.zeros([*codes.shape, codes.shape[-1]], codes.dtype)
        return repeat(number, add, start) / number

    def draw(self, position: Point, seed: tf.Tensor) -> Sequence[tf.Tensor]:
        """Return a draw, by parameter; a minibatch estimates the information of all data."""
        which, noisy = tf.unstack(split(seed, 2))
        indices = draw_indices(self.data.num_items, self._size, which)
        batch, codes = self.data.gather(indices), position.codes
        if indices is not None and tf.is_tensor(codes):
            codes = tf.gather(codes, indices, axis=self.data.axis)
        values = position.parameters
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            objective = self._noisy(values, codes, batch, noisy)
            objective *= tf.cast(tf.sqrt(batch.scale), objective.dtype)
        return tape.gradient(objective, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    def _decoded(self, values: Sequence[tf.Tensor], codes: Any, batch: Batch) -> Any:
        """Return the likelihood and the decoder's outputs [T, N, P]."""
        bound = self.model.bind(values)
        if isinstance(bound, TemperedBAE):
            return bound.likelihood, bound.reconstruct(batch.Y)
        return bound.likelihood, bound.decode(batch.X, bound.from_whitened(batch.X, codes))

    def _noisy(
        self, values: Sequence[tf.Tensor], codes: Any, batch: Batch, seed: tf.Tensor
    ) -> tf.Tensor:
        """Return a random scalar whose gradients have a batch's information as covariance."""
        likelihood, F = self._decoded(values, codes, batch)
        # The information is a constant weight: its own gradient is not part of the draw.
        information = tf.stop_gradient(cell_information(likelihood, F, batch))
        noise = standard_noise(tf.shape(F), seed, F.dtype)
        return tf.reduce_sum(tf.sqrt(information) * noise * F)

    def _with_likelihood(
        self, precision: Sequence[tf.Tensor], position: Point, batch: Batch
    ) -> tuple[tf.Tensor, ...]:
        """Add the log likelihood's curvature to the precision of the likelihood's parameters.

        Draws do not include these, such as a noise variance. Of their Hessian the diagonal is
        taken, entry by entry. The entries of a parameter of more than sixteen, such as one for
        each output, are taken not to interact with each other.
        """
        if not any(self._of_likelihood):
            return tuple(precision)
        values = list(position.parameters)
        _, F = self._decoded(values, position.codes, batch)
        found = list(precision)
        for number in (i for i, own in enumerate(self._of_likelihood) if own):

            def total(value: tf.Tensor, number: int = number) -> tf.Tensor:
                bound = self.model.bind([*values[:number], value, *values[number + 1 :]])
                return tf.reduce_sum(bound.likelihood.masked_log_prob(F, batch.Y, batch.mask))

            curvature = _second_derivatives(total, values[number])
            found[number] += tf.maximum(-tf.cast(curvature, found[number].dtype), 0.0)
        return tuple(found)


def _second_derivatives(function: Callable[[tf.Tensor], tf.Tensor], value: tf.Tensor) -> tf.Tensor:
    """Return the diagonal of a function's Hessian, of the shape of ``value``.

    The Hessian of more than ``_MOST_ENTRIES`` is taken as diagonal: then its row sums are returned,
    which take as long as a single entry.
    """
    size = value.shape.num_elements()
    unit = tf.eye(size, dtype=value.dtype) if size <= _MOST_ENTRIES else tf.ones([1, size])

    def along(direction: tf.Tensor) -> tf.Tensor:
        direction = tf.reshape(tf.cast(direction, value.dtype), value.shape)
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(value)
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(value)
                found = function(value)
            slope = inner.gradient(found, value, unconnected_gradients=_ZERO)
            slope = tf.reduce_sum(slope * direction)
        return direction * outer.gradient(slope, value, unconnected_gradients=_ZERO)

    return repeat(int(unit.shape[0]), lambda i, total: total + along(unit[i]), tf.zeros_like(value))


def cell_information(likelihood: Any, F: tf.Tensor, batch: Batch) -> tf.Tensor:
    """Return -d^2 log p(y | f) / df^2 of each cell [T, N, P]; 0 if negative or y is missing.

    :param F: decoder outputs [T, N, P].
    """
    with tf.GradientTape(watch_accessed_variables=False) as outer:
        outer.watch(F)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(F)
            total = tf.reduce_sum(likelihood.log_prob_of_cells(F, batch.Y))
        slopes = inner.gradient(total, F)
    information = tf.maximum(-outer.gradient(slopes, F), 0.0)
    return information if batch.mask is None else tf.where(batch.mask, information, 0.0)
