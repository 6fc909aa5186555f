"""GP autoencoders reduced to models that are known: GPR, VAE, each other, and dense algebra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import models
from gpflow_bae.base import Batch
from gpflow_bae.data import prepare_data
from gpflow_bae.decoders import KerasDecoder
from gpflow_bae.encoders import GaussianEncoder
from gpflow_bae.guides import GaussianGuide, SubsetGuide
from gpflow_bae.inducing_variables import ObjectViewInducingPoints
from gpflow_bae.kernels import ObjectView
from gpflow_bae.latent_priors import InducingPosterior, SparseGP
from gpflow_bae.likelihoods import Gaussian
from gpflow_bae.models import CVAE, GPPVAE, GPVAE, SVGPVAE, VAE, VariationalAutoencoder
from tests.reference.linear_gaussian import log_evidence

N, P, L = 12, 3, 2
NOISE = 0.4
SEED = tf.constant([1, 2])


@pytest.fixture(autouse=True)
def small_jitter() -> Iterator[None]:
    """A jitter below the tolerances."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=1e-10)):
        yield


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=0.5, variance=1.3)


def _network(num_inputs: int, num_outputs: int, seed: int) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input((num_inputs,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(num_outputs)]
    )


def _parts() -> dict:
    return {
        "decoder": _network(L, P, 0),
        "encoder": _network(P, 2 * L, 1),
        "likelihood": Gaussian(NOISE),
        "latent_dim": L,
    }


def _data(num_points: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.linspace(-3.0, 3.0, num_points)[None, :, None]  # spacing near the lengthscale
    return X, rng.normal(size=(1, num_points, P))


def _batch(X: np.ndarray, Y: np.ndarray) -> Batch:
    return Batch(tf.constant(X), tf.constant(Y.astype(np.float32)), None)


def test_svgpvae_of_all_points_at_all_points_is_the_gpvae() -> None:
    """Batch = N and Z = X: the same q, so the same bound for the same draw (float32 nets: 1e-5)."""
    X, Y = _data()
    sparse = SVGPVAE(_kernel(), X[0], **_parts())
    exact = GPVAE(_kernel(), **_parts())
    np.testing.assert_allclose(
        sparse.batch_elbo(_batch(X, Y), SEED), exact.batch_elbo(_batch(X, Y), SEED), rtol=1e-5
    )


@pytest.mark.parametrize("kind", ["GPVAE", "SVGPVAE", "SGPVAE"])
def test_a_minibatch_of_a_subset_guide_is_a_data_set_of_its_own(kind: str) -> None:
    """Eq. 42 of Ashman et al. (2020): N/B times the bound of B points without the others.

    With all points it is the unbiased bound of a Gaussian guide.
    """
    X, Y = _data()
    rows = np.array([9, 2, 3, 7])

    def model(guide: type[GaussianGuide]) -> VariationalAutoencoder:
        parts = _parts()
        parts["encoder"] = guide(GaussianEncoder(parts["encoder"]))
        inducing = () if kind == "GPVAE" else (X[0],)
        return getattr(models, kind)(_kernel(), *inducing, **parts)

    subset, whole = model(SubsetGuide), model(GaussianGuide)
    data = prepare_data(subset, (X, Y), batch_size=len(rows))  # which a Gaussian guide refuses
    batch = data.gather(tf.constant(rows))
    assert float(batch.point_scale) == N / len(rows)
    alone = whole.batch_elbo(_batch(X[:, rows], Y[:, rows]), SEED)
    scaled = batch.scale * subset.batch_elbo(batch, SEED)
    np.testing.assert_allclose(scaled, N / len(rows) * alone, rtol=1e-10)
    everything = (m.batch_elbo(_batch(X, Y), SEED) for m in (subset, whole))
    np.testing.assert_allclose(*everything, rtol=1e-10)
    if kind != "SVGPVAE":  # which splits over points without bias
        with pytest.raises(ValueError, match="couples them"):
            prepare_data(whole, (X, Y), batch_size=len(rows))


def test_gpvae_with_a_white_kernel_is_the_vae() -> None:
    """k = delta makes the codes independent and standard normal."""
    X, Y = _data()
    white = GPVAE(gpflow.kernels.White(1.0), **_parts())
    np.testing.assert_allclose(
        white.batch_elbo(_batch(X, Y), SEED),
        VAE(**_parts()).batch_elbo(_batch(X, Y), SEED),
        rtol=1e-5,
    )


def test_gpvae_with_a_linear_decoder_has_the_marginal_likelihood_of_gpr() -> None:
    """y = w f + noise for one output is GP regression with variance w^2 k.

    With the exact encoder, mean y / w and variance noise / w^2, the bound is the evidence whatever
    the draw, but for the draw's own term, which is exchanged for its expectation. Encoder and
    decoder are float32: 1e-4 nats.
    """
    w = 1.5
    X, Y = _data()
    Y = Y[..., :1]
    decoder = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    decoder.set_weights([np.array([[w]])])
    encoder = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
    log_scale = 0.5 * np.log(NOISE / w**2)
    encoder.set_weights([np.array([[1.0 / w, 0.0]]), np.array([0.0, log_scale])])
    model = GPVAE(_kernel(), decoder, encoder, Gaussian(NOISE), 1)
    batch = _batch(X, Y)
    terms = model.terms(batch, SEED)
    q = model.posterior(X, batch.Y)
    squares = np.square(batch.Y.numpy() - w * q.mean.numpy()) + w**2 * q.variance.numpy()
    expected = -0.5 * np.sum(np.log(2 * np.pi * NOISE) + squares / NOISE)
    gpr = gpflow.models.GPR((X[0], Y[0].astype(np.float32).astype(float)), _kernel())
    gpr.kernel.variance.assign(1.3 * w**2)
    gpr.likelihood.variance.assign(NOISE)
    evidence = gpr.log_marginal_likelihood()
    np.testing.assert_allclose(expected - terms.divergence, evidence, atol=1e-4)
    by_hand = log_evidence(gpr.kernel(X[0]).numpy() / w**2, np.array([w]), np.zeros(1), NOISE, Y[0])
    np.testing.assert_allclose(evidence, by_hand, rtol=1e-6)


def test_the_naive_hensman_bound_does_not_depend_on_the_encoder() -> None:
    """Proposition B.2 of Jazbec et al.: with a free q(u) the pseudo-observations cancel.

    The gradient of the bound in the encoder's outputs is zero up to rounding, while q(u) of eq. 9
    carries one.
    """
    X, Y = _data()
    model = SVGPVAE(_kernel(), X[0, ::3], **_parts())
    mean, variance = (tf.identity(v) for v in model.encode(None, Y.astype(np.float32)))
    free = model.latent_prior.inducing_posterior(X, mean, variance)
    free = InducingPosterior(*(tf.stop_gradient(v) for v in free))

    def divergence(amortised: bool) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            tape.watch([mean, variance])
            prior = model.latent_prior
            q = (
                prior.condition(X, mean, variance)
                if amortised
                else prior.hensman_bound(X, mean, variance, free)
            )
            pseudo = -0.5 * (
                tf.math.log(2 * np.pi * variance) + tf.square(mean - q.mean) / variance
            )
            pseudo -= 0.5 * q.variance / variance
            total = tf.reduce_sum(pseudo) - tf.reduce_sum(q.log_marginal)
        return [g.numpy() for g in tape.gradient(total, [mean, variance])]

    assert max(np.abs(g).max() for g in divergence(amortised=False)) < 1e-9
    assert max(np.abs(g).max() for g in divergence(amortised=True)) > 1e-2


def _object_view() -> tuple[ObjectView, ObjectViewInducingPoints, np.ndarray]:
    """Five objects with vectors in the plane, at four angles; points that span the kernel."""
    rng = np.random.default_rng(3)
    angles = 0.5 * np.pi * np.arange(4)
    kernel = ObjectView(rng.normal(size=(5, 2)))
    Z = np.concatenate([np.column_stack([np.full(2, a), np.eye(2)]) for a in angles])
    X = np.stack(np.meshgrid(np.arange(5.0), angles, indexing="ij"), -1).reshape(1, -1, 2)
    return kernel, ObjectViewInducingPoints(Z), X


def test_gppvaes_low_rank_prior_is_the_dense_one() -> None:
    """K + alpha I of rank 8 over 20 images: log-determinant and solve against NumPy, to 1e-7."""
    kernel, points, X = _object_view()
    alpha = 0.3
    prior = SparseGP(kernel, points, L, alpha)
    codes = np.random.default_rng(4).normal(size=(1, 20, L))
    K = kernel(X[0]).numpy()
    assert np.linalg.matrix_rank(K, tol=1e-8) == 8
    total = K + alpha * np.eye(20)
    quadratic = np.sum(codes[0] * np.linalg.solve(total, codes[0]))
    log_det = np.linalg.slogdet(total)[1]
    expected = -0.5 * (quadratic + L * log_det + 20 * L * np.log(2 * np.pi))
    np.testing.assert_allclose(prior.log_prob(X, codes), [expected], rtol=1e-7)
    diagonal = np.broadcast_to(prior.precision_diagonal(X, codes.shape), codes.shape)
    np.testing.assert_allclose(diagonal[0, :, 0], np.diag(np.linalg.inv(total)), rtol=1e-6)


def test_gppvaes_bound_is_evidence_of_draws_plus_entropy() -> None:
    """KL = -E_q[log N(z; 0, K + alpha I)] - H[q], with dense matrices; the encoder's q as it is."""
    kernel, points, X = _object_view()
    Y = np.random.default_rng(5).normal(size=(1, 20, P)).astype(np.float32)
    model = GPPVAE(kernel, points, **_parts(), code_noise_variance=0.3)
    mean, variance = (v.numpy()[0] for v in model.encode(None, Y))
    total = kernel(X[0]).numpy() + 0.3 * np.eye(20)
    inverse = np.linalg.inv(total)
    expected = 0.5 * np.sum(mean * (inverse @ mean)) + 0.5 * np.sum(
        np.diag(inverse)[:, None] * variance
    )
    expected += 0.5 * L * np.linalg.slogdet(total)[1] - 0.5 * np.sum(np.log(variance) + 1.0)
    divergence = model.terms(_batch(X, Y), SEED).divergence
    np.testing.assert_allclose(divergence, expected, rtol=1e-6)


@pytest.mark.parametrize("unseen", [0, 4])
def test_gppvaes_minibatches_have_the_gradient_of_the_whole_bound(unseen: int) -> None:
    """Where the snapshot is fresh, N/B times the batches' gradients average to the full one.

    The partition is complete and the draws' term is left out, so only float32 rounding is left.
    Points without observations are no part of either.
    """
    kernel, points, X = _object_view()
    Y = np.random.default_rng(5).normal(size=(1, 20, P)).astype(np.float32)
    Y[:, 2 : 2 + unseen] = np.nan
    model = GPPVAE(kernel, points, **_parts(), code_noise_variance=0.3)
    data = prepare_data(model, (X, Y), batch_size=5)
    variables = [*model.encoder.trainable_variables, *model.latent_prior.trainable_variables]

    def gradient(batch: Batch, scale: float, snapshot: Any = None) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            divergence = scale * model.approximate_posterior(batch, snapshot)[2]
        return [g.numpy() for g in tape.gradient(divergence, variables)]

    whole = gradient(data.gather(None), 1.0)
    snapshot = model.snapshot(data)
    rows = np.random.default_rng(6).permutation(20).reshape(4, 5)
    parts = [gradient(data.gather(tf.constant(r, tf.int32)), 4.0, snapshot) for r in rows]
    for full, *batches in zip(whole, *parts, strict=True):
        scale = np.abs(full).max()
        np.testing.assert_allclose(np.mean(batches, 0) / scale, full / scale, atol=2e-5)


def test_cvae_sees_the_condition_in_both_networks() -> None:
    """With zero weights on the condition it is the VAE; with others encoder and decoder change."""
    X, Y = _data()
    condition = {"condition": lambda X: tf.concat([tf.sin(X), tf.cos(X)], -1), "condition_dim": 2}
    decoder, encoder = _network(L + 2, P, 0), _network(P + 2, 2 * L, 1)
    plain_decoder, plain_encoder = _network(L, P, 0), _network(P, 2 * L, 1)
    for wide, narrow, width in ((decoder, plain_decoder, L), (encoder, plain_encoder, P)):
        first, *rest = wide.get_weights()
        first[width:] = 0.0
        wide.set_weights([first, *rest])
        narrow.set_weights([first[:width], *rest])
    blind = CVAE(decoder, encoder, Gaussian(NOISE), L, **condition)
    vae = VAE(plain_decoder, plain_encoder, Gaussian(NOISE), L)
    batch = _batch(X, Y)
    np.testing.assert_allclose(
        blind.batch_elbo(batch, SEED), vae.batch_elbo(batch, SEED), rtol=1e-6
    )
    seeing = CVAE(_network(L + 2, P, 0), _network(P + 2, 2 * L, 1), Gaussian(NOISE), L, **condition)
    latents = np.zeros((1, 1, L))
    at = [seeing.decode(np.full((1, 1, 1), a), latents).numpy() for a in (0.0, 1.0, 2 * np.pi)]
    assert np.abs(at[0] - at[1]).max() > 1e-2
    np.testing.assert_allclose(at[0], at[2], atol=1e-6)  # features are periodic


def test_errors_of_the_cvae() -> None:
    """A decoder of the wrong width, missing inputs, and a condition of another width."""
    with pytest.raises(ValueError, match=r"latent_dim = 2, and 1 features; give .* \(3,\)"):
        CVAE(_network(L, P, 0), _network(P + 1, 2 * L, 1), Gaussian(NOISE), L)
    model = CVAE(_network(L + 1, P, 0), _network(P + 1, 2 * L, 1), Gaussian(NOISE), L)
    with pytest.raises(ValueError, match="X is needed, got None"):
        model.encode(None, np.zeros((1, 2, P)))
    with pytest.raises(ValueError, match="condition returned 3 features per point"):
        model.encode(np.zeros((1, 2, 3)), np.zeros((1, 2, P)))


def test_minibatches_of_points_need_a_model_that_allows_them() -> None:
    """The exact GP does not split over points; the sparse variational ones do."""
    X, Y = _data()
    with pytest.raises(
        ValueError,
        match=r"GPVAE cannot take the points .* its prior \(GP\) couples them: .* such as SVGPVAE",
    ):
        prepare_data(GPVAE(_kernel(), **_parts()), (X, Y), batch_size=4)
    for model in (SVGPVAE(_kernel(), X[0, ::3], **_parts()), VAE(**_parts())):
        assert prepare_data(model, (X, Y), batch_size=4).num_items == N


def test_decoders_of_modules_stay_as_they_are() -> None:
    """A KerasDecoder with priors of its own is not wrapped again."""
    decoder = KerasDecoder(_network(L, P, 0))
    parts = _parts() | {"decoder": decoder}
    assert GPVAE(_kernel(), **parts).decoder is decoder
