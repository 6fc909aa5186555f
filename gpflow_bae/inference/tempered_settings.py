"""Settings of tempered MCMC over all weights of an autoencoder."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ..core.arguments import check_fields
from ..mcmc.types import validate
from .preconditioning import KINDS
from .settings import check_positive

__all__ = ["METHODS", "TemperedSettings"]

METHODS = ("random_walk", "lg", "adapt_lg", "adapt_lg_star", "hmc")


@dataclasses.dataclass(frozen=True)
class TemperedSettings:
    """How Chandra et al. (2022) is run; the defaults are the published values where they exist.

    The first half of the steps is burn-in at the ladder's temperatures; from then on every
    replica is at temperature 1, so that each is a chain of the posterior itself.
    """

    method: Literal["random_walk", "lg", "adapt_lg", "adapt_lg_star", "hmc"] = "adapt_lg_star"
    """``lg`` proposes along the gradient, ``adapt_lg`` along a step of Adam, ``adapt_lg_star``
    along Adam during burn-in and along the gradient afterwards: the only exact one of the two.
    ``hmc``, ours, takes several leapfrog steps of size ``noise_scale`` to a proposal."""
    num_samples: int = 6000
    """Steps of each replica, burn-in included."""
    num_replicas: int = 8
    max_temperature: float = 2.0
    """Of the geometric ladder from 1, on the likelihood alone."""
    swap_interval: int = 5
    """Steps between swaps of neighbouring temperatures."""
    burnin_fraction: float = 0.5
    thinning: int = 10
    """Steps between samples that are kept, after burn-in, rounded to whole swap intervals."""
    noise_scale: float = 0.005
    """Standard deviation of the proposal's noise (before adaptation, if there is any)."""
    learning_rate: float | None = None
    """Of the gradient step; None is the Langevin value, half the square of the noise scale."""
    adam_learning_rate: float = 0.01
    """Of the step of Adam."""
    gradient_probability: float = 0.75
    """A proposal follows the gradient with this probability, and is a random walk otherwise."""
    max_leapfrog_steps: int = 10
    """Of ``hmc``; the number is uniform from 1 to this."""
    target_acceptance: float | None = None
    """Adapt every rung's noise scale during burn-in to accept this share; None keeps it fixed."""
    whitening: Literal["none", "kronecker", "dense"] = "none"
    """Coordinates of the proposals: those of the weights, as published, or whitened by the Fisher
    information at the start; see :func:`~gpflow_bae.inference.preconditioning.affine_map`."""
    num_fisher_draws: int = 200
    """Draws of simulated data that estimate it."""
    whitening_damping: float = 0.0
    """Added to the precision of every direction."""
    num_start_steps: int = 0
    """Steps of Adam towards the posterior mode before sampling; 0 starts at the networks."""
    start_batch_size: int | None = None
    """Rows per such step; None for all."""
    start_learning_rate: float = 3e-3
    """Decays to zero along a cosine."""
    num_starts: int = 1
    """Networks that are optimised, the first from the given weights, the others from fresh ones;
    replicas start at them in turn."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(
            self,
            "num_samples",
            "swap_interval",
            "thinning",
            "adam_learning_rate",
            "start_batch_size",
            "start_learning_rate",
            "num_starts",
            "num_fisher_draws",
        )
        validate(
            noise_scale=self.noise_scale,
            learning_rate=self.learning_rate,
            gradient_probability=self.gradient_probability,
        )
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {METHODS}, got {self.method!r}.")
        if self.whitening not in KINDS:
            raise ValueError(f"whitening must be one of {KINDS}, got {self.whitening!r}.")
        for name in ("num_start_steps", "whitening_damping"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}.")
        if not 0.0 < self.burnin_fraction < 1.0:
            raise ValueError(f"burnin_fraction must lie in (0, 1), got {self.burnin_fraction}.")
        if self.target_acceptance is not None and not 0.0 < self.target_acceptance < 1.0:
            raise ValueError(f"target_acceptance must lie in (0, 1), got {self.target_acceptance}.")
        if self.num_replicas < 2:
            raise ValueError(
                f"num_replicas must be at least 2, got {self.num_replicas}: one replica has no "
                "neighbour to swap with."
            )
        if not self.max_temperature > 1.0:
            raise ValueError(f"max_temperature must be above 1, got {self.max_temperature}.")
        if self.num_starts > self.num_replicas:
            raise ValueError(
                f"num_starts must not exceed the {self.num_replicas} replicas, got "
                f"{self.num_starts}."
            )

    @property
    def num_burnin(self) -> int:
        """Steps of burn-in, a whole number of swap intervals."""
        return -(-round(self.num_samples * self.burnin_fraction) // self.swap_interval) * (
            self.swap_interval
        )

    @property
    def steps_per_sample(self) -> int:
        """Steps between samples: a whole number of swap intervals."""
        return max(1, round(self.thinning / self.swap_interval)) * self.swap_interval
