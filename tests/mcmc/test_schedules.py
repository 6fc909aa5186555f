"""Temperatures over replicas, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpflow_bae.mcmc import schedules


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
