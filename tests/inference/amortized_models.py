"""Small models and their compiled rounds, for the tests of amortised sampling."""

from __future__ import annotations

import dataclasses
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow as tf

from gpflow_bae import decoders, encoders, inference, likelihoods, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.chains import of_chain, stack_chains

L, P = 2, 3
SETTINGS = inference.AmortizedSettings(
    num_sampler_steps=4,
    encoder=inference.EncoderSettings(num_steps=2),
    burnin=8,
    num_samples=3,
    thinning=8,
    codes="carried",
)


def network(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((num_inputs,)),
            keras.layers.Dense(4, activation="tanh"),
            keras.layers.Dense(num_outputs),
        ]
    )


def bae() -> models.BAE:
    decoder = decoders.KerasDecoder(network(L, P))
    encoder = encoders.StochasticEncoder(network(2 * P, L))
    return models.BAE(decoder, encoder, likelihoods.Gaussian(0.3), latent_dim=L)


def sgp_bae(num_inducing: int = 4, inducing_outputs: str = "integrated") -> models.SGPBAE:
    return models.SGPBAE(
        kernel=gpflow.kernels.SquaredExponential(),
        inducing_variable=np.linspace(-2.0, 2.0, num_inducing)[:, None],
        decoder=decoders.KerasDecoder(network(L, P)),
        encoder=encoders.StochasticEncoder(network(2 * P, L)),
        likelihood=likelihoods.Gaussian(0.3),
        latent_dim=L,
        code_noise_variance=0.1,
        inducing_outputs=inducing_outputs,
    )


def whitened(**changes: Any) -> models.SGPBAE:
    """One long task with sampled inducing outputs, codes as whitened residuals."""
    model = models.SGPBAE(
        kernel=gpflow.kernels.SquaredExponential(),
        inducing_variable=np.linspace(-2.0, 2.0, 4)[:, None],
        decoder=decoders.KerasDecoder(network(L, P)),
        encoder=encoders.StochasticEncoder(network(2 * P, L)),
        likelihood=likelihoods.Gaussian(0.3),
        latent_dim=L,
        code_noise_variance=0.1,
        **{"inducing_outputs": "sampled", "whitened_codes": True, **changes},
    )
    rng = np.random.default_rng(6)
    model.latent_prior.whitened_inducing.assign(rng.normal(size=(L, 4)))
    return model


def random_data(num_tasks: int, num_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs that differ between tasks, and observations of which a fifth is missing."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-2.0, 2.0, (num_tasks, num_points, 1))
    Y = rng.standard_normal((num_tasks, num_points, P))
    Y[rng.uniform(size=Y.shape) < 0.2] = np.nan
    return X, Y


def compiled_round(
    model: models.BayesianAutoencoder,
    data: tuple[np.ndarray, np.ndarray],
    jit_compile: bool = False,
    step_size: float = 0.02,
    temperature: float = 1.0,
    point_estimates: tuple[str, ...] = (),
    **settings: Any,
) -> inference.AmortizedSampling:
    replaced = dataclasses.replace(SETTINGS, **settings)
    prepared = prepare_data(model, data, replaced.batch_size)
    sampler = mcmc.adaptive_sghmc.build(step_size=step_size, temperature=temperature)
    return inference.AmortizedSampling(
        model,
        prepared,
        replaced,
        sampler,
        jit_compile=jit_compile,
        point_estimates=point_estimates,
    )


def advance(
    algorithm: inference.ChainSampling, chain: inference.Chain, seed: tf.Tensor, adapt: bool
) -> tuple[inference.Chain, inference.RoundStatistics]:
    """One round of one chain."""
    chains, statistics = algorithm.advance(
        stack_chains([chain]), seed[None], tf.constant(0), tf.constant(adapt)
    )
    return of_chain(chains, 0), of_chain(statistics, 0)
