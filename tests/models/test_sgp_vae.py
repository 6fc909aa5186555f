"""SGP-VAE against dense algebra, and points without observations, which must change nothing."""

from __future__ import annotations

from collections.abc import Iterator

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_bae
from gpflow_bae import inference, posteriors
from gpflow_bae.base import Batch
from gpflow_bae.core import row_blocks
from gpflow_bae.data import prepare_data
from gpflow_bae.encoders import (
    FreeFormEncoder,
    GaussianEncoder,
    partial_encoder,
)
from gpflow_bae.guides import MeanFieldGuide
from gpflow_bae.latent_priors import GP, NearestNeighbourGP, SparseGP, TitsiasGP
from gpflow_bae.likelihoods import Gaussian
from gpflow_bae.mcmc.noise import standard_noise
from gpflow_bae.models import (
    CVAE,
    GPPVAE,
    GPVAE,
    SGPVAE,
    VAE,
    VariationalAutoencoder,
)

T, N, P, L = 3, 8, 4, 2
LENGTHS = (8, 5, 6)  # points of each task that are there at all
NOISE, LENGTHSCALE, VARIANCE, JITTER = 0.4, 0.7, 1.3, 1e-10
SEED = tf.constant([1, 2])
Z = np.linspace(-2.0, 2.0, 5)[:, None]


@pytest.fixture(autouse=True)
def small_jitter() -> Iterator[None]:
    """A jitter below the tolerances."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=JITTER)):
        yield


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=LENGTHSCALE, variance=VARIANCE)


def _covariance(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return VARIANCE * np.exp(-0.5 * np.square(A - B.T) / LENGTHSCALE**2)


def _network(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential(
        [keras.Input((num_inputs,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(num_outputs)]
    )


def _encoder(kind: str, num_outputs: int = P) -> GaussianEncoder:
    """A partial one, or a plain network ("plain"), with precisions that depend on y."""
    if kind == "plain":
        return GaussianEncoder(_network(num_outputs, 2 * L))
    encoder = partial_encoder(kind, num_outputs, L, (6,), "tanh")
    rng = np.random.default_rng(1)
    for weight in encoder.weights:
        weight.assign(weight + rng.normal(0.0, 0.3, weight.shape))
    return encoder


def _parts(encoder: GaussianEncoder) -> dict:
    return {
        "decoder": _network(L, P),
        "encoder": encoder,
        "likelihood": Gaussian(NOISE),
        "latent_dim": L,
    }


def _data() -> tuple[np.ndarray, np.ndarray]:
    """Padded tasks with holes, and a point in the middle of the first at which nothing is seen."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-2.0, 2.0, (T, N, 1)), 1)
    Y = rng.normal(size=(T, N, P)).astype(np.float32)
    Y[rng.random(Y.shape) < 0.3] = np.nan
    Y[:, :, 0] = np.where(np.isnan(Y).all(-1), 0.5, Y[:, :, 0])
    for task, length in enumerate(LENGTHS):
        X[task, length:] = X[task, 0]
        Y[task, length:] = np.nan
    Y[0, 3] = np.nan
    return X, Y


def _batch(X: np.ndarray, Y: np.ndarray) -> Batch:
    mask = ~np.isnan(Y)
    return Batch(tf.constant(X), tf.constant(np.where(mask, Y, 0.0)), tf.constant(mask))


def _seen(Y: np.ndarray) -> np.ndarray:
    return ~np.isnan(Y).all(-1)


def _dense(
    X: np.ndarray, seen: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """One task and one channel: marginals of q(f) at all X, and KL[q(u) || p(u)].

    Ashman et al. (2020), eq. 4 with full matrices and inverses, from the points that are there.
    """
    Kzz = _covariance(Z, Z) + JITTER * np.eye(len(Z))
    projection = _covariance(X[seen], Z) @ np.linalg.inv(Kzz)  # of u to f
    precision = projection.T @ np.diag(1.0 / variance[seen])
    S = np.linalg.inv(np.linalg.inv(Kzz) + precision @ projection)
    m = S @ precision @ mean[seen]
    KL = 0.5 * (
        np.trace(np.linalg.solve(Kzz, S))
        + m @ np.linalg.solve(Kzz, m)
        - len(Z)
        + np.linalg.slogdet(Kzz)[1]
        - np.linalg.slogdet(S)[1]
    )
    everywhere = _covariance(X, Z) @ np.linalg.inv(Kzz)
    f_variance = VARIANCE - np.diag(everywhere @ (Kzz - S) @ everywhere.T)
    return everywhere @ m, f_variance, KL


@pytest.mark.parametrize("kind", ["factornet", "plain"])
def test_posterior_and_bound_by_dense_algebra(kind: str) -> None:
    """q(f) of every task from the observed points alone, and expected log density less KL.

    The two ways invert differently conditioned matrices: 1e-6. Networks are float32, so the bound
    (tens of nats) agrees to 1e-4.
    """
    X, Y = _data()
    model = SGPVAE(_kernel(), Z, **_parts(_encoder(kind)))
    batch = _batch(X, Y)
    mean, variance = (v.numpy() for v in model.encoder(batch.Y, mask=batch.mask))
    expected = [np.zeros((T, N, L)), np.zeros((T, N, L))]
    divergence = 0.0
    for task in range(T):
        for channel in range(L):
            where = (task, slice(None), channel)
            *moments, KL = _dense(X[task], _seen(Y)[task], mean[where], variance[where])
            divergence += KL
            for target, values in zip(expected, moments, strict=True):
                target[where] = values
    found = model.approximate_posterior(batch)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[2], divergence, rtol=1e-6)
    q = model.posterior(X, batch.Y, batch.mask)
    np.testing.assert_allclose(q.mean, expected[0], rtol=1e-6, atol=1e-6)

    noise = standard_noise([T, N, L], SEED, tf.float64)
    F = model.decoder(expected[0] + np.sqrt(expected[1]) * noise).numpy()
    densities = -0.5 * (np.log(2 * np.pi * NOISE) + np.square(Y - F) / NOISE)
    elbo = np.nansum(densities) - divergence
    np.testing.assert_allclose(model.batch_elbo(batch, SEED), elbo, atol=1e-4)


def _models(encoder: GaussianEncoder) -> dict[str, VariationalAutoencoder]:
    parts = _parts(encoder)
    in_fitc = {k: v for k, v in parts.items() if k != "latent_dim"}
    return {
        "SGPVAE": SGPVAE(_kernel(), Z, **parts),
        "GPVAE": GPVAE(_kernel(), **parts),
        "VAE": VAE(**parts),
        "FITC": VariationalAutoencoder(SparseGP(_kernel(), Z, L, 1e-2), **in_fitc),
    }


@pytest.mark.parametrize("kind", ["plain", "factornet"])
@pytest.mark.parametrize("name", ["SGPVAE", "GPVAE", "VAE", "FITC"])
def test_points_without_observations_change_nothing(name: str, kind: str) -> None:
    """Padded tasks together, and each task alone without the points at which nothing is seen.

    The posterior of the others, their bound, and predictions between them are the same to 1e-6
    in float64; the exact effect of a variance of 1e10 is 1e-10.
    """
    X, Y = _data()
    model = _models(_encoder(kind))[name]
    mean, variance, divergence = model.approximate_posterior(_batch(X, Y))
    pseudo = model.encode(X, _batch(X, Y).Y, _batch(X, Y).mask)
    Xnew = np.linspace(-2.0, 2.0, 7)[None, :, None]
    predicted = model.latent_prior.predict(np.repeat(Xnew, T, 0), X, *pseudo)
    total = 0.0
    for task, seen in enumerate(_seen(Y)):
        own = _batch(X[task : task + 1, seen], Y[task : task + 1, seen])
        own_mean, own_variance, own_divergence = model.approximate_posterior(own)
        np.testing.assert_allclose(mean[task][seen], own_mean[0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(variance[task][seen], own_variance[0], rtol=1e-6)
        total += own_divergence
        own_pseudo = model.encode(own.X, own.Y, own.mask)
        for a, b in zip(
            predicted, model.latent_prior.predict(Xnew, own.X, *own_pseudo), strict=True
        ):
            np.testing.assert_allclose(a[task], b[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(divergence, total, rtol=1e-6, atol=1e-6)
    missing = Batch(*_batch(X, np.full_like(Y, np.nan)))
    assert abs(model.approximate_posterior(missing)[2]) < 1e-6


@pytest.mark.parametrize("name", ["SGPVAE", "GPVAE", "VAE", "FITC"])
def test_a_task_without_observations_has_the_prior(name: str) -> None:
    """Mean 0, the prior's marginal variance, and no divergence, whatever the encoder says."""
    X, Y = _data()
    model = _models(_encoder("pointnet"))[name]
    empty = _batch(X, np.full_like(Y, np.nan))
    q = model.posterior(X, empty.Y, empty.mask)
    np.testing.assert_allclose(q.mean, 0.0, atol=1e-6)
    prior = np.broadcast_to(model.latent_prior.marginal_variance(X), q.variance.shape)
    np.testing.assert_allclose(q.variance, prior, rtol=1e-6)
    terms = model.terms(empty, SEED)
    assert float(terms.expected_log_likelihood) == 0.0 and abs(float(terms.divergence)) < 1e-6


def test_sgpvae_with_all_inputs_as_inducing_points_is_the_gpvae() -> None:
    """Z = X, with missing data: the same q, so the same bound for the same draw (float32: 1e-5)."""
    X, Y = _data()
    X, Y = np.linspace(-3.0, 3.0, N)[None, :, None], Y[:1]
    parts = _parts(_encoder("indexnet"))
    sparse, exact = SGPVAE(_kernel(), X[0], **parts), GPVAE(_kernel(), **parts)
    batch = _batch(X, Y)
    np.testing.assert_allclose(
        sparse.batch_elbo(batch, SEED), exact.batch_elbo(batch, SEED), rtol=1e-5
    )


def test_more_inducing_points_never_lower_the_collapsed_bound() -> None:
    """Nested sets of inducing points, for one set of pseudo-observations, up to the evidence."""
    X, Y = _data()
    batch = _batch(X, Y)
    pseudo = _models(_encoder("factornet"))["SGPVAE"].encode(X, batch.Y, batch.mask)
    points = np.random.default_rng(2).permutation(np.linspace(-2.0, 2.0, 9))[:, None]
    bounds = [
        TitsiasGP(_kernel(), points[:count], L).condition(X, *pseudo).log_marginal.numpy()
        for count in range(1, len(points) + 1)
    ]
    assert np.diff(bounds, axis=0).min() > -1e-8
    exact = GPVAE(_kernel(), **_parts(_encoder("plain"))).latent_prior
    evidence = exact.condition(X, *pseudo).log_marginal.numpy()
    assert np.all(bounds[-1] <= evidence + 1e-6) and np.all(evidence - bounds[-1] < 0.05)


def test_the_partial_encoder_of_a_cvae_sees_its_features_as_observed() -> None:
    """The encoder on [y, x] with a mask of [seen, 1], directly."""
    X, Y = _data()
    encoder = _encoder("indexnet", P + 1)
    model = CVAE(_network(L + 1, P), encoder, Gaussian(NOISE), L)
    batch = _batch(X, Y)
    inputs = np.concatenate([batch.Y, X], -1).astype(np.float32)
    expected = encoder(inputs, mask=np.concatenate([batch.mask, np.ones((T, N, 1), bool)], -1))
    seen = _seen(Y)
    for found, values in zip(model.encode(X, batch.Y, batch.mask), expected, strict=True):
        np.testing.assert_array_equal(found.numpy()[seen], values.numpy()[seen])


def test_mean_field_codes_stay_the_encoders() -> None:
    """A mean-field q is the encoder's everywhere; only predictions leave empty points out."""
    X, Y = _data()
    model = GPPVAE(_kernel(), Z, **_parts(_encoder("zeros")))
    batch = _batch(X, Y)
    for found, values in zip(
        model.encode(X, batch.Y, batch.mask), model.encoder(batch.Y, mask=batch.mask), strict=True
    ):
        np.testing.assert_array_equal(found, values)
    _, variance = model.pseudo_observations(X, batch.Y, SEED, mask=batch.mask)
    np.testing.assert_array_equal(variance.numpy()[_seen(Y)], 0.0)
    assert np.all(variance.numpy()[~_seen(Y)] > 1e9)


@pytest.mark.parametrize("prior", ["low_rank", "exact", "nearest"])
def test_predictions_at_observed_points_are_of_mean_field_codes(
    prior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There codes are q's, for moments, draws and what a linear decoder makes of them.

    Points without any observation keep the conditional given the others' means. Networks are
    float32: 1e-5; the variance of 4,000 draws has a relative error of 0.022, so 0.1 is 4 of it.
    """
    X, Y = _data()
    parts = _parts(_encoder("zeros"))
    decoder = keras.Sequential([keras.Input((L,)), keras.layers.Dense(P)])
    parts["decoder"] = decoder
    if prior == "low_rank":
        model = GPPVAE(_kernel(), Z, **parts, code_noise_variance=0.1)
    else:
        dim = parts.pop("latent_dim")
        process = (
            GP(_kernel(), dim, 0.1)
            if prior == "exact"
            else NearestNeighbourGP(_kernel(), X, dim, num_neighbours=5, code_noise_variance=0.1)
        )
        parts["encoder"] = MeanFieldGuide(parts["encoder"])
        model = VariationalAutoencoder(process, **parts)
    seen, batch = _seen(Y), _batch(X, Y)
    mean, variance = (v.numpy()[seen] for v in model.encode(X, batch.Y, batch.mask))
    posterior = gpflow_bae.Posterior.from_point(model, (X, Y))
    for found in (
        posterior.predict_latent(None),
        model.predict_f(None, given=(X, Y)),
        model.posterior(X, batch.Y, batch.mask)[:2],
    ):
        np.testing.assert_allclose(np.asarray(found[0])[seen], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(found[1])[seen], variance, rtol=1e-5, atol=1e-6)
    kernel, bias = decoder.get_weights()
    found = posterior.predict(num_codes=2)  # antithetic draws: the mean of a pair is exact
    np.testing.assert_allclose(found.mean[seen], mean @ kernel + bias, rtol=1e-4, atol=1e-5)
    draws = posterior.code_samples(num_codes=4000, seed=1)[0]
    np.testing.assert_allclose(np.var(draws, 0)[seen] / variance, 1.0, atol=0.1)
    empty = model.latent_prior.condition(
        X, *model.pseudo_observations(X, batch.Y, SEED, mask=batch.mask)
    )
    whole = np.asarray(posterior.predict_latent(None)[1])
    np.testing.assert_allclose(whole[~seen], empty.variance.numpy()[~seen], rtol=1e-5)
    monkeypatch.setattr(row_blocks, "ROWS", 3)  # the encoder sees rows in blocks
    in_blocks = gpflow_bae.Posterior.from_point(model, (X, Y)).predict_latent(None)[1]
    np.testing.assert_allclose(in_blocks, whole, rtol=1e-5)


def test_free_form_codes_with_a_linear_decoder_reach_the_evidence() -> None:
    """y = w f + noise, one output: pseudo-observations y / w of variance noise / w^2 are exact.

    Then expected log likelihood less KL is the evidence of GPR, and so is the sum over minibatches
    of tasks, each with its own codes. Decoder and data are float32: 1e-3 of about 30 nats.
    """
    w = 1.5
    X, Y = _data()
    Y = np.nan_to_num(Y[..., :1])
    decoder = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    decoder.set_weights([np.array([[w]])])
    encoder = FreeFormEncoder(T, N, 1, Y / w, NOISE / w**2)
    model = GPVAE(_kernel(), decoder, encoder, Gaussian(NOISE), 1)
    data = prepare_data(model, (X, Y))
    evidence = total = 0.0
    for indices in (tf.constant([2, 0]), tf.constant([1])):
        batch = data.gather(indices)
        mean, variance, divergence = model.approximate_posterior(batch)
        squares = np.square(batch.Y.numpy() - w * mean.numpy()) + w**2 * variance.numpy()
        total += -0.5 * np.sum(np.log(2 * np.pi * NOISE) + squares / NOISE) - divergence
    for task in range(T):
        gpr = gpflow.models.GPR((X[task], Y[task].astype(float)), _kernel())
        gpr.kernel.variance.assign(VARIANCE * w**2)
        gpr.likelihood.variance.assign(NOISE)
        evidence += gpr.log_marginal_likelihood().numpy()
    np.testing.assert_allclose(total, evidence, atol=1e-3)


def test_free_form_codes_are_fitted_and_predict_the_training_data_only() -> None:
    """Minibatches of tasks move the codes of all tasks; other data are refused."""
    X, Y = _data()
    encoder = FreeFormEncoder(T, N, L)
    before = encoder.mean.numpy()
    model = SGPVAE(_kernel(), Z, **_parts(encoder))
    settings = inference.VariationalSettings(num_steps=10, batch_size=1)
    inference.fit_variational(model, (X, Y), settings, steps_per_call=10, progress=False)
    moved = np.abs(encoder.mean.numpy() - before).max((1, 2))
    assert np.all(moved > 1e-4)
    point = posteriors.Posterior.from_point(model, prepare_data(model, (X, Y)))
    filled, scale = point.impute(Y, X)
    np.testing.assert_array_equal(filled[~np.isnan(Y)], Y[~np.isnan(Y)])
    assert np.all(scale[np.isnan(Y)] >= np.sqrt(NOISE) / 2)
    with pytest.raises(ValueError, match="FreeFormEncoder has codes for the training data only"):
        point.predict(X, (X, Y + 1.0))


def test_minibatches_are_of_tasks() -> None:
    """q(u) of a task needs all of its points; SVGPVAE estimates it."""
    X, Y = _data()
    model = SGPVAE(_kernel(), Z, **_parts(_encoder("zeros")))
    assert prepare_data(model, (X, Y), batch_size=2).num_items == T
    with pytest.raises(ValueError, match="cannot take the points of a single task in minibatches"):
        prepare_data(model, (X[:1], Y[:1]), batch_size=2)


def test_predictions_keep_the_mask() -> None:
    """Of the training data as they are stored, and of the same data given anew with NaN."""
    X, Y = _data()
    model = SGPVAE(_kernel(), Z, **_parts(_encoder("factornet")))
    point = posteriors.Posterior.from_point(model, prepare_data(model, (X, Y)))
    batch = _batch(X, Y)
    q = model.posterior(X, batch.Y, batch.mask)
    for given in (None, (X, Y)):
        mean, variance = point.predict_latent(given=given)
        np.testing.assert_allclose(mean, q.mean, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(variance, q.variance, rtol=1e-6)
