"""Check that settings, sampler, model and data are compatible before a chain starts."""

from __future__ import annotations

from typing import Any

from ...data import StreamedObservations
from ...mcmc.algorithm import check_sampler

__all__ = ["check_chain"]


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


def _check_stream(engine: Any) -> None:
    """Refuse settings that need all points at once, or access to points by index."""
    data, settings = engine.data, engine.settings
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
