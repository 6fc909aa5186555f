"""Every Gaussian latent prior against dense NumPy: density, conditioning, prediction."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.core.functional import functional_copy
from gpflow_bae.latent_priors import (
    GP,
    GaussianLatentPrior,
    LatentProcess,
    SparseGP,
    StandardNormal,
)
from tests.reference.latent_gaussian import LatentGaussian, squared_exponential

T, N, NEW, L, D, M = 3, 6, 4, 2, 2, 4
NOISE, JITTER = 0.05, 1e-6  # the jitter is GPflow's default
LENGTHSCALES, VARIANCES = (0.8, 1.7), (1.3, 0.4)
# Shapes of the inputs before [N, D]: one task; inputs per task; inputs that the tasks share, with
# and without the dimension for it. The last entry is the shape of the tasks.
LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "one task": ((), ()),
    "inputs per task": ((T,), (T,)),
    "shared inputs": ((1,), (T,)),
    "shared inputs without batch": ((), (T,)),
}
# NumPy solves with condition numbers up to about 1e4, FITC's K_ZZ up to 1e3: 1e-9 is safe.
TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}

Z = np.array([[-1.0, -1.0], [1.0, -0.5], [-0.5, 1.0], [0.8, 1.2]])
WHITENED = np.random.default_rng(5).normal(size=(L, M))


def _kernels(per_channel: bool) -> list[gpflow.kernels.Kernel]:
    return [
        gpflow.kernels.SquaredExponential(lengthscales=LENGTHSCALES[i], variance=VARIANCES[i])
        for i in range(L if per_channel else 1)
    ]


def _sparse(inducing_outputs: str, per_channel: bool) -> SparseGP:
    prior = SparseGP(_kernels(per_channel), Z, L, NOISE, inducing_outputs)
    if inducing_outputs == "sampled":
        prior.whitened_inducing.assign(WHITENED)
    return prior


PRIORS: dict[str, Callable[[bool], GaussianLatentPrior]] = {
    "standard": lambda per_channel: StandardNormal(L),
    "gp": lambda per_channel: GP(_kernels(per_channel), L, NOISE),
    "integrated": lambda per_channel: _sparse("integrated", per_channel),
    "sampled": lambda per_channel: _sparse("sampled", per_channel),
}


def _reference(
    name: str, per_channel: bool, channel: int, X: np.ndarray, Xnew: np.ndarray
) -> LatentGaussian:
    i = channel if per_channel else 0
    k = squared_exponential(LENGTHSCALES[i], VARIANCES[i])
    if name == "standard":
        return LatentGaussian.standard(len(X), len(Xnew))
    if name == "gp":
        return LatentGaussian.exact(k, X, Xnew, NOISE + JITTER)
    if name == "integrated":
        return LatentGaussian.fitc(k, X, Xnew, Z, NOISE, JITTER)
    return LatentGaussian.fitc_given_outputs(k, X, Xnew, Z, NOISE, JITTER, WHITENED[channel])


class _Problem:
    """Inputs, codes and pseudo-observations in one layout, with the reference of every task."""

    def __init__(self, name: str, layout: str, per_channel: bool):
        inputs_lead, self.lead = LAYOUTS[layout]
        rng = np.random.default_rng(11)
        self.X = rng.normal(size=(*inputs_lead, N, D))
        self.Xnew = rng.normal(size=(*inputs_lead, NEW, D))
        self.latents = rng.normal(size=(*self.lead, N, L))
        # From almost exact to almost useless, and different everywhere.
        self.variance = np.exp(rng.uniform(-5.0, 3.0, size=(*self.lead, N, L)))
        self.prior = PRIORS[name](per_channel)
        self.name, self.per_channel = name, per_channel

    def reference(self, task: tuple[int, ...], channel: int) -> LatentGaussian:
        X, Xnew = (np.broadcast_to(v, (*self.lead, *v.shape[-2:])) for v in (self.X, self.Xnew))
        return _reference(self.name, self.per_channel, channel, X[task], Xnew[task])

    def each(self) -> list[tuple[tuple[int, ...], int, LatentGaussian]]:
        return [
            (task, channel, self.reference(task, channel))
            for task in np.ndindex(*self.lead)
            for channel in range(L)
        ]


@pytest.fixture(
    params=[
        pytest.param((name, layout, per_channel), id="-".join([name, layout, kernels]))
        for name in PRIORS
        for layout in LAYOUTS
        for per_channel, kernels in [(False, "one kernel"), (True, "kernel per channel")]
        if not (name == "standard" and per_channel)  # it has no kernels
    ]
)
def problem(request: pytest.FixtureRequest) -> _Problem:
    return _Problem(*request.param)


def test_log_prob(problem: _Problem) -> None:
    """The sum over channels of a dense multivariate normal's log density, per task."""
    expected = np.zeros(problem.lead)
    for task, channel, reference in problem.each():
        expected[task] += reference.log_prob(problem.latents[(*task, slice(None), channel)])
    assert isinstance(problem.prior, LatentProcess)
    result = problem.prior.log_prob(problem.X, problem.latents)
    assert result.shape == problem.lead and result.dtype == tf.float64
    np.testing.assert_allclose(result, expected, **TOLERANCE)


def test_condition(problem: _Problem) -> None:
    """Dense conditioning on pseudo-observations of unequal noise; evidence from their joint."""
    mean, variance = np.zeros_like(problem.latents), np.zeros_like(problem.latents)
    evidence = np.zeros(problem.lead)
    for task, channel, reference in problem.each():
        at = (*task, slice(None), channel)
        mean[at], covariance, log_marginal = reference.condition(
            problem.latents[at], problem.variance[at]
        )
        variance[at] = np.diag(covariance)
        evidence[task] += log_marginal
    posterior = problem.prior.condition(problem.X, problem.latents, problem.variance)
    np.testing.assert_allclose(posterior.mean, mean, **TOLERANCE)
    np.testing.assert_allclose(posterior.variance, variance, **TOLERANCE)
    np.testing.assert_allclose(posterior.log_marginal, evidence, **TOLERANCE)


def test_predict(problem: _Problem) -> None:
    """The noise-free latent function at new inputs, by dense conditioning of the joint."""
    mean = np.zeros((*problem.lead, NEW, L))
    variance = np.zeros_like(mean)
    for task, channel, reference in problem.each():
        at = (*task, slice(None), channel)
        mean[at], variance[at] = reference.predict(problem.latents[at], problem.variance[at])
    result = problem.prior.predict(problem.Xnew, problem.X, problem.latents, problem.variance)
    np.testing.assert_allclose(result[0], mean, **TOLERANCE)
    np.testing.assert_allclose(result[1], variance, **TOLERANCE)


def test_marginal_variance(problem: _Problem) -> None:
    """The variance of one code whatever the inducing outputs: k(x, x) + noise, or 1.

    That is the kernel's variance here. The exact GP's jitter of 1e-6 is not counted.
    """
    result = problem.prior.marginal_variance(problem.X).numpy()
    variances = np.ones(L)
    if problem.prior.needs_inputs:
        variances = np.array(VARIANCES if problem.per_channel else VARIANCES[:1]) + NOISE
    expected = np.broadcast_to(variances, problem.latents.shape)
    np.testing.assert_allclose(np.broadcast_to(result, expected.shape), expected, rtol=1e-10)


@pytest.mark.parametrize("name", PRIORS)
def test_exact_pseudo_observations_are_the_codes(name: str) -> None:
    """Without noise there is nothing to infer: mean the codes, variance 0, evidence log_prob.

    Cancellation in a variance of order one leaves about 1e-13.
    """
    problem = _Problem(name, "inputs per task", per_channel=name != "standard")
    posterior = problem.prior.condition(problem.X, problem.latents, np.zeros_like(problem.latents))
    np.testing.assert_allclose(posterior.mean, problem.latents, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(posterior.variance, 0.0, atol=1e-11)
    np.testing.assert_allclose(
        posterior.log_marginal, problem.prior.log_prob(problem.X, problem.latents), rtol=1e-10
    )


@pytest.mark.parametrize("name", PRIORS)
def test_useless_pseudo_observations_leave_the_prior(name: str) -> None:
    """With noise 1e12 the posterior is the prior: relative difference below 1e-10."""
    problem = _Problem(name, "inputs per task", per_channel=name != "standard")
    huge = np.full_like(problem.latents, 1e12)
    posterior = problem.prior.condition(problem.X, problem.latents, huge)
    for task, channel, reference in problem.each():
        at = (*task, slice(None), channel)
        np.testing.assert_allclose(posterior.mean.numpy()[at], reference.mean, atol=1e-9)
        np.testing.assert_allclose(
            posterior.variance.numpy()[at], np.diag(reference.covariance), rtol=1e-9
        )


@pytest.mark.parametrize("name", ["gp", "integrated"])
def test_traced_equals_eager(name: str) -> None:
    """A graph computes the same numbers, and needs no static number of tasks or points."""
    problem = _Problem(name, "inputs per task", per_channel=True)
    prior = problem.prior

    @tf.function(
        input_signature=[tf.TensorSpec([None, None, k], tf.float64) for k in (D, D, L, L)],
        autograph=False,  # nothing to convert, and looking for it takes seconds
    )
    def traced(X: tf.Tensor, Xnew: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tuple:
        return (
            prior.log_prob(X, mean),
            prior.condition(X, mean, variance),
            prior.predict(Xnew, X, mean, variance),
        )

    arguments = [
        tf.constant(v) for v in (problem.X, problem.Xnew, problem.latents, problem.variance)
    ]
    eager = traced.python_function(*arguments)
    for a, b in zip(tf.nest.flatten(traced(*arguments)), tf.nest.flatten(eager), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["gp", "integrated"])
def test_compiled_log_prob_equals_eager(name: str) -> None:
    """XLA's own Cholesky and solves, to the rounding of another summation order."""
    problem = _Problem(name, "shared inputs", per_channel=False)
    compiled = tf.function(problem.prior.log_prob, jit_compile=True, autograph=False)
    latents = tf.constant(problem.latents)
    np.testing.assert_allclose(
        compiled(problem.X, latents), problem.prior.log_prob(problem.X, latents), rtol=1e-9
    )


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("at_the_inducing_inputs", [False, True])
def test_gradients_equal_finite_differences(name: str, at_the_inducing_inputs: bool) -> None:
    """Along a random direction in codes and parameters, central differences with step 1e-5.

    Truncation is of order 1e-10 times the third derivative, rounding 1e-16 / 1e-5 times the value:
    1e-5 relative to the size of the slope is generous. With inputs on the inducing inputs FITC
    leaves the codes no variance of their own, and its lower bound 0 must not give NaN; there the
    derivative is one-sided, so only finiteness is asked.
    """
    problem = _Problem(name, "one task", per_channel=True)
    prior = problem.prior
    X = np.concatenate([Z, Z[:2]]) if at_the_inducing_inputs else problem.X
    parameters = gpflow.utilities.parameter_dict(prior)
    latents = tf.constant(problem.latents)
    values = {path: tf.convert_to_tensor(p) for path, p in parameters.items()}
    with tf.GradientTape() as tape:
        tape.watch([latents, values])
        value = functional_copy(prior, values).log_prob(X, latents)
    gradients = tape.gradient(value, [latents, values])
    assert all(g is not None and np.isfinite(g).all() for g in tf.nest.flatten(gradients))
    if at_the_inducing_inputs:
        return
    rng = np.random.default_rng(1)
    direction = tf.nest.map_structure(
        lambda v: tf.constant(rng.normal(size=v.shape), v.dtype) * 0.1, [latents, values]
    )

    def shifted(step: float) -> tf.Tensor:
        moved = tf.nest.map_structure(lambda v, d: v + step * d, [latents, values], direction)
        return functional_copy(prior, moved[1]).log_prob(X, moved[0])

    slope = (shifted(1e-5) - shifted(-1e-5)) / 2e-5
    expected = sum(
        np.sum(g.numpy() * d.numpy())
        for g, d in zip(tf.nest.flatten(gradients), tf.nest.flatten(direction), strict=True)
    )
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("latent_dim", [0, -1])
def test_latent_dim_must_be_positive(latent_dim: int) -> None:
    """No channel, no code."""
    with pytest.raises(ValueError, match="latent_dim must be at least 1"):
        StandardNormal(latent_dim)


@pytest.mark.parametrize("make", [lambda k: GP(k, 3), lambda k: SparseGP(k, Z, 3)])
def test_number_of_kernels_must_fit(make: Callable) -> None:
    """One for all channels or one each; two for three says nothing about the third."""
    with pytest.raises(ValueError, match="each of the 3 latent channels; got 2"):
        make(_kernels(per_channel=True))


def test_code_noise_variance_must_be_positive() -> None:
    """Zero noise would leave nothing but jitter between the codes and the function."""
    with pytest.raises(ValueError, match="must be above 1e-06.* or None for none; got 0"):
        GP(_kernels(False), L, 0.0)


def test_code_noise_variance_has_its_prior() -> None:
    """LogNormal(log value, 1): the median is the value given."""
    parameter = GP(_kernels(False), L, 0.02).code_noise_variance
    np.testing.assert_allclose(parameter, 0.02, rtol=1e-10)
    np.testing.assert_allclose(parameter.prior.quantile(0.5), 0.02, rtol=1e-10)
    np.testing.assert_allclose(parameter.prior.distribution.stddev(), 1.0)


def test_multioutput_kernel_gives_one_kernel_per_channel() -> None:
    """SeparateIndependent is GPflow's word for a list of kernels."""
    kernels = _kernels(per_channel=True)
    prior = GP(gpflow.kernels.SeparateIndependent(kernels), L, NOISE)
    problem = _Problem("gp", "inputs per task", per_channel=True)
    np.testing.assert_array_equal(
        prior.log_prob(problem.X, problem.latents),
        problem.prior.log_prob(problem.X, problem.latents),
    )
