"""Presets of the moving-ball experiment."""

from __future__ import annotations

import dataclasses
from typing import Any

from experiments.common import plans
from gpflow_bae import inference
from gpflow_bae.mcmc import SamplingAlgorithm, adaptive_sghmc, sghmc
from gpflow_bae.mcmc.step_size import from_curvature

__all__ = ["VARIATIONAL", "Plan", "make_plan"]

VARIATIONAL = ("vae", "gp_vae", "svgp_vae")

# Where the search for a step size begins, and critical damping of what only the prior informs.
_SGHMC = {"step_size": 0.003, "momentum_decay": 0.006, "integrator": "baoab"}


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a run, but the seed."""

    model: str
    variational: inference.VariationalSettings
    schedule: inference.AmortizedSettings
    sampler: SamplingAlgorithm
    num_inducing: int = 10
    warm_start: bool = True
    weight_prior: str = "normal"
    weight_prior_scale: float | tuple[float, ...] = 1.0  # or one for each layer
    num_chains: int = 1
    initial_lengthscale: float = 1.0
    num_warm_encoder_steps: int = 600
    warm_start_prior: str = "exact"  # or "own": a sparse prior's chart is more bent where it ends
    parameters: str = "point"  # of a variational model; or "mean_field", or "sghmc" on its bound

    @property
    def temperature(self) -> float | None:
        """None where nothing is sampled."""
        return super().temperature if self.is_sampled else None

    @property
    def is_sampled(self) -> bool:
        """Whether there is a chain."""
        return self.model not in VARIATIONAL or self.parameters == "sghmc"

    @property
    def num_samples(self) -> int:
        """Posterior samples of a complete run."""
        several = self.is_sampled or self.parameters == "mean_field"
        return super().num_samples if several else 1

    def describe(self) -> dict[str, Any]:
        """The settings that matter to this model, as plain values."""
        other = {"model"}
        if self.model not in VARIATIONAL:
            other |= {"parameters"}
        else:
            other |= {"warm_start", "num_warm_encoder_steps"}
            if self.parameters == "point":
                other |= {"sampler"}
        if self.model not in ("sgp_bae", "svgp_vae"):
            other |= {"num_inducing"}
        if self.model != "sgp_bae":
            other |= {"warm_start_prior"}
        if self.weight_prior == "hierarchical":
            other |= {"weight_prior_scale"}
        if self.model in ("vae", "bae"):
            other |= {"initial_lengthscale"}
        return {name: value for name, value in super().describe().items() if name not in other}

    def describe_objective(self, objective: inference.Objective) -> dict[str, Any]:
        """Its own settings; it is the bound in every run."""
        return dataclasses.asdict(objective)


def _converging(model: str, preset: str, weight_prior: str) -> dict[str, Any]:
    """Rounds of a chain that is meant to reach its stationary distribution, and stay there."""
    moves = ["layer_variances", "layer_scales"] if weight_prior == "hierarchical" else []
    moves += ["code_scale"] + (["prior_parameters"] if model != "bae" else [])
    settings = {"coordinates": "prior", "moves": tuple(moves), "num_encoder_steps": 10}
    if preset == "quick":
        return settings | {"burnin": 4000, "num_samples": 20, "thinning": 50}
    return settings | {"burnin": 10_000, "num_samples": 100, "thinning": 200}


def make_plan(
    model: str,
    preset: str,
    *,
    num_variational_steps: int | None = None,
    sampler_name: str = "adaptive_sghmc",
    schedule: dict[str, Any] | None = None,
    sampler: dict[str, Any] | None = None,
    **changes: Any,
) -> Plan:
    """A preset with some settings replaced; the choices are explained in the results page.

    :param schedule: fields of :class:`~gpflow_bae.inference.AmortizedSettings`.
    :param sampler_name: "adaptive_sghmc", as published, or "sghmc": BAOAB steps in coordinates of
        the priors, as large as the curvature allows, and moves for everything that such steps do
        not suit.
    :param sampler: arguments of its ``build``; with a ``step_size`` that is the step size.
    :param changes: fields of :class:`Plan`.
    """
    chain: dict[str, Any] = {"encoder_batch_size": 256}
    if preset == "quick":
        # Where a chain goes on the bound stops early; the peers get the chain's time as well.
        steps = {"vae": 2500, "gp_vae": 6000, "svgp_vae": 6000}.get(model, 2000)
        chain |= {"burnin": 500, "num_samples": 20, "thinning": 50}
    else:
        steps = {"vae": 10_000, "gp_vae": 25_000, "svgp_vae": 25_000}.get(model, 2000)
    variational = inference.VariationalSettings(
        num_steps=num_variational_steps or steps, batch_size=12, prior_learning_rate=1e-2
    )
    settings = {"noise": "binomial"} | (sampler or {})
    if sampler_name == "sghmc":
        chain |= _converging(model, preset, changes.get("weight_prior", "normal"))
        built = sghmc.build(**(_SGHMC | settings))
        if "step_size" not in settings:
            built = from_curvature(built)
    else:
        built = adaptive_sghmc.build(**settings)
    rounds = inference.AmortizedSettings(**(chain | (schedule or {})))
    return Plan(model, variational, rounds, built, **changes)
