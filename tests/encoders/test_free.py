"""Free-form codes: which of them a batch gets, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.encoders import FreeFormEncoder

T, N, P, L = 4, 6, 3, 2
SEED = tf.constant([3, 4])


def _encoder(num_tasks: int = T, num_points: int = N) -> tuple[FreeFormEncoder, np.ndarray]:
    mean = np.random.default_rng(0).normal(size=(num_tasks, num_points, L))
    return FreeFormEncoder(num_tasks, num_points, L, mean, 0.3), mean


def test_codes_of_the_whole_data() -> None:
    """Means and variances as they were given; the observations themselves say nothing."""
    encoder, mean = _encoder()
    assert encoder.takes_indices and not encoder.takes_mask and encoder.latent_dim == L
    for value in (0.0, 7.0):
        found, variance = encoder(np.full((T, N, P), value))
        np.testing.assert_array_equal(found, mean)
        np.testing.assert_allclose(variance, 0.3, rtol=1e-12)
    assert len(encoder.trainable_variables) == 2


@pytest.mark.parametrize("num_tasks, num_points, axis", [(T, N, 0), (1, N, 1)])
def test_minibatches_get_their_own_codes(num_tasks: int, num_points: int, axis: int) -> None:
    """Of several tasks the items are tasks, of a single one they are points."""
    encoder, mean = _encoder(num_tasks, num_points)
    indices = [3, 1]
    expected = np.take(mean, indices, axis)
    Y = np.zeros((*expected.shape[:-1], P))
    side = encoder.side_inputs(None, tf.constant(indices))
    found, _ = encoder(Y, **side)
    np.testing.assert_array_equal(found, expected)
    draw = encoder.sample(Y, SEED, **side)
    density = -0.5 * np.sum(np.log(2 * np.pi * 0.3) + (draw - expected) ** 2 / 0.3, -1)
    np.testing.assert_allclose(encoder.log_prob(Y, draw, **side), density, rtol=1e-10)


def test_variance_is_clipped() -> None:
    """To the given range."""
    encoder = FreeFormEncoder(T, N, L, min_variance=0.01, max_variance=4.0)
    for log_scale, expected in ((-9.0, 0.01), (9.0, 4.0)):
        encoder.log_scale.assign(np.full((T, N, L), log_scale))
        np.testing.assert_allclose(encoder(np.zeros((T, N, P)))[1], expected, rtol=1e-9)


def test_bad_arguments_and_other_data_are_refused() -> None:
    with pytest.raises(ValueError, match="num_points must be at least 1, got 0"):
        FreeFormEncoder(T, 0, L)
    with pytest.raises(ValueError, match=r"\[T, N, L\] = \(4, 6, 2\), got \(4, 6, 3\)"):
        FreeFormEncoder(T, N, L, np.zeros((T, N, 3)))
    with pytest.raises(ValueError, match="initial_variance must lie between .* got 0"):
        FreeFormEncoder(T, N, L, initial_variance=0.0)
    encoder, _ = _encoder()
    with pytest.raises(ValueError, match=r"training data only: .* \[T, N\] = \[4, 6\], got \[1, 6"):
        encoder(np.zeros((1, N, P)))
    with pytest.raises(ValueError, match=r"this minibatch .* \[2, 6\], got \[3, 6\]"):
        encoder(np.zeros((3, N, P)), indices=[0, 1])
