"""Settings of tempered MCMC over all weights of an autoencoder."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from ..core.arguments import check_fields, check_parts
from ..mcmc.types import validate
from .preconditioning import Whitening
from .settings import check_positive
from .starts.initializer import Initializer

__all__ = ["Proposal", "TemperedSettings"]

# Fields of parts by the names that records of runs have for them.
_OF_WHITENING = {"kind": "whitening", "num_draws": "num_fisher_draws"}
_OF_START = {"num_steps": "num_start_steps"}


@dataclasses.dataclass(frozen=True)
class Proposal:
    """How a replica's next position is proposed, in the coordinates of the whitening."""

    method: Literal["random_walk", "lg", "adapt_lg", "adapt_lg_star", "hmc"] = "adapt_lg_star"
    """``lg`` proposes along the gradient, ``adapt_lg`` along a step of Adam, ``adapt_lg_star``
    along Adam during burn-in and along the gradient afterwards: the only exact one of the two.
    ``hmc``, ours, takes several leapfrog steps of size ``noise_scale`` to a proposal."""
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

    def __post_init__(self) -> None:
        check_fields(self, max_leapfrog_steps=1)
        check_positive(self, "adam_learning_rate")
        validate(
            noise_scale=self.noise_scale,
            learning_rate=self.learning_rate,
            gradient_probability=self.gradient_probability,
        )
        if self.target_acceptance is not None and not 0.0 < self.target_acceptance < 1.0:
            raise ValueError(f"target_acceptance must lie in (0, 1), got {self.target_acceptance}.")


@dataclasses.dataclass(frozen=True)
class TemperedSettings:
    """How Chandra et al. (2022) is run; the defaults are the published values where they exist.

    The first half of the steps is burn-in at the ladder's temperatures; from then on every
    replica is at temperature 1, so that each is a chain of the posterior itself.
    """

    proposal: Proposal = Proposal()
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
    whitening: Whitening = Whitening()
    """Coordinates of the proposals: those of the weights, as published, or whitened by the Fisher
    information where replicas start."""
    start: Initializer | None = None
    """Where all replicas start: at the end of some steps of Adam
    (:class:`~gpflow_bae.inference.AdamStart`), at the best of some modes
    (:class:`~gpflow_bae.inference.ModeStart`), or, None, at the model's weights."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_parts(self, proposal=Proposal, whitening=Whitening)
        if self.start is not None:
            check_parts(self, start=Initializer)
        check_positive(self, "num_samples", "swap_interval", "thinning")
        if not 0.0 < self.burnin_fraction < 1.0:
            raise ValueError(f"burnin_fraction must lie in (0, 1), got {self.burnin_fraction}.")
        if self.num_replicas < 2:
            raise ValueError(
                f"num_replicas must be at least 2, got {self.num_replicas}: one replica has no "
                "neighbour to swap with."
            )
        if not self.max_temperature > 1.0:
            raise ValueError(f"max_temperature must be above 1, got {self.max_temperature}.")

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values, for records of a run."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        proposal = dataclasses.asdict(values.pop("proposal"))
        whitening = dataclasses.asdict(values.pop("whitening"))
        start = values.pop("start")
        steps = {"num_steps": 0} if start is None else start.describe()
        return {
            **values,
            **proposal,
            **{_OF_WHITENING.get(k, f"whitening_{k}"): v for k, v in whitening.items()},
            **{_OF_START.get(k, f"start_{k}"): v for k, v in steps.items()},
        }

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
