"""Likelihoods with missing entries: equal to GPflow's where complete, silent where missing."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae.likelihoods import Bernoulli, Gaussian, MaskedLikelihood, masked

tfd = tfp.distributions

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(size=shape)


def _binary(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, 2, shape).astype(float)


def _counts(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.poisson(2.0, shape).astype(float)


def _positive(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.gamma(2.0, size=shape)


# Ours (or a wrapped one), GPflow's own, tfd's, and observations to evaluate them at.
CASES: dict[str, tuple[Callable[[], MaskedLikelihood], Callable[[], object], Callable, Draw]] = {
    "gaussian": (
        lambda: Gaussian(0.3),
        lambda: gpflow.likelihoods.Gaussian(0.3),
        lambda F: tfd.Normal(F, np.sqrt(0.3)),
        _normal,
    ),
    "gaussian per output": (
        lambda: Gaussian(np.array([0.3, 0.1, 2.0])),
        lambda: gpflow.likelihoods.Gaussian(np.array([0.3, 0.1, 2.0])),
        lambda F: tfd.Normal(F, np.sqrt([0.3, 0.1, 2.0])),
        _normal,
    ),
    "bernoulli": (
        Bernoulli,
        lambda: gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid),
        lambda F: tfd.Bernoulli(logits=F, dtype=tf.float64),
        _binary,
    ),
    "student t": (
        lambda: masked(gpflow.likelihoods.StudentT(scale=0.5, df=4.0)),
        lambda: gpflow.likelihoods.StudentT(scale=0.5, df=4.0),
        lambda F: tfd.StudentT(tf.constant(4.0, F.dtype), F, tf.constant(0.5, F.dtype)),
        _normal,
    ),
    "poisson": (
        lambda: masked(gpflow.likelihoods.Poisson()),
        gpflow.likelihoods.Poisson,
        lambda F: tfd.Poisson(log_rate=F),
        _counts,
    ),
    "gamma": (
        lambda: masked(gpflow.likelihoods.Gamma(shape=2.5)),
        lambda: gpflow.likelihoods.Gamma(shape=2.5),
        lambda F: tfd.Gamma(tf.constant(2.5, F.dtype), tf.exp(-F)),
        _positive,
    ),
}

every_likelihood = pytest.mark.parametrize("name", CASES)


def _data(name: str, lead: tuple[int, ...] = (2, 5)) -> tuple[tf.Tensor, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    F, Y = rng.normal(size=(*lead, 3)), CASES[name][3](rng, (*lead, 3))
    mask = rng.uniform(size=(*lead, 3)) < 0.6
    mask[..., 0, :] = [True, False, True]  # some of each, whatever the draw
    return tf.constant(F), Y, mask


@every_likelihood
def test_full_mask_equals_no_mask_and_gpflow_and_tfd(name: str) -> None:
    """Four ways to the same sum over outputs, to rounding in float64.

    GPflow takes log(sigmoid(f)) apart for Bernoulli, with an absolute error of 1e-15 or so.
    """
    ours, theirs, distribution, _ = CASES[name]
    F, Y, mask = _data(name)
    likelihood = ours()
    complete = likelihood.masked_log_prob(F, Y, None)
    np.testing.assert_allclose(
        likelihood.masked_log_prob(F, Y, np.ones_like(mask)), complete, rtol=1e-12
    )
    # GPflow wants one batch dimension, and inputs that it does not look at.
    flat_F, flat_Y = tf.reshape(F, [-1, 3]), Y.reshape(-1, 3)
    expected = theirs().log_prob(np.zeros((len(flat_Y), 1)), flat_F, flat_Y)
    np.testing.assert_allclose(tf.reshape(complete, [-1]), expected, rtol=1e-10)
    np.testing.assert_allclose(complete, tf.reduce_sum(distribution(F).log_prob(Y), -1), rtol=1e-10)


# A noise variance per output is tied to its three columns.
@pytest.mark.parametrize("name", sorted(set(CASES) - {"gaussian per output"}))
def test_masking_a_column_equals_deleting_it(name: str) -> None:
    """Outputs are independent given F: a missing column integrates to one."""
    likelihood = CASES[name][0]()
    F, Y, _ = _data(name)
    mask = np.broadcast_to([True, False, True], Y.shape)
    left = likelihood.masked_log_prob(tf.gather(F, [0, 2], axis=-1), Y[..., [0, 2]], None)
    np.testing.assert_allclose(likelihood.masked_log_prob(F, Y, mask), left, rtol=1e-12)


@every_likelihood
def test_masked_sum_is_over_observed_entries(name: str) -> None:
    """tfd's elementwise density times the mask, summed; a row without observations gives zero."""
    ours, _, distribution, _ = CASES[name]
    F, Y, mask = _data(name)
    mask[1, 3] = False
    result = ours().masked_log_prob(F, Y, mask)
    expected = np.sum(distribution(F).log_prob(Y).numpy() * mask, -1)
    np.testing.assert_allclose(result, expected, rtol=1e-10)
    assert float(result[1, 3]) == 0.0


@every_likelihood
@pytest.mark.parametrize("poison", [np.inf, -np.inf, np.nan, 1e300])
def test_missing_entries_have_zero_gradient_whatever_is_there(name: str, poison: float) -> None:
    """At missing entries F may be anything and Y is a zero put in for NaN: value and gradients
    (of F and of the likelihood's own parameters) are those of the observed entries alone.
    """
    likelihood = CASES[name][0]()
    F, Y, mask = _data(name)
    poisoned = tf.where(mask, F, tf.constant(poison, F.dtype))
    Y_zeroed = np.where(mask, Y, 0.0)

    def evaluate(
        F: tf.Tensor, Y: np.ndarray
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor | None]]:
        with tf.GradientTape() as tape:
            tape.watch(F)
            value = likelihood.masked_log_prob(F, Y, mask)
        at_F, *own = tape.gradient(value, [F, *likelihood.trainable_variables])
        return value, at_F, own

    clean, poisonous = evaluate(F, Y), evaluate(poisoned, Y_zeroed)
    np.testing.assert_array_equal(poisonous[1].numpy()[~mask], 0.0)
    assert np.all(poisonous[1].numpy()[mask] != 0.0)
    for a, b in zip(tf.nest.flatten(clean), tf.nest.flatten(poisonous), strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_array_equal(a, b)


def test_bernoulli_gradient_equals_automatic_differentiation() -> None:
    """The closed form y - sigmoid(f), scaled by the upstream gradient, is the derivative.

    Logits of +-40 too, where log(sigmoid) written plainly would have lost the gradient.
    """
    F, Y, _ = _data("bernoulli")
    F = tf.concat([F, tf.fill([2, 1, 3], tf.constant(40.0, F.dtype))], 1)
    Y = np.concatenate([Y, np.array([[[1.0, 0.0, 1.0]], [[0.0, 0.0, 1.0]]])], 1)
    upstream = tf.constant(np.linspace(-1.0, 2.0, 12).reshape(2, 6))
    gradients = []
    for log_prob in (
        lambda: Bernoulli().masked_log_prob(F, Y, None),  # closed form
        lambda: Bernoulli().masked_log_prob(F, Y, np.ones(Y.shape, bool)),  # differentiated
        lambda: tf.reduce_sum(tfd.Bernoulli(logits=F, dtype=tf.float64).log_prob(Y), -1),
    ):
        with tf.GradientTape() as tape:
            tape.watch(F)
            total = tf.reduce_sum(upstream * log_prob())
        gradients.append(tape.gradient(total, F))
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(gradients[0], gradients[2], rtol=1e-12, atol=1e-15)


@every_likelihood
def test_moments_equal_tfd(name: str) -> None:
    """Mean and variance of the observation's distribution, in closed form on both sides."""
    ours, _, distribution, _ = CASES[name]
    F, _, _ = _data(name)
    mean, variance = ours().moments(F)
    expected = distribution(F)
    np.testing.assert_allclose(mean, expected.mean(), rtol=1e-10)
    np.testing.assert_allclose(variance, expected.variance(), rtol=1e-10)


@pytest.mark.parametrize("name", ["gaussian", "gaussian per output", "bernoulli"])
def test_the_networks_precision_is_kept(name: str) -> None:
    """float32 logits give float32 densities, near the float64 ones: sums of 3 terms, 1e-5."""
    likelihood = CASES[name][0]()
    F, Y, mask = _data(name)
    single = likelihood.masked_log_prob(tf.cast(F, tf.float32), Y, mask)
    assert single.dtype == tf.float32
    assert likelihood.moments(tf.cast(F, tf.float32))[1].dtype == tf.float32
    np.testing.assert_allclose(single, likelihood.masked_log_prob(F, Y, mask), rtol=1e-5, atol=1e-6)


def test_gaussian_noise_is_a_parameter_with_a_prior() -> None:
    """LogNormal(log variance, 1) by default: its median is the initial value."""
    likelihood = Gaussian(0.3)
    assert isinstance(likelihood.variance.prior, tfd.LogNormal)
    np.testing.assert_allclose(likelihood.variance.prior.quantile(0.5), 0.3, rtol=1e-10)
    np.testing.assert_allclose(likelihood.variance.prior.distribution.stddev(), 1.0)
    own = tfd.InverseGamma(*(tf.constant(v, tf.float64) for v in (2.0, 1.0)))
    assert Gaussian(0.3, prior=own).variance.prior is own


def test_gaussian_derivative_of_its_noise_variance() -> None:
    """d/dv of sum log N(y; f, v) over n observed entries is -n / (2 v) + sum r^2 / (2 v^2)."""
    likelihood = Gaussian(0.3)
    F, Y, mask = _data("gaussian")
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(likelihood.masked_log_prob(F, Y, mask))
    (gradient,) = tape.gradient(value, likelihood.trainable_variables)
    (unconstrained,) = likelihood.trainable_variables
    with tf.GradientTape() as tape:
        variance = likelihood.variance.transform.forward(unconstrained)
    slope = tape.gradient(variance, unconstrained)
    squares = np.sum((Y - F.numpy())[mask] ** 2)
    expected = -mask.sum() / (2 * 0.3) + squares / (2 * 0.3**2)
    np.testing.assert_allclose(gradient, expected * slope, rtol=1e-10)


def test_a_likelihood_that_knows_masks_is_not_wrapped() -> None:
    """``masked`` may be applied again and again."""
    likelihood = Bernoulli()
    wrapped = masked(gpflow.likelihoods.Poisson())
    assert masked(likelihood) is likelihood and masked(wrapped) is wrapped


def test_parameters_of_a_wrapped_likelihood_are_seen() -> None:
    """Nothing trains silently nothing: StudentT's scale is a parameter of the wrapper."""
    wrapped = masked(gpflow.likelihoods.StudentT())
    assert ".likelihood.scale" in gpflow.utilities.parameter_dict(wrapped)


def test_likelihoods_that_do_not_factorise_are_refused() -> None:
    """A softmax couples its outputs; there is no entry to leave out."""
    with pytest.raises(TypeError, match="must factorise over outputs.*got Softmax"):
        masked(gpflow.likelihoods.Softmax(3))


def test_noise_that_is_a_function_of_inputs_is_refused() -> None:
    """A decoder's likelihood gets no inputs; a constant function needs none."""
    with pytest.raises(TypeError, match="the noise of this Gaussian is a function of them"):
        masked(gpflow.likelihoods.Gaussian(variance=gpflow.functions.Linear()))
    constant = masked(gpflow.likelihoods.Gaussian(variance=gpflow.functions.Constant(0.5)))
    np.testing.assert_allclose(constant.moments(np.zeros((3, 2)))[1], 0.5)
