"""Functional calls: the module at other values, and its prior density in unconstrained space."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, PriorOn

from gpflow_bae.core.functional import (
    constrain,
    flatten,
    functional_copy,
    log_prior_density,
    unconstrained_values,
    unflatten,
)

tfd, tfb = tfp.distributions, tfp.bijectors

X = np.linspace(0.0, 2.0, 5)[:, None]


def _f64(value: float) -> tf.Tensor:
    return tf.constant(value, tf.float64)


def _values(variance: float, lengthscale: float) -> dict[str, tf.Tensor]:
    return {".variance": _f64(variance), ".lengthscales": _f64(lengthscale)}


def test_call_equals_the_module_with_assigned_values() -> None:
    """Two ways to the same arithmetic: equal to the last bit but one (float64)."""
    kernel = gpflow.kernels.SquaredExponential()
    called = functional_copy(kernel, _values(2.0, 0.3))(X)
    kernel.variance.assign(2.0)
    kernel.lengthscales.assign(0.3)
    np.testing.assert_allclose(called, kernel(X), rtol=1e-14)


def test_nothing_is_assigned_and_the_rest_is_shared() -> None:
    """Variables keep their values, and a parameter that is not named is the very same object."""
    kernel = gpflow.kernels.SquaredExponential(variance=1.5)
    before = [v.numpy() for v in kernel.variables]
    bound = functional_copy(kernel, {".variance": _f64(7.0)})
    bound(X)
    assert bound.lengthscales is kernel.lengthscales
    assert isinstance(kernel.variance, Parameter)
    np.testing.assert_array_equal([v.numpy() for v in kernel.variables], before)


def test_parameters_of_nested_and_shared_modules() -> None:
    """A sum of two kernels at other values is the sum of the kernels; a shared one moves twice."""
    one, two = gpflow.kernels.SquaredExponential(), gpflow.kernels.Linear()
    total = functional_copy(
        one + two, {".kernels[0].variance": _f64(3.0), ".kernels[1].variance": _f64(5.0)}
    )(X)
    np.testing.assert_allclose(total, 3.0 * one(X) + 5.0 * two(X), rtol=1e-14)
    shared = gpflow.kernels.Sum([two, two])
    np.testing.assert_allclose(
        functional_copy(shared, {".kernels[1].variance": _f64(5.0)})(X), 10.0 * two(X), rtol=1e-14
    )


@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_value_and_gradient(jit_compile: bool) -> None:
    """sum K is linear in the variance, so its derivative is sum K / variance, also compiled."""
    kernel = gpflow.kernels.SquaredExponential()

    @tf.function(jit_compile=jit_compile, autograph=False)
    def total(variance: tf.Tensor, lengthscale: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(variance)
            values = {".variance": variance, ".lengthscales": lengthscale}
            value = tf.reduce_sum(functional_copy(kernel, values)(X))
        return value, tape.gradient(value, variance)

    for variance, lengthscale in [(2.0, 0.3), (0.5, 1.7)]:  # one trace, other values
        value, gradient = total(_f64(variance), _f64(lengthscale))
        expected = variance * np.exp(-0.5 * (X - X.T) ** 2 / lengthscale**2).sum()
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, expected / variance, rtol=1e-12)
    assert total.experimental_get_tracing_count() == 1
    np.testing.assert_array_equal(kernel.variance, 1.0)


def test_vectorized_map_over_sampled_hyperparameters() -> None:
    """Many hyperparameters at once equal one at a time, and so does their closed-form gradient.

    d/d lengthscale of k is k r^2 / lengthscale^3 (r the distance).
    """
    kernel = gpflow.kernels.SquaredExponential()
    rng = np.random.default_rng(0)
    variances, lengthscales = rng.uniform(0.5, 2.0, (2, 7))

    def total(values: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        named = {".variance": values[0], ".lengthscales": values[1]}
        return tf.reduce_sum(functional_copy(kernel, named)(X))

    @tf.function(autograph=False)
    def mapped(*values: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        with tf.GradientTape() as tape:
            tape.watch(values)
            totals = tf.vectorized_map(total, values)
        return totals, tape.gradient(totals, values)

    totals, gradients = mapped(tf.constant(variances), tf.constant(lengthscales))
    for i, (v, s) in enumerate(zip(variances, lengthscales, strict=True)):
        K = v * np.exp(-0.5 * (X - X.T) ** 2 / s**2)
        np.testing.assert_allclose(totals[i], K.sum(), rtol=1e-12)
        np.testing.assert_allclose(gradients[0][i], K.sum() / v, rtol=1e-12)
        np.testing.assert_allclose(gradients[1][i], (K * (X - X.T) ** 2).sum() / s**3, rtol=1e-11)


def test_unknown_path_is_named() -> None:
    """A typing mistake may not leave the module silently at its own values."""
    kernel = gpflow.kernels.SquaredExponential()
    with pytest.raises(KeyError, match=r"\.lengthscale'.*does not have.*\.lengthscales"):
        functional_copy(kernel, {".lengthscale": _f64(1.0)})


PRIORS: dict[str, Callable[[], Parameter]] = {
    "lognormal": lambda: Parameter(
        [0.7, 1.9], transform=gpflow.utilities.positive(), prior=tfd.LogNormal(_f64(0.3), _f64(0.8))
    ),
    "softplus": lambda: Parameter(
        0.4, transform=tfb.Softplus(), prior=tfd.Gamma(_f64(2.0), _f64(1.5))
    ),
    "lower bound": lambda: Parameter(
        0.4,
        transform=gpflow.utilities.positive(lower=0.1, base="exp"),
        prior=tfd.LogNormal(_f64(0.0), _f64(1.0)),
    ),
    "uniform box": lambda: Parameter(
        [[0.2, 3.0], [0.9, 4.0], [0.5, 4.5]],
        transform=tfb.Sigmoid(
            tf.constant([0.0, 2.0], tf.float64), tf.constant([1.0, 5.0], tf.float64)
        ),
        prior=tfd.Uniform(np.array([0.0, 2.0]), np.array([1.0, 5.0])),
    ),
    "identity": lambda: Parameter(
        [[1.0, -2.0]], prior=tfd.StudentT(_f64(3.0), _f64(0.5), _f64(2.0))
    ),
    "scalar normal": lambda: Parameter(
        [[1.0, -2.0], [0.3, 0.1]], prior=tfd.Normal(_f64(0.5), _f64(2.0))
    ),
    "normal per entry": lambda: Parameter(
        [1.0, -2.0], prior=tfd.Normal(np.array([0.0, 1.0]), np.array([1.0, 3.0]))
    ),
    "joint prior": lambda: Parameter(
        [0.5, 1.5, 2.5],
        transform=tfb.Exp(),
        prior=tfd.MultivariateNormalDiag(np.zeros(3), np.array([1.0, 2.0, 3.0])),
    ),
    "constant Jacobian": lambda: Parameter(
        [0.5, 1.5], transform=tfb.Scale(_f64(3.0)), prior=tfd.Normal(_f64(0.0), _f64(2.0))
    ),
    "triangular": lambda: Parameter(
        [[1.0, 0.0], [0.5, 2.0]],
        transform=tfb.FillTriangular(),
        prior=tfd.Normal(_f64(0.0), _f64(2.0)),
    ),
}


@pytest.mark.parametrize("name", PRIORS)
def test_log_prior_density_equals_gpflow_plus_jacobian(name: str) -> None:
    """GPflow's own density of the constrained value, plus log |d constrained / d unconstrained|.

    The Jacobian is taken by automatic differentiation of the transform, as a dense matrix.
    """
    parameter = PRIORS[name]()
    (value,) = unconstrained_values([parameter])
    flat = tf.reshape(value, [-1])
    with tf.GradientTape() as tape:
        tape.watch(flat)
        point = parameter.transform.forward(tf.reshape(flat, value.shape))
    jacobian = tape.jacobian(point, flat).numpy().reshape(-1, flat.shape[0])
    jacobian = jacobian[np.abs(jacobian).sum(-1) > 0]  # entries that a transform leaves at zero
    expected = parameter.log_prior_density() + np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(log_prior_density([parameter], [value]), expected, rtol=1e-10)


def test_log_prior_density_of_a_prior_on_the_unconstrained_value() -> None:
    """Then the prior is already where the sampler moves: no Jacobian."""
    prior = tfd.Normal(_f64(0.5), _f64(2.0))
    parameter = Parameter(0.7, transform=tfb.Exp(), prior=prior, prior_on=PriorOn.UNCONSTRAINED)
    density = log_prior_density([parameter], unconstrained_values([parameter]))
    np.testing.assert_allclose(density, prior.log_prob(_f64(np.log(0.7))), rtol=1e-12)


@pytest.mark.parametrize(
    "parameter",
    [
        Parameter(1.0, transform=tfb.Softplus(), prior=tfd.LogNormal(_f64(0.3), _f64(0.5))),
        Parameter(
            0.3,
            transform=tfb.Sigmoid(_f64(-1.0), _f64(2.0)),
            prior=tfd.Uniform(_f64(-1.0), _f64(2.0)),
        ),
    ],
    ids=["lognormal", "uniform"],
)
def test_density_integrates_to_one_in_unconstrained_space(parameter: Parameter) -> None:
    """A change of variables keeps the mass: a rectangle rule on [-40, 40], 16,000 points.

    Chains over the grid. Mass outside is below exp(-38); the rule's error for a smooth density
    with step 0.005 is far below the tolerance.
    """
    grid = tf.constant(np.linspace(-40.0, 40.0, 16001))
    density = tf.exp(log_prior_density([parameter], [grid], chain_ndims=1))
    assert density.shape == grid.shape
    np.testing.assert_allclose(tf.reduce_sum(density) * 0.005, 1.0, rtol=1e-6)


@pytest.mark.parametrize("name", PRIORS)
def test_chains_are_independent(name: str) -> None:
    """With leading chain dimensions the density is that of each chain on its own."""
    parameter = PRIORS[name]()
    (value,) = unconstrained_values([parameter])
    chains = tf.stack([value, value + 0.3, value - 0.7])
    expected = [log_prior_density([parameter], [v]) for v in chains]
    together = log_prior_density([parameter], [chains], chain_ndims=1)
    np.testing.assert_allclose(together, expected, rtol=1e-12)


def test_scalar_normal_shortcut_and_its_gradient() -> None:
    """The fused sum of squares equals tfd's density, and its gradient is -(w - loc) / scale^2.

    float32 sums of 1000 terms of size 1: relative 1e-5.
    """
    prior = tfd.Normal(np.float32(0.2), np.float32(0.7))
    weights = np.random.default_rng(1).normal(size=(20, 50)).astype(np.float32)
    parameter = Parameter(weights, dtype=tf.float32, prior=prior)
    value = tf.constant(weights)
    with tf.GradientTape() as tape:
        tape.watch(value)
        density = log_prior_density([parameter], [value])
    assert density.dtype == tf.float64
    expected = tfd.Normal(0.2, 0.7).log_prob(weights).numpy().astype(np.float64).sum()
    np.testing.assert_allclose(density, expected, rtol=1e-5)
    np.testing.assert_allclose(
        tape.gradient(density, value), -(weights - 0.2) / 0.49, rtol=1e-5, atol=1e-5
    )


def test_positive_scalars_are_summed_as_tfps_densities_and_jacobians() -> None:
    """Of several bounds, priors and chains, beside a parameter of another kind (float64)."""
    lower, rng = [0.0, 1e-6, 0.3], np.random.default_rng(0)
    parameters = [
        Parameter(
            1.0, transform=gpflow.utilities.positive(b), prior=tfd.LogNormal(_f64(m), _f64(s))
        )
        for b, m, s in zip(lower, [0.0, -3.0, 2.0], [1.0, 0.5, 2.0], strict=True)
    ]
    gamma = tfd.Gamma(_f64(2.0), _f64(1.0))
    parameters.insert(1, Parameter(1.0, transform=gpflow.utilities.positive(), prior=gamma))
    values = [tf.constant(v) for v in 3.0 * rng.standard_normal((4, 5))]
    expected = sum(
        p.prior.log_prob(p.transform.forward(tf.identity(v)))
        + p.transform.forward_log_det_jacobian(tf.identity(v), event_ndims=0)
        for p, v in zip(parameters, values, strict=True)
    )
    found = log_prior_density(parameters, values, chain_ndims=1)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_mixed_precisions_add_up() -> None:
    """A float32 and a float64 parameter: each term in its own type, the sum in default_float()."""
    network = Parameter(
        np.ones(3, np.float32), dtype=tf.float32, prior=tfd.Normal(np.float32(0.0), np.float32(1.0))
    )
    variance = PRIORS["lognormal"]()
    values = unconstrained_values([network, variance])
    assert [v.dtype for v in values] == [tf.float32, tf.float64]
    total = log_prior_density([network, variance], values)
    parts = [log_prior_density([p], [v]) for p, v in zip([network, variance], values, strict=True)]
    np.testing.assert_allclose(total, parts[0] + parts[1], rtol=1e-14)
    # Three unit weights under N(0, 1), by hand; float32.
    np.testing.assert_allclose(parts[0], -1.5 * np.log(2 * np.pi) - 1.5, rtol=1e-6)
    assert total.dtype == tf.float64


def test_missing_prior_is_refused() -> None:
    """A sampled parameter without a prior has no posterior: the error says how to go on."""
    parameter = Parameter([1.0, 2.0], name="loose")
    with pytest.raises(ValueError, match=r"shape \(2,\).*no prior.*set_trainable"):
        log_prior_density([parameter], unconstrained_values([parameter]))


def test_nothing_sampled_has_density_zero() -> None:
    """An empty sum of log densities."""
    assert float(log_prior_density([], [])) == 0.0


@pytest.mark.parametrize("name", PRIORS)
def test_constrain_inverts_unconstrained_values(name: str) -> None:
    """forward(inverse(value)) = value, to rounding."""
    parameter = PRIORS[name]()
    (value,) = constrain([parameter], unconstrained_values([parameter]))
    np.testing.assert_allclose(value, parameter, rtol=1e-12)


def test_flatten_and_unflatten_are_inverse() -> None:
    """Shapes, types and numbers survive; float32 values are exact in float64."""
    values = [
        tf.constant([[1.0, 2.0], [3.0, 4.0]], tf.float32),
        tf.constant(5.0, tf.float64),
        tf.constant([6.0], tf.float64),
    ]
    vector = flatten(values)
    assert vector.dtype == tf.float64
    np.testing.assert_array_equal(vector, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    for back, value in zip(unflatten(vector, values), values, strict=True):
        assert back.dtype == value.dtype and back.shape == value.shape
        np.testing.assert_array_equal(back, value)
    assert flatten(values, tf.float32).dtype == tf.float32
