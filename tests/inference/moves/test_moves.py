"""Moves leave the joint density invariant, and the function that data see as it is.

Draws of parameters, codes and data, moved once, are draws of the same joint (Geweke 2004). So the
mean change of a statistic, and of its square, is zero within four standard errors, and moved draws
have the distribution of others that were left alone (a two-sample Kolmogorov-Smirnov test). The
statistics are chosen so that a forgotten Jacobian, or a prior left out, shifts one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_bae import decoders, encoders, inference, likelihoods, mcmc, models
from gpflow_bae.base import Batch
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.moves import MOVES, build_moves
from gpflow_bae.inference.moves.base import Moved
from gpflow_bae.models import State
from tests.inference.amortized_models import L, P, network, random_data, sgp_bae, whitened

DRAWS = 800
X = np.random.default_rng(0).uniform(-2.0, 2.0, (2, 6, 1))
BATCH = Batch(tf.constant(X), tf.zeros([2, 6, P]), None)
LIMIT = 1e-4  # of p-values; seeds are fixed
# test_unknown_inputs.py has the other one.
OF_KNOWN_INPUTS = tuple(name for name in MOVES if name != "unknown_inputs")


def model_with(decoder: decoders.KerasDecoder) -> models.SGPBAE:
    model = sgp_bae()
    return models.SGPBAE(
        gpflow.kernels.SquaredExponential(),
        model.latent_prior.inducing_variable,
        decoder,
        model.encoder,
        model.likelihood,
        L,
        code_noise_variance=0.1,
    )


def plain() -> models.SGPBAE:
    return model_with(decoders.KerasDecoder(network(L, P), decoders.fan_in_prior(1.0)))


def prior_draws(model: models.SGPBAE) -> Moved:
    """[DRAWS, ...] of parameters, codes given them, and the encoder's weights as they are."""
    values: list[tf.Tensor] = []
    parameters = model.sampled.parameters
    for number, parameter in enumerate(parameters):
        like, prior = parameter.unconstrained_variable, parameter.prior
        missing = len(parameter.shape) - len(prior.batch_shape) - len(prior.event_shape)
        shape = [DRAWS, *parameter.shape[:missing]]
        drawn = prior.sample(shape, seed=tf.constant([3, number]))
        drawn = tf.cast(drawn, like.dtype)
        inverse = parameter.transform.inverse if parameter.transform is not None else tf.identity
        values.append(inverse(drawn))

    def codes(parameters):  # type: ignore[no-untyped-def]
        *own, number = parameters
        prior = model.bind(own).latent_prior
        factor = tf.linalg.cholesky(prior.code_covariance(X)[:, 0])
        seed = tf.random.fold_in(tf.constant([9, 1]), number, alg="philox")
        noise = mcmc.noise.standard_noise([len(X), X.shape[1], L], seed, tf.float64)
        return tf.linalg.matmul(factor, noise)

    numbers = tf.range(DRAWS)
    latents = tf.function(
        lambda: tf.map_fn(codes, (*values, numbers), fn_output_signature=tf.float64),
        autograph=False,
    )()
    encoder = tuple(tf.stack([v] * DRAWS) for v in model.amortized.values())
    return Moved(tuple(values), latents, encoder)


def moved(model: models.SGPBAE, name: str, before: Moved) -> Moved:
    (move,) = build_moves([name], model)

    def one(state):  # type: ignore[no-untyped-def]
        inner, number = state
        seeds = tf.random.split(
            tf.random.fold_in(tf.constant([4, 2]), number, alg="philox"), alg="philox"
        )
        # Data of the model, so that what is moved is a draw of the posterior given those.
        bound = model.bind(inner.parameters)
        F = bound.decoder(inner.codes)
        noise = mcmc.noise.standard_noise(F.shape, seeds[1], F.dtype)
        Y = F + tf.sqrt(bound.likelihood.moments(F)[1]) * noise
        return move(inner, BATCH._replace(Y=Y), seeds[0])

    signature = tf.nest.map_structure(lambda v: tf.TensorSpec(v.shape[1:], v.dtype), before)
    return tf.function(
        lambda: tf.map_fn(one, (before, tf.range(DRAWS)), fn_output_signature=signature),
        autograph=False,
    )()


def statistics_of(model: models.SGPBAE, state: Moved) -> dict[str, np.ndarray]:
    """Of each draw: logarithms of what has a scale, and the log density of the codes."""
    found = {}
    for path, parameter, value in zip(
        model.sampled.paths, model.sampled.parameters, state.parameters, strict=True
    ):
        squares = tf.square(tf.reshape(tf.cast(value, tf.float64), [DRAWS, -1]))
        positive = parameter.transform is not None and len(parameter.shape) == 0
        forward = parameter.transform.forward if positive else None
        found[path] = np.log(forward(value) if forward else tf.reduce_sum(squares, 1))
    found["codes"] = np.log(tf.reduce_sum(tf.square(state.codes), [1, 2, 3]))

    def density(draw):  # type: ignore[no-untyped-def]
        *own, codes = draw
        return tf.reduce_sum(model.bind(own).latent_prior.log_prob(X, codes))

    inputs = (*state.parameters, state.codes)
    compiled = tf.function(
        lambda: tf.map_fn(density, inputs, fn_output_signature=tf.float64), autograph=False
    )
    found["density of codes"] = compiled().numpy()
    return found


def functions(model: models.SGPBAE, state: Moved) -> np.ndarray:
    """What the likelihood sees of the first draws."""
    return np.stack(
        [
            model.bind([v[i] for v in state.parameters]).decoder(state.codes[i]).numpy()
            for i in range(5)
        ]
    )


CASES = [
    ("code_scale", plain),
    ("prior_parameters", plain),
    ("likelihood_parameters", plain),
]


@pytest.mark.parametrize("name, build", CASES)
def test_draws_of_the_joint_prior_stay_that(name: str, build: Callable[[], models.SGPBAE]) -> None:
    model = build()
    before = prior_draws(model)
    after = moved(model, name, before)
    old, new = statistics_of(model, before), statistics_of(model, after)
    half = DRAWS // 2
    changed = [key for key in old if not np.allclose(old[key], new[key])]
    assert changed
    for key in changed:
        for power in (1, 2):
            change = new[key] ** power - old[key] ** power
            assert abs(change.mean()) < 4.0 * change.std() / np.sqrt(DRAWS), key
        # The halves are independent of each other.
        assert stats.ks_2samp(old[key][:half], new[key][half:]).pvalue > LIMIT, key
    F, G = functions(model, before), functions(model, after)
    np.testing.assert_allclose(G, F, rtol=2e-4, atol=2e-4 * np.abs(F).max())


def test_an_encoder_goes_along_with_the_scale_of_its_codes() -> None:
    """Its draws are those of before, times the factor of the codes."""
    model = plain()
    (move,) = build_moves(["code_scale"], model)
    codes = tf.constant(np.random.default_rng(1).standard_normal((2, 6, L)))
    state = Moved(model.sampled.values(), codes, model.amortized.values())
    after = move(state, BATCH, tf.constant([1, 5]))
    factor = (after.codes / codes).numpy()
    assert abs(np.log(factor[0, 0, 0])) > 0.01
    np.testing.assert_allclose(factor, factor[0, 0, 0], rtol=1e-12)
    Y, seed = np.ones((4, P), np.float32), tf.constant([0, 1])
    draws = [
        model.bind(state.parameters, weights).encoder.sample(Y, seed).numpy()
        for weights in (state.encoder, after.encoder)
    ]
    np.testing.assert_allclose(draws[1], factor[0, 0, 0] * draws[0], rtol=1e-5)


def test_a_chain_with_moves_and_coordinates_samples_what_a_chain_without_does() -> None:
    """The decoder's function of fixed codes, its scale, and the kernel's parameters: means over two
    runs of the same posterior agree within five standard errors of a mean of batches.
    """
    data = random_data(3, 5)
    found = []
    for coordinates, moves in (("none", None), ("prior", OF_KNOWN_INPUTS)):
        settings = inference.AmortizedSettings(
            num_sampler_steps=20,
            encoder=inference.EncoderSettings(num_steps=1),
            burnin=1000,
            num_samples=250,
            thinning=20,
            coordinates=coordinates,
        )
        posterior = inference.sample_amortized(
            plain(),
            data,
            settings,
            moves=moves,
            sampler=mcmc.sghmc.build(step_size=0.1, momentum_decay=0.1, integrator="baoab"),
            warm_start=None,
            progress=False,
        )
        bank = posterior.bank
        kernel = bank.parameters[".latent_prior.kernels[0].variance"][0]
        likelihood = bank.trace["log_likelihood"][0, -250:]
        prior = bank.trace["log_prior"][0, -250:]
        found.append([kernel, likelihood, prior])
    for first, second in zip(*found, strict=True):
        parts = [np.array([p.mean() for p in np.array_split(v, 20)]) for v in (first, second)]
        error = np.hypot(*(p.std(ddof=1) / np.sqrt(20) for p in parts))
        assert abs(parts[0].mean() - parts[1].mean()) < 5.0 * error


def test_the_likelihood_is_weighed_by_the_observations_where_codes_are_whitened() -> None:
    """Up to what does not depend on it, by the same density that the chain's steps follow."""
    model = whitened()
    data = prepare_data(model, random_data(1, 6), None)
    batch = data.gather(None)
    codes = tf.constant(np.random.default_rng(3).normal(size=(1, 6, L)))
    (move,) = build_moves(["likelihood_parameters"], model)
    place = model.sampled.paths.index(move.owned[0])
    found, expected = [], []
    for value in (-1.0, 0.5):
        parameters = list(model.sampled.values())
        weigh = move._log_likelihood(Moved(tuple(parameters), codes, ()), batch)
        parameters[place] = tf.constant(value, tf.float64)
        found.append(weigh(tuple(parameters)))
        expected.append(model.log_likelihood(State(tuple(parameters), codes), batch))
    assert abs(found[1] - found[0]) > 1.0
    # The network computes in float32.
    np.testing.assert_allclose(found[1] - found[0], expected[1] - expected[0], rtol=1e-6)


def test_networks_in_half_precision_are_as_symmetric_as_their_rounding() -> None:
    """Two dense layers in bfloat16 are; a layer that bends codes before them is not."""

    def decoder(*first: keras.Layer) -> decoders.KerasDecoder:
        hidden = keras.layers.Dense(8, activation="tanh", dtype="mixed_bfloat16")
        layers = [*first, hidden, keras.layers.Dense(P, dtype="mixed_bfloat16")]
        return decoders.KerasDecoder(keras.Sequential([keras.Input((L,)), *layers]))

    assert decoder().has_half_precision and not plain().decoder.has_half_precision
    assert build_moves(["code_scale"], model_with(decoder()))
    bent = keras.layers.Activation("tanh", dtype="mixed_bfloat16")
    with pytest.raises(ValueError, match="does not begin with a dense layer"):
        build_moves(["code_scale"], model_with(decoder(bent)))


def test_moves_that_a_model_does_not_allow_are_refused() -> None:
    with pytest.raises(ValueError, match="expected names among"):
        build_moves(["jump"], plain())
    for name in ("code_scale", "prior_parameters"):
        with pytest.raises(ValueError, match=name):
            build_moves([name], whitened())
    for options, sampler in (
        ({"point_estimates": (".decoder",)}, mcmc.sghmc.build()),
        ({}, mcmc.sghmc.build(temperature=0.5)),
    ):
        with pytest.raises(ValueError, match="temperature 1"):
            inference.sample_amortized(
                plain(), random_data(2, 4), sampler=sampler, moves=("code_scale",), **options
            )
    with pytest.raises(ValueError, match="models whose codes are sampled"):
        encoder = encoders.GaussianEncoder(network(P, 2 * L))
        vae = models.VAE(decoders.KerasDecoder(network(L, P)), encoder, likelihoods.Gaussian(), L)
        inference.sample_amortized(vae, (None, np.zeros((4, 1, P))), moves=("code_scale",))
    with pytest.raises(ValueError, match='codes="encoder" draws the codes anew'):
        settings = inference.AmortizedSettings(codes="encoder")
        inference.sample_amortized(plain(), random_data(2, 4), settings, moves=tuple(MOVES))
