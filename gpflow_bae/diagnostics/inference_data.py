"""Conversion of posterior samples to ArviZ ``InferenceData``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .samples import arviz_for, num_chains_and_draws

__all__ = ["to_inference_data"]

_ARVIZ_NAMES = {
    "acceptance_probability": "acceptance_rate",
    "diverged": "diverging",
    "log_prob": "lp",
}


def to_inference_data(
    samples: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]],
    history: np.ndarray | None = None,
    temperature: float = 1.0,
    *,
    chains: bool = False,
    sample_stats: Mapping[str, np.ndarray] | None = None,
    step_stats: Mapping[str, np.ndarray] | None = None,
    round_stats: Mapping[str, np.ndarray] | None = None,
) -> Any:
    """Convert samples of one or several chains to ArviZ ``InferenceData``.

    :param samples: constrained samples by parameter path: [S, ...] of one chain, [C, S, ...] with
        ``chains``, or a list of C mappings to [S, ...].
    :param history: log prior, log likelihood and encoder loss of every round, [rounds, 3] of one
        chain, [C, rounds, 3] of several; they go into a group ``round_stats``, because rounds are
        not samples.
    :param temperature: recorded as an attribute.
    :param chains: whether the arrays of a mapping have a leading axis of chains.
    :param sample_stats: the sampler's statistics of every draw [C, S, ...], with C = 1 for one
        chain. ArviZ's plots read ``lp`` (the log density, up to a constant), ``energy``,
        ``acceptance_rate``, ``step_size`` and ``diverging``; ``log_prob``,
        ``acceptance_probability`` and ``diverged`` are renamed to these. Other names
        (``accepted``, ``swap_rate``, ``temperature``, ...) are kept.
    :param step_stats: statistics of every step [C, steps, ...], burn-in and thinned draws included;
        they go into a group ``step_stats``, because there are more of them than samples.
    :param round_stats: further statistics of every round [C, rounds, ...], beside ``history``.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: if variables, chains or statistics are inconsistent.
    """
    arviz = arviz_for("to_inference_data")
    several = chains or not isinstance(samples, Mapping)
    stacked = _stack_chains(samples, chains)
    leading = num_chains_and_draws("samples", stacked) if stacked else None
    groups = {"posterior": {path.lstrip("."): values for path, values in stacked.items()}}
    if sample_stats:
        groups["sample_stats"] = _with_arviz_names("sample_stats", sample_stats)
        found = num_chains_and_draws("sample_stats", groups["sample_stats"])
        if leading and found != leading:
            raise ValueError(
                f"sample_stats have [C, S] = {list(found)}, the samples {list(leading)}; "
                "statistics of all steps, with burn-in and thinned draws, are step_stats."
            )
    data = arviz.from_dict(**groups, attrs={"temperature": temperature})
    if step_stats:
        renamed = _with_arviz_names("step_stats", step_stats)
        num_chains, _ = num_chains_and_draws("step_stats", renamed)
        if leading and num_chains != leading[0]:
            raise ValueError(
                f"step_stats are of {num_chains} chains, the samples of {leading[0]}; both have "
                "the chains first."
            )
        data.add_groups({"step_stats": arviz.convert_to_dataset(renamed)})
    by_name = {name: np.asarray(values) for name, values in (round_stats or {}).items()}
    if history is not None and np.size(history):
        rounds = np.asarray(history) if several else np.asarray(history)[None]
        expected = leading[0] if leading else len(rounds)
        if rounds.ndim != 3 or rounds.shape[-1] != 3 or len(rounds) != expected:
            layout = f"[{expected}, rounds, 3]" if several else "[rounds, 3]"
            raise ValueError(f"history must have shape {layout}, got {np.shape(history)}.")
        names = ("log_prior", "log_likelihood", "encoder_loss")
        by_name |= {name: rounds[..., i] for i, name in enumerate(names)}
    if by_name:
        data.add_groups({"round_stats": arviz.convert_to_dataset(by_name)})
    return data


def _stack_chains(
    samples: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]], chains: bool
) -> dict[str, np.ndarray]:
    """Convert any form of samples that ``to_inference_data`` takes to arrays [C, S, ...]."""
    if isinstance(samples, Mapping):
        arrays = {name: np.asarray(values) for name, values in samples.items()}
        return arrays if chains else {name: values[None] for name, values in arrays.items()}
    if chains:
        raise ValueError(
            "samples is a list with a mapping for each chain, so its arrays have no axis of "
            "chains; chains=True is for one mapping to arrays [C, S, ...]."
        )
    if not samples:
        raise ValueError("samples is an empty list; pass a mapping for each chain.")
    first = samples[0]
    for chain, mapping in enumerate(samples):
        if mapping.keys() != first.keys():
            unmatched = sorted(mapping.keys() ^ first.keys())
            raise ValueError(
                f"Chains 0 and {chain} hold different parameters: {unmatched} are in one only."
            )
        for name, values in mapping.items():
            if np.shape(values) != np.shape(first[name]):
                raise ValueError(
                    f"{name!r} has shape {np.shape(first[name])} in chain 0 and {np.shape(values)} "
                    f"in chain {chain}; all chains need the same, so cut them to the shortest."
                )
    return {name: np.stack([mapping[name] for mapping in samples]) for name in first}


def _with_arviz_names(argument: str, statistics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    renamed: dict[str, np.ndarray] = {}
    for name, values in statistics.items():
        arviz_name = _ARVIZ_NAMES.get(name, name)
        if argument == "sample_stats" and arviz_name == "log_likelihood":
            raise ValueError(
                f"{argument} holds 'log_likelihood', which ArviZ takes for that of every single "
                "observation; name the sampler's log density 'lp', and a sum over observations "
                "otherwise."
            )
        if arviz_name in renamed:
            raise ValueError(
                f"{argument} holds {arviz_name!r} twice: {name!r} is another name of it."
            )
        renamed[arviz_name] = np.asarray(values)
    return renamed
