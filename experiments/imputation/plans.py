"""Settings that the missing-data experiments share (Ashman et al. 2020; Tran et al. 2023)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gpflow_bae.impute.plans import MODELS, NETS, Plan, make_plan
from gpflow_bae.mcmc import sghmc
from gpflow_bae.mcmc.step_size import from_curvature

__all__ = ["MODELS", "NETS", "default_plan"]


def default_plan(model: str, preset: str, **changes: Any) -> Plan:
    """The settings that the drivers share; each changes what its table asks for.

    :param changes: fields of :class:`Plan`; ``num_steps`` and ``batch_size`` of the fit, and
        ``schedule`` and ``sampler`` as :func:`~gpflow_bae.impute.plans.make_plan` has them, but
        that ``sampler`` may have a ``name``: of "sghmc" see :func:`_in_prior_coordinates`.
    """
    num_steps, lengths = {
        "quick": (1500, {}),
        "paper": (3000, {"num_samples": 50, "thinning": 180}),
    }[preset]
    sampler = dict(changes.pop("sampler", {}))
    named = sampler.pop("name", "adaptive_sghmc")
    plan = make_plan(
        model,
        num_steps=changes.pop("num_steps", None) or num_steps,
        learning_rate=changes.pop("learning_rate", None) or 5e-3,
        schedule=lengths | changes.pop("schedule", {}),
        sampler={} if named == "sghmc" else sampler,
        **changes,
    )
    return _in_prior_coordinates(plan, sampler) if named == "sghmc" else plan


def _in_prior_coordinates(plan: Plan, sampler: Mapping[str, Any]) -> Plan:
    """A chain at temperature 1: BAOAB steps of SGHMC on all rows, in coordinates of the priors.

    Moves draw what those depend on, and the step size is found from the curvature.

    :param sampler: arguments of :func:`gpflow_bae.mcmc.sghmc.build`.
    :raises ValueError: for a plan without codes that are sampled in one piece.
    """
    if plan.schedule is None or plan.schedule.batch_size is not None:
        raise ValueError(
            f"--sampler=sghmc is of chains whose steps see all codes; {plan.model} has no such "
            "chain with these flags: leave --sampler and --batch_size out."
        )
    schedule = dataclasses.replace(plan.schedule, coordinates="prior")
    steps = {"step_size": 0.01, "momentum_decay": 0.05} | dict(sampler)
    built = sghmc.build(**steps, integrator="baoab")
    if "step_size" not in sampler:
        built = from_curvature(built, 0.35)
    return dataclasses.replace(plan, schedule=schedule, sampler=built)
