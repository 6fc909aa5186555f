"""What of settings and samplers goes together with a model, refused before a chain starts."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...data import Observations
from ...mcmc.algorithm import SamplingAlgorithm, check_sampler
from ..settings import AmortizedSettings

__all__ = ["Takes", "brings_neighbours", "check_chain"]


class Takes(NamedTuple):
    """What an engine has that settings may ask for."""

    moves: bool = False
    coordinates: tuple[str, ...] = ()  # besides "none"
    control_variates: bool = False


def brings_neighbours(model: Any, data: Observations, settings: AmortizedSettings) -> bool:
    """Whether minibatches of points need the codes of others (:mod:`.surroundings`)."""
    whole = settings.batch_size in (None, data.num_items)
    prior = model.latent_prior
    return data.neighbours is not None and not (whole or prior.splits_over_points)


def check_neighbours(model: Any, data: Observations, settings: AmortizedSettings) -> None:
    """Refuse what minibatches that bring the codes of neighbours do not go with.

    :raises ValueError: saying which, and what to set instead.
    """
    if not brings_neighbours(model, data, settings):
        return
    who = (
        f"Minibatches of points (batch_size={settings.batch_size}) under "
        f"{model.latent_prior_name} bring the codes of neighbours as the chain left them"
    )
    if settings.codes != "carried":
        raise ValueError(
            f'{who}, and codes="{settings.codes}" leaves none: set codes="carried", or '
            "batch_size=None."
        )


def check_chain(
    model: Any,
    data: Observations,
    settings: AmortizedSettings,
    sampler: SamplingAlgorithm,
    takes: Takes,
) -> None:
    """Refuse what the engine does not have, and what would not sample the posterior.

    :raises ValueError: saying which, and what to set instead.
    :raises TypeError: for a ``sampler`` that is none.
    """
    paths, name = model.sampled.paths, type(model).__name__
    check_sampler(sampler)
    for start in settings.point_estimates:
        if not any(path.startswith(start) for path in paths):
            raise ValueError(
                f"point_estimates holds {start!r}, with which no sampled parameter's path "
                f"begins; paths are such as {paths[0]!r} and {paths[-1]!r}."
            )
    if settings.moves and not takes.moves:
        raise ValueError(
            "moves are for models whose codes are sampled, such as SGPBAE, not "
            f"{name}: leave them out."
        )
    if settings.coordinates not in ("none", *takes.coordinates):
        names = ", ".join(f'"{kind}"' for kind in ("none", *takes.coordinates))
        raise ValueError(
            f'coordinates="{settings.coordinates}" are not for a {name}, which has {names}.'
        )
    if settings.point_estimates and sampler.settings.get("subtract_gradient_noise"):
        raise ValueError(
            "point_estimates have no noise from which subtract_gradient_noise could take some; "
            "set one of them only."
        )
    whole = settings.batch_size in (None, data.num_items)
    if settings.gradients == "control_variates":
        asked = 'gradients="control_variates"'
        if not takes.control_variates:
            raise ValueError(f'{asked} are not for a {name}: set gradients="minibatch".')
        if whole:
            raise ValueError(
                f"{asked} take noise out of minibatches, and every step sees all {data.num_items} "
                'items: set a smaller batch_size, or gradients="minibatch".'
            )
    if sampler.needs == "evaluate":
        _check_calibrated(settings, sampler, data.num_items, whole)


def _check_calibrated(
    settings: AmortizedSettings, sampler: SamplingAlgorithm, num_items: int, whole: bool
) -> None:
    """Of a sampler that accepts or rejects."""
    if settings.coordinates != "none":
        raise ValueError(
            f'coordinates="{settings.coordinates}" are for samplers of gradients, and '
            f'{sampler.name} accepts or rejects: set coordinates="none".'
        )
    if not whole:
        raise ValueError(
            f"The sampler {sampler.name} accepts or rejects by the density of all data and "
            f"needs full batches, got batch_size={settings.batch_size} of "
            f"{num_items}: set batch_size=None, or take a stochastic-gradient "
            "sampler such as gpflow_bae.mcmc.sghmc."
        )
    if settings.codes != "carried":
        raise ValueError(
            f"The sampler {sampler.name} accepts or rejects, so its codes must be its own: "
            f'set codes="carried" instead of {settings.codes!r}, which redraws them from the '
            "encoder."
        )
