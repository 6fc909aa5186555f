"""A bank of one chain from lists of arrays in the order of the model's paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...models import Autoencoder
from .bank import Bank

__all__ = ["HISTORY", "bank_of_lists"]

HISTORY = ("log_prior", "log_likelihood", "encoder_loss")


def bank_of_lists(
    model: Autoencoder,
    parameters: Sequence[np.ndarray],
    encoder: Sequence[np.ndarray],
    latents: np.ndarray | None = None,
    temperature: float = 1.0,
    history: np.ndarray | None = None,
    seconds: Mapping[str, float] | None = None,
    warm_start_losses: np.ndarray | None = None,
) -> Bank:
    """Build a bank of one chain from lists of arrays in the order of the model's paths."""

    def named(part: str, paths: Sequence[str], arrays: Sequence[np.ndarray]) -> dict:
        if len(paths) != len(arrays):
            raise ValueError(
                f"{part} has {len(arrays)} arrays, but the model {len(paths)}; pass one [S, ...] "
                f"for each of {list(paths)}."
            )
        return {path: np.asarray(v)[None] for path, v in zip(paths, arrays, strict=True)}

    trace = {}
    if history is not None and np.size(history):
        columns = np.moveaxis(np.reshape(history, [-1, len(HISTORY)]), -1, 0)
        trace = {name: column[None] for name, column in zip(HISTORY, columns, strict=True)}
    if warm_start_losses is not None:
        trace["warm_start_loss"] = np.asarray(warm_start_losses)[None]
    return Bank(
        named("parameters", model.sampled.paths, parameters),
        named("encoder", model.amortized.paths, encoder),
        None if latents is None else np.asarray(latents)[None],
        type(model).__name__,
        temperature,
        trace,
        seconds=seconds or {},
    )
