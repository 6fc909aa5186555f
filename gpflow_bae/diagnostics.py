"""Posterior samples in the form that ArviZ reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["to_inference_data"]


def to_inference_data(
    samples: Mapping[str, np.ndarray],
    history: np.ndarray | None = None,
    temperature: float = 1.0,
) -> Any:
    """ArviZ ``InferenceData`` of one chain.

    :param samples: constrained samples [S, ...] by parameter path.
    :param history: log prior, log likelihood and encoder loss of every round [rounds, 3]; they
        become the group ``round_stats``, because rounds are not samples.
    :param temperature: recorded as an attribute.
    :raises ImportError: without the extra ``diagnostics``.
    """
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            "to_inference_data needs ArviZ: pip install 'gpflow-bae[diagnostics]'."
        ) from error
    posterior = {path.lstrip("."): values[None] for path, values in samples.items()}
    data = arviz.from_dict(posterior=posterior, attrs={"temperature": temperature})
    if history is not None and len(history):
        names = ("log_prior", "log_likelihood", "encoder_loss")
        rounds = {name: history[None, :, i] for i, name in enumerate(names)}
        data.add_groups({"round_stats": arviz.convert_to_dataset(rounds)})
    return data
