"""Distribution of stochastic-gradient MCMC over replicas, by chains or by items of minibatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...data import StreamedObservations
from ...latent_priors import GaussianLatentPrior
from ..settings import AmortizedSettings
from .replicas import ALONE, Replicas

__all__ = ["Spread", "check_items"]


class Spread:
    """Replicas that share either chains or the items of minibatches."""

    def __init__(self, replicas: Replicas = ALONE, over: str = "minibatches"):
        """
        :param over: ``"minibatches"`` or ``"chains"``.
        """
        self.workers = replicas.workers
        self._over_chains = over == "chains" and replicas.size > 1
        self.gradients, self.chains = replicas, ALONE
        if self._over_chains:
            self.gradients, self.chains = ALONE, replicas

    @classmethod
    def of(cls, replicas: Replicas, over: str | None, num_chains: int) -> Spread:
        """Share chains or minibatches as requested. None selects chains, which exchange nothing
        within a round, if replicas divide their number, and else minibatches.
        """
        if over is None:
            divides = num_chains % replicas.size == 0
            over = "chains" if divides and num_chains > 1 else "minibatches"
        return cls(replicas, over)

    def check(
        self,
        model: Any,
        data: Any,
        settings: AmortizedSettings,
        num_chains: int,
        jit_compile: bool,
    ) -> None:
        """Check that replicas can share this run.

        :raises ValueError: if they cannot, with the reason and an alternative.
        """
        replicas = self.chains if self._over_chains else self.gradients
        if replicas.size == 1:
            return
        _check_in_memory(data)
        if self._over_chains and num_chains % replicas.size:
            raise ValueError(
                f'spread="chains" gives each replica as many chains, and num_chains={num_chains} '
                f"do not divide among {replicas.size}: take a multiple of it, or "
                'spread="minibatches".'
            )
        if jit_compile and not (self._over_chains and len(replicas.devices) == 1):
            raise ValueError(
                "XLA compiles for one device alone: set jit_compile=False, or spread chains over "
                "workers with one device each."
            )
        if self._over_chains:
            return
        check_items(model, data, settings.batch_size, replicas)

    # Rounds.

    def own_chains(self, num_chains: int) -> range:
        """Return the indices of the chains that this process runs."""
        if not self._over_chains:
            return range(num_chains)
        count = num_chains // self.workers.count
        return range(self.workers.rank * count, (self.workers.rank + 1) * count)

    def round(self, function: Callable[..., Any], chains: Any, seeds: Any, *others: Any) -> Any:
        """Apply ``function`` to shared chains [C, ...]; return all results in all processes."""
        if self.workers.count == 1:
            return function(chains, seeds, *others)
        own = self.own_chains(seeds.shape[0])
        chains, seeds = tf.nest.map_structure(lambda v: v[own.start : own.stop], (chains, seeds))
        with self.workers.in_words():
            return self._of_all(function(chains, seeds, *others))

    def _of_all(self, state: Any) -> Any:
        return self.workers.gather(state) if self._over_chains else self.workers.agreed(state)

    # Initialisation.

    @property
    def makes_starts(self) -> bool:
        """Whether this process initialises chains: all do if they share chains, else the chief."""
        return self.workers.rank == 0 or self._over_chains

    def started(
        self, state: Any, variables: Sequence[tf.Variable], losses: list[np.ndarray]
    ) -> Any:
        """Return the initial states of all chains, from those that each process initialised.

        :param variables: variables that initialisation changed; all processes take the values of
            the last chain.
        :param losses: losses of this process's initialisations; replaced by those of all chains.
        """
        if self.workers.count == 1:
            return state
        last = self.workers.count - 1 if self._over_chains else 0
        for variable, value in zip(variables, self.workers.same(variables, last), strict=True):
            variable.assign(value)
        own = {f"{k}": loss for k, loss in enumerate(losses)}
        found = [self.workers.arrays_of(own, root) for root in range(last + 1)]
        losses[:] = [arrays[f"{k}"] for arrays in found for k in range(len(arrays))]
        # The chief initialised all chains if they are not shared.
        return self._of_all(state) if self._over_chains else self.workers.same(state)


def _check_in_memory(data: Any) -> None:
    if isinstance(data, StreamedObservations):
        raise ValueError(
            "Replicas of a strategy cannot share a stream, which each would read: leave strategy "
            "out, or pass data in memory."
        )


def check_items(model: Any, data: Any, batch_size: int | None, replicas: Replicas) -> None:
    """Check that the log density of a minibatch is a sum over items, at least one for each replica.

    :raises ValueError: if it is not, with the reason and an alternative.
    """
    _check_in_memory(data)
    size = batch_size or data.num_items
    if size < replicas.size:
        raise ValueError(
            f"The {size} items of a minibatch cannot be shared among {replicas.size} replicas: "
            'take a larger batch_size, fewer replicas, or spread chains (spread="chains").'
        )
    prior = getattr(model, "latent_prior", None)
    if prior is None:
        return
    name = model.latent_prior_name
    # For a process without a tractable density, a minibatch estimates a joint term of all points.
    splits = isinstance(prior, GaussianLatentPrior) or not prior.needs_inputs
    if data.axis == 1 and not (splits and prior.splits_over_points):
        raise ValueError(
            f"{name} couples the points of a single task, so replicas cannot share them: take a "
            'SparseGP with inducing_outputs="sampled", or spread chains (spread="chains").'
        )
    if getattr(prior, "draws", False):
        raise ValueError(
            f"{name} draws its hidden layers for all items of a minibatch together, so replicas "
            'cannot share them: spread chains (spread="chains").'
        )
