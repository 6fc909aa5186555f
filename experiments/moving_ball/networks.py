"""The dense networks of the moving ball."""

from __future__ import annotations

import keras

WIDTH = 500


def network(num_inputs: int, num_outputs: int, dtype: str = "float32") -> keras.Model:
    """Make two hidden layers of 500 tanh units and a linear one (Tran et al. 2023, table 6).

    :param dtype: what it computes in.
    """
    return keras.Sequential(
        [
            keras.Input((num_inputs,)),
            keras.layers.Dense(WIDTH, activation="tanh", dtype=dtype),
            keras.layers.Dense(WIDTH, activation="tanh", dtype=dtype),
            keras.layers.Dense(num_outputs, dtype=dtype),
        ]
    )
