"""Variational autoencoders against closed forms: KL, evidence, and the gap of a wrong encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae.base import Batch
from gpflow_bae.decoders import KerasDecoder
from gpflow_bae.encoders import BaseGaussianEncoder, GaussianEncoder, StochasticEncoder
from gpflow_bae.latent_priors import GP, GaussianLatentPrior, SparseGP, StandardNormal
from gpflow_bae.likelihoods import Gaussian
from gpflow_bae.models import VAE, VariationalAutoencoder
from tests.reference.latent_gaussian import LatentGaussian, squared_exponential
from tests.reference.linear_gaussian import code_posterior, kl_divergence, log_evidence

tfd = tfp.distributions

T, N, P = 2, 6, 3
NOISE, CODE_NOISE, JITTER = 0.4, 0.05, 1e-6
LENGTHSCALE, VARIANCE = 0.8, 1.3
WEIGHTS, BIAS = np.array([1.0, -0.5, 0.8]), np.array([0.2, 0.0, -0.3])
Z = np.array([[-1.0], [0.3], [1.4]])


class _Spy(KerasDecoder):
    """A decoder that remembers the codes it was given."""

    def __call__(self, latents: tf.Tensor) -> tf.Tensor:
        self.seen = latents
        return super().__call__(latents)


def _dense(kernel: np.ndarray, bias: np.ndarray) -> keras.Model:
    model = keras.Sequential([keras.Input((len(kernel),)), keras.layers.Dense(len(bias))])
    model.set_weights([kernel, bias])
    return model


def _tanh(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential(
        [keras.Input((num_inputs,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(num_outputs)]
    )


def test_vae_equals_its_closed_form() -> None:
    """ELBO = log p(Y | draw) - KL(q || N(0, I)), q the product of the prior and the encoder's
    pseudo-observations: variance s^2 / (1 + s^2), mean mu / (1 + s^2). Same draws; KL by tfd.

    Everything is float64 but the decoder's output, which both sides share: relative 1e-6.
    """
    encoder = GaussianEncoder(_tanh(P, 4))
    model = VAE(_Spy(_tanh(2, P)), encoder, Gaussian(NOISE), latent_dim=2)
    rng = np.random.default_rng(0)
    mask = rng.uniform(size=(T, N, P)) < 0.7
    Y = np.where(mask, rng.normal(size=(T, N, P)), 0.0)
    elbo = model.batch_elbo(Batch(None, tf.constant(Y), tf.constant(mask)), tf.constant([1, 2]))
    mean, variance = encoder(Y)
    q = tfd.Normal(mean / (1 + variance), tf.sqrt(variance / (1 + variance)))
    kl = tf.reduce_sum(q.kl_divergence(tfd.Normal(tf.constant(0.0, tf.float64), 1.0)))
    F = tf.cast(model.decoder(model.decoder.seen), tf.float64)
    entries = tfd.Normal(F, tf.cast(np.sqrt(NOISE), tf.float64)).log_prob(Y)
    observed = tf.reduce_sum(tf.boolean_mask(entries, mask))
    np.testing.assert_allclose(elbo, observed - kl, rtol=1e-6)
    posterior = model.posterior(None, Y)
    np.testing.assert_allclose(posterior.mean, q.mean(), rtol=1e-10)
    np.testing.assert_allclose(posterior.variance, q.variance(), rtol=1e-10)


def test_vae_draws_come_from_q() -> None:
    """4000 seeds for a single code: standardised draws have mean 0 and variance 1.

    Five standard errors: 5 / sqrt(4000) = 0.08, and sqrt(2) of it for the variance.
    """
    encoder = GaussianEncoder(_tanh(P, 2))
    model = VAE(_Spy(_tanh(1, P)), encoder, Gaussian(NOISE), latent_dim=1)
    Y = tf.zeros((4000, 1, P), tf.float64)  # as many tasks as seeds: each has noise of its own
    model.batch_elbo(Batch(None, Y, None), tf.constant([1, 2]))
    q = model.posterior(None, Y)
    standardised = ((model.decoder.seen - q.mean) / tf.sqrt(q.variance)).numpy()
    np.testing.assert_allclose(standardised.mean(), 0.0, atol=0.08)
    np.testing.assert_allclose(standardised.var(), 1.0, atol=0.115)


def _linear_model(prior: GaussianLatentPrior, shift: float, widen: float) -> VariationalAutoencoder:
    """Linear decoder and Gaussian noise; one channel.

    The likelihood of a code is then N(m(y), s^2) up to a factor, s^2 = noise / |w|^2 and
    m(y) = w (y - b) / |w|^2: an encoder that emits these is exact. ``shift`` moves its mean and
    ``widen`` multiplies its variance.
    """
    square = WEIGHTS @ WEIGHTS
    kernel = np.stack([WEIGHTS / square, np.zeros(P)], 1)
    bias = np.array([shift - WEIGHTS @ BIAS / square, 0.5 * np.log(widen * NOISE / square)])
    return VariationalAutoencoder(
        prior,
        _Spy(_dense(WEIGHTS[None, :], BIAS)),
        GaussianEncoder(_dense(kernel, bias)),
        Gaussian(NOISE),
    )


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=LENGTHSCALE, variance=VARIANCE)


_NUMPY_KERNEL = squared_exponential(LENGTHSCALE, VARIANCE)
PRIORS: dict[str, tuple[Callable[[], GaussianLatentPrior], Callable[[np.ndarray], np.ndarray]]] = {
    "standard": (lambda: StandardNormal(1), lambda X: np.eye(len(X))),
    "gp": (
        lambda: GP(_kernel(), 1, CODE_NOISE),
        lambda X: LatentGaussian.exact(_NUMPY_KERNEL, X, X, CODE_NOISE + JITTER).covariance,
    ),
    "sparse gp": (
        lambda: SparseGP(_kernel(), Z, 1, CODE_NOISE),
        lambda X: LatentGaussian.fitc(_NUMPY_KERNEL, X, X, Z, CODE_NOISE, JITTER).covariance,
    ),
}


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize(("shift", "widen"), [(0.0, 1.0), (0.4, 1.0), (0.0, 3.0), (-0.2, 0.5)])
def test_elbo_is_the_log_evidence_minus_the_kl_to_the_posterior(
    name: str, shift: float, widen: float
) -> None:
    """With a linear decoder both are dense Gaussian algebra. The exact encoder (no shift, not
    widened) has KL = 0: its bound is the log marginal likelihood itself, never more.

    The only random term, log p(Y | draw), is exchanged for its expectation under q, so that what is
    left has no Monte Carlo error; that the draws are from q is another test's matter. float32
    decoder and encoder, values near -50: 1e-3 nats, where the gaps are a third of a nat and more.
    """
    make, covariance_of = PRIORS[name]
    model = _linear_model(make(), shift, widen)
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(T, N, 1)), rng.normal(size=(T, N, P))
    bound = model.batch_elbo(
        Batch(tf.constant(X), tf.constant(Y), None), tf.constant([1, 2])
    ).numpy()
    drawn = Y - BIAS - model.decoder.seen.numpy() * WEIGHTS
    constant = -0.5 * Y.size * np.log(2 * np.pi * NOISE)
    bound -= constant - 0.5 * np.sum(drawn**2) / NOISE
    exact = gap = 0.0
    square = WEIGHTS @ WEIGHTS
    for task in range(T):
        covariance = covariance_of(X[task])
        exact += log_evidence(covariance, WEIGHTS, BIAS, NOISE, Y[task])
        pseudo_mean = (Y[task] - BIAS) @ WEIGHTS / square + shift
        pseudo_variance = np.full(N, widen * NOISE / square)
        q_mean, q_covariance, _ = LatentGaussian(
            np.zeros(N), covariance, np.zeros((N, 0)), np.zeros(0), np.zeros(0)
        ).condition(pseudo_mean, pseudo_variance)
        posterior = code_posterior(covariance, WEIGHTS, BIAS, NOISE, Y[task])
        gap += kl_divergence(q_mean, q_covariance, *posterior)
        residual = Y[task] - BIAS - q_mean[:, None] * WEIGHTS
        bound -= 0.5 * (np.sum(residual**2) + square * np.trace(q_covariance)) / NOISE
    bound += constant
    assert gap < 1e-9 if (shift, widen) == (0.0, 1.0) else gap > 0.3
    np.testing.assert_allclose(bound, exact - gap, rtol=0.0, atol=1e-3)


@pytest.mark.parametrize("name", PRIORS)
def test_exact_posterior_of_the_codes(name: str) -> None:
    """With the exact encoder q is the posterior of the linear model: dense marginals.

    The encoder's weights are float32: 1e-5.
    """
    make, covariance_of = PRIORS[name]
    model = _linear_model(make(), 0.0, 1.0)
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(T, N, 1)), rng.normal(size=(T, N, P))
    q = model.posterior(X, Y)
    for task in range(T):
        mean, covariance = code_posterior(covariance_of(X[task]), WEIGHTS, BIAS, NOISE, Y[task])
        np.testing.assert_allclose(q.mean[task, :, 0], mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(q.variance[task, :, 0], np.diag(covariance), rtol=1e-5)


def test_gradients_of_the_elbo_reach_every_variable() -> None:
    """Encoder, decoder, kernel, inducing inputs and both noises: nothing is left behind."""
    model = _linear_model(SparseGP(_kernel(), Z, 1, CODE_NOISE), 0.4, 2.0)
    rng = np.random.default_rng(1)
    batch = Batch(
        tf.constant(rng.normal(size=(T, N, 1))), tf.constant(rng.normal(size=(T, N, P))), None
    )
    with tf.GradientTape() as tape:
        elbo = model.batch_elbo(batch, tf.constant([1, 2]))
    variables = model.trainable_variables
    assert len(variables) == 2 + 2 + 2 + 1 + 2
    for variable, gradient in zip(variables, tape.gradient(elbo, variables), strict=True):
        assert gradient is not None and np.any(gradient != 0), variable.name


def test_pseudo_observations_are_the_encoders() -> None:
    """The encoder was trained as a pseudo-observation: nothing is divided out, no draw is made."""
    model = _linear_model(GP(_kernel(), 1, CODE_NOISE), 0.4, 2.0)
    Y = np.random.default_rng(1).normal(size=(T, N, P))
    pseudo = model.pseudo_observations(None, Y, tf.constant([1, 2]))
    for a, b in zip(pseudo, model.encoder(Y), strict=True):
        np.testing.assert_array_equal(a, b)


def test_other_encoders_are_refused() -> None:
    """An implicit encoder has no density to put into a bound."""
    with pytest.raises(
        TypeError, match="encoder must be Gaussian.*GaussianEncoder.*, got StochasticEncoder"
    ):
        VariationalAutoencoder(
            StandardNormal(2),
            KerasDecoder(_tanh(2, P)),
            StochasticEncoder(_tanh(2 * P, 2)),
            Gaussian(NOISE),
        )


def test_encoder_width_must_fit() -> None:
    """A VAE's Keras encoder has 2 L outputs: four for latent_dim 2, not six."""
    with pytest.raises(ValueError, match="encoder returns 3 code channels.*latent_dim = 2"):
        VAE(_tanh(2, P), _tanh(P, 6), Gaussian(NOISE), latent_dim=2)


class _ScaledEncoder(BaseGaussianEncoder):
    """The first L outputs as means, with a variance that is a positive parameter."""

    latent_dim, min_variance, max_variance = 2, 1e-6, 1e3

    def __init__(self) -> None:
        super().__init__(name=None)
        self.variance = gpflow.Parameter(0.3, transform=gpflow.utilities.positive())

    def __call__(
        self, Y: tf.Tensor, mask: tf.Tensor | None = None, **side: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        mean = tf.cast(Y[..., :2], tf.float64)
        return mean, self.variance * tf.ones_like(mean)


def test_a_fixed_parameter_of_an_encoder_is_not_optimised() -> None:
    model = VAE(_tanh(2, P), _ScaledEncoder(), Gaussian(NOISE), latent_dim=2)
    assert model.amortized.paths == (".guide.encoder.variance",)
    gpflow.set_trainable(model.encoder, False)
    assert model.amortized.paths == () and len(model.sampled.paths) > 0
    assert ".guide.encoder.variance" not in model.sampled.paths


def test_an_encoders_parameters_keep_their_transforms() -> None:
    """Values of a chain are unconstrained, the encoder's among them: bound ones are the model's."""
    model = VAE(_tanh(2, P), _ScaledEncoder(), Gaussian(NOISE), latent_dim=2)
    Y = np.ones((1, 3, P))
    bound = model.bind(model.sampled.values(), model.amortized.values())
    for one, other in zip(bound.encode(None, Y), model.encode(None, Y), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(bound.encode(None, Y)[1], 0.3, rtol=1e-12)
