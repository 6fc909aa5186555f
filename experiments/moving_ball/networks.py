"""The dense networks of the moving ball."""

from __future__ import annotations

import keras

WIDTH = 500


def network(
    num_inputs: int, num_outputs: int, dtype: str = "float32", num_hidden: int = 2
) -> keras.Model:
    """Make hidden layers of 500 tanh units, and a linear one.

    :param dtype: what it computes in.
    :param num_hidden: 2 as in Tran et al. (2023), table 6; Jazbec et al. (2021) have 1.
    """
    hidden = [keras.layers.Dense(WIDTH, activation="tanh", dtype=dtype) for _ in range(num_hidden)]
    return keras.Sequential(
        [keras.Input((num_inputs,)), *hidden, keras.layers.Dense(num_outputs, dtype=dtype)]
    )
