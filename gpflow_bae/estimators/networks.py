"""Networks that start as principal component analysis."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

__all__ = ["network", "principal_components", "seeded", "start_at_principal_components"]


def network(
    num_inputs: int, num_outputs: int, units: Sequence[int], activation: Any
) -> keras.Model:
    """A linear map, plus a network of dense hidden layers that is zero at first.

    With the linear map alone an autoencoder is principal component analysis (Bourlard and Kamp
    1988); what bends is learnt on top of it.

    :param units: widths of the hidden layers; none for the linear map alone.
    """
    rows = keras.Input((num_inputs,))
    outputs = keras.layers.Dense(num_outputs, name="linear")(rows)
    hidden = rows
    for width in units:
        hidden = keras.layers.Dense(width, activation=activation)(hidden)
    if units:
        # The linear map has the bias.
        bent = keras.layers.Dense(num_outputs, kernel_initializer="zeros", use_bias=False)
        outputs = keras.layers.add([outputs, bent(hidden)])
    return keras.Model(rows, outputs)


def principal_components(rows: np.ndarray, num_components: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading right singular vectors [K, P] of rows [N, P], and standard deviations [K] along them.

    :param rows: centred, zeros where missing.
    :param num_components: K; those that do not exist are zero, with a standard deviation of zero.
    """
    _, singular, vectors = np.linalg.svd(rows, full_matrices=False)
    components, deviations = np.zeros((num_components, rows.shape[1])), np.zeros(num_components)
    count = min(num_components, len(singular))
    components[:count], deviations[:count] = vectors[:count], singular[:count]
    return components, deviations / np.sqrt(len(rows))


def start_at_principal_components(
    encoder: keras.Model, decoder: keras.Model, components: np.ndarray, deviations: np.ndarray
) -> None:
    """Set the linear maps of two :func:`network`: codes are components, of unit variance.

    Directions along which the rows hardly vary are scaled up by no more than a thousandth of the
    largest standard deviation allows, and not at all where all rows are equal, up to rounding.
    """
    least = 1e-3 * deviations[0] if deviations[0] > 1e-6 else 1.0
    scale = np.maximum(deviations, least)
    _set_linear(encoder, (components / scale[:, None]).T)
    _set_linear(decoder, components * scale[:, None])


def _set_linear(model: keras.Model, kernel: np.ndarray) -> None:
    model.get_layer("linear").set_weights([kernel, np.zeros(kernel.shape[1])])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Keras's initialisers draw their seeds from Python's generator: here from ``seed``.

    Functions that build networks may use it too, and it is afterwards what it was before.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
