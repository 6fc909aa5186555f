"""Settings of tempered MCMC over all weights of an autoencoder."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from ..core.annotations import check_fields
from ..core.arguments import check_parts
from ..mcmc.types import validate
from .preconditioning import Whitening
from .starts.initializer import Initializer

__all__ = ["Proposal", "TemperedSettings"]

# Names of the parts' fields in the records of runs.
_WHITENING_NAMES = {"kind": "whitening", "num_draws": "num_fisher_draws"}
_START_NAMES = {"num_steps": "num_start_steps"}


@dataclasses.dataclass(frozen=True)
class Proposal:
    """Settings of the proposals of a replica, in the coordinates of the whitening."""

    method: Literal["random_walk", "lg", "adapt_lg", "adapt_lg_star", "hmc"] = "adapt_lg_star"
    """``lg`` proposes along the gradient, ``adapt_lg`` along a step of Adam, ``adapt_lg_star``
    along Adam during burn-in and along the gradient afterwards, which is exact, unlike
    ``adapt_lg``. ``hmc``, ours, takes several leapfrog steps of size ``noise_scale``."""
    noise_scale: float = 0.005
    """Standard deviation of the proposal's noise (before adaptation, if there is any)."""
    learning_rate: float | None = None
    """Size of the gradient step; None for the Langevin value, half the squared noise scale."""
    adam_learning_rate: float = 0.01
    """Size of the step of Adam."""
    gradient_probability: float = 0.75
    """Probability of a proposal along the gradient; otherwise it is a random walk."""
    max_leapfrog_steps: int = 10
    """Largest number of leapfrog steps of ``hmc``, which is uniform from 1 to this."""
    target_acceptance: float | None = None
    """Acceptance rate to which each rung's noise scale is adapted during burn-in; None keeps the
    noise scale fixed."""

    def __post_init__(self) -> None:
        check_fields(self, positive=("adam_learning_rate",), max_leapfrog_steps=1)
        validate(
            noise_scale=self.noise_scale,
            learning_rate=self.learning_rate,
            gradient_probability=self.gradient_probability,
        )
        if self.target_acceptance is not None and not 0.0 < self.target_acceptance < 1.0:
            raise ValueError(f"target_acceptance must lie in (0, 1), got {self.target_acceptance}.")


@dataclasses.dataclass(frozen=True)
class TemperedSettings:
    """Settings of tempered MCMC (Chandra et al. 2022); defaults are the published values, if any.

    The first half of the steps is burn-in at the ladder's temperatures; afterwards every replica
    is at temperature 1, so that each is a chain with the posterior as its target.
    """

    proposal: Proposal = Proposal()
    num_samples: int = 6000
    """Steps of each replica, burn-in included."""
    num_replicas: int = 8
    max_temperature: float = 2.0
    """Top of the geometric ladder of temperatures from 1, which act on the likelihood only."""
    swap_interval: int = 5
    """Steps between swaps of neighbouring temperatures."""
    burnin_fraction: float = 0.5
    thinning: int = 10
    """Steps between samples after burn-in, rounded to whole swap intervals."""
    whitening: Whitening = Whitening()
    """Coordinates of the proposals: the weights themselves, as published, or whitened by the Fisher
    information at the start of the replicas."""
    start: Initializer | None = None
    """Start of all replicas: the end of some steps of Adam
    (:class:`~gpflow_bae.inference.AdamStart`), the best of some modes
    (:class:`~gpflow_bae.inference.ModeStart`), or the model's weights (None)."""

    def __post_init__(self) -> None:
        check_fields(self, positive=("num_samples", "swap_interval", "thinning"))
        check_parts(self, proposal=Proposal, whitening=Whitening)
        if self.start is not None:
            check_parts(self, start=Initializer)
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
            **{_WHITENING_NAMES.get(k, f"whitening_{k}"): v for k, v in whitening.items()},
            **{_START_NAMES.get(k, f"start_{k}"): v for k, v in steps.items()},
        }

    @property
    def num_burnin(self) -> int:
        """Number of steps of burn-in, a whole number of swap intervals."""
        return -(-round(self.num_samples * self.burnin_fraction) // self.swap_interval) * (
            self.swap_interval
        )

    @property
    def steps_per_sample(self) -> int:
        """Number of steps between samples, a whole number of swap intervals."""
        return max(1, round(self.thinning / self.swap_interval)) * self.swap_interval
