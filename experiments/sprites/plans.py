"""Presets of the SPRITES experiment, and the meaning of the published flags."""

from __future__ import annotations

import math
from typing import Any

from experiments.common import plans
from experiments.sprites.models import Plan
from gpflow_bae import inference
from gpflow_bae.mcmc import adaptive_sghmc

# --elbo of the released commands, as --model of ours.
ELBO_MODELS = {"SVGPVAE_Hensman": "svgp_vae", "CVAE": "cvae"}
# Of the presets quick and paper.
_EPOCHS = (8, 50)
_CHAIN = (
    {"burnin": 500, "num_samples": 20, "thinning": 25},
    {"burnin": 1500, "num_samples": 100, "thinning": 200},
)
_PRETRAIN_STEPS = (100, 2000)
# Tables A.3 and A.4 of Jazbec et al. (2021): fields of the plan, and of the fit. Fifty frames are
# all that there are of a character.
_PUBLISHED = {
    "pooling": "sum",
    "frames_per_character": 50,
    "pose_dim": 8,
    "encoder_filters": 16,
    "decoder_filters": 16,
}
_PUBLISHED_FIT = {"learning_rate": 1e-3, "final_learning_rate_fraction": 1.0}
_PUBLISHED_PRETRAINING = 400  # epochs of all training frames; the preset quick has no time for it
_NUM_FRAMES = 50_000


def make_objective(model: str, **given: Any) -> inference.Objective:
    """The objective of a fit: GECO where it was published with it, and before a chain.

    :param given: of :func:`experiments.common.plans.svgp_vae_objective`.
    """
    return plans.svgp_vae_objective(model != "cvae", **{"kappa_squared": 0.0075} | given)


def make_plan(
    model: str,
    preset: str,
    *,
    networks: str = "ours",
    objective: inference.Objective | None = None,
    num_epochs: int | None = None,
    batch_size: int = 500,
    fit: dict[str, Any] | None = None,
    pretrain_steps: int | None = None,
    schedule: dict[str, Any] | None = None,
    sampler: dict[str, Any] | None = None,
    **changes: Any,
) -> Plan:
    """A preset with some settings replaced.

    :param networks: "ours", or "published" for the networks of Jazbec et al. (2021) with their
        learning rate, pooling, width of the poses' vectors and epochs of pretraining.
    :param fit: fields of :class:`~gpflow_bae.inference.VariationalSettings`.
    :param schedule: fields of :class:`~gpflow_bae.inference.AmortizedSettings`, of sgp_bae.
    :param sampler: arguments of adaptive SGHMC's ``build``.
    :param changes: fields of :class:`Plan`.
    :raises ValueError: for settings that do not go together.
    """
    is_paper, is_published = preset == "paper", networks == "published"
    changes = (_PUBLISHED if is_published else {}) | changes
    chosen: dict[str, Any] = {
        "learning_rate": 2e-3,
        "final_learning_rate_fraction": 0.02,
        "batch_size": batch_size,
        "objective": objective or make_objective(model),
    }
    if is_published:
        chosen |= _PUBLISHED_FIT
    variational = inference.VariationalSettings(**(chosen | (fit or {})))
    has_network = model != "cvae" and changes.get("representation", "network") == "network"
    if pretrain_steps is None:
        pretrain_steps = _PRETRAIN_STEPS[is_paper] if has_network else 0
        if is_published and is_paper and has_network:
            pretrain_steps = _PUBLISHED_PRETRAINING * math.ceil(_NUM_FRAMES / batch_size)
    if model == "sgp_bae":
        if changes.get("representation", "network") != "network":
            raise ValueError(
                "sgp_bae has the vectors that a representation network makes of frames: leave "
                "representation out."
            )
        rounds: dict[str, Any] = {
            "batch_size": batch_size,
            "encoder_batch_size": 250,
            "steps_per_batch": 1,
        }
        rounds |= _CHAIN[is_paper] | (schedule or {})
        changes["schedule"] = plans.rounds(**rounds)
        # Minibatches' noise heats by step_size / momentum_decay: at 0.01 / 0.01 beyond all bounds.
        steps: dict[str, Any] = {"step_size": 0.001, "momentum_decay": 0.1, "noise": "binomial"}
        changes["sampler"] = adaptive_sghmc.build(**(steps | (sampler or {})))
    plan = Plan(
        model,
        num_epochs or _EPOCHS[is_paper],
        variational,
        networks=networks,
        pretrain_steps=pretrain_steps,
        **changes,
    )
    if pretrain_steps and not has_network:
        raise ValueError(
            f"pretrain_steps is {pretrain_steps}, and there is no representation network: it is of "
            "svgp_vae with representation=network."
        )
    if has_network and batch_size % plan.frames_per_character:
        raise ValueError(
            f"batch_size is {batch_size}; it must be a multiple of the "
            f"{plan.frames_per_character} frames of a character that come together."
        )
    return plan


def num_steps(plan: Plan, num_points: int) -> int:
    """Adam steps of the plan's epochs."""
    return plan.num_epochs * math.ceil(num_points / (plan.variational.batch_size or num_points))
