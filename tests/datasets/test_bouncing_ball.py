"""Bouncing balls: they move as physics says, are drawn where they are, and go missing at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpflow_bae.datasets import bouncing_ball


def test_constant_speed_between_bounces() -> None:
    times = np.arange(0.0, 40.0, 0.5)
    heights = bouncing_ball.linear_height(times, 16.0)
    # There and back in 16: a speed of 1/8, up from 0 to 8, down from 8 to 16.
    up = np.mod(times, 16.0) < 8.0
    steps = np.diff(heights) / 0.5
    np.testing.assert_allclose(steps, np.where(up[:-1], 0.125, -0.125), atol=1e-12)
    assert heights.min() == 0.0 and heights.max() == 1.0


def test_gravity_is_constant_and_bounces_lose_nothing() -> None:
    period = 20.0
    times = np.linspace(0.0, period, 201)
    heights = bouncing_ball.gravity_height(times, period)
    # h = v t - g t^2 / 2 with h = 1 at t = period / 2: g = 8 / period^2.
    acceleration = np.diff(heights, 2) / np.diff(times)[0] ** 2
    np.testing.assert_allclose(acceleration, -8.0 / period**2, rtol=1e-8)
    energy = np.gradient(heights, times)[1:-1] ** 2 / 2 + 8.0 / period**2 * heights[1:-1]
    # Central differences of a parabola are exact; 1e-8 is rounding.
    np.testing.assert_allclose(energy, 8.0 / period**2, rtol=1e-8)
    np.testing.assert_allclose(
        bouncing_ball.gravity_height(times + 3 * period, period), heights, atol=1e-12
    )


def test_a_ball_is_bright_where_it_is() -> None:
    heights = np.array([[0.0], [1.0], [0.5]])
    images = bouncing_ball.render(heights, num_pixels=11, width=0.1)
    assert images.argmax(-1).tolist() == [0, 10, 5]
    np.testing.assert_allclose(images.max(-1), 1.0)
    # One pixel is one width away: exp(-1/2).
    np.testing.assert_allclose(images[2, 4], np.exp(-0.5))
    both = bouncing_ball.render(np.array([[0.0, 0.5]]), 11, 0.1)
    np.testing.assert_allclose(both[0], images[0] + images[2])


def test_one_ball_is_the_published_size_and_pixels_differ_by_the_noise() -> None:
    balls = bouncing_ball.one_ball(seed=1)
    assert balls.table.Y.shape == (80, 50, 12) and balls.table.observed.all()
    # Johnson et al.'s generator: triangle(0.75 (t + ...)) in steps of 0.1 on a column from -1 to 1
    # moves by 2 * 0.75 * 0.1 of its 2 units in a frame.
    steps = np.abs(np.diff(balls.heights[..., 0], axis=1))
    assert np.isclose(np.median(steps), 0.075) and steps.max() < 0.075 + 1e-12
    clean = bouncing_ball.render(balls.heights, 12, 0.075)
    noise = balls.table.Y - clean
    # 48000 draws: the standard error of the deviation is 0.1 / sqrt(2 * 48000) = 0.0003.
    assert abs(noise.std() - 0.1) < 5 * 0.00033 and abs(noise.mean()) < 5 * 0.1 / np.sqrt(48000)
    # Phases are uniform, so the heights of a frame are too: mean 1/2, variance 1/12 over 80.
    assert np.all(np.abs(balls.heights.mean(0) - 0.5) < 5 / np.sqrt(12 * 80))


def test_two_balls_lose_a_quarter_of_their_pixels() -> None:
    balls = bouncing_ball.two_balls(seed=2, num_sequences=4)
    assert balls.table.Y.shape == (4, 500, 100) and balls.heights.shape == (4, 500, 2)
    hidden = balls.table.test_mask
    np.testing.assert_array_equal(hidden, ~balls.table.observed)
    # Five standard errors of a share of 200000 pixels.
    assert abs(hidden.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / hidden.size)
    clean = bouncing_ball.render(balls.heights, 100, 0.03)
    residual = balls.table.truth - clean
    assert abs(residual.std() - 0.1) < 0.001  # six standard errors, 0.1 / sqrt(2 * 200000) each


def test_train_and_test_are_separate_streams() -> None:
    train, test = bouncing_ball.load_one(seed=3, num_train=4, num_test=4)
    more, same = bouncing_ball.load_one(seed=3, num_train=7, num_test=4)
    np.testing.assert_array_equal(test.table.Y, same.table.Y)
    assert not np.array_equal(train.heights, test.heights)
    assert more.table.num_tasks == 7
    train, test = bouncing_ball.load_two(seed=3, num_train=1, num_test=2)
    more, same = bouncing_ball.load_two(seed=3, num_train=2, num_test=2)
    np.testing.assert_array_equal(test.table.Y, same.table.Y)
    assert not np.array_equal(train.heights, test.heights[:1])


def test_the_future_is_hidden() -> None:
    balls = bouncing_ball.one_ball(seed=0, num_sequences=2)
    table = bouncing_ball.hide_future(balls.table, 40)
    assert table.test_mask[:, 40:].all() and not table.test_mask[:, :40].any()
    np.testing.assert_array_equal(table.test_truth[:, 40:], balls.table.Y[:, 40:])
    for wrong in (0, 50):
        with pytest.raises(ValueError, match=f"num_context is {wrong}; expected 1 to 49"):
            bouncing_ball.hide_future(balls.table, wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"num_sequences": 0}, "num_sequences is 0"),
        ({"num_pixels": 1}, "num_pixels is 1; it must be an integer of at least 2"),
        ({"width": 0.0}, "width is 0.0; it must be a positive"),
        ({"noise": -0.1}, "noise is -0.1; it must be a finite number of at least 0"),
        ({"missing": 1.0}, "missing is 1.0"),
        ({"periods": (80.0, np.inf)}, "second_period is inf"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bouncing_ball.two_balls(**({"num_sequences": 1, "num_frames": 5} | arguments))
