"""Every public call with one or two of its arguments wrong: refused in words, or a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gpflow
import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tests.fuzz.answers import answered, cases
from tests.fuzz.calls import array_calls, calls, count_calls, input_calls
from tests.fuzz.strategies import SCALARS, arrays

OBJECTS = st.sampled_from(
    [
        lambda: gpflow.kernels.SquaredExponential(),
        lambda: gpflow.kernels.Matern32(active_dims=[3]),
        lambda: gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0, 1.0]),
        lambda: gpflow.kernels.White(),
        lambda: [gpflow.kernels.SquaredExponential() for _ in range(3)],
        lambda: gpflow.likelihoods.Poisson(),
        lambda: gpflow.likelihoods.Softmax(3),
        lambda: gpflow.mean_functions.Constant(np.zeros(4)),
        lambda: calls.network(4, 1),
        lambda: calls.free(),
        lambda: tf.keras.Sequential([tf.keras.layers.Dense(3)]),
        lambda: tf.constant(1.0, tf.float64),
    ]
).map(lambda make: make())
WRONG = SCALARS | arrays() | OBJECTS
ROOMS = {
    name: getattr(module, name)
    for module, names in (
        (calls, ("PRIORS", "NETWORKS", "MODELS")),
        (array_calls, ("SAMPLERS", "SETTINGS", "ARRAYS")),
        (input_calls, ("INPUTS",)),
        (count_calls, ("COUNTS",)),
    )
    for name in names
}


def no_nan(found: Any) -> bool:
    """Whether neither parameters of a module nor numbers of a result are NaN."""
    if isinstance(found, tf.Module):
        values = [p.numpy() for p in gpflow.utilities.parameter_dict(found).values()]
    else:
        values = [v for v in tf.nest.flatten(found) if isinstance(v, float | np.ndarray)]
    return not any(np.isnan(v).any() for v in values if np.asarray(v).dtype.kind == "f")


@pytest.mark.parametrize("room", ROOMS)
@hypothesis.given(st.data())
@cases(20)
def test_wrong_arguments(room: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ROOMS[room])))
    function, right = ROOMS[room][name]
    arguments: Mapping[str, Any] = right()
    names = data.draw(st.lists(st.sampled_from(sorted(arguments)), min_size=1, max_size=2))
    wrong = {name: data.draw(WRONG) for name in names}
    found = answered(lambda: function(**{**arguments, **wrong}))
    takes_nan = room == "ARRAYS"  # observations that are missing
    assert found is None or takes_nan or no_nan(found), found


@pytest.mark.parametrize("room", ROOMS)
def test_right_arguments(room: str) -> None:
    """Wrong ones are refused for what they are, not for their neighbours."""
    for function, right in ROOMS[room].values():
        assert no_nan(function(**right()))
