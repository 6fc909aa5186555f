"""Levels in order: their shares, and a GPLVM of them beside an integral of its own."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf

from gpflow_bae import encoders, guides, likelihoods, models
from gpflow_bae.data import prepare_data


def test_levels_are_as_frequent_as_in_the_data_where_f_is_zero() -> None:
    """But for half an answer more of each, 1 / 2000 of these."""
    Y = np.repeat([0.0, 1.0, 2.0, 3.0, np.nan], [100, 200, 300, 400, 7])
    likelihood = likelihoods.Ordinal.from_levels(
        np.random.default_rng(0).permutation(Y).reshape(19, 53)
    )
    levels = np.arange(4.0)[:, None]
    inputs, zero = np.zeros((4, 1)), np.zeros((4, 1))
    found = np.exp(likelihood.log_prob(inputs, zero, levels))
    np.testing.assert_allclose(found, [0.1, 0.2, 0.3, 0.4], atol=2e-3)
    assert likelihoods.Ordinal.from_levels(Y, 6).num_bins == 6  # two that nobody gave


def test_levels_far_from_f_have_finite_densities_and_gradients() -> None:
    """Thirty sigma away: log of SciPy's tail, and its derivative, about the distance."""
    likelihood = likelihoods.Ordinal.from_levels([0.0, 1.0, 2.0])
    low, high = likelihood.bin_edges
    f = tf.constant([[30.0], [-30.0], [30.0], [-30.0], [0.0]], tf.float64)
    y = np.array([[0.0], [2.0], [1.0], [1.0], [1.0]])
    with tf.GradientTape() as tape:
        tape.watch(f)
        found = likelihood.log_prob(np.zeros((5, 1)), f, y)
    tail = scipy.stats.norm.logcdf
    expected = [tail(low - 30), tail(-30 - high), tail(high - 30), tail(-30 - low), np.log(1 / 3)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    gradient = tape.gradient(found, f).numpy()[:, 0]
    np.testing.assert_allclose(gradient[:4], [-30, 30, -30, 30], rtol=0.05)
    assert abs(gradient[4]) < 1e-9
    mean = likelihood.conditional_mean(np.zeros((5, 1)), f)
    np.testing.assert_allclose(mean[:, 0], [2, 0, 2, 0, 1], atol=1e-9)


def test_levels_that_are_none_are_refused() -> None:
    for Y, words in (
        ([1.0, 2.5], "from 1 to 2.5; expected levels, integers from 0[.] Stars"),
        ([-1.0, 2.0], "from -1 to 2"),
        ([np.nan], "no observed entry"),
        ([0.0, 0.0], "Y has 1 levels; expected 2 to 1000"),
        ([0.0, np.inf], "Y has inf levels"),
    ):
        with pytest.raises(ValueError, match=words):
            likelihoods.Ordinal.from_levels(Y)
    with pytest.raises(ValueError, match="num_levels"):
        likelihoods.Ordinal.from_levels([0.0, 1.0], 1)
    with pytest.raises(ValueError, match="from 1 to 5; expected levels, integers from 0 to 4"):
        likelihoods.Ordinal.from_levels([1.0, 5.0], 5)


def test_the_bound_of_a_gplvm_of_levels_is_its_integral() -> None:
    """E[log p(y | f)] of every cell by an adaptive integral, at codes that are points.

    GPflow's quadrature has twenty nodes; the density is smooth on the scale of f.
    """
    rng = np.random.default_rng(1)
    N, P, M = 4, 3, 5
    Y = rng.integers(0, 3, (N, P)).astype(float)
    codes = rng.standard_normal((N, 1))
    likelihood = likelihoods.Ordinal.from_levels(Y, 3)
    likelihood.sigma.assign(0.8)
    model = models.StochasticGPLVM(
        guides.PointEstimate(encoders.FreeFormEncoder(1, N, 1, codes[None], 0.1)),
        gpflow.kernels.SquaredExponential(),
        rng.standard_normal((M, 1)),
        likelihood,
        P,
    )
    model.decoder.q_mu.assign(rng.standard_normal((M, P)))
    terms = model.terms(prepare_data(model, (None, Y)).gather(None), tf.constant([1, 2]))
    mean, variance = (v.numpy()[0] for v in model.decoder.moments(codes[None]))
    edges = np.concatenate([[-np.inf], likelihood.bin_edges, [np.inf]])

    def expected(y: int, mean: float, deviation: float) -> float:
        def integrand(z: float) -> float:
            f = mean + deviation * z
            low, high = (edges[[y, y + 1]] - f) / 0.8
            if low > 0:  # where the distribution function has no digits left
                low, high = -high, -low
            share = scipy.stats.norm.cdf(high) - scipy.stats.norm.cdf(low)
            return scipy.stats.norm.pdf(z) * np.log(share)

        return scipy.integrate.quad(integrand, -8.0, 8.0)[0]

    cells = zip(Y.astype(int).ravel(), mean.ravel(), np.sqrt(variance.ravel()), strict=True)
    total = sum(expected(*cell) for cell in cells)
    np.testing.assert_allclose(terms.expected_log_likelihood, total, rtol=1e-4)
