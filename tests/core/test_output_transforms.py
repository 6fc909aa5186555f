"""Transforms of outputs: what Gaussians become of them, against draws and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from gpflow_bae.core.output_transforms import Identity, Log, Logit, OutputTransform
from gpflow_bae.data import Standardiser

TRANSFORMS = [Identity(), Log(), Log(0.7), Log(1.0), Logit(-2.0, 3.0)]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_inverse_and_jacobian(transform: OutputTransform) -> None:
    y = np.array([0.01, 0.5, 1.0, 2.9])
    np.testing.assert_allclose(transform.inverse(transform.forward(y)), y, rtol=1e-12)
    assert np.isnan(transform.forward(np.array([np.nan]))).all()
    step = 1e-6  # central differences have an error of order step^2, and rounding of 1e-10
    slope = (transform.forward(y + step) - transform.forward(y - step)) / (2.0 * step)
    np.testing.assert_allclose(transform.log_jacobian(y), np.log(slope), atol=1e-6)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
@pytest.mark.parametrize("mean", [-1.0, 0.0, 0.8])
@pytest.mark.parametrize("deviation", [0.1, 1.0])
def test_moments_are_integrals_over_the_gaussian(
    transform: OutputTransform, mean: float, deviation: float
) -> None:
    def integral(function) -> float:
        """By the trapezoid rule on 2e5 points: within 1e-8, kinks included."""
        z = np.linspace(mean - 12 * deviation, mean + 12 * deviation, 200_001)
        return float(
            scipy.integrate.trapezoid(function(z) * scipy.stats.norm.pdf(z, mean, deviation), z)
        )

    first = integral(transform.inverse)
    second = integral(lambda z: (transform.inverse(z) - first) ** 2)
    found = transform.moments(np.array([mean]), np.array([deviation**2]))
    # Gauss-Hermite nodes miss the kink at the bounds of Logit by a few parts in 1000.
    rtol = 5e-3 if isinstance(transform, Logit) else 1e-6
    np.testing.assert_allclose(found[0], first, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found[1], second, rtol=rtol)


@pytest.mark.parametrize("transform", [Log(0.7), Logit(0.0, 100.0)], ids=str)
def test_values_never_leave_the_range_and_bounds_have_a_place(transform: OutputTransform) -> None:
    bounds = [b for b in (transform.lower, transform.upper) if np.isfinite(b)]
    assert np.isfinite(transform.forward(np.array(bounds))).all()
    far = transform.inverse(np.array([-50.0, 50.0]))
    assert far[0] == transform.lower and far[1] <= transform.upper
    certain = transform.moments(np.array([-50.0, 0.3]), np.zeros(2))
    # NumPy's exponential of few numbers and of many may differ in the last bit.
    expected = transform.inverse(np.array([-50.0, 0.3]))
    np.testing.assert_allclose(certain[0], expected, rtol=1e-15)
    np.testing.assert_allclose(certain[1], 0.0, atol=1e-27)  # that bit, squared


def test_a_transform_without_a_range_is_refused() -> None:
    with pytest.raises(ValueError, match="shift is -1"):
        Log(-1.0)
    with pytest.raises(ValueError, match="low is 3.0 and high 2.0"):
        Logit(3.0, 2.0)


def draws() -> tuple[np.ndarray, Standardiser]:
    """Outputs whose transforms are Gaussian with known parameters, and their standardiser."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((20_000, 3)) * [2.0, 0.8, 1.2] + [5.0, 1.0, -0.3]
    transforms = (Identity(), Log(), Logit(0.0, 100.0))
    Y = np.stack([t.inverse(z[:, p]) for p, t in enumerate(transforms)], axis=-1)
    return Y, Standardiser.fit(Y, transforms=transforms)


def test_quantiles_and_densities_are_those_of_the_outputs() -> None:
    Y, scale = draws()
    zero, one = np.zeros(3), np.ones(3)
    for probability in (0.05, 0.5, 0.95):
        share = np.mean(Y <= scale.inverse_quantile(zero, one, probability), axis=0)
        # The standardiser is fitted to the same draws: a standard error of 0.002, four are allowed.
        np.testing.assert_allclose(share, probability, atol=0.008)
    # A density of outputs in their own units integrates to one over their range.
    for p, (low, high) in enumerate([(-10.0, 20.0), (1e-9, 300.0), (0.0, 100.0)]):
        grid = np.repeat(np.linspace(low, high, 400_001)[:, None], 3, axis=1)
        with np.errstate(all="ignore"):
            moments = np.zeros_like(grid), np.ones_like(grid)
            density = np.exp(scale.log_density(grid, *moments))[:, p]
        # Of the logit's mass 1e-4 lies beyond the bounds.
        assert scipy.integrate.trapezoid(density, grid[:, p]) == pytest.approx(1.0, abs=1e-3)
    found = scale.log_density(np.array([7.0, 2.0, np.nan]), zero, one)
    expected = scipy.stats.norm.logpdf(7.0, scale.mean[0], scale.std[0])
    lognormal = scipy.stats.lognorm.logpdf(2.0, scale.std[1], scale=np.exp(scale.mean[1]))
    np.testing.assert_allclose(found, [expected, lognormal, np.nan])


def test_a_transform_is_refused_outputs_that_it_has_no_place_for() -> None:
    Y = np.array([[1.0, 5.0], [2.0, 120.0], [3.0, 7.0]])
    with pytest.raises(ValueError, match="'b' holds values outside of the range of its transform"):
        Standardiser.fit(Y, ("a", "b"), transforms=(Log(), Logit(0.0, 100.0)))
    with pytest.raises(ValueError, match="1 transforms for 2 outputs"):
        Standardiser.fit(Y, transforms=(Log(),))
    with pytest.raises(ValueError, match="pass one of the two"):
        Standardiser.fit(Y, log_outputs=True, transforms=(Identity(), Log()))
