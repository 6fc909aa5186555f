"""Layerwise coordinates of all parameters from the Fisher information at a chain's state.

Data say more of most weights than their priors do, by factors of 10^4 to 10^9 that differ from
layer to layer and within layers; a sampler with unit mass would have to take steps for the largest.
What they say is estimated where the chain is, by gradients with the Fisher information as their
covariance: through the decoder goes noise whose variance is the information of each cell,
-d^2 log p(y | f) / df^2 (the generalised Gauss-Newton matrix, which for an exponential family is
the Fisher information). See :mod:`gpflow_bae.inference.kronecker` for what becomes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..base import Batch
from ..data import Observations, draw_indices
from ..mcmc import State
from ..mcmc.noise import split, standard_noise
from ..models import BayesianAutoencoder, TemperedBAE
from ..tracing import compiled
from .chain_state import Chain, Point
from .chains import map_chains
from .kronecker import Factor, fisher_factors, matrix_sides, prior_precision

__all__ = ["FisherMetric", "cell_information"]

_SEED = 0x3E  # folded into that of a round
_DRAWS = 300
_POINTS = 128  # of a draw, or the points of one task where that has more
_LEAST_PRECISION = 0.01  # of a prior: no coordinate is longer than 10
# What hardly matters where it is may matter where it would go: an inducing input that says nothing
# yet. Longer coordinates than this share of the mean information allows have made step sizes
# collapse (rotated MNIST: 0.003 instead of 0.14).
_RELATIVE_DAMPING = 1e-3
# Where in burn-in coordinates are fitted: at its start, and again on the way to where it stays. The
# second half is left to the step size.
_FITS = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2)


class FisherMetric:
    """Fits coordinates of a model's sampled parameters to the states of chains."""

    def __init__(
        self,
        model: BayesianAutoencoder | TemperedBAE,
        data: Observations,
        burnin_rounds: int,
        restart: Callable[[Point], State],
    ):
        """
        :param restart: a sampler's state at a position, at rest: how a chain goes on after a fit.
        """
        self.model, self.data = model, data
        self._rounds = {int(share * burnin_rounds) for share in _FITS}
        self._restart = restart
        self._compiled = compiled(self._with_new_coordinates)
        points = 1 if data.axis == 1 else int(data.Y.shape[1])
        self._size = min(data.num_items, -(-_POINTS // points))
        own = {id(p) for p in model.likelihood.parameters}
        self._of_likelihood = [id(p) in own for p in model.sampled.parameters]

    def identity(self) -> tuple[Factor, ...]:
        """Coordinates that are the values themselves, of the shapes that :meth:`fit` returns."""
        return tuple(
            Factor(
                tf.ones_like(v),
                tuple(tf.eye(n, dtype=v.dtype) for n in matrix_sides(v.shape) or ()),
            )
            for v in self.model.sampled.values()
        )

    def before_round(self, chains: Chain, number: int, seeds: tf.Tensor) -> Chain:
        """Chains as they go into a round of this number: in new coordinates, where it is time.

        :param seeds: one for each chain [C, 2].
        """
        return self._compiled(chains, seeds) if number in self._rounds else chains

    def _with_new_coordinates(self, chains: Chain, seeds: tf.Tensor) -> Chain:
        def fitted(chain: Chain, seed: tf.Tensor) -> Chain:
            position = chain.sampler.position
            factors = self.fit(position, tf.random.fold_in(seed, _SEED, alg="philox"))
            return chain._replace(sampler=self._restart(position), metric=factors)

        specification = tf.nest.map_structure(lambda v: tf.TensorSpec(v.shape[1:], v.dtype), chains)
        return map_chains(fitted, (chains, seeds), specification)

    def fit(self, position: Point, seed: tf.Tensor) -> tuple[Factor, ...]:
        """Coordinates at a chain's position; a pure function, to be compiled."""
        values = position.parameters
        precision = prior_precision(self.model.sampled, values, _LEAST_PRECISION)
        precision = self._with_likelihood(precision, position, self.data.gather(None))

        def draw(seed: tf.Tensor) -> Sequence[tf.Tensor]:
            return self._gradient(position, seed)

        return fisher_factors(draw, split(seed, _DRAWS), precision, _RELATIVE_DAMPING)

    def _decoded(self, values: Sequence[tf.Tensor], codes: Any, batch: Batch) -> Any:
        """The likelihood, and what it is given [T, N, P]."""
        bound = self.model.bind(values)
        if isinstance(bound, TemperedBAE):
            return bound.likelihood, bound.reconstruct(batch.Y)
        return bound.likelihood, bound.decode(batch.X, bound.from_whitened(batch.X, codes))

    def _gradient(self, position: Point, seed: tf.Tensor) -> Sequence[tf.Tensor]:
        """One draw with the Fisher information of all data, from some of them."""
        which, noisy = tf.unstack(split(seed, 2))
        indices = draw_indices(self.data.num_items, self._size, which)
        batch, codes = self.data.gather(indices), position.codes
        if indices is not None and tf.is_tensor(codes):
            codes = tf.gather(codes, indices, axis=self.data.axis)
        values = position.parameters
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            likelihood, F = self._decoded(values, codes, batch)
            information = tf.stop_gradient(cell_information(likelihood, F, batch))
            noise = standard_noise(tf.shape(F), noisy, F.dtype)
            scale = tf.cast(tf.sqrt(batch.scale), F.dtype)
            # The information weighs the noise, and is no function of the values here.
            objective = scale * tf.reduce_sum(tf.sqrt(information) * noise * F)
        return tape.gradient(objective, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    def _with_likelihood(
        self, precision: Sequence[tf.Tensor], position: Point, batch: Batch
    ) -> tuple[tf.Tensor, ...]:
        """The likelihood's own parameters, such as a noise variance, are seen by no decoder.

        Their curvature is that of the log likelihood at what is decoded, number by number.
        """
        if not any(self._of_likelihood):
            return tuple(precision)
        values = position.parameters
        _, F = self._decoded(values, position.codes, batch)
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(values)
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(values)
                likelihood = self.model.bind(values).likelihood
                total = tf.reduce_sum(likelihood.masked_log_prob(F, batch.Y, batch.mask))
            slopes = inner.gradient(
                total, values, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            total = tf.add_n([tf.cast(tf.reduce_sum(s), tf.float64) for s in slopes])
        curvature = outer.gradient(
            total, values, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return tuple(
            p + tf.maximum(-tf.cast(c, p.dtype), 0.0) if own else p
            for p, c, own in zip(precision, curvature, self._of_likelihood, strict=True)
        )


def cell_information(likelihood: Any, F: tf.Tensor, batch: Batch) -> tf.Tensor:
    """-d^2 log p(y | f) / df^2 of each cell, like F; 0 where it is negative, or y is missing.

    :param F: what the decoder says [T, N, P].
    """
    with tf.GradientTape(watch_accessed_variables=False) as outer:
        outer.watch(F)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(F)
            total = tf.reduce_sum(likelihood.log_prob_of_cells(F, batch.Y))
        slopes = inner.gradient(total, F)
    information = tf.maximum(-outer.gradient(slopes, F), 0.0)
    return information if batch.mask is None else tf.where(batch.mask, information, 0.0)
