"""What a chain cannot do where data are a stream, refused before it starts."""

from __future__ import annotations

from typing import Any

from ...data import StreamedObservations
from ...mcmc.algorithm import SamplingAlgorithm
from ..settings import AmortizedSettings

__all__ = ["check_stream"]


def check_stream(
    data: Any, settings: AmortizedSettings, sampler: SamplingAlgorithm, samples_codes: bool
) -> None:
    """Refuse what needs all points at once, or points by their numbers; data in memory pass.

    :param samples_codes: whether codes are sampled, and not integrated out.
    :raises ValueError: saying which setting, and what to set instead.
    """
    if not isinstance(data, StreamedObservations):
        return
    data.check_batch_size(settings.batch_size)
    if samples_codes and settings.codes != "encoder":
        raise ValueError(
            f'codes="{settings.codes}" keeps the codes of all {data.num_points} points, which a '
            'stream does not have in memory: set codes="encoder", which draws those of a minibatch '
            "when it comes."
        )
    needs = {
        f"moves={settings.moves!r}": ("look at the codes of all points", bool(settings.moves)),
        f'coordinates="{settings.coordinates}"': (
            "are fitted to all points",
            settings.coordinates != "none",
        ),
        f'gradients="{settings.gradients}"': (
            "take a gradient of all points in every round",
            settings.gradients != "minibatch",
        ),
    }
    for what, (why, asked) in needs.items():
        if asked:
            raise ValueError(
                f"{what} {why}, and a stream has them minibatch by minibatch: leave it out."
            )
    if sampler.needs != "gradient":
        raise ValueError(
            f"The sampler {sampler.name} asks for more than the gradient of a minibatch as it "
            "comes, which is all that a stream has: take a stochastic-gradient sampler such as "
            "gpflow_bae.mcmc.sghmc."
        )
