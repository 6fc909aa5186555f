"""What a sampler of the table has to pass: exact moments and distributions, up to its known bias.

The assertions take a case, so that a test may hand them a broken one (``dataclasses.replace``) and
ask that they fail.

Tolerances: five standard errors for moments (6e-7 per number), the 0.1 per cent point for
Kolmogorov-Smirnov, 1 per cent for simulation-based calibration, all at fixed seeds, plus the bias
that a case documents.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from scipy import stats

from gpflow_bae.mcmc.calibrated import targets
from gpflow_bae.mcmc.noise import standard_noise
from tests.mcmc.theory.densities import ANHARMONIC, BANANA, GAUSSIAN, TWO_MODES
from tests.mcmc.theory.harness import Sampler, SamplerCase


def assert_near(per_chain: np.ndarray, expected: np.ndarray, bias: float = 0.0) -> None:
    """The average over chains is ``expected``, up to Monte Carlo error and ``bias``.

    The averages over single paths are independent and identically distributed, so their spread over
    chains gives the standard error of the grand mean, whatever the autocorrelation within a path.
    Five standard errors: 6e-7 per number.
    """
    error = per_chain.std(axis=0) / np.sqrt(per_chain.shape[0])
    assert np.all(error < 0.015 * np.abs(expected).max() + 0.02), "not precise enough to tell"
    difference = np.abs(per_chain.mean(axis=0) - expected)
    assert np.all(difference < 5 * error + bias), f"{difference=} {error=}"


class Path(NamedTuple):
    """Where the chains ended, and averages over their paths after burn-in."""

    state: Any
    last: np.ndarray  # [C, 2]
    mean: np.ndarray  # [C, 2]
    second: np.ndarray  # [C, 2, 2], about 0

    def second_about(self, centre: np.ndarray) -> np.ndarray:
        cross = self.mean[:, :, None] * centre
        return self.second - cross - cross.swapaxes(1, 2) + np.outer(centre, centre)


def _sampler(
    case: SamplerCase,
    log_prob_fn: Any,
    overrides: tuple,
    gradient_noise: tuple[float, float] | None,
    temperature: Any,
    step_size: Any,
) -> Sampler:
    def noisy(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        exact = targets.target(log_prob_fn)(x).tempered_gradient
        xi = standard_noise(x.shape, tf.random.fold_in(seed, 1, alg="philox"), x.dtype)
        return exact + tf.constant(gradient_noise, x.dtype) * xi

    make, target = case.make, log_prob_fn
    if gradient_noise is not None:
        make, target = case.make_stochastic, noisy
    return make(target, temperature, step_size=step_size, **dict(overrides))


@functools.cache
def compiled(
    case: SamplerCase,
    log_prob_fn: Any,
    overrides: tuple = (),
    gradient_noise: tuple[float, float] | None = None,
    jit_compile: bool = False,
) -> Any:
    """Steps ``first`` to ``last``, traced once for all temperatures, step sizes and lengths.

    Of a state, temperature, step size, ``first``, where burn-in ends, and ``last``: the state,
    where the chains are, and sums over their paths after burn-in.
    """

    # Without AutoGraph, whose conversion of a sampler takes longer than running it.
    @tf.function(autograph=False, jit_compile=jit_compile)
    def loop(
        state: Any,
        temperature: tf.Tensor,
        step_size: tf.Tensor,
        first: tf.Tensor,
        burnin: tf.Tensor,
        last: tf.Tensor,
    ) -> Any:
        sampler = _sampler(case, log_prob_fn, overrides, gradient_noise, temperature, step_size)
        base = tf.constant([3, 2])

        # One loop, as tracing a step takes longer than running hundreds.
        def step(i: tf.Tensor, state: Any, total: tf.Tensor, squares: tf.Tensor) -> Any:
            state = sampler.step(state, tf.random.fold_in(base, i, alg="philox"))
            x = tf.where(i < burnin, 0.0, sampler.position(state))
            return i + 1, state, total + x, squares + x[:, :, None] * x[:, None, :]

        zero = tf.zeros_like(sampler.position(state))
        begun = first, state, zero, zero[:, :, None] * zero[:, None, :]
        _, state, total, squares = tf.while_loop(lambda i, *_: i < last, step, begun)
        return state, sampler.position(state), total, squares

    return loop


def run(
    case: SamplerCase,
    log_prob_fn: Any,
    *,
    temperature: float = 1.0,
    step_size: float | None = None,
    position: tf.Tensor | None = None,
    num_burnin_steps: int | None = None,
    num_steps: int | None = None,
    overrides: dict[str, Any] | None = None,
    gradient_noise: tuple[float, float] | None = None,
    begin: Callable[[Any], Any] = lambda state: state,
) -> Path:
    """All chains, from the origin unless told otherwise.

    :param gradient_noise: standard deviations of noise in the two gradients.
    :param begin: what to make of the initial state.
    """
    settings = tuple((overrides or {}).items()), gradient_noise
    numbers = tf.constant(temperature), tf.constant(step_size or case.step_size)
    sampler = _sampler(case, log_prob_fn, *settings, *numbers)
    position = tf.zeros([case.num_chains, 2]) if position is None else position
    state = begin(sampler.init(position, tf.constant([3, 1])))
    burnin = case.num_burnin_steps if num_burnin_steps is None else num_burnin_steps
    count = case.num_steps if num_steps is None else num_steps
    steps = (tf.constant(i) for i in (0, burnin, burnin + count))
    state, *parts = compiled(case, log_prob_fn, *settings)(state, *numbers, *steps)
    last, total, squares = (part.numpy().astype(float) for part in parts)
    return Path(state, last, total / count, squares / count)


def assert_standard_normal(z: np.ndarray, relative_bias: float = 0.0) -> None:
    """Kolmogorov-Smirnov for each column of z, whose rows are independent.

    A variance that is off by a factor 1 + r moves the distribution function by at most 0.12 r, a
    mean that is off by r standard deviations by 0.4 r: a documented bias is allowed the latter.
    """
    threshold = 1.95 / np.sqrt(z.shape[0]) + 0.4 * relative_bias
    for column in z.T:
        statistic = stats.kstest(column, "norm").statistic
        assert statistic < threshold, f"{statistic=} {threshold=}"


def assert_gaussian(case: SamplerCase, temperature: float) -> np.ndarray:
    """The stationary moments and marginals that the documentation states, on a Gaussian.

    :return: the documented covariance, [1 or C, 2, 2].
    """
    path = run(case, GAUSSIAN.log_prob, temperature=temperature)
    precision, p = GAUSSIAN.precision, np.ones([1, 2])
    if case.preconditioner is not None:
        p = case.preconditioner(path.state)
    bias = case.gaussian_bias(case.step_size) * np.einsum("ij,cj,jk", precision, p, precision)
    covariance = temperature * np.linalg.inv(precision - bias)  # [1 or C, 2, 2]
    allowed = case.relative_bias * covariance.max()
    assert_near(path.mean, GAUSSIAN.mean)
    assert_near(
        path.second_about(GAUSSIAN.mean) - covariance + covariance.mean(0),
        covariance.mean(0),
        allowed,
    )
    deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    assert_standard_normal((path.last - GAUSSIAN.mean) / deviation, case.relative_bias)
    return covariance


def assert_banana(case: SamplerCase, temperature: float) -> None:
    """Moments and distribution on a banana, up to the Gaussian's bias at its mean curvature."""
    # Its moments spread more than a Gaussian's; ensembles of a ladder are dear, and make up for it.
    num_chains = case.num_chains if case.crosses_modes else 2 * case.num_chains
    start = tf.zeros([num_chains, 2])
    path = run(case, BANANA.log_prob, temperature=temperature, position=start)
    curvature = BANANA.curvature(temperature)
    if case.preconditioner is not None:
        curvature *= case.preconditioner(path.state).mean()
    relative = case.relative_bias + case.gaussian_bias(case.step_size) * curvature
    covariance, mean = BANANA.covariance(temperature), BANANA.mean(temperature)
    allowed = relative * covariance.max()
    assert_near(path.mean, mean, allowed)
    assert_near(path.second_about(mean), covariance, allowed)
    assert_standard_normal(BANANA.standardise(path.last, temperature), relative)


def assert_crosses_modes(case: SamplerCase, num_chains: int) -> None:
    """From the lighter of two modes, every chain forgets where it began."""
    start = tf.zeros([num_chains, 2]) - [TWO_MODES.centre, 0.0]
    path = run(case, TWO_MODES.log_prob, position=start)
    fraction, weight = np.mean(path.last[:, 0] > 0), TWO_MODES.right_weight
    error = np.sqrt(weight * (1 - weight) / num_chains)
    assert abs(fraction - weight) < 5 * error, f"{fraction=} {error=}"
    x = np.concatenate([np.abs(path.last[:, :1]) - TWO_MODES.centre, path.last[:, 1:]], axis=-1)
    assert_standard_normal(x, case.relative_bias + case.gaussian_bias(case.step_size))


class Slope(NamedTuple):
    """The measured order of a bias."""

    slope: float
    error: float
    biases: np.ndarray  # [step sizes]


def measure_bias_order(case: SamplerCase) -> Slope:
    """Slope of log bias against log step size, by least squares, with its standard error.

    The bias is that of the inverse of E[x^2] on the anharmonic density, relative: on a Gaussian it
    is the leading term alone, so that higher orders disturb the slope less than for E[x^2].
    """
    exact, biases, errors = ANHARMONIC.second_moment, [], []
    for h in case.bias_step_sizes:
        stretch = max(1, case.bias_step_sizes[0] / h)
        path = run(
            case,
            ANHARMONIC.log_prob,
            step_size=h,
            position=tf.zeros([8000, 2]),
            num_burnin_steps=int(stretch * 200),
            num_steps=int(stretch * 400),
            overrides=case.bias_settings,
        )
        ratio = np.mean(np.diagonal(path.second, axis1=1, axis2=2), axis=1) / exact
        biases.append(1 - 1 / ratio.mean())
        errors.append(ratio.std() / np.sqrt(ratio.size) / ratio.mean() ** 2)
    biases, errors = np.array(biases), np.array(errors)
    log_h = np.log(case.bias_step_sizes)
    weights = (log_h - log_h.mean()) / np.sum((log_h - log_h.mean()) ** 2)
    error = np.sqrt(np.sum((weights * errors / biases) ** 2))
    return Slope(float(weights @ np.log(np.abs(biases))), float(error), biases)
