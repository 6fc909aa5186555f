"""Conversion of posterior samples to ArviZ ``InferenceData``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .samples import arviz_for, num_chains_and_draws

__all__ = ["to_inference_data"]


def to_inference_data(
    samples: Mapping[str, np.ndarray],
    history: np.ndarray | None = None,
    temperature: float = 1.0,
    *,
    step_stats: Mapping[str, np.ndarray] | None = None,
    round_stats: Mapping[str, np.ndarray] | None = None,
) -> Any:
    """Convert samples of C chains to ArviZ ``InferenceData``.

    :param samples: constrained samples [C, S, ...] by parameter path.
    :param history: log prior, log likelihood and encoder loss of every round [C, rounds, 3]; they
        go into a group ``round_stats``, because rounds are not samples.
    :param temperature: recorded as an attribute.
    :param step_stats: statistics of every step [C, steps, ...], burn-in and thinned draws included;
        they go into a group ``step_stats``, because there are more of them than samples.
    :param round_stats: further statistics of every round [C, rounds, ...], beside ``history``.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: if variables, chains or statistics are inconsistent.
    """
    arviz = arviz_for("to_inference_data")
    stacked = {path.lstrip("."): np.asarray(values) for path, values in samples.items()}
    leading = num_chains_and_draws("samples", stacked) if stacked else None
    data = arviz.from_dict(posterior=stacked, attrs={"temperature": temperature})
    if step_stats:
        steps = {name: np.asarray(values) for name, values in step_stats.items()}
        num_chains, _ = num_chains_and_draws("step_stats", steps)
        if leading and num_chains != leading[0]:
            raise ValueError(
                f"step_stats are of {num_chains} chains, the samples of {leading[0]}; both have "
                "the chains first."
            )
        data.add_groups({"step_stats": arviz.convert_to_dataset(steps)})
    by_name = {name: np.asarray(values) for name, values in (round_stats or {}).items()}
    if history is not None and np.size(history):
        rounds = np.asarray(history)
        expected = leading[0] if leading else len(rounds)
        if rounds.ndim != 3 or rounds.shape[-1] != 3 or len(rounds) != expected:
            raise ValueError(
                f"history must have shape [{expected}, rounds, 3], got {np.shape(history)}."
            )
        names = ("log_prior", "log_likelihood", "encoder_loss")
        by_name |= {name: rounds[..., i] for i, name in enumerate(names)}
    if by_name:
        data.add_groups({"round_stats": arviz.convert_to_dataset(by_name)})
    return data
