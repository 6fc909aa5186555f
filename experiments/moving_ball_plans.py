"""Presets of the moving-ball experiment."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpflow_bae import inference

__all__ = ["VARIATIONAL", "Plan"]

VARIATIONAL = ("vae", "gp_vae", "svgp_vae")


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that decides the outcome of a run, but the seed."""

    model: str
    num_inducing: int
    warm_start: bool
    fan_in_prior: bool
    weight_prior_scale: float
    variational: inference.VariationalSettings
    sampler: inference.AmortizedSettings
    initial_lengthscale: float = 1.0
    num_warm_encoder_steps: int = 600
    warm_start_prior: str = "exact"  # or "own": a sparse prior's chart is more bent where it ends
    parameters: str = "point"  # of a variational model; or "mean_field", or "sghmc" on its bound

    @classmethod
    def make(
        cls,
        model: str,
        preset: str,
        *,
        num_inducing: int = 10,
        warm_start: bool = True,
        warm_start_prior: str = "exact",
        fan_in_prior: bool | None = None,
        weight_prior_scale: float | None = None,
        num_variational_steps: int | None = None,
        parameters: str = "point",
        overrides: dict[str, Any] | None = None,
    ) -> Plan:
        """A preset with some settings replaced; the choices are explained in the results page."""
        if preset == "quick":
            # Where a chain goes on the bound stops early; the peers get the chain's time as well.
            steps = {"vae": 2500, "gp_vae": 6000, "svgp_vae": 6000}.get(model, 2000)
            variational = inference.VariationalSettings(
                num_steps=steps, batch_size=12, prior_learning_rate=1e-2
            )
            sampler = inference.AmortizedSettings(
                burnin=500,
                num_samples=20,
                thinning=50,
                noise="binomial",
                encoder_batch_size=256,
            )
        else:
            steps = {"vae": 10_000, "gp_vae": 25_000, "svgp_vae": 25_000}.get(model, 2000)
            variational = inference.VariationalSettings(
                num_steps=steps, batch_size=12, prior_learning_rate=1e-2
            )
            sampler = inference.AmortizedSettings(noise="binomial", encoder_batch_size=256)
        if num_variational_steps is not None:
            variational = dataclasses.replace(variational, num_steps=num_variational_steps)
        return cls(
            model=model,
            num_inducing=num_inducing,
            warm_start=warm_start,
            warm_start_prior=warm_start_prior,
            parameters=parameters,
            fan_in_prior=bool(fan_in_prior),
            weight_prior_scale=1.0 if weight_prior_scale is None else weight_prior_scale,
            variational=variational,
            sampler=dataclasses.replace(sampler, **(overrides or {})),
        )

    @property
    def temperature(self) -> float | None:
        """None where nothing is sampled."""
        return self.sampler.temperature if self.is_sampled else None

    @property
    def is_sampled(self) -> bool:
        """Whether there is a chain."""
        return self.model not in VARIATIONAL or self.parameters == "sghmc"

    @property
    def num_samples(self) -> int:
        """Posterior samples of a complete run."""
        several = self.is_sampled or self.parameters == "mean_field"
        return self.sampler.num_samples if several else 1

    def describe(self) -> dict[str, Any]:
        """The settings that matter to this model, as plain values."""
        settings = dataclasses.asdict(self)
        del settings["model"]
        if self.model not in VARIATIONAL:
            del settings["parameters"]
        else:
            del settings["warm_start"], settings["num_warm_encoder_steps"]
            if self.parameters == "point":
                del settings["sampler"]
        if self.model not in ("sgp_bae", "svgp_vae"):
            del settings["num_inducing"]
        if self.model != "sgp_bae":
            del settings["warm_start_prior"]
        if self.model in ("vae", "bae"):
            del settings["initial_lengthscale"]
        return settings
