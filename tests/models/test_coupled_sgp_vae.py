"""SGP-VAE with factors of rank one: the bound of a linear decoder is the evidence, and the rest."""

from __future__ import annotations

import pathlib
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_bae
from gpflow_bae import Posterior, encoders, guides, latent_priors, likelihoods, models, serving
from gpflow_bae.base import Batch
from gpflow_bae.inference import VariationalSettings, fit_variational

TASKS, N, P, L = 2, 7, 4, 2
NOISE = np.array([0.1, 0.3, 0.2, 0.15])
Data = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def data() -> Data:
    """Two tasks with holes, of which a point has nothing, and one all."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 4.0, (TASKS, N, 1)), 1)
    Y = rng.standard_normal((TASKS, N, P)).astype(np.float32)
    Y[rng.uniform(size=Y.shape) < 0.3] = np.nan
    Y[0, 3] = np.nan
    return X, Y


def kernels() -> list[gpflow.kernels.Kernel]:
    return [
        gpflow.kernels.Matern32(lengthscales=0.9),
        gpflow.kernels.SquaredExponential(lengthscales=0.5, variance=0.8),
    ]


def built(Z: np.ndarray, hidden: int = 0, width: int = 8) -> models.CoupledSGPVAE:
    """Of weights from a seed, alike for both channels; linear without ``hidden`` layers."""
    with_layers = [keras.layers.Dense(width, "tanh") for _ in range(hidden)]
    decoder = keras.Sequential([keras.Input((L,)), *with_layers, keras.layers.Dense(P)])
    net = encoders.partial_encoder("rank_one", P, L, (width,) if hidden else ())
    model = models.CoupledSGPVAE(
        kernels(), Z, decoder, net, likelihoods.Gaussian(NOISE), L, nugget_variance=0.2
    )
    rng = np.random.default_rng(1)
    for weight in [*model.decoder.weights, *model.encoder.weights]:
        weight.assign(0.5 * rng.standard_normal(weight.shape) + 0.5)
    model.latent_prior.nugget_root.assign([[0.7, 0.0], [0.6, 0.2]])
    return model


def with_true_factors(
    model: models.CoupledSGPVAE, times: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """The factors of a linear decoder's own likelihood; its weights [L, P] and biases.

    :param times: the variances are that many times the noise.
    """
    weight, bias = (w.numpy() for w in model.decoder.weights)
    values = {
        "mean_kernel": np.ones((P, 1, 1)),
        "mean_bias": -bias[:, None, None],
        "scale_kernel": np.zeros((P, 1, 1)),
        "scale_bias": 0.5 * np.log(times * NOISE)[:, None, None],
        "directions": weight.T,
    }
    variables = model.encoder.model.trainable_variables
    for parameter, variable in zip(model.encoder.weights, variables, strict=True):
        parameter.assign(values[variable.name])
    return weight.astype(float), bias.astype(float)


def batch_of(data: Data) -> Batch:
    X, Y = data
    seen = ~np.isnan(Y)
    return Batch(tf.constant(X), tf.constant(np.where(seen, Y, 0.0)), tf.constant(seen))


class Dense:
    """The linear model of one task, all observed outputs at once; inducing points at the data."""

    def __init__(self, model: Any, X: np.ndarray, Y: np.ndarray, W: np.ndarray, bias: np.ndarray):
        seen = ~np.isnan(Y).ravel()
        nugget = model.latent_prior.nugget.numpy()
        self.codes = np.kron(np.eye(len(X)), nugget)
        for q, kernel in enumerate(model.kernel):
            self.codes += np.kron(kernel(X).numpy(), np.diag(np.eye(L)[q]))
        A = np.kron(np.eye(len(X)), W.T)[seen]
        noise = np.diag(np.tile(NOISE, len(X))[seen])
        covariance = A @ self.codes @ A.T + noise
        y = (Y - bias).ravel()[seen].astype(float)
        self.log_marginal = -0.5 * (
            y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1]
        )
        gain = self.codes @ A.T @ np.linalg.inv(covariance)
        left = (self.codes - gain @ A @ self.codes).reshape(len(X), L, len(X), L)
        self.mean = (gain @ y).reshape(len(X), L)
        self.covariance = np.einsum("nlnk->nlk", left)


def expected_log_likelihood(
    model: Any, q: Any, Y: np.ndarray, W: np.ndarray, bias: np.ndarray
) -> float:
    """E_q[log p(Y | codes)] of a linear decoder, exactly."""
    seen = ~np.isnan(Y)
    residual = np.where(seen, Y - q.mean.numpy() @ W - bias, 0.0)
    spread = np.einsum("lp,tnlk,kp->tnp", W, q.covariance.numpy(), W)
    cells = -0.5 * (np.log(2 * np.pi * NOISE) + (residual**2 + spread) / NOISE)
    return float(cells[seen].sum())


@pytest.fixture
def no_jitter() -> Any:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=1e-10)):
        yield


def test_the_bound_of_a_linear_decoder_is_the_evidence(data: Data, no_jitter: Any) -> None:
    """With its own factors, of all tasks, holes and an empty row included; to 1e-6.

    The networks are of float32, but at the best q an error of the factors is one of second order.
    """
    X, Y = data[0][:1].repeat(TASKS, 0), data[1]  # one set of inducing inputs is that of all tasks
    model = built(X[0])
    W, bias = with_true_factors(model)
    q = model.approximate_posterior(batch_of((X, Y)))
    dense = [Dense(model, X[t], Y[t], W, bias) for t in range(TASKS)]
    expected = sum(d.log_marginal for d in dense)
    bound = expected_log_likelihood(model, q, Y, W, bias) - q.divergence
    np.testing.assert_allclose(bound, expected, rtol=0.0, atol=1e-6)
    for t, task in enumerate(dense):
        np.testing.assert_allclose(q.mean[t], task.mean, atol=1e-6)
        np.testing.assert_allclose(q.covariance[t], task.covariance, atol=1e-6)

    linear = models.LinearSGPVAE(kernels(), X[0], W.T, likelihoods.Gaussian(NOISE))
    root = W.T @ model.latent_prior.nugget_root.numpy()
    spare = np.linalg.qr(np.hstack([root, np.zeros((P, P - L))]).T)[1].T
    linear.latent_prior.nugget_root.assign(spare)
    exact = linear.elbo((X, (Y - bias).astype(np.float32)))
    np.testing.assert_allclose(bound, exact, rtol=0.0, atol=1e-5)  # Y less bias in float32

    # Other factors make a bound below it; draws of q, here wide and far from round, estimate it.
    with_true_factors(model, times=10.0)
    wide = model.approximate_posterior(batch_of((X, Y)))
    below = expected_log_likelihood(model, wide, Y, W, bias) - wide.divergence
    assert below < expected - 1.0
    np.testing.assert_allclose(model.elbo((X, Y), num_draws=40_000), below, atol=0.6)
    apart = wide.covariance * tf.eye(L, dtype=wide.covariance.dtype)
    other = expected_log_likelihood(model, wide._replace(covariance=apart), Y, W, bias)
    assert abs(other - wide.divergence - below) > 3.0  # or draws of each channel would pass


def test_a_diagonal_cannot(data: Data) -> None:
    """The same factors' sums, less what is off the diagonal: nats below the evidence."""
    X, Y = data[0][:1].repeat(TASKS, 0), data[1]
    model = built(X[0])
    W, bias = with_true_factors(model)
    prior, batch = model.latent_prior, batch_of((X, Y))
    joint = model.approximate_posterior(batch)
    evidence = expected_log_likelihood(model, joint, Y, W, bias) - joint.divergence
    mean, variance, directions = model.guide.encode(batch)
    precision = tf.reduce_sum(tf.square(directions) / variance[..., None], -2)
    linear = tf.reduce_sum(directions * (mean / variance)[..., None], -2)
    q = prior.condition_jointly(batch.X, linear / precision, 1.0 / precision)
    pseudo = -0.5 * (
        np.log(2 * np.pi / precision)
        + precision * (tf.square(q.mean - linear / precision) + tf.linalg.diag_part(q.covariance))
    )
    divergence = tf.reduce_sum(pseudo) - tf.reduce_sum(q.log_marginal)
    assert expected_log_likelihood(model, q, Y, W, bias) - divergence < evidence - 1.0


def test_points_and_outputs_that_are_missing_change_nothing(data: Data) -> None:
    """Padding, and an output that no row has: the same divergence, and moments where there are."""
    X, Y = data
    model = built(X[0], hidden=1)
    alone = model.approximate_posterior(batch_of((X, Y)))
    more = (
        np.concatenate([X, X[:, :2]], 1),
        np.pad(Y, ((0, 0), (0, 2), (0, 0)), constant_values=np.nan),
    )
    padded = model.approximate_posterior(batch_of(more))
    np.testing.assert_allclose(padded.divergence, alone.divergence, atol=1e-6)
    np.testing.assert_allclose(padded.mean[:, :N], alone.mean, atol=1e-7)
    np.testing.assert_allclose(padded.covariance[:, :N], alone.covariance, atol=1e-7)
    empty = Y.copy()
    empty[0] = np.nan
    both = model.approximate_posterior(batch_of((X, empty)))
    last = model.approximate_posterior(batch_of((X[1:], Y[1:])))
    np.testing.assert_allclose(both.divergence, last.divergence, atol=1e-6)
    mean, covariance = both.mean[0].numpy(), both.covariance[0].numpy()
    np.testing.assert_allclose(mean, 0.0, atol=1e-7)  # the prior's
    nugget = model.latent_prior.nugget.numpy()
    off_diagonal = covariance[:, 0, 1]
    np.testing.assert_allclose(off_diagonal, nugget[0, 1], atol=1e-6)
    # And what is under the mask is not looked at.
    other = batch_of((X, Y))
    other = other._replace(Y=tf.where(other.mask, other.Y, 7.0))
    np.testing.assert_array_equal(model.approximate_posterior(other).mean, alone.mean)


def test_minibatches_are_of_tasks(data: Data) -> None:
    model = built(data[0][0], hidden=1)
    batch = batch_of(data)
    whole = model.approximate_posterior(batch)
    each = [
        model.approximate_posterior(Batch(*(v[t : t + 1] for v in batch[:3]))) for t in range(TASKS)
    ]
    # Networks are in float32, whose products may round otherwise for another number of rows.
    np.testing.assert_allclose(whole.divergence, sum(q.divergence for q in each), rtol=1e-6)
    assert not model.splits_over_points


def test_it_trains_and_is_kept(data: Data, tmp_path: pathlib.Path) -> None:
    """By Adam on minibatches of tasks; finite gradients of everything; a file brings it back."""
    X, Y = data
    model = built(X[0], hidden=1)
    with tf.GradientTape() as tape:
        loss = model.training_loss((X, Y))
    for gradient in tape.gradient(loss, model.trainable_variables):
        assert np.isfinite(tf.convert_to_tensor(gradient).numpy()).all()
    before = model.elbo((X, Y), num_draws=64)
    settings = VariationalSettings(num_steps=60, learning_rate=2e-2, batch_size=1)
    fit_variational(model, (X, Y), settings, seed=0, progress=False)
    assert model.elbo((X, Y), num_draws=64) > before + 5.0
    posterior = Posterior.from_point(model, (X, Y))
    posterior.save(tmp_path / "fit.npz")
    again = Posterior.load(tmp_path / "fit.npz", built(X[0], hidden=1))
    Xnew = np.linspace(0.0, 4.0, 3)[:, None]
    for one, other in zip(posterior.predict_y(Xnew), again.predict_y(Xnew), strict=True):
        np.testing.assert_array_equal(one, other)


def test_predictions_draw_channels_together(data: Data) -> None:
    """Of a linear decoder they are known: A K A^T + noise of outputs, and densities of rows."""
    X, Y = data[0][:1].repeat(TASKS, 0), data[1]
    model = built(X[0])
    W, bias = with_true_factors(model, times=10.0)
    posterior = Posterior.from_point(model, (X, Y))
    mean, covariance = posterior.predict_f(None, full_output_cov=True)
    outputs = np.einsum("lp,tnlk,kr->tnpr", W, covariance, W) + np.diag(NOISE)
    expected = mean @ W + bias
    found = posterior.predict(num_codes=4000)
    np.testing.assert_allclose(found.mean, expected, atol=1e-4)  # draws mirror each other
    variance = np.einsum("tnpp->tnp", outputs)
    np.testing.assert_allclose(found.variance, variance, rtol=0.1)
    own, own_variance = model.predict_y(None, given=(X, Y), num_draws=4000)
    np.testing.assert_allclose(own, expected, atol=1e-4)
    np.testing.assert_allclose(own_variance, variance, rtol=0.1)
    scale, direction = np.linalg.eigh(outputs)
    residual = 2.0 * np.sqrt(scale[..., -1:]) * direction[..., -1]  # two deviations, at the widest
    rows = expected + residual

    def density_of(covariance: np.ndarray) -> np.ndarray:
        quadratic = np.einsum("tnp,tnpr,tnr->tn", residual, np.linalg.inv(covariance), residual)
        return -0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * covariance)[1])

    density = density_of(outputs)
    apart = np.einsum("lp,tnl,lr->tnpr", W, np.einsum("tnll->tnl", covariance), W) + np.diag(NOISE)
    assert np.abs(density_of(apart) - density).max() > 0.5  # or draws of each channel would pass
    for by_draws in (
        posterior.predict_log_density((None, rows), num_codes=4000),
        model.predict_log_density((None, rows), given=(X, Y), num_draws=4000),
    ):
        np.testing.assert_allclose(by_draws, density, atol=0.3)
    samples = posterior.latent_samples()
    np.testing.assert_array_equal(samples.covariance[0], covariance)
    np.testing.assert_array_equal(samples.variance[0], np.einsum("tnll->tnl", covariance))


def test_a_gaussian_encoder_has_the_same_prior(data: Data) -> None:
    """Pseudo-observations of channels, drawn together: a GaussianGuide under the mixture."""
    X, Y = data
    net = encoders.partial_encoder("factornet", P, L, (4,))
    decoder = keras.Sequential([keras.Input((L,)), keras.layers.Dense(P)])
    model = models.CoupledSGPVAE(kernels(), X[0], decoder, net, likelihoods.Gaussian(NOISE), L)
    assert type(model.guide) is guides.GaussianGuide and not model.latent_prior.mixing.trainable
    model.latent_prior.nugget_root.assign([[0.5, 0.0], [0.4, 0.1]])
    q = model.approximate_posterior(batch_of(data))
    assert np.isfinite(model.elbo(data)) and q.divergence > 0.0
    # Where nothing is observed channels go together as their nugget does, or as others' codes do.
    assert q.covariance[0, 3, 0, 1] > 0.1
    draws = model.guide.draw(model.latent_prior, batch_of(data), 4000, [0, 1]).latents[:, 0, 3]
    correlation = np.corrcoef(draws.numpy().T)[0, 1]
    of_q = q.covariance[0, 3].numpy()
    assert abs(correlation - of_q[0, 1] / np.sqrt(of_q[0, 0] * of_q[1, 1])) < 0.05


def test_what_does_not_go_together_is_refused(data: Data) -> None:
    X, _ = data
    net = encoders.partial_encoder("rank_one", P, L)
    decoder = keras.Sequential([keras.Input((L,)), keras.layers.Dense(P)])
    likelihood = likelihoods.Gaussian(NOISE)
    with pytest.raises(ValueError, match="TitsiasGP is conditioned on channels only"):
        models.SGPVAE(kernels(), X[0], decoder, net, likelihood, L)
    with pytest.raises(TypeError, match="must be a RankOneEncoder.*got GaussianEncoder"):
        guides.RankOneGuide(encoders.partial_encoder("factornet", P, L))
    with pytest.raises(TypeError, match="must be Gaussian.*got RankOneEncoder"):
        guides.GaussianGuide(net)
    with pytest.raises(TypeError, match="of codes by channel"):
        models.StochasticGPLVM(
            guides.RankOneGuide(net),
            gpflow.kernels.SquaredExponential(),
            X[0],
            gpflow.likelihoods.Gaussian(),
            P,
        )
    posterior = Posterior.from_point(built(X[0]), data)
    with pytest.raises(NotImplementedError, match="no distribution of codes before a prior"):
        posterior.encode(data[1])
    with pytest.raises(NotImplementedError, match="An export must know how channels"):
        serving.ServedModel(posterior)
    with pytest.raises(NotImplementedError, match="A draw of the function"):
        posterior.predict_f_samples(X)
    prior = latent_priors.LinearMixture(kernels(), X[0], np.eye(L))
    with pytest.raises(ValueError, match="MeanFieldGuide draws each channel apart"):
        gaussian = encoders.partial_encoder("factornet", P, L)
        models.VariationalAutoencoder(prior, decoder, guides.MeanFieldGuide(gaussian), likelihood)
    assert gpflow_bae.models.CoupledSGPVAE is models.CoupledSGPVAE
