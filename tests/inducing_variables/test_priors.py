"""Uniform priors over inducing inputs: a proper density that a sampler cannot leave."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.core.functional import log_prior_density, unconstrained_values
from gpflow_bae.inducing_variables import as_inducing_points, uniform

Z = np.array([[0.0, 10.0], [1.0, 30.0], [4.0, 20.0]])


def test_density_is_one_over_the_volume() -> None:
    """M points in a box: -M log(volume), here of [-1, 5] x [0, 50], in the inputs' space."""
    points = uniform(Z, low=[-1.0, 0.0], high=[5.0, 50.0])
    np.testing.assert_allclose(points.Z, Z, rtol=1e-12)
    np.testing.assert_allclose(points.Z.log_prior_density(), -3 * np.log(6.0 * 50.0), rtol=1e-12)


def test_default_box_is_the_range_widened_by_the_mean_spacing() -> None:
    """Ranges 4 and 20 over two gaps: margins 2 and 10, hence [-2, 6] x [0, 40]."""
    prior = uniform(Z).Z.prior
    np.testing.assert_allclose(prior.low, [-2.0, 0.0])
    np.testing.assert_allclose(prior.high, [6.0, 40.0])


def test_a_single_or_constant_input_gets_a_box_of_unit_margins() -> None:
    """There is no spacing to measure: 1 / (M - 1) on each side, and 1 for a single point."""
    single = uniform(np.array([[3.0]])).Z.prior
    np.testing.assert_allclose([single.low, single.high], [[2.0], [4.0]])
    constant = uniform(np.array([[3.0], [3.0], [3.0]])).Z.prior
    np.testing.assert_allclose([constant.low, constant.high], [[2.5], [3.5]])


@pytest.mark.parametrize("unconstrained", [-1e3, -30.0, 0.0, 30.0, 1e3])
def test_a_sampler_cannot_leave_the_box(unconstrained: float) -> None:
    """Any unconstrained value maps into the closed box; 0 to its centre."""
    points = uniform(Z, low=[-1.0, 0.0], high=[5.0, 50.0])
    value = points.Z.transform.forward(tf.fill([3, 2], tf.constant(unconstrained, tf.float64)))
    assert np.all(value >= [-1.0, 0.0]) and np.all(value <= [5.0, 50.0])
    if unconstrained == 0.0:
        np.testing.assert_allclose(value, np.tile([2.0, 25.0], (3, 1)), rtol=1e-12)


def test_unconstrained_density_is_the_logistic() -> None:
    """A uniform seen through a sigmoid is a standard logistic, whatever the box: its log density
    is -x - 2 log(1 + exp(-x)), the box having cancelled.
    """
    points = uniform(Z, low=[-1.0, 0.0], high=[5.0, 50.0])
    (x,) = unconstrained_values([points.Z])
    expected = np.sum(-x.numpy() - 2.0 * np.log1p(np.exp(-x.numpy())))
    np.testing.assert_allclose(log_prior_density([points.Z], [x]), expected, rtol=1e-10)


def test_the_points_are_a_parameter_of_gpflows_class() -> None:
    """Kernels take them as any inducing points, and print_summary lists them."""
    points = as_inducing_points(Z)
    assert isinstance(points, gpflow.inducing_variables.InducingPoints)
    assert points.Z.trainable and list(gpflow.utilities.parameter_dict(points)) == [".Z"]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 10.0])
    np.testing.assert_allclose(gpflow.covariances.Kuu(points, kernel), kernel(Z), rtol=1e-10)


def test_inducing_points_are_kept() -> None:
    """Also those without a prior: what the user made is the user's."""
    points = gpflow.inducing_variables.InducingPoints(Z)
    assert as_inducing_points(points) is points


def test_other_inducing_variables_are_refused() -> None:
    """Multiscale features have no place in the FITC prior."""
    with pytest.raises(TypeError, match="InducingPoints or an array.*got Multiscale"):
        as_inducing_points(gpflow.inducing_variables.Multiscale(Z, np.ones_like(Z)))


@pytest.mark.parametrize(
    ("Z", "kwargs", "message"),
    [
        (np.zeros(3), {}, r"shape \[M, D\], got \(3,\)"),
        (np.array([[0.0], [np.nan]]), {}, "NaN or infinity"),
        (np.array([[0.0], [np.inf]]), {}, "NaN or infinity"),
        (np.array([[0.0], [2.0]]), {"high": [1.0]}, "strictly inside.*Widen low and high"),
        (np.array([[0.0], [2.0]]), {"low": [0.0]}, "strictly inside.*Widen low and high"),
        (np.array([[0.0], [2.0]]), {"low": 3.0, "high": -3.0}, "strictly inside"),
    ],
)
def test_bad_inducing_inputs_are_refused(Z: np.ndarray, kwargs: dict, message: str) -> None:
    """Shape, finiteness, and a box that holds the points: one error each."""
    with pytest.raises(ValueError, match=message):
        uniform(Z, **kwargs)


def test_a_box_is_not_as_narrow_as_a_rounding_error() -> None:
    """A column of one value, up to the last place, has a box of width two over the spaces."""
    Z = np.stack([np.arange(5.0), 48.85 + 1e-14 * np.arange(5)], axis=-1)
    prior = uniform(Z).Z.prior
    np.testing.assert_allclose(prior.low, [-1.0, 48.6], rtol=1e-12)
    np.testing.assert_allclose(prior.high, [5.0, 49.1], rtol=1e-12)
