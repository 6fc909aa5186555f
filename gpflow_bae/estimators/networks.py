"""Networks that are initialised to principal component analysis."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

__all__ = [
    "check_activation",
    "network",
    "principal_components",
    "seeded",
    "start_at_principal_components",
]


def check_activation(activation: Any) -> None:
    """Check that Keras knows an activation.

    :raises ValueError: if not.
    """
    try:
        keras.activations.get(activation)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "activation must be the name of a Keras activation, such as 'tanh', or a function, got "
            f"{activation!r}."
        ) from error


def network(
    num_inputs: int, num_outputs: int, units: Sequence[int], activation: Any
) -> keras.Model:
    """A linear map plus a network of dense hidden layers that is zero at first.

    With the linear map alone an autoencoder is principal component analysis (Bourlard and Kamp
    1988); the dense layers add what is nonlinear.

    :param units: widths of the hidden layers; none for the linear map alone.
    """
    rows = keras.Input((num_inputs,))
    outputs = keras.layers.Dense(num_outputs, name="linear")(rows)
    hidden = rows
    for width in units:
        hidden = keras.layers.Dense(width, activation=activation)(hidden)
    if units:
        # The bias is that of the linear map.
        nonlinear = keras.layers.Dense(num_outputs, kernel_initializer="zeros", use_bias=False)
        outputs = keras.layers.add([outputs, nonlinear(hidden)])
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
    """Set the linear maps of two :func:`network` so that codes are components of unit variance.

    A standard deviation below a thousandth of the largest counts as that much, so that directions
    along which rows hardly vary are not blown up; where all rows are equal up to rounding, all
    count as 1.
    """
    least = 1e-3 * deviations[0] if deviations[0] > 1e-6 else 1.0
    scale = np.maximum(deviations, least)
    _set_linear(encoder, (components / scale[:, None]).T)
    _set_linear(decoder, components * scale[:, None])


def _set_linear(model: keras.Model, kernel: np.ndarray) -> None:
    model.get_layer("linear").set_weights([kernel, np.zeros(kernel.shape[1])])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python's random generator, from which Keras's initialisers draw their seeds.

    The generator's state is restored afterwards.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
