"""Models under other GP priors are those under the dense one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import encoders, guides, inference, likelihoods, models
from gpflow_bae.data import prepare_data
from gpflow_bae.latent_priors import GP, MarkovGP, NearestNeighbourGP
from gpflow_bae.latent_priors.base import GaussianLatentPrior

KERNEL = gpflow.kernels.Matern32(lengthscales=0.7)
N, P, L = 16, 3, 2


def _data() -> tuple[np.ndarray, np.ndarray]:
    """One task with holes, at irregular times out of order."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 5.0, (N, 1))
    Y = np.sin(X + np.arange(P)) + 0.1 * rng.normal(size=(N, P))
    Y[rng.random((N, P)) < 0.1] = np.nan
    return X, Y


def _dense(inputs: int, outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(outputs)])


Prior = Callable[[], GaussianLatentPrior]
PRIORS: dict[str, Prior] = {
    "markov": lambda: MarkovGP(KERNEL, L, 1e-2),
    "all neighbours": lambda: NearestNeighbourGP(KERNEL, _data()[0], L, N, 1e-2),
}


def _model(kind: type, prior: Prior) -> models.Autoencoder:
    """A variational one conditions its prior, whatever the prior's default."""
    keras.utils.set_random_seed(0)
    decoder, encoder = _dense(L, P), _dense(2 * P, L)
    if kind is models.VariationalAutoencoder:
        encoder = guides.GaussianGuide(encoders.GaussianEncoder(_dense(P, 2 * L)))
    return kind(prior(), decoder, encoder, likelihoods.Gaussian(0.1))


@pytest.mark.parametrize("other", list(PRIORS.values()), ids=list(PRIORS))
def test_bounds_and_densities_are_equal(other: Prior) -> None:
    """With their gradients by everything that is fitted or sampled."""
    found = []
    for prior in (lambda: GP(KERNEL, L, 1e-2), other):
        fitted = _model(models.VariationalAutoencoder, prior)
        sampled = _model(models.BayesianAutoencoder, prior)
        batch = prepare_data(fitted, _data()).gather(None)
        codes = tf.constant(np.random.default_rng(1).normal(size=(1, N, L)))

        values, variables = sampled.sampled.values(), fitted.trainable_variables
        with tf.GradientTape() as tape:
            tape.watch([*values, codes])
            terms = fitted.terms(batch, tf.constant([0, 1]))
            divergence = tf.reduce_sum(terms.divergence)
            bound = tf.reduce_sum(terms.expected_log_likelihood) - divergence
            density = sampled.log_likelihood(models.State(tuple(values), codes), batch)
        gradients = tape.gradient([bound, density], [*variables, *values, codes])
        found.append([v.numpy() for v in (*gradients, bound, density) if v is not None])
    for dense, own in zip(*found, strict=True):
        # Networks are float32.
        np.testing.assert_allclose(own, dense, rtol=2e-5, atol=2e-5 * np.abs(dense).max())


def _with_neighbours(num_neighbours: int) -> models.VariationalAutoencoder:
    keras.utils.set_random_seed(0)
    prior = NearestNeighbourGP(KERNEL, _data()[0], L, num_neighbours, 1e-2)
    encoder = _dense(P, 2 * L)
    return models.VariationalAutoencoder(prior, _dense(L, P), encoder, likelihoods.Gaussian(0.1))


def test_a_prior_says_which_guide_a_variational_model_has_by_default() -> None:
    """A network or an encoder gets the one that suits the prior; a guide stays as it is."""
    near, dense, markov = (
        NearestNeighbourGP(KERNEL, _data()[0], L, 3),
        GP(KERNEL, L),
        MarkovGP(KERNEL, L),
    )

    def guide_of(prior: GaussianLatentPrior, encoder: Any) -> guides.GaussianGuide:
        return models.VariationalAutoencoder(
            prior, _dense(L, P), encoder, likelihoods.Gaussian(0.1)
        ).guide

    for prior, kind in (
        (near, guides.MeanFieldGuide),
        (dense, guides.GaussianGuide),
        (markov, guides.GaussianGuide),
    ):
        network = _dense(P, 2 * L)
        for encoder in (network, encoders.GaussianEncoder(network)):
            assert type(guide_of(prior, encoder)) is kind
        for chosen in (guides.GaussianGuide, guides.MeanFieldGuide):
            own = chosen(encoders.GaussianEncoder(network))
            assert guide_of(prior, own) is own


@pytest.mark.parametrize(
    ("prior", "guide"),
    [("markov", guides.GaussianGuide), ("all neighbours", guides.MeanFieldGuide)],
)
def test_a_warm_start_conditions_its_prior_where_that_is_exact(prior: str, guide: type) -> None:
    """Nearest neighbours only approximate that posterior, which a fit of its bound exploits."""
    sampled = _model(models.BayesianAutoencoder, PRIORS[prior])
    start = inference.WarmStart(encoders.GaussianEncoder(_dense(P, 2 * L)))
    fitted = start._variational(sampled, sampled.latent_prior)
    assert type(fitted.guide) is guide and fitted.encoder is start.encoder


@pytest.mark.parametrize("num_neighbours", [3, N])
def test_minibatches_that_bring_their_neighbours_sum_to_the_whole(num_neighbours: int) -> None:
    """Divergences and their gradients over a partition into batches of four points."""
    model = _with_neighbours(num_neighbours)
    data, seed = prepare_data(model, _data()), tf.constant([0, 1])
    variables = model.latent_prior.trainable_variables + model.guide.trainable_variables

    def divergence(rows: tf.Tensor | None) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            value = model.terms(data.gather(rows), seed).divergence
        found = tape.gradient(value, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [value.numpy(), *(v.numpy() for v in found)]

    parts = [divergence(tf.range(i, i + 4)) for i in range(0, N, 4)]
    for whole, *each in zip(divergence(None), *parts, strict=True):
        total = np.sum(each, axis=0)
        np.testing.assert_allclose(total, whole, rtol=1e-4, atol=1e-4 * np.abs(whole).max())


def test_a_fit_in_minibatches_needs_no_snapshot() -> None:
    """Whatever the size of the data, a step sees a batch and its neighbours."""
    model = _with_neighbours(3)
    assert model.snapshot(prepare_data(model, _data())) is None
    settings = inference.VariationalSettings(num_steps=40, learning_rate=1e-2, batch_size=4)
    losses = inference.fit_variational(
        model, _data(), settings, seed=0, progress=False, steps_per_call=1
    )
    assert np.mean(losses[-10:]) < np.mean(losses[:10])


def test_sampled_codes_take_minibatches_where_points_have_neighbours() -> None:
    """A variational model that conditions the prior on all points does not."""
    split = _model(models.BayesianAutoencoder, PRIORS["all neighbours"])
    assert prepare_data(split, _data(), batch_size=4).neighbours is not None
    for kind, name in (
        (models.BayesianAutoencoder, "markov"),
        (models.VariationalAutoencoder, "all neighbours"),
    ):
        whole = _model(kind, PRIORS[name])
        with pytest.raises(ValueError, match="cannot take the points of a single task in minib"):
            prepare_data(whole, _data(), batch_size=4)


def test_it_compiles() -> None:
    """By XLA, as rounds are on a GPU."""
    X, codes = np.linspace(0.0, 1.0, 8)[:, None], np.ones((8, L))
    prior = MarkovGP(KERNEL, L)
    compiled = tf.function(prior.log_prob, jit_compile=True, autograph=False)
    np.testing.assert_allclose(compiled(X, codes), prior.log_prob(X, codes), rtol=1e-10)
