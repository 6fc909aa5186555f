"""Cyclical step sizes and ladders of temperatures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc import schedules


def test_cycles_are_cosines_with_two_stages() -> None:
    traces = []

    @tf.function
    def cycle(step: tf.Tensor) -> schedules.Cycle:
        traces.append(None)
        return schedules.cyclical(8, 0.1, 0.75, temperature=2.0).at(step)

    rows = [cycle(tf.constant(step)) for step in range(24)]
    fraction = np.tile(np.arange(8) / 8, 3)
    np.testing.assert_allclose(
        [row.step_size for row in rows], 0.1 * (1 + np.cos(np.pi * fraction)) / 2, rtol=1e-12
    )
    np.testing.assert_array_equal([row.sampling for row in rows], fraction >= 0.75)
    np.testing.assert_array_equal([row.temperature for row in rows], 2.0 * (fraction >= 0.75))
    assert len(traces) == 1


def test_the_last_step_of_a_long_cycle_is_small_but_not_zero() -> None:
    n = 1_000_000
    last = schedules.cyclical(n, tf.constant(1.0)).step_size(n - 1)
    np.testing.assert_allclose(last, np.pi**2 / (4 * n**2), rtol=1e-6)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"cycle_length": 1}, "cycle_length .* at least 2, got 1"),
        ({"cycle_length": 2.5}, "cycle_length .* got 2.5"),
        ({"initial_step_size": 0.0}, "step_size must be positive"),
        ({"exploration_fraction": 1.0}, r"exploration_fraction must be in \[0, 1\)"),
        ({"temperature": -1.0}, "temperature must be finite"),
    ],
)
def test_bad_cycles_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedules.cyclical(**{"cycle_length": 8, "initial_step_size": 0.1, **settings})


def test_geometric_ladder() -> None:
    ladder = schedules.geometric_ladder(4, 27.0)
    np.testing.assert_allclose(ladder, [1, 3, 9, 27], rtol=1e-12)
    assert ladder.dtype == np.float64 and ladder[0] == 1.0
    np.testing.assert_array_equal(schedules.geometric_ladder(2, 7.3), [1.0, 7.3])


@pytest.mark.parametrize(
    "num_replicas, max_temperature, message",
    [
        (1, 10.0, "num_replicas .* at least 2, got 1"),
        (2.5, 10.0, "num_replicas must be a whole number"),
        (4, 1.0, "max_temperature must be finite and above 1, got 1.0"),
        (4, np.inf, "max_temperature must be finite"),
        (4, np.nan, "max_temperature must be finite"),
    ],
)
def test_bad_ladder_settings_are_refused(
    num_replicas: Any, max_temperature: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        schedules.geometric_ladder(num_replicas, max_temperature)


@pytest.mark.parametrize(
    "temperatures, message",
    [
        ([], "at least two"),
        ([1.0], "at least two"),
        ([[1.0, 2.0]], "must be a list"),
        ([1.0, np.nan], "must be finite"),
        ([1.0, np.inf], "must be finite"),
        ([2.0, 3.0], "first temperature must be 1"),
        ([1.0, 3.0, 3.0], "strictly increasing"),
        ([1.0, 3.0, 2.0], "strictly increasing"),
    ],
)
def test_bad_ladders_are_refused(temperatures: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedules.check_ladder(temperatures)


def test_good_ladder_is_returned_as_float64() -> None:
    ladder = schedules.check_ladder((1, 2, 5))
    np.testing.assert_array_equal(ladder, [1.0, 2.0, 5.0])
    assert ladder.dtype == np.float64
