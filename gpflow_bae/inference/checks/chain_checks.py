"""Check that settings, sampler, model and data are compatible before a chain starts."""

from __future__ import annotations

from typing import Any

from ...data import Observations, StreamedObservations
from ...mcmc.algorithm import check_sampler
from ..settings import AmortizedSettings

__all__ = ["brings_neighbours", "check_chain"]


def brings_neighbours(model: Any, data: Observations, settings: AmortizedSettings) -> bool:
    """Return whether minibatches of points need the codes of neighbouring points.

    See :mod:`gpflow_bae.inference.engines.surroundings`.
    """
    whole = settings.batch_size in (None, data.num_items)
    prior = model.latent_prior
    return data.neighbours is not None and not (whole or prior.splits_over_points)


def check_chain(engine: Any) -> None:
    """Check that an engine supports its settings, and that they sample the posterior.

    :param engine: a :class:`~gpflow_bae.inference.engines.chain_sampling.ChainSampling`.
    :raises ValueError: if they do not, with the setting and an alternative.
    :raises TypeError: if the sampler is not a ``SamplingAlgorithm``.
    """
    check_sampler(engine.sampler)
    if isinstance(engine.data, StreamedObservations):
        _check_stream(engine)
    _check_point_estimates(engine)
    settings, name = engine.settings, type(engine.model).__name__
    if settings.coordinates not in ("none", *engine.coordinates):
        names = ", ".join(f'"{kind}"' for kind in ("none", *engine.coordinates))
        raise ValueError(
            f'coordinates="{settings.coordinates}" are not for a {name}, which has {names}.'
        )
    num_items = engine.data.num_items
    whole = settings.batch_size in (None, num_items)
    if settings.gradients == "control_variates":
        asked = 'gradients="control_variates"'
        if not engine.has_control_variates:
            raise ValueError(f'{asked} are not for a {name}: set gradients="minibatch".')
        if whole:
            raise ValueError(
                f"{asked} take noise out of minibatches, and every step sees all {num_items} "
                'items: set a smaller batch_size, or gradients="minibatch".'
            )
    if engine.sampler.needs == "evaluate":
        _check_calibrated(engine, num_items, whole)
    if engine.samples_codes:
        _check_neighbours(engine)


def _check_stream(engine: Any) -> None:
    """Refuse settings that need all points at once, or access to points by index."""
    data, settings, sampler = engine.data, engine.settings, engine.sampler
    data.check_batch_size(settings.batch_size)
    if engine.samples_codes and settings.codes != "encoder":
        raise ValueError(
            f'codes="{settings.codes}" keeps the codes of all {data.num_points} points, which a '
            'stream does not have in memory: set codes="encoder", which draws those of a minibatch '
            "when it comes."
        )
    why = None
    if settings.coordinates != "none":
        why = f'coordinates="{settings.coordinates}" are fitted to all points'
    elif settings.gradients != "minibatch":
        why = f'gradients="{settings.gradients}" take a gradient of all points in every round'
    if why:
        raise ValueError(f"{why}, and a stream has them minibatch by minibatch: leave it out.")
    if sampler.needs != "gradient":
        raise ValueError(
            f"The sampler {sampler.name} asks for more than the gradient of a minibatch as it "
            "comes, which is all that a stream has: take a stochastic-gradient sampler such as "
            "gpflow_bae.mcmc.sghmc."
        )


def _check_point_estimates(engine: Any) -> None:
    paths = engine.model.sampled.paths
    for start in engine.point_estimates:
        if not any(path.startswith(start) for path in paths):
            raise ValueError(
                f"point_estimates holds {start!r}, with which no sampled parameter's path "
                f"begins; paths are such as {paths[0]!r} and {paths[-1]!r}."
            )
    if engine.point_estimates and engine.sampler.settings.get("subtract_gradient_noise"):
        raise ValueError(
            "point_estimates have no noise from which subtract_gradient_noise could take some; "
            "set one of them only."
        )


def _check_calibrated(engine: Any, num_items: int, whole: bool) -> None:
    """Refuse settings that a sampler with Metropolis tests cannot use."""
    settings, name = engine.settings, engine.sampler.name
    if settings.coordinates != "none":
        raise ValueError(
            f'coordinates="{settings.coordinates}" are for samplers of gradients, and {name} '
            'accepts or rejects: set coordinates="none".'
        )
    if not whole:
        raise ValueError(
            f"The sampler {name} accepts or rejects by the density of all data and needs full "
            f"batches, got batch_size={settings.batch_size} of {num_items}: set batch_size=None, "
            "or take a stochastic-gradient sampler such as gpflow_bae.mcmc.sghmc."
        )
    if settings.codes != "carried":
        raise ValueError(
            f"The sampler {name} accepts or rejects, so its codes must be its own: set "
            f'codes="carried" instead of {settings.codes!r}, which redraws them from the encoder.'
        )


def _check_neighbours(engine: Any) -> None:
    """Refuse codes that are not stored if minibatches need those of neighbours."""
    settings = engine.settings
    if settings.codes != "carried" and brings_neighbours(engine.model, engine.data, settings):
        raise ValueError(
            f"Minibatches of points (batch_size={settings.batch_size}) under "
            f"{type(engine.model.latent_prior).__name__} bring the codes of neighbours as the "
            f'chain left them, and codes="{settings.codes}" leaves none: set codes="carried", or '
            "batch_size=None."
        )
