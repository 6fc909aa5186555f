"""Sampling under a variational bound: the same objective as the fit's, and a posterior it knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference, likelihoods, mcmc, models
from gpflow_bae.data import prepare_data

T, N, P, L = 3, 5, 2, 1
SETTINGS = inference.AmortizedSettings(
    num_sampler_steps=4,
    encoder=inference.EncoderSettings(num_steps=1),
    burnin=8,
    num_samples=3,
    thinning=8,
)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    keras.utils.set_random_seed(0)
    yield


def linear(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def gp_vae() -> models.GPVAE:
    return models.GPVAE(
        gpflow.kernels.SquaredExponential(),
        linear(L, P),
        linear(P, 2 * L),
        likelihoods.Gaussian(0.3),
        latent_dim=L,
    )


def random_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return np.linspace(0.0, 2.0, N)[:, None], rng.standard_normal((T, N, P))


def test_target_is_the_objective_of_the_variational_fit() -> None:
    """log prior + N/B ELBO is minus the loss that Adam minimises, times the points.

    The same seed draws the same codes; tolerance: float32 networks.
    """
    model = gp_vae()
    data = prepare_data(model, random_data())
    compiled = inference.BoundSampling(model, data, SETTINGS)
    seed = tf.constant([1, 2])
    values = tuple(model.sampled.values())
    weights = model.amortized.variables
    target = sum(compiled.bound(values, weights, data.gather(None), seed))
    fit = inference.VariationalFit(model, data, inference.VariationalSettings(), seed=0)
    loss, _ = fit.batch_loss(data.gather(None), seed, (), None)
    np.testing.assert_allclose(target, -loss * T * N, rtol=1e-6)


def test_a_minibatch_counts_for_all() -> None:
    """The mean over the batches of a partition is the full bound: N/B is there once.

    The encoder's variance is clipped to 1e-6, so the draw of the codes hardly matters.
    """
    model = gp_vae()
    model.encoder.max_variance = 1e-6
    data = prepare_data(model, random_data(), 1)
    settings = inference.AmortizedSettings(batch_size=1)
    compiled = inference.BoundSampling(model, data, settings)
    values = tuple(model.sampled.values())
    seed = tf.constant([1, 2])
    weights = model.amortized.variables
    parts = [
        compiled.bound(values, weights, data.gather(tf.constant([t])), seed)[1] for t in range(T)
    ]
    whole = model.batch_elbo(data.gather(None), seed)
    np.testing.assert_allclose(np.mean(parts), whole, rtol=1e-2)


def test_parameters_follow_their_exact_posterior() -> None:
    """With every weight fixed but the decoder's bias, and codes pinned by the encoder, the bound in
    the bias is quadratic: its posterior is Gaussian, with moments in closed form.

    Standard errors come from batch means of the chain; bounds are four of them, and a tenth for
    the bias of the step size.
    """
    model = gp_vae()
    gpflow.set_trainable(model.latent_prior, False)
    gpflow.set_trainable(model.likelihood, False)
    kernel, bias = (p for p in model.sampled.parameters if len(p.shape) in (1, 2))
    kernel.assign(tf.zeros_like(kernel))  # F is the bias alone
    gpflow.set_trainable(kernel, False)
    X, Y = random_data()
    settings = inference.AmortizedSettings(
        num_sampler_steps=100, burnin=500, num_samples=200, thinning=100
    )
    sampler = mcmc.adaptive_sghmc.build(step_size=0.1, momentum_decay=0.2)
    posterior = inference.sample_amortized(
        model, (X, Y), settings, sampler=sampler, seed=3, progress=False, warm_start=None
    )
    assert posterior.latents is None
    (samples,) = posterior.parameters
    precision = 1.0 + T * N / 0.3  # prior N(0, 1), noise variance 0.3
    mean = Y.reshape(-1, P).sum(0) / 0.3 / precision
    blocks = samples.reshape(20, -1, P)
    error = blocks.mean(1).std(0, ddof=1) / np.sqrt(20)
    np.testing.assert_array_less(np.abs(samples.mean(0) - mean), 4 * error + 1e-9)
    spread = blocks.var(1).std(0, ddof=1) / np.sqrt(20) * precision
    np.testing.assert_array_less(np.abs(samples.var(0) * precision - 1), 4 * spread + 0.1)


def test_the_encoder_climbs_the_bound() -> None:
    """At temperature 0 everything ascends, so the bound is higher at the end."""
    settings = inference.AmortizedSettings(
        num_sampler_steps=50,
        burnin=50,
        num_samples=10,
        thinning=50,
        encoder=inference.EncoderSettings(learning_rate=1e-2),
    )
    cold = mcmc.adaptive_sghmc.build(temperature=0.0)
    posterior = inference.sample_amortized(
        gp_vae(), random_data(), settings, sampler=cold, progress=False, warm_start=None
    )
    losses = posterior.history[:, 2]
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.usefixtures("untraced")
def test_a_resumed_chain_is_the_same(tmp_path) -> None:
    """Bit by bit: samples and encoder of a chain that stopped and went on."""
    settings = dataclasses.replace(SETTINGS, burnin=4, num_samples=2, thinning=4)
    whole = inference.sample_amortized(
        gp_vae(), random_data(), settings, progress=False, warm_start=None
    )
    for options in ({"max_samples": 1}, {"resume": True}):
        keras.utils.set_random_seed(0)
        parts = inference.sample_amortized(
            gp_vae(),
            random_data(),
            settings,
            out_dir=tmp_path / "c",
            progress=False,
            **({"warm_start": None} | options),
        )
    for a, b in zip(
        whole.parameters + whole.encoder, parts.parameters + parts.encoder, strict=True
    ):
        np.testing.assert_array_equal(a, b)
