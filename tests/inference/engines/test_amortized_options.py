"""What a round may do besides: whitened codes, fresh minibatches, point estimates, a mode first."""

from __future__ import annotations

import dataclasses
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import encoders, inference, latent_priors, models
from gpflow_bae.core import functional
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.runs.checkpoints import RunDirectory
from tests.inference.amortized_models import (
    L,
    P,
    advance,
    bae,
    compiled_round,
    network,
    random_data,
    sgp_bae,
    whitened,
)


def test_whitened_codes_have_the_density_of_codes() -> None:
    """A change of variables: log p(eps) = log p(latents) + sum log sqrt(v), v from prior draws.

    The same point of both models, so the observations' terms are equal; float64 but the decoder.
    """
    X, Y = random_data(1, 6)
    keras.utils.set_random_seed(1)
    sampled = whitened()
    plain = whitened(whitened_codes=False)
    for a, b in zip(plain.sampled.parameters, sampled.sampled.parameters, strict=True):
        a.unconstrained_variable.assign(b.unconstrained_variable)
    values = functional.unconstrained_values(sampled.sampled.parameters)
    batch = prepare_data(sampled, (X, Y)).gather(None)
    residuals = np.random.default_rng(7).normal(size=(1, 6, L))
    latents = sampled.from_whitened(batch.X, residuals)
    np.testing.assert_allclose(sampled.to_whitened(batch.X, latents), residuals, atol=1e-12)
    _, variance = sampled.latent_prior.given_inducing_outputs(batch.X)
    found = sampled.log_likelihood(models.State(values, tf.constant(residuals)), batch)
    expected = plain.log_likelihood(models.State(values, latents), batch)
    np.testing.assert_allclose(found - expected, 0.5 * np.sum(np.log(variance)), atol=1e-5)


def test_whitened_codes_start_and_end_as_codes() -> None:
    """What comes in as codes and goes out as codes is the same, and the encoder sees codes."""
    X, Y = random_data(1, 6)
    compiled = compiled_round(whitened(), (X, Y))
    latents = tf.constant(np.random.default_rng(8).normal(size=(1, 6, L)))
    chain = compiled.initial_chain(tf.constant([0, 0]), latents)
    np.testing.assert_allclose(compiled.codes(chain, None), latents, atol=1e-12)
    assert np.abs(chain.sampler.position.codes - latents).max() > 0.1
    with pytest.raises(ValueError, match='whitened_codes needs codes="carried"'):
        compiled_round(whitened(), (X, Y), codes="encoder")
    with pytest.raises(ValueError, match="whitened_codes needs a SparseGP or DeepSparseGP"):
        whitened(inducing_outputs="integrated")


@pytest.mark.usefixtures("untraced")
def test_fresh_minibatches_within_a_round() -> None:
    """With one step to a batch every step draws its own, and codes keep their data points.

    Of 12 points in batches of 3, four steps on one batch move 3 points' codes, and four on fresh
    ones move between 4 and 12; a step's momentum is nonzero exactly where it was in a batch.
    """
    X, Y = random_data(1, 12)
    seed, L0 = tf.constant([3, 4]), tf.zeros([1, 12, L], tf.float64)
    moved = {}
    for steps in (None, 1):
        compiled = compiled_round(
            whitened(whitened_codes=False), (X, Y), batch_size=3, steps_per_batch=steps
        )
        start = compiled.initial_chain(tf.constant([0, 0]), L0)
        chain, statistics = advance(compiled, start, seed, True)
        assert statistics.finite.numpy().all()
        rows = np.any(chain.sampler.position.codes != start.sampler.position.codes, axis=(0, 2))
        np.testing.assert_array_equal(
            rows, np.any(chain.sampler.elements["momentum"].codes != 0, axis=(0, 2))
        )
        moved[steps] = int(rows.sum())
    assert moved[None] == 3 and 4 <= moved[1] <= 12
    # Two steps to a batch is a divisor; three is not.
    compiled_round(whitened(), (X, Y), batch_size=3, steps_per_batch=2)
    with pytest.raises(ValueError, match="positive divisor of num_sampler_steps = 4, got 3"):
        compiled_round(whitened(), (X, Y), batch_size=3, steps_per_batch=3)


@pytest.mark.usefixtures("untraced")
def test_a_batch_of_everything_ignores_how_many_steps_it_has() -> None:
    """Without minibatches fresh ones are the same: equal chains, bit by bit."""
    X, Y = random_data(1, 6)
    chains = []
    for steps in (None, 1):
        keras.utils.set_random_seed(2)
        compiled = compiled_round(whitened(), (X, Y), steps_per_batch=steps)
        start = compiled.initial_chain(tf.constant([0, 0]))
        end, _ = advance(compiled, start, tf.constant([1, 2]), True)
        chains.append(end.sampler.position.codes.numpy())
    np.testing.assert_array_equal(*chains)


def test_prior_mean_start_fits_the_mode_and_starts_there() -> None:
    """Its codes are the prior mean of the inducing outputs it leaves, and the fit has a zero
    gradient in the inducing outputs: at 3000 steps of a decaying Adam, below 1 % of the start's.
    """
    X, Y = random_data(1, 8)
    keras.utils.set_random_seed(3)
    model = whitened()
    data = prepare_data(model, (X, Y))
    settings = inference.VariationalSettings(
        num_steps=3000, learning_rate=1e-2, final_learning_rate_fraction=1e-3
    )

    def gradient() -> float:
        nu = model.latent_prior.whitened_inducing
        with tf.GradientTape() as tape:
            mean, _ = model.latent_prior.given_inducing_outputs(data.X)
            F = model.decoder(mean)
            observed = model.likelihood.masked_log_prob(F, data.Y, data.mask)
            total = tf.cast(tf.reduce_sum(observed), mean.dtype) + nu.log_prior_density()
        found = tape.gradient(total, nu.unconstrained_variable)
        return float(tf.norm(found))

    before = gradient()
    start = inference.PriorMeanStart(
        settings, distillation=inference.EncoderSettings(batch_size=256, num_steps=5)
    )
    latents, losses = start.run(model, data, seed=0, progress=False)
    assert gradient() < 0.01 * before and losses[-1] < losses[0]
    mean, _ = model.latent_prior.given_inducing_outputs(data.X)
    np.testing.assert_array_equal(latents, mean)
    with pytest.raises(ValueError, match="PriorMeanStart needs a SparseGP or DeepSparseGP"):
        start.run(bae(), prepare_data(bae(), (None, Y)), seed=0, progress=False)


def test_a_mode_near_a_warm_start_begins_where_that_one_ends(tmp_path: pathlib.Path) -> None:
    """A step of Adam moves no number by more than the learning rate; one call makes 50 of 1e-8."""
    model = whitened()
    data = prepare_data(model, random_data(1, 8))
    encoder = encoders.GaussianEncoder(network(P, 2 * L))
    settings = inference.VariationalSettings(num_steps=20)
    points = model.latent_prior.inducing_variable
    prior = latent_priors.TitsiasGP(model.latent_prior.kernels, points, L)
    first = inference.WarmStart(
        encoder,
        settings,
        prior,
        distillation=inference.EncoderSettings(batch_size=256, num_steps=0),
        num_initial_steps=0,
    )
    short = dataclasses.replace(settings, num_steps=1, learning_rate=1e-8)
    start = inference.PriorMeanStart(
        short, distillation=inference.EncoderSettings(batch_size=256, num_steps=0), first=first
    )
    assert start.networks == (encoder,)  # so that each of several chains has it as it was
    before = [tf.identity(v) for v in (*model.variables, *encoder.variables)]

    def reset() -> None:
        for variable, value in zip((*model.variables, *encoder.variables), before, strict=True):
            variable.assign(value)

    first.run(model, data, seed=0, progress=False)
    expected = model.sampled.values()
    reset()
    start.run(model, data, seed=0, progress=False, directory=RunDirectory(tmp_path, {}, False))
    for a, b in zip(model.sampled.values(), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert start.describe()["first"] == first.describe()


@pytest.mark.usefixtures("untraced")
def test_point_estimates_have_no_noise_and_the_others_do() -> None:
    """Parameters at temperature 0 move alike whatever the seed of the noise; the others do not.

    After one step from the same state the gradient is the same, so only noise can differ.
    """
    model, data = sgp_bae(), random_data(3, 5)
    compiled = compiled_round(
        model,
        data,
        num_sampler_steps=1,
        encoder=inference.EncoderSettings(num_steps=0),
        point_estimates=(".decoder",),
    )
    chain = compiled.initial_chain(tf.constant([0, 0]))
    ends = [
        advance(compiled, chain, tf.constant([0, s]), True)[0].sampler.position.parameters
        for s in (1, 2)
    ]
    for path, one, other in zip(model.sampled.paths, *ends, strict=True):
        same = bool(tf.reduce_all(one == other))
        assert same == path.startswith(".decoder"), path


def test_unknown_point_estimates() -> None:
    with pytest.raises(ValueError, match="no sampled parameter's path begins"):
        compiled_round(sgp_bae(), random_data(3, 5), point_estimates=(".encoder",))
