"""Slice sampling along a line has the density it was given, whatever the width."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_bae.inference.loops import repeat
from gpflow_bae.mcmc.calibrated.slice_sampling import slice_step

STEPS, THINNED = 20_000, 10


@tf.function(autograph=False)
def gammas(width: tf.Tensor) -> tf.Tensor:
    """Draws of Gamma(3, 1), one chain of slice steps; the density of a negative number is NaN."""

    def body(i: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        x, found = state
        seed = tf.random.fold_in(tf.constant([0, 5]), i, alg="philox")
        t = slice_step(lambda t: 2.0 * tf.math.log(x + t) - t, seed, width=width)
        return x + t, tf.tensor_scatter_nd_update(found, i[None, None], (x + t)[None])

    zeros = tf.zeros([STEPS], tf.float64)
    return repeat(STEPS, body, (tf.constant(3.0, tf.float64), zeros))[1]


# Too narrow (so the interval has to grow), about right, and too wide (so it has to shrink).
@pytest.mark.parametrize("width", [0.7, 3.0, 30.0])
def test_draws_have_the_density(width: float) -> None:
    draws = gammas(tf.constant(width, tf.float64)).numpy()[::THINNED]
    # Kolmogorov-Smirnov: 1.95 / sqrt(n) is exceeded with probability 0.001; every tenth draw of
    # slice sampling is as good as independent here.
    assert stats.kstest(draws, stats.gamma(3.0).cdf).statistic < 1.95 / np.sqrt(len(draws))


def test_a_point_without_density_stays_where_it_is() -> None:
    seed = tf.constant([1, 2])
    nowhere = slice_step(lambda t: tf.where(t == 0.0, t, np.nan * t), seed)
    assert float(nowhere) == 0.0


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="width"):
        slice_step(lambda t: t, (0, 0), width=0.0)
    with pytest.raises(ValueError, match="max_expansions"):
        slice_step(lambda t: t, (0, 0), max_expansions=-1)
