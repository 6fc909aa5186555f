"""Preconditioning by prior and Fisher information, fitted to a chain during burn-in.

Data say more of most weights than their priors do, by factors of 10^4 to 10^9 that differ from
layer to layer and within layers; a sampler with unit mass would have to take steps for the largest.
What they say is estimated where the chain is (:mod:`.information`). See :mod:`.kronecker` for what
becomes of those of parameters, and :mod:`.prior` for those of codes under a smooth GP.

A state is not the posterior: a hidden unit that is saturated in it says nothing of its weights, and
says much as soon as they move. So maps are fitted to single states on the way to where the chain
stays, and their scales in the end to the information as it is on average over a quarter of
burn-in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf

from ...core.tracing import compiled
from ...data import Observations
from ...mcmc import State
from ...mcmc.noise import split
from ...models import BayesianAutoencoder, TemperedBAE
from ..chain_state import Chain, Point
from ..chains import map_chains
from .information import FisherInformation
from .kronecker import fisher_maps, identity_map, rescaled, squares_along
from .linear_map import KroneckerMap, PointMap
from .preconditioner import Preconditioner
from .prior import code_map

__all__ = ["FisherMetric", "FisherPreconditioner"]

_SEED = 0x3E  # folded into that of a round
_DRAWS = 300
_POINTS = 128  # of a draw, or the points of one task where that has more
_LEAST_PRECISION = 0.01  # of a prior: no coordinate is longer than 10
# What hardly matters where it is may matter where it would go: an inducing input that says nothing
# yet. Longer coordinates than this share of the mean information allows have made step sizes
# collapse (rotated MNIST: 0.003 instead of 0.14).
_RELATIVE_DAMPING = 1e-3
# Where in burn-in maps are fitted: at its start, and again on the way to where it stays. From the
# last of these to half of it the information is averaged; the rest is for the step size.
_FITS = (0.0, 1 / 16, 1 / 8, 1 / 4)
_AVERAGED_UNTIL = 1 / 2


class FisherMetric(NamedTuple):
    """What is fitted to a chain, and part of its state."""

    parameters: tuple[KroneckerMap, ...]
    information: Any = ()  # on each code [T, N, L, L]; () where codes stay what they are
    squares: tuple[tf.Tensor, ...] = ()  # of draws of it along the bases, while they are averaged


class FisherPreconditioner(Preconditioner):
    """Fits maps of a model's sampled parameters and codes to the states of chains."""

    kind = "fisher"

    def __init__(
        self,
        model: BayesianAutoencoder | TemperedBAE,
        data: Observations,
        burnin_rounds: int,
        restart: Callable[[Point], State],
        owned: Sequence[str] = (),
        batch_size: int | None = None,
    ):
        """Arguments as in :class:`~.preconditioner.Preconditioner`, and:

        :param burnin_rounds: of the run.
        :param restart: returns a sampler's state at a position, at rest: how a chain goes on after
            a fit.
        """
        super().__init__(model, data, owned, batch_size)
        self._fits = {int(share * burnin_rounds) for share in _FITS}
        # Draws for an average are made before each of these rounds.
        averaged = range(max(self._fits) + 1, int(_AVERAGED_UNTIL * burnin_rounds) + 1)
        self._averaged, self._draws = averaged, -(-_DRAWS // max(len(averaged), 1))
        self._restart = restart
        self._fit_chains = compiled(self._mapped(self._fitted))
        self._average_chains = compiled(self._mapped(self._averaged_further))
        self._finish_chains = compiled(self._mapped(self._with_average))
        points = 1 if data.axis == 1 else int(data.Y.shape[1])
        self._fisher = FisherInformation(model, data, min(data.num_items, -(-_POINTS // points)))

    def initial(self) -> FisherMetric:
        """Return the metric before a fit: values as they are, codes white under their prior."""
        maps = tuple(identity_map(v) for v in self.model.sampled.values())
        squares = tuple(tf.zeros_like(m.scale) for m in maps)
        if not self.maps_codes:
            return FisherMetric(maps, (), squares)
        L = self.model.latent_dim
        shape = [*self.data.Y.shape[:2], L, L]
        return FisherMetric(maps, tf.zeros(shape, gpflow.default_float()), squares)

    def map_at(
        self,
        metric: Any,
        parameters: Sequence[tf.Tensor],
        X: tf.Tensor | None,
        indices: tf.Tensor | None = None,
    ) -> PointMap:
        information = metric.information
        if indices is not None and tf.is_tensor(information):
            information = tf.gather(information, indices)
        if not self.maps_codes:
            return PointMap(metric.parameters)
        return PointMap(metric.parameters, code_map(self.model, parameters, X, information))

    def before_round(self, chains: Chain, number: int, seeds: tf.Tensor) -> Chain:
        if number in self._fits:
            return self._fit_chains(chains, seeds)
        if number in self._averaged:
            chains = self._average_chains(chains, seeds)
            return self._finish_chains(chains, seeds) if number == self._averaged[-1] else chains
        return chains

    def _mapped(self, function: Callable[[Chain, tf.Tensor], Chain]) -> Callable[..., Chain]:
        """Apply a function to each chain, with a seed that preconditioning alone has."""

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
        return chain._replace(sampler=self._restart(position), metric=self.fit(position, seed))

    def _averaged_further(self, chain: Chain, seed: tf.Tensor) -> Chain:
        position, metric = chain.sampler.position, chain.metric
        squares = squares_along(
            metric.parameters,
            lambda seed: self._fisher.draw(position, seed),
            split(seed, self._draws),
            metric.squares,
        )
        return chain._replace(metric=metric._replace(squares=squares))

    def _with_average(self, chain: Chain, seed: tf.Tensor) -> Chain:
        position, metric = chain.sampler.position, chain.metric
        number = self._draws * len(self._averaged)
        information = [total / number for total in metric.squares]
        precision = self._fisher.precision(position, _LEAST_PRECISION)
        maps = rescaled(metric.parameters, information, precision, _RELATIVE_DAMPING)
        if self.maps_codes:
            metric = metric._replace(information=self._fisher.of_codes(position, seed))
        metric = metric._replace(parameters=maps)
        return chain._replace(sampler=self._restart(position), metric=metric)

    def fit(self, position: Point, seed: tf.Tensor) -> FisherMetric:
        """Return the metric at a chain's position; a pure function, to be compiled."""
        precision = self._fisher.precision(position, _LEAST_PRECISION)
        of_parameters, of_codes = tf.unstack(split(seed, 2))
        seeds = split(of_parameters, _DRAWS)
        maps = fisher_maps(
            lambda seed: self._fisher.draw(position, seed), seeds, precision, _RELATIVE_DAMPING
        )
        information = self._fisher.of_codes(position, of_codes) if self.maps_codes else ()
        return FisherMetric(maps, information, tuple(tf.zeros_like(p) for p in precision))
