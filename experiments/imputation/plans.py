"""Settings that the missing-data experiments share (Ashman et al. 2020; Tran et al. 2023)."""

from __future__ import annotations

from typing import Any

from gpflow_bae.impute.plans import MODELS, NETS, Plan, make_plan

__all__ = ["MODELS", "NETS", "default_plan"]


def default_plan(model: str, preset: str, **changes: Any) -> Plan:
    """The settings that the drivers share; each changes what its table asks for.

    :param changes: fields of :class:`Plan`; ``num_steps`` and ``batch_size`` of the fit, and
        ``schedule`` and ``sampler`` as :func:`~gpflow_bae.impute.plans.make_plan` has them.
    """
    num_steps, lengths = {
        "quick": (1500, {}),
        "paper": (3000, {"num_samples": 50, "thinning": 180}),
    }[preset]
    if changes.get("coupled"):  # of L-BFGS, whose steps go further, and a chain with its own length
        num_steps, lengths = num_steps // 5, {}
    return make_plan(
        model,
        num_steps=changes.pop("num_steps", None) or num_steps,
        learning_rate=changes.pop("learning_rate", None) or 5e-3,
        schedule=lengths | changes.pop("schedule", {}),
        **changes,
    )
