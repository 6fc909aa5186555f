"""Presets of the moving-ball experiment."""

from __future__ import annotations

import dataclasses
from typing import Any

from experiments.common import plans
from gpflow_bae import inference
from gpflow_bae.mcmc import SamplingAlgorithm, adaptive_sghmc, sghmc

VARIATIONAL = ("vae", "gp_vae", "svgp_vae")
SPARSE = ("svgp_vae", "sgp_bae", "dsgp_bae")

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
    num_layers: int = 3  # of the prior of DSGP-BAE
    warm_start: bool = True
    weight_prior: str = "normal"
    weight_prior_scale: float | tuple[float, ...] = 1.0  # or one for each layer
    num_chains: int = 1
    initial_lengthscale: float = 1.0
    num_warm_encoder_steps: int = 600
    warm_start_prior: str = "exact"  # or "own": a sparse prior's chart is more bent where it ends
    parameters: str = "point"  # of a variational model; or "mean_field", or "sghmc" on its bound
    point_estimates: tuple[str, ...] = ()  # what is optimised in the steps of a chain
    network_dtype: str = "float32"  # that networks compute in; weights are float32 always

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
        if self.model not in SPARSE:
            other |= {"num_inducing"}
        if self.model != "sgp_bae":
            other |= {"warm_start_prior"}
        if self.model != "dsgp_bae":
            other |= {"num_layers"}
        if self.model in ("vae", "bae"):
            other |= {"initial_lengthscale"}
        if self.network_dtype == "float32":  # as in all rows from before there was a choice
            other |= {"network_dtype"}
        return {name: value for name, value in super().describe().items() if name not in other}

    def describe_objective(self, objective: inference.Objective) -> dict[str, Any]:
        """The objective's own settings; it is the bound in every run."""
        return dataclasses.asdict(objective)


def default_sampler(
    model: str, point_estimates: tuple[str, ...] = (), sampler: dict[str, Any] | None = None
) -> str:
    """The sampler of a model's chain: "sghmc" where it samples the posterior of everything.

    Not so a chain on a variational model's bound, one with point estimates, one at another
    temperature or one of DSGP-BAE, whose density is an estimate: there are no moves for them, and
    they have the published sampler.
    """
    tempered = (sampler or {}).get("temperature", 1.0) != 1.0
    is_posterior = not (tempered or point_estimates or model == "dsgp_bae")
    return "sghmc" if model not in VARIATIONAL and is_posterior else "adaptive_sghmc"


def default_weight_prior(model: str, sampler_name: str) -> tuple[str, float | tuple[float, ...]]:
    """The weight prior, by name, and its scale or scales.

    Chains of "sghmc" have the one under which they settle and fit; "adaptive_sghmc" and point
    estimates the published N(0, 1), under which point estimates recover the paths better.
    """
    if model in VARIATIONAL or sampler_name != "sghmc":
        return "normal", 1.0
    return "fan_in", (2.0, 3.0, 20.0)


def _converging(preset: str) -> dict[str, Any]:
    """Rounds of a chain that is meant to reach its stationary distribution, and stay there."""
    settings = {"coordinates": "prior", "num_encoder_steps": 10}
    if preset == "quick":
        return settings | {"burnin": 4000, "num_samples": 20, "thinning": 50}
    return settings | {"burnin": 10_000, "num_samples": 100, "thinning": 200}


def make_plan(
    model: str,
    preset: str,
    *,
    num_variational_steps: int | None = None,
    sampler_name: str | None = None,
    weight_prior: str | None = None,
    weight_prior_scale: float | tuple[float, ...] | None = None,
    schedule: dict[str, Any] | None = None,
    sampler: dict[str, Any] | None = None,
    **changes: Any,
) -> Plan:
    """A preset with some settings replaced; the choices are explained in the results page.

    :param schedule: arguments of :func:`experiments.common.plans.rounds`.
    :param sampler_name: "adaptive_sghmc", as published, or "sghmc": BAOAB steps in coordinates of
        the priors, as large as the curvature allows, and moves for everything that such steps do
        not suit; default: :func:`default_sampler`.
    :param weight_prior: default: :func:`default_weight_prior`, with its scales.
    :param weight_prior_scale: 1 where only the prior is given.
    :param sampler: arguments of its ``build``; a ``step_size`` is kept, and not searched by the
        curvature.
    :param changes: fields of :class:`Plan`.
    """
    name = sampler_name or default_sampler(model, changes.get("point_estimates", ()), sampler)
    prior, scale = default_weight_prior(model, name)
    if weight_prior is not None:
        prior, scale = weight_prior, 1.0
    scale = scale if weight_prior_scale is None else weight_prior_scale
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
    if name == "sghmc":
        chain |= _converging(preset)
        built = sghmc.build(**(_SGHMC | settings))
        built = plans.with_step_size_search(built, settings)
    else:
        built = adaptive_sghmc.build(**settings)
    rounds = plans.rounds(**(chain | (schedule or {})))
    priors = {"weight_prior": prior, "weight_prior_scale": scale}
    return Plan(model, variational, rounds, built, **priors, **changes)
