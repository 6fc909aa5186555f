"""Counts, against SciPy in float64: densities, moments, and what GPflow's models make of them."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_bae import likelihoods

ALPHA, PI, POWER = 0.7, 0.2, 1.4
ZEROS, POWERS = (2, 4), (3, 4)  # likelihoods with more zeros, and with another power
COUNTS = np.array([0.0, 1.0, 2.0, 7.0, 19.0, 20.0, 150.0, 4e4, 1e6])


def all_of(size_column: int | None = None) -> list[Any]:
    return [
        likelihoods.Poisson(size_column),
        likelihoods.NegativeBinomial(ALPHA, size_column=size_column),
        likelihoods.ZeroInflatedNegativeBinomial(ALPHA, PI, size_column=size_column),
        likelihoods.NegativeBinomial(ALPHA, power=POWER, size_column=size_column),
        likelihoods.ZeroInflatedNegativeBinomial(ALPHA, PI, power=POWER, size_column=size_column),
    ]


LIKELIHOODS = pytest.mark.parametrize(
    "number", range(5), ids=["poisson", "nb", "zinb", "nb, power", "zinb, power"]
)


def reference(number: int, rate: Any, alpha: Any = ALPHA, zero: Any = PI) -> Any:
    """A frozen SciPy distribution, and the probability of a zero beside it."""
    if number == 0:
        return stats.poisson(rate), 0.0
    if number in POWERS:
        alpha = alpha * rate ** (POWER - 2.0)
    return stats.nbinom(1.0 / alpha, 1.0 / (1.0 + alpha * rate)), zero if number in ZEROS else 0.0


def log_density(number: int, y: Any, rate: Any, **parameters: Any) -> np.ndarray:
    counted, zero = reference(number, rate, **parameters)
    found = counted.logpmf(y) + np.log1p(-zero)
    return np.where(
        y == 0, np.logaddexp(found, np.log(zero) if number in ZEROS else -np.inf), found
    )


@LIKELIHOODS
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_densities(number: int, dtype: tf.DType) -> None:
    """Of counts to a million at rates from 1e-6 to a million, in the decoder's precision."""
    f = np.log([1e-6, 0.3, 5.0, 160.0, 4e4, 1e6])
    F, Y = (np.broadcast_to(v, (6, 9)) for v in (f[:, None], COUNTS))
    found = all_of()[number].log_prob_of_cells(tf.constant(F, dtype), tf.constant(Y)).numpy()
    expected = log_density(number, Y, np.exp(F))
    # Of float32, two units in the last place of the terms, which can be 3e4 where the density is
    # -10, and of a rounded f at that rate.
    rtol, atol = (1e-5, 4e-3) if dtype == tf.float32 else (1e-9, 1e-7)
    rounded = rtol * (np.abs(Y - np.exp(F)) if number == 0 else np.zeros_like(Y))
    assert (np.abs(found - expected) <= atol + rtol * np.abs(expected) + rounded).all()


@LIKELIHOODS
def test_gradients_are_finite_far_from_the_data(number: int) -> None:
    F = tf.constant([[-80.0, 60.0, 0.0, 20.0, -30.0]])
    Y = tf.constant([[0.0, 0.0, 1e6, 3.0, 5.0]])
    one = all_of()[number]
    with tf.GradientTape() as tape:
        tape.watch(F)
        loss = tf.reduce_sum(
            one.masked_log_prob(
                F[:, 2:] if number == 0 else F, Y[:, -3:] if number == 0 else Y, None
            )
        )
    watched = [F, *one.trainable_variables]
    for gradient in tape.gradient(loss, watched):
        assert np.isfinite(tf.convert_to_tensor(gradient).numpy()).all()


@LIKELIHOODS
def test_moments(number: int) -> None:
    """Against sums over all counts that matter."""
    f = np.array([[-2.0, 0.0, 1.5]])
    mean, variance = (v.numpy() for v in all_of()[number].moments(tf.constant(f)))
    y = np.arange(2000.0)[:, None]
    p = np.exp(log_density(number, y, np.exp(f)))
    np.testing.assert_allclose(p.sum(0), 1.0, rtol=1e-10)
    np.testing.assert_allclose(mean[0], (p * y).sum(0), rtol=1e-8)
    np.testing.assert_allclose(variance[0], (p * y**2).sum(0) - mean[0] ** 2, rtol=1e-8)


@LIKELIHOODS
def test_draws(number: int) -> None:
    """Their frequencies are the probabilities."""
    f = np.array([-1.0, 0.5, 1.5])
    F = tf.constant(np.broadcast_to(f, (20_000, 3)), tf.float32)
    draws = all_of()[number].draw(F, tf.constant([1, 2])).numpy()
    for y in range(6):
        p = np.exp(log_density(number, float(y), np.exp(f)))
        # Five standard errors of twenty thousand draws.
        error = 5.0 * np.sqrt(p * (1.0 - p) / 20_000)
        np.testing.assert_array_less(np.abs((draws == y).mean(0) - p), error)


@LIKELIHOODS
def test_draws_at_no_number_end(number: int) -> None:
    """TensorFlow's at NaN do not. (A zero that is none of its rate is one there, too.)"""
    F = tf.constant(40 * [[0.3, np.nan, -1.0]])
    draws = all_of()[number].draw(F, tf.constant([1, 2])).numpy()
    assert np.isfinite(draws[:, [0, 2]]).all()
    assert np.isnan(draws[:, 1]).mean() > 0.5


@LIKELIHOODS
def test_masked_entries_drop_out(number: int) -> None:
    F, Y = tf.constant([[0.3, -1.0, 2.0]]), tf.constant([[3.0, 0.0, 1.0]])
    mask = tf.constant([[True, False, True]])
    one = all_of()[number]
    with tf.GradientTape() as tape:
        tape.watch(F)
        found = one.masked_log_prob(F, Y, mask)
    expected = log_density(number, np.array([3.0, 1.0]), np.exp([0.3, 2.0])).sum()
    np.testing.assert_allclose(found, [expected], rtol=1e-5)
    gradient = tape.gradient(found, F).numpy()
    assert gradient[0, 1] == 0.0 and (gradient[0, [0, 2]] != 0.0).all()


def test_parameters_of_each_output() -> None:
    alpha, zero = np.array([0.1, 1.0, 5.0]), np.array([0.05, 0.3, 0.6])
    one = likelihoods.ZeroInflatedNegativeBinomial(alpha, zero)
    rng = np.random.default_rng(0)
    F, Y = rng.normal(size=(2, 4, 3)), rng.poisson(2.0, (2, 4, 3)).astype(float)
    expected = log_density(2, Y, np.exp(F), alpha=alpha, zero=zero)
    np.testing.assert_allclose(one.log_prob_of_cells(F, Y), expected, rtol=1e-8)
    variance = rng.uniform(0.1, 0.5, F.shape)
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    expected = sum(
        w * log_density(2, Y, np.exp(F + np.sqrt(variance) * x), alpha=alpha, zero=zero)
        for x, w in zip(points, weights / weights.sum(), strict=True)
    )
    found = one.variational_expectations(None, F, variance, Y)
    np.testing.assert_allclose(found, expected.sum(-1), rtol=1e-8)


@LIKELIHOODS
def test_sizes_in_gpflows_models(number: int) -> None:
    """A column of X multiplies rates, in densities, expectations and predictions."""
    rng = np.random.default_rng(1)
    size = rng.uniform(0.5, 3.0, (5, 1))
    X, F = np.concatenate([rng.normal(size=(5, 1)), size], 1), rng.normal(size=(5, 2))
    Y = rng.poisson(2.0, (5, 2)).astype(float)
    one, plain = all_of(1)[number], all_of()[number]
    expected = log_density(number, Y, size * np.exp(F)).sum(1)
    np.testing.assert_allclose(one.log_prob(X, F, Y), expected, rtol=1e-7)
    variance = rng.uniform(0.1, 0.5, F.shape)
    for name, more in (("variational_expectations", (Y,)), ("predict_mean_and_var", ())):
        found = getattr(one, name)(X, F, variance, *more)
        shifted = getattr(plain, name)(X, F + np.log(size), variance, *more)
        for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(shifted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
    if number == 0:  # GPflow's own is of one size for all
        own = gpflow.likelihoods.Poisson().variational_expectations(X, F, variance, Y)
        found = plain.variational_expectations(X, F, variance, Y)
        np.testing.assert_allclose(found, own, rtol=1e-9)


def test_an_svgp_of_counts() -> None:
    """Finds the rate and the dispersion of made counts of known sizes."""
    rng = np.random.default_rng(2)
    x, size = rng.uniform(0.0, 6.0, (600, 1)), rng.uniform(0.5, 2.0, (600, 1))
    f = 1.5 + np.sin(x)
    Y = rng.negative_binomial(2.0, 1.0 / (1.0 + 0.5 * size * np.exp(f))).astype(float)
    kernel = gpflow.kernels.SquaredExponential(active_dims=[0])
    Z = np.concatenate([np.linspace(0.0, 6.0, 12)[:, None], np.ones((12, 1))], 1)
    one = likelihoods.NegativeBinomial(2.0, size_column=1)
    model = gpflow.models.SVGP(kernel, one, Z, num_data=600)
    gpflow.set_trainable(model.inducing_variable, False)
    data = (np.concatenate([x, size], 1), Y)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(data, compile=False),
        model.trainable_variables,
        tf_fun_args={"autograph": False},
        options={"maxiter": 150},
    )
    mean, variance = model.predict_f(data[0])
    # Within what 600 counts tell: intervals of the function hold it, and alpha is 0.5 by a third.
    assert np.mean(np.abs(mean - f) < 2.0 * np.sqrt(variance)) > 0.9
    assert float(one.dispersion.numpy()) == pytest.approx(0.5, rel=0.33)


def test_a_power_is_found() -> None:
    """The mode of alpha and p for made counts at known rates from 0.5 to 60."""
    rng = np.random.default_rng(3)
    rate = np.exp(rng.uniform(np.log(0.5), np.log(60.0), (4000, 1)))
    alpha = 0.6 * rate**-0.5
    Y = rng.negative_binomial(1.0 / alpha, 1.0 / (1.0 + alpha * rate)).astype(float)
    one = likelihoods.NegativeBinomial(1.0, power=2.0)
    assert one.power is not None

    def loss() -> tf.Tensor:
        prior = tf.add_n([p.log_prior_density() for p in one.trainable_parameters])
        return -tf.reduce_sum(one.log_prob_of_cells(np.log(rate), Y)) - prior

    gpflow.optimizers.Scipy().minimize(
        loss, one.trainable_variables, tf_fun_args={"autograph": False}
    )
    power, dispersion = float(one.power.numpy()), float(one.dispersion.numpy())
    # Three standard deviations over eight such sets: 0.046, and 0.035 of alpha at a rate of 10,
    # where it is known best.
    assert power == pytest.approx(1.5, abs=0.14)
    assert dispersion * 10.0 ** (power - 2.0) == pytest.approx(0.6 * 10.0**-0.5, rel=0.11)


def test_what_cannot_be_is_refused() -> None:
    for dispersion in (0.0, -1.0, np.nan, np.inf, np.ones((2, 2))):
        with pytest.raises(ValueError, match="dispersion must be"):
            likelihoods.NegativeBinomial(dispersion)
    for power in (np.nan, np.inf, np.ones((2, 2))):
        with pytest.raises(ValueError, match="power must be"):
            likelihoods.NegativeBinomial(1.0, power=power)
    for probability in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="zero_probability must be"):
            likelihoods.ZeroInflatedNegativeBinomial(1.0, probability)
    with pytest.raises(ValueError, match="size_column"):
        likelihoods.Poisson(-1)


@LIKELIHOODS
def test_rates_given_counts(number: int) -> None:
    """Moments against Bayes's rule on a grid of rates: a gamma prior, Poisson counts, and zeros of
    another kind.
    """
    rate = 3.0
    likelihood = all_of()[number]
    grid = np.linspace(0.0, 80.0, 400_001)[1:]
    alpha = ALPHA * rate ** (POWER - 2.0) if number in POWERS else ALPHA
    prior = stats.gamma(1.0 / alpha, scale=alpha * rate).pdf(grid)
    for count, seen in ((0.0, True), (2.0, True), (9.0, True), (9.0, False)):
        F, Y = np.full((2, 1), np.log(rate)), np.full((2, 1), count)
        moments = likelihood.rate_moments(F, Y, np.full(F.shape, seen))
        if number == 0:
            np.testing.assert_allclose(moments, [np.full((2, 1), rate), np.zeros((2, 1))])
            continue
        weight = stats.poisson(grid).pmf(count) if seen else np.ones_like(grid)
        if number in ZEROS and seen and count == 0.0:
            weight = PI + (1.0 - PI) * weight
        density = prior * weight / np.sum(prior * weight)
        mean = np.sum(density * grid)
        variance = np.sum(density * np.square(grid - mean))
        # The grid ends where a part in 10^7 of the wide priors is left out.
        np.testing.assert_allclose(moments[0], mean, rtol=1e-5)
        np.testing.assert_allclose(moments[1], variance, rtol=1e-4)
