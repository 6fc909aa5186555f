"""Coordinates of parameters and codes from the Fisher information at a chain's state.

Data say more of most weights than their priors do, by factors of 10^4 to 10^9 that differ from
layer to layer and within layers; a sampler with unit mass would have to take steps for the largest.
What they say is estimated where the chain is, by gradients with the Fisher information as their
covariance: through the decoder goes noise whose variance is the information of each cell,
-d^2 log p(y | f) / df^2 (the generalised Gauss-Newton matrix, which for an exponential family is
the Fisher information). See :mod:`gpflow_bae.inference.kronecker` for what becomes of those of
parameters, and :mod:`gpflow_bae.inference.code_coordinates` for those of codes under a smooth GP.

A state is not the posterior: a hidden unit that is saturated in it says nothing of its weights, and
says much as soon as they move. So coordinates are fitted to single states on the way to where the
chain stays, and their scales in the end to the information as it is on average over a quarter of
burn-in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import tensorflow as tf

from ..base import Batch
from ..data import Observations, draw_indices
from ..mcmc import State
from ..mcmc.noise import split, standard_noise
from ..models import BayesianAutoencoder, TemperedBAE
from ..tracing import compiled
from .chain_state import Chain, Point
from .chains import map_chains
from .coordinates import Metric, has_code_coordinates
from .kronecker import Factor, basis_sizes, fisher_factors, prior_precision, rescaled, squares_along
from .loops import repeat

__all__ = ["FisherMetric", "cell_information"]

_SEED = 0x3E  # folded into that of a round
_DRAWS = 300
_CODE_DRAWS = 64  # or four for each channel; with all data, and an error of 18 % for each number
_POINTS = 128  # of a draw, or the points of one task where that has more
_LEAST_PRECISION = 0.01  # of a prior: no coordinate is longer than 10
# What hardly matters where it is may matter where it would go: an inducing input that says nothing
# yet. Longer coordinates than this share of the mean information allows have made step sizes
# collapse (rotated MNIST: 0.003 instead of 0.14).
_RELATIVE_DAMPING = 1e-3
# Where in burn-in coordinates are fitted: at its start, and again on the way to where it stays.
# From the last of these to half of it the information is averaged; the rest is for the step size.
_FITS = (0.0, 1 / 16, 1 / 8, 1 / 4)
_AVERAGED_UNTIL = 1 / 2


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
        self._fits = {int(share * burnin_rounds) for share in _FITS}
        # Draws for an average are made before each of these rounds.
        averaged = range(max(self._fits) + 1, int(_AVERAGED_UNTIL * burnin_rounds) + 1)
        self._averaged, self._draws = averaged, -(-_DRAWS // max(len(averaged), 1))
        self._restart = restart
        self._fit_chains = compiled(self._mapped(self._fitted))
        self._average_chains = compiled(self._mapped(self._averaged_further))
        self._finish_chains = compiled(self._mapped(self._with_average))
        points = 1 if data.axis == 1 else int(data.Y.shape[1])
        self._size = min(data.num_items, -(-_POINTS // points))
        own = {id(p) for p in model.likelihood.parameters}
        self._of_likelihood = [id(p) in own for p in model.sampled.parameters]
        self._of_codes = not isinstance(model, TemperedBAE) and has_code_coordinates(model, data)

    def identity(self) -> Metric:
        """Coordinates before the first fit: values as they are, codes whitened by their prior."""
        factors = tuple(
            Factor(
                tf.ones_like(v),
                *tf.nest.map_structure(
                    lambda n, v=v: tf.eye(n, dtype=v.dtype), basis_sizes(v.shape)
                ),
            )
            for v in self.model.sampled.values()
        )
        squares = tuple(tf.zeros_like(f.scale) for f in factors)
        if not self._of_codes:
            return Metric(factors, (), squares)
        L = self.model.latent_dim
        shape = [*self.data.Y.shape[:2], L, L]
        return Metric(factors, tf.zeros(shape, gpflow.default_float()), squares)

    def before_round(self, chains: Chain, number: int, seeds: tf.Tensor) -> Chain:
        """Chains as they go into a round of this number: in new coordinates, where it is time.

        :param seeds: one for each chain [C, 2].
        """
        if number in self._fits:
            return self._fit_chains(chains, seeds)
        if number in self._averaged:
            chains = self._average_chains(chains, seeds)
            return self._finish_chains(chains, seeds) if number == self._averaged[-1] else chains
        return chains

    def _mapped(self, function: Callable[[Chain, tf.Tensor], Chain]) -> Callable[..., Chain]:
        """Of all chains, with a seed that only coordinates have."""

        def of_one(chain: Chain, seed: tf.Tensor) -> Chain:
            return function(chain, tf.random.fold_in(seed, _SEED, alg="philox"))

        def of_all(chains: Chain, seeds: tf.Tensor) -> Chain:
            specification = tf.nest.map_structure(
                lambda v: tf.TensorSpec(v.shape[1:], v.dtype), chains
            )
            return map_chains(of_one, (chains, seeds), specification)

        return of_all

    def _fitted(self, chain: Chain, seed: tf.Tensor) -> Chain:
        position = chain.sampler.position
        metric = self.fit(position, seed)
        return chain._replace(sampler=self._restart(position), metric=metric)

    def _averaged_further(self, chain: Chain, seed: tf.Tensor) -> Chain:
        position, metric = chain.sampler.position, chain.metric
        squares = squares_along(
            metric.parameters,
            lambda seed: self._gradient(position, seed),
            split(seed, self._draws),
            metric.squares,
        )
        return chain._replace(metric=metric._replace(squares=squares))

    def _with_average(self, chain: Chain, seed: tf.Tensor) -> Chain:
        position, metric = chain.sampler.position, chain.metric
        number = self._draws * len(self._averaged)
        information = [total / number for total in metric.squares]
        factors = rescaled(
            metric.parameters, information, self._precision(position), _RELATIVE_DAMPING
        )
        if self._of_codes:
            metric = metric._replace(information=self._information(position, seed))
        metric = metric._replace(parameters=factors)
        return chain._replace(sampler=self._restart(position), metric=metric)

    def fit(self, position: Point, seed: tf.Tensor) -> Metric:
        """Coordinates at a chain's position; a pure function, to be compiled."""
        precision = self._precision(position)
        of_parameters, of_codes = tf.unstack(split(seed, 2))

        def draw(seed: tf.Tensor) -> Sequence[tf.Tensor]:
            return self._gradient(position, seed)

        seeds = split(of_parameters, _DRAWS)
        factors = fisher_factors(draw, seeds, precision, _RELATIVE_DAMPING)
        information = self._information(position, of_codes) if self._of_codes else ()
        return Metric(factors, information, tuple(tf.zeros_like(p) for p in precision))

    def _precision(self, position: Point) -> tuple[tf.Tensor, ...]:
        """What is known of each parameter without the decoder."""
        values = position.parameters
        precision = prior_precision(self.model.sampled, values, _LEAST_PRECISION)
        return self._with_likelihood(precision, position, self.data.gather(None))

    def _information(self, position: Point, seed: tf.Tensor) -> tf.Tensor:
        """That of their observations on all codes [T, N, L, L]."""
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

    def _decoded(self, values: Sequence[tf.Tensor], codes: Any, batch: Batch) -> Any:
        """The likelihood, and what it is given [T, N, P]."""
        bound = self.model.bind(values)
        if isinstance(bound, TemperedBAE):
            return bound.likelihood, bound.reconstruct(batch.Y)
        return bound.likelihood, bound.decode(batch.X, bound.from_whitened(batch.X, codes))

    def _noisy(
        self, values: Sequence[tf.Tensor], codes: Any, batch: Batch, seed: tf.Tensor
    ) -> tf.Tensor:
        """What has gradients with the information of a batch as their covariance."""
        likelihood, F = self._decoded(values, codes, batch)
        # The information weighs the noise, and is no function of the values here.
        information = tf.stop_gradient(cell_information(likelihood, F, batch))
        noise = standard_noise(tf.shape(F), seed, F.dtype)
        return tf.reduce_sum(tf.sqrt(information) * noise * F)

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
            objective = self._noisy(values, codes, batch, noisy)
            objective *= tf.cast(tf.sqrt(batch.scale), objective.dtype)
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
