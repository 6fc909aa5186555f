"""The compiled round of Algorithm 1: its gradient, its bookkeeping, and how it is compiled."""

from __future__ import annotations

import dataclasses
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import decoders, encoders, inference, likelihoods, models
from gpflow_bae.data import draw_indices
from gpflow_bae.inference import sampling
from tests.inference.amortized_models import (
    SETTINGS,
    L,
    advance,
    bae,
    compiled_round,
    random_data,
    sgp_bae,
)


@pytest.mark.parametrize("minibatches_of", ["tasks", "points"])
def test_minibatch_gradient_is_unbiased(minibatches_of: str) -> None:
    """The mean over all B-subsets of a partition is the full gradient of the parameters.

    The likelihood of a batch is N/B times too small, so N/B restores it; the prior is in every
    estimate once. A code's conditional is the same whatever batch its point came in.
    Tolerance: float32 sums of a few hundred terms of order 10.
    """
    if minibatches_of == "tasks":
        model, data, axis = sgp_bae(), random_data(6, 5), 0
    else:
        model, data, axis = sgp_bae(3, "sampled"), random_data(1, 6), 1
        model.latent_prior.whitened_inducing.assign(np.random.default_rng(1).normal(size=(L, 3)))
    rng = np.random.default_rng(2)
    whole = compiled_round(model, data)
    batched = compiled_round(model, data, batch_size=2)
    latents = tf.constant(rng.standard_normal((*whole.data.Y.shape[:2], L)))
    parameters = model.sampled.values()

    exact, exact_codes = whole.log_density_gradient(
        inference.Point(parameters, latents), whole.data.gather(None)
    )
    total = [np.zeros(g.shape) for g in exact]
    partition = rng.permutation(6).reshape(-1, 2)
    for indices in partition:
        point = inference.Point(parameters, tf.gather(latents, indices, axis=axis))
        gradient, codes = batched.log_density_gradient(
            point, batched.data.gather(tf.constant(indices))
        )
        total = [t + g.numpy() for t, g in zip(total, gradient, strict=True)]
        expected = tf.gather(exact_codes, indices, axis=axis)
        np.testing.assert_allclose(codes, expected, rtol=1e-4, atol=1e-4)
    for path, mean, gradient in zip(model.sampled.paths, total, exact, strict=True):
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(
            mean / len(partition), gradient, rtol=1e-4, atol=1e-5 * scale + 1e-5, err_msg=path
        )


def test_gradient_is_that_of_the_log_posterior() -> None:
    """Central differences of log prior + log likelihood, in float64 parameters and codes."""
    model = sgp_bae()
    whole = compiled_round(model, random_data(3, 4))
    batch = whole.data.gather(None)
    rng = np.random.default_rng(0)
    latents = tf.constant(rng.standard_normal((3, 4, L)))
    parameters = model.sampled.values()
    gradient, to_codes = whole.log_density_gradient(inference.Point(parameters, latents), batch)

    def density(parameters: tuple[tf.Tensor, ...], latents: tf.Tensor) -> float:
        state = models.State(parameters, latents)
        return float(model.log_prior(state) + model.log_likelihood(state, batch))

    # The decoder is float32: a step of 1e-3 balances its rounding (1e-6 / 1e-3) and curvature.
    step = 1e-3
    direction = rng.standard_normal(latents.shape)
    numeric = (
        density(parameters, latents + step * direction)
        - density(parameters, latents - step * direction)
    ) / (2 * step)
    np.testing.assert_allclose(np.sum(to_codes * direction), numeric, rtol=1e-2)
    for i, path in enumerate(model.sampled.paths):
        direction = rng.standard_normal(parameters[i].shape).astype(parameters[i].dtype.name)

        def moved(sign: float, i: int = i, d: np.ndarray = direction) -> tuple[tf.Tensor, ...]:
            return (*parameters[:i], parameters[i] + sign * step * d, *parameters[i + 1 :])

        numeric = (density(moved(1.0), latents) - density(moved(-1.0), latents)) / (2 * step)
        exact = float(np.sum(gradient[i] * direction))
        assert abs(exact - numeric) < 0.01 * abs(exact) + 0.02, path


def test_gradient_twice_at_the_same_tensors() -> None:
    """A second tape over the same eager tensors sees the same gradient.

    TFP's bijectors cache by tensor, so values of the first tape could reach the second one as
    constants: the transforms' Jacobians would drop out, or whole gradients would be None.
    """
    model = sgp_bae()
    parameters = model.sampled.values()
    gradients, kept_alive = [], []
    for _ in range(2):
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            state = models.State(parameters, tf.zeros([1, 3, L], tf.float64))
            kept_alive.append(model.bind(parameters))
            noise = kept_alive[-1].latent_prior.code_noise_variance
            density = model.log_prior(state) + noise
        gradients.append(tape.gradient(density, parameters))
    for path, first, second in zip(model.sampled.paths, *gradients, strict=True):
        np.testing.assert_array_equal(first, second, err_msg=path)


@pytest.mark.parametrize("codes, steps_per_batch", [("encoder", None), ("carried", 1)])
def test_a_run_traces_its_round_once(
    codes: str, steps_per_batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Burn-in, then sampling: 2 + 3 * 2 rounds, one trace; of full batches see test_chains.py."""
    rounds = []

    class Recorded(inference.AmortizedSampling):
        def __init__(self, *args: Any, **kwargs: Any):
            super().__init__(*args, **kwargs)
            rounds.append(self)

    monkeypatch.setattr(sampling, "AmortizedSampling", Recorded)
    batches = {"batch_size": 2, "steps_per_batch": steps_per_batch}
    settings = dataclasses.replace(SETTINGS, codes=codes, **batches)
    posterior = inference.sample_amortized(
        sgp_bae(), random_data(4, 5), settings, progress=False, warm_start=None
    )
    assert len(posterior.history) == settings.num_rounds == 8
    assert [r.tracing_count for r in rounds] == [1]


def test_graph_and_xla_rounds_draw_the_same() -> None:
    """The random bits are equal (gpflow_bae/mcmc/noise.py); the rest is rounding.

    Four steps of a float32 decoder (rounding 1e-7 of gradients up to 1e3, times step^2 = 4e-4) and
    two Adam steps of 1e-3 leave differences below 1e-4; other random numbers would differ by the
    step size times a standard normal, 1e-2.
    """
    results = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(0)
        compiled = compiled_round(
            sgp_bae(), random_data(6, 5), jit_compile, codes="encoder", batch_size=4
        )
        chain = compiled.initial_chain(tf.constant([0, 1]))
        start = [chain.sampler.position.codes.numpy()]
        chain, statistics = advance(compiled, chain, tf.constant([3, 4]), True)
        moved = [v.numpy() for v in tf.nest.flatten((chain.sampler, chain.encoder.weights))]
        results.append((start, moved, [float(s) for s in statistics[:3]]))
    (start, graph, graph_statistics), (_, xla, xla_statistics) = results
    for a, b in zip(graph, xla, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(graph_statistics, xla_statistics, rtol=1e-4)
    assert np.abs(graph[-1]).max() > 0 and len(start) == 1


def of_codes(chain: inference.Chain) -> dict[str, tf.Tensor]:
    """The codes, and what the sampler keeps for each of them."""
    kept = {name: point.codes for name, point in chain.sampler.elements.items()}
    return {"position": chain.sampler.position.codes} | kept


@pytest.mark.parametrize("minibatches_of", ["tasks", "points"])
def test_statistics_of_codes_stay_with_their_data_point(minibatches_of: str) -> None:
    """Without noise, a code's path is its own: k visits move it as k rounds of the full batch do.

    Parameters and encoder are fixed and the temperature is 0, so position, momentum, tau, M and V
    of a code depend only on its own data point and on how many rounds drew it. Statistics that
    belonged to a row of the minibatch would mix those of different points. Tolerance: float32
    decoder, whose rounding depends on the shape of the batch.
    """
    if minibatches_of == "tasks":
        model, data, axis = bae(), random_data(5, 3), 0
    else:
        model, data, axis = sgp_bae(4, "sampled"), random_data(1, 7), 1
        model.latent_prior.whitened_inducing.assign(np.random.default_rng(1).normal(size=(L, 4)))
    for part in (model.latent_prior, model.decoder, model.likelihood):
        gpflow.set_trainable(part, False)
    common: dict[str, Any] = {"temperature": 0.0, "encoder": inference.EncoderSettings(num_steps=0)}
    whole = compiled_round(model, data, **common)
    batched = compiled_round(model, data, batch_size=2, **common)
    num_items, num_rounds = whole.data.num_items, 8
    latents = tf.constant(np.random.default_rng(0).normal(size=(*whole.data.Y.shape[:2], L)))

    chain = whole.initial_chain(tf.constant([0, 0]), latents)
    after = [of_codes(chain)]
    for r in range(num_rounds):
        chain, _ = advance(whole, chain, tf.constant([1, r]), True)
        after.append(of_codes(chain))

    chain = batched.initial_chain(tf.constant([0, 0]), latents)
    visits = np.zeros(num_items, int)
    for r in range(num_rounds):
        seed = tf.constant([2, r])
        drawn = draw_indices(num_items, 2, tf.random.split(seed, 4, alg="philox")[0])
        visits[drawn.numpy()] += 1
        chain, _ = advance(batched, chain, seed, True)

    assert len(set(visits)) > 2, "the test needs points drawn at different rates"
    for name, found in of_codes(chain).items():
        for item, count in enumerate(visits):
            np.testing.assert_allclose(
                np.take(found, item, axis=axis),
                np.take(after[count][name], item, axis=axis),
                rtol=1e-4,
                atol=1e-5,
                err_msg=f"{name} of item {item} after {count} visits",
            )


@pytest.mark.usefixtures("untraced")
def test_encoder_codes_start_at_rest_and_keep_their_preconditioner() -> None:
    """``codes="encoder"``: a fresh draw and no momentum, but tau, M and V of the data point.

    With a step size of 1e-12 a round of no adaptation moves nothing: what comes back is the draw
    itself with momentum 0, and the statistics that went in.
    """
    compiled = compiled_round(bae(), random_data(4, 3), codes="encoder", step_size=1e-12)
    chain = compiled.initial_chain(tf.constant([0, 0]))
    rng = np.random.default_rng(0)
    codes = {k: tf.constant(rng.uniform(1.0, 2.0, v.shape)) for k, v in of_codes(chain).items()}
    elements = {k: v._replace(codes=codes[k]) for k, v in chain.sampler.elements.items()}
    position = chain.sampler.position._replace(codes=codes["position"])
    sampler = chain.sampler._replace(position=position, elements=elements)
    seed = tf.constant([5, 6])
    draw_seed = tf.random.split(seed, 4, alg="philox")[1]
    expected = compiled.model.encoder.sample(compiled.data.Y, draw_seed).numpy()
    chain, _ = advance(compiled, chain._replace(sampler=sampler), seed, False)
    np.testing.assert_allclose(chain.sampler.position.codes, expected, atol=1e-6)
    np.testing.assert_allclose(chain.sampler.elements["momentum"].codes, 0.0, atol=1e-6)
    for name in ("tau", "mean_gradient", "mean_square_gradient"):
        np.testing.assert_array_equal(of_codes(chain)[name], codes[name])


@pytest.mark.usefixtures("untraced")
def test_squared_error_uses_the_noise_that_started_the_codes() -> None:
    """The paper's pairs: where the codes have not moved, f(y, epsilon) is the code and the loss 0.

    With other noise it would be the encoder's variance twice, of order 1. Rounding of float32
    squared: 1e-13.
    """
    compiled = compiled_round(
        bae(),
        random_data(4, 3),
        codes="encoder",
        encoder=inference.EncoderSettings(loss="mse", num_steps=1),
        step_size=1e-9,
    )
    chain = compiled.initial_chain(tf.constant([0, 0]))
    _, statistics = advance(compiled, chain, tf.constant([1, 1]), True)
    assert float(statistics.encoder_loss) < 1e-10


def test_encoder_minibatches_are_rows_with_their_own_codes() -> None:
    """Where codes are a function of y, minibatches of (y, code) rows fit it exactly.

    The codes are y times 2, held by a step size of 1e-12, and the encoder is Gaussian with a linear
    mean, so the weights converge to 2; rows paired with other rows' codes would give 0.
    """
    encoder = encoders.GaussianEncoder(keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)]))
    decoder = decoders.KerasDecoder(
        keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    )
    model = models.BAE(decoder, encoder, likelihoods.Gaussian(0.3), latent_dim=1)
    Y = np.random.default_rng(0).standard_normal((1, 50, 1))
    compiled = compiled_round(
        model,
        (None, Y),
        encoder=inference.EncoderSettings(
            num_steps=600, batch_size=10, learning_rate=2e-2, loss="nll"
        ),
        step_size=1e-12,
    )
    chain = compiled.initial_chain(tf.constant([0, 0]), tf.constant(2.0 * Y))
    chain, _ = advance(compiled, chain, tf.constant([1, 1]), False)
    np.testing.assert_allclose(chain.encoder.weights[0].numpy()[0, 0], 2.0, atol=0.02)
