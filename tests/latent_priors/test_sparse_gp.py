"""FITC: reductions to the exact GP, integration over inducing outputs, split over points."""

from __future__ import annotations

from collections.abc import Iterator

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae.core.functional import functional_copy
from gpflow_bae.inducing_variables import uniform
from gpflow_bae.latent_priors import GP, SparseGP

NOISE = 0.05


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=0.8, variance=1.3)


@pytest.fixture
def small_jitter() -> Iterator[None]:
    """A jitter far below the tolerances of comparisons with models that have none."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=1e-10)):
        yield


@pytest.mark.usefixtures("small_jitter")
def test_inducing_inputs_at_the_data_give_the_exact_gp() -> None:
    """Q = K then, so density, conditioning and prediction are the exact GP's, to 1e-6."""
    rng = np.random.default_rng(0)
    X = np.linspace(-3.0, 3.0, 7)[:, None]  # spacing near the lengthscale: K_ZZ is harmless
    Xnew = rng.uniform(-3.0, 3.0, (5, 1))
    latents, variance = rng.normal(size=(2, 7, 2)), rng.uniform(0.1, 1.0, (2, 7, 2))
    sparse = SparseGP(_kernel(), X, 2, NOISE)
    exact = GP(_kernel(), 2, NOISE)
    np.testing.assert_allclose(
        sparse.log_prob(X, latents), exact.log_prob(X, latents), rtol=0.0, atol=1e-6
    )
    pairs = zip(
        (*sparse.condition(X, latents, variance), *sparse.predict(Xnew, X, latents, variance)),
        (*exact.condition(X, latents, variance), *exact.predict(Xnew, X, latents, variance)),
        strict=True,
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-6)


@pytest.mark.usefixtures("small_jitter")
def test_one_inducing_input_per_point_reduces_to_gpflows_fitc() -> None:
    """With equal pseudo-noise it is gpflow.models.GPRFITC: evidence and predict_f, to 1e-6.

    GPflow's FITC is computed another way; the jitter of 1e-10 is all that differs.
    """
    rng = np.random.default_rng(1)
    X, Xnew = rng.uniform(-3, 3, (12, 1)), rng.uniform(-3, 3, (5, 1))
    Y = rng.normal(size=(12, 1))
    Z = np.linspace(-2.5, 2.5, 4)[:, None]
    model = gpflow.models.GPRFITC((X, Y), _kernel(), Z, noise_variance=NOISE + 0.2)
    prior = SparseGP(_kernel(), Z, 1, NOISE)
    noise = np.full_like(Y, 0.2)
    np.testing.assert_allclose(
        prior.condition(X, Y, noise).log_marginal, model.fitc_log_marginal_likelihood(), atol=1e-6
    )
    for ours, theirs in zip(prior.predict(Xnew, X, Y, noise), model.predict_f(Xnew), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_integrated_equals_monte_carlo_over_the_inducing_outputs() -> None:
    """p(latents) = E p(latents | nu) over nu ~ N(0, I): the two modes are one model.

    20,000 draws of nu (M = 2, one channel) in the sampled mode. The tolerance is five standard
    errors of that average, and they are asked to be below 1 %.
    """
    rng = np.random.default_rng(2)
    X, Z = np.array([[-0.9], [0.1], [1.2]]), np.array([[-0.6], [0.7]])
    latents = rng.normal(size=(3, 1)) * 0.5
    sampled = SparseGP(_kernel(), Z, 1, 0.3, inducing_outputs="sampled")
    integrated = SparseGP(_kernel(), Z, 1, 0.3, inducing_outputs="integrated")
    nu = tf.constant(rng.normal(size=(20000, 1, 2)))

    def log_prob(one: tf.Tensor) -> tf.Tensor:
        values = {".whitened_inducing": one}
        return functional_copy(sampled, values).log_prob(X, latents)

    density = np.exp(
        tf.function(lambda: tf.vectorized_map(log_prob, nu), autograph=False)().numpy()
    )
    error = density.std() / np.sqrt(len(density))
    assert error < 0.01 * density.mean()
    expected = np.exp(integrated.log_prob(X, latents).numpy())
    assert abs(density.mean() - expected) < 5 * error


def test_sampled_density_splits_over_points() -> None:
    """Given nu the codes are independent: a sum over single points is the density of all."""
    rng = np.random.default_rng(3)
    X, Z, latents = rng.normal(size=(6, 2)), rng.normal(size=(4, 2)), rng.normal(size=(6, 2))
    prior = SparseGP(_kernel(), Z, 2, NOISE, inducing_outputs="sampled")
    prior.whitened_inducing.assign(rng.normal(size=(2, 4)))
    parts = [prior.log_prob(X[i : i + 1], latents[i : i + 1]) for i in range(6)]
    np.testing.assert_allclose(sum(parts), prior.log_prob(X, latents), rtol=1e-12)


def test_integrated_density_does_not_split() -> None:
    """Neighbours share inducing outputs: their joint density exceeds the product by far."""
    X = np.array([[0.0], [0.05]])
    latents = np.array([[1.5], [1.5]])
    prior = SparseGP(_kernel(), np.array([[0.0], [1.0]]), 1, NOISE)
    alone = [float(prior.log_prob(X[i : i + 1], latents[i : i + 1])) for i in range(2)]
    # For two codes c of unit-like variance v and correlation near one, the gain is
    # log N(c, c) - 2 log N(c) ~ c^2 / (2 v) - log(1 - rho^2) / 2 = 0.8 + 1.3, here.
    assert float(prior.log_prob(X, latents)) > sum(alone) + 1.5


def test_far_from_the_inducing_inputs_codes_are_independent_and_full_of_variance() -> None:
    """There Q = 0, and FITC puts the GP's own variance back: N(0, (variance + noise) I)."""
    X = np.array([[100.0], [100.1], [200.0]])
    latents = np.array([[0.3], [-1.0], [0.8]])
    prior = SparseGP(_kernel(), np.array([[0.0], [1.0]]), 1, NOISE)
    normal = tfp.distributions.Normal(tf.constant(0.0, tf.float64), np.sqrt(1.3 + NOISE))
    np.testing.assert_allclose(
        prior.log_prob(X, latents), tf.reduce_sum(normal.log_prob(latents)), rtol=1e-12
    )


def test_parameters_and_their_priors() -> None:
    """Sampled mode has nu [L, M] under N(0, 1); integrated mode has none."""
    Z = np.random.default_rng(0).normal(size=(4, 2))
    sampled = SparseGP(_kernel(), Z, 3, inducing_outputs="sampled")
    assert sampled.whitened_inducing.shape == (3, 4) and sampled.num_inducing == 4
    np.testing.assert_array_equal(sampled.whitened_inducing.prior.mean(), 0.0)
    np.testing.assert_array_equal(sampled.whitened_inducing.prior.stddev(), 1.0)
    assert ".whitened_inducing" in gpflow.utilities.parameter_dict(sampled)
    integrated = gpflow.utilities.parameter_dict(SparseGP(_kernel(), Z, 3))
    assert ".whitened_inducing" not in integrated and ".inducing_variable.Z" in integrated


def test_inducing_points_of_the_user_are_kept() -> None:
    """GPflow InducingPoints, with whatever prior they have, are used as they are."""
    points = uniform(np.zeros((1, 2)), -5.0, 5.0)
    assert SparseGP(_kernel(), points, 1).inducing_variable is points


def test_unknown_treatment_of_the_inducing_outputs_is_refused() -> None:
    """The two words that exist are named."""
    with pytest.raises(ValueError, match="one of 'integrated', 'sampled', got 'marginal'"):
        SparseGP(_kernel(), np.zeros((1, 1)), 1, inducing_outputs="marginal")


def test_cholesky_failure_names_kernel_and_jitter() -> None:
    """Inducing inputs that coincide give a singular K_ZZ once there is no jitter."""
    prior = SparseGP(_kernel(), np.array([[0.5], [0.5], [0.5]]), 1)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=0.0)):
        message = r"K\(Z, Z\) of the sparse latent GP \(SquaredExponential\).*jitter 0: raise"
        with pytest.raises(ValueError, match=message):
            prior.log_prob(np.zeros((2, 1)), np.zeros((2, 1)))


def test_cholesky_failure_names_the_task() -> None:
    """NaN in the inputs of task 2 reaches that task's own factor only."""
    X = np.random.default_rng(0).normal(size=(3, 4, 1))
    X[2, 0, 0] = np.nan
    prior = SparseGP(_kernel(), np.array([[-0.5], [0.5]]), 1)
    with pytest.raises(ValueError, match=r"I \+ A A\^T.*\(SquaredExponential\).*\[\[2, 0\]\]"):
        prior.log_prob(X, np.zeros((3, 4, 1)))
