"""Conversion of posterior samples to what ArviZ reads."""

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
    """Convert samples of C chains to a ``DataTree``, or before ArviZ 1 to ``InferenceData``.

    Both have the groups as attributes, and ArviZ's functions take them.

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
    groups = {"posterior": stacked}
    if step_stats:
        steps = {name: np.asarray(values) for name, values in step_stats.items()}
        num_chains, _ = num_chains_and_draws("step_stats", steps)
        if leading and num_chains != leading[0]:
            raise ValueError(
                f"step_stats are of {num_chains} chains, the samples of {leading[0]}; both have "
                "the chains first."
            )
        groups["step_stats"] = steps
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
    groups["round_stats"] = by_name
    data = {name: arviz.convert_to_dataset(arrays) for name, arrays in groups.items() if arrays}
    if arviz.__version__.startswith("0."):
        return arviz.InferenceData(attrs={"temperature": temperature}, **data)
    from xarray import DataTree  # of a version that ArviZ 1 requires

    tree = DataTree.from_dict(data)
    tree.attrs["temperature"] = temperature
    return tree
