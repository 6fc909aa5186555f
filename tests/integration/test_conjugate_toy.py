"""The conjugate toy: z ~ N(0, 1), y | z ~ N(z, 1), so z | y ~ N(y / 2, 1 / 2), for every y.

Algorithm 1 must leave an encoder whose draws given y have the posterior's standard deviation,
1 / sqrt(2) = 0.707. With the paper's squared error it cannot: the loss compares the encoder at
(y, epsilon) with the code that started there, K steps later. Its minimum is the conditional mean of
that code, so each round multiplies the spread by the chain's correlation over K steps.

Settings: precision A = 2 and rms gradient sqrt(2), so a preconditioner P = 1 / sqrt(2); a step size
h = 0.2 has the relative bias h^2 P A / (2 (2 - a)) = 0.017 of the variance, 0.9 % of the spread.
The chain's frequency is h sqrt(P A) = 0.24 per step, critically damped at a = 0.48; a = 0.4 forgets
in some ten steps, so codes are fresh draws of the posterior after K = 50. 1500 points and the last
10 of 40 rounds leave the encoder's own error at some 2 %: the 5 % are for that and for the bias.
"""

import gpflow
import keras
import numpy as np
import pytest

from gpflow_bae import decoders, encoders, inference, likelihoods, mcmc, models

NUM_POINTS = 1500
EXACT_SPREAD = np.sqrt(0.5)


def fixed_identity_decoder() -> decoders.KerasDecoder:
    network = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )
    decoder = decoders.KerasDecoder(network)
    gpflow.set_trainable(decoder, False)
    return decoder


def spread_and_mean_error(encoder_loss: str) -> tuple[float, float]:
    """Root mean square over y of the encoder's sd, and of its mean's distance from y / 2."""
    rng = np.random.default_rng(0)
    Y = np.sqrt(2.0) * rng.standard_normal((1, NUM_POINTS, 1))
    hidden = keras.layers.Dense(16, activation="tanh")
    if encoder_loss == "nll":
        network = keras.Sequential([keras.Input((1,)), hidden, keras.layers.Dense(2)])
        encoder = encoders.GaussianEncoder(network)
    else:
        network = keras.Sequential([keras.Input((2,)), hidden, keras.layers.Dense(1)])
        encoder = encoders.StochasticEncoder(network)
    likelihood = likelihoods.Gaussian(1.0)
    gpflow.set_trainable(likelihood, False)
    model = models.BAE(fixed_identity_decoder(), encoder, likelihood, latent_dim=1)
    settings = inference.AmortizedSettings(
        num_sampler_steps=50,
        encoder=inference.EncoderSettings(num_steps=40, loss=encoder_loss, learning_rate=5e-3),
        burnin=50 * 30,
        num_samples=10,
        thinning=50,
        codes="encoder",
    )
    sampler = mcmc.adaptive_sghmc.build(step_size=0.2, momentum_decay=0.4)
    posterior = inference.sample_amortized(
        model, (None, Y), settings, sampler=sampler, seed=1, progress=False, warm_start=None
    )
    draws = posterior.encode(Y, num_draws=64)[:, :, 0, :, 0]  # [S, draws, N]
    within = draws.var(axis=1, ddof=1).mean()
    error = draws.mean(axis=(0, 1)) - 0.5 * Y[0, :, 0]
    return float(np.sqrt(within)), float(np.sqrt(np.mean(error**2)))


@pytest.mark.parametrize("encoder_loss", ["energy", "nll"])
def test_proper_losses_learn_the_posterior(encoder_loss: str) -> None:
    """Spread 0.707 within 5 %, mean y / 2 within 0.07 (a tenth of the posterior's spread)."""
    spread, error = spread_and_mean_error(encoder_loss)
    np.testing.assert_allclose(spread, EXACT_SPREAD, rtol=0.05)
    assert error < 0.07


def test_squared_error_collapses_to_the_posterior_mean() -> None:
    """The paper's loss: hardly any spread is left, though the mean is right.

    What is left, 0.03, is how well 17 hidden weights on epsilon are regressed to 0 on 1500 codes
    whose own spread is 0.7: of the order 0.7 sqrt(3 / 1500).
    """
    spread, error = spread_and_mean_error("mse")
    assert spread < 0.05
    assert error < 0.07
