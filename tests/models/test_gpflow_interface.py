"""Variational autoencoders as GPflow's users know models: against GPflow's GPR and closed forms.

With a linear decoder and Gaussian noise everything is Gaussian given the pseudo-observations, so
bounds and predictions have closed forms.
"""

from __future__ import annotations

import functools

import gpflow
import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from gpflow_bae import latent_priors, models, optimizers
from gpflow_bae.inference import share_explained
from gpflow_bae.likelihoods import Gaussian
from gpflow_bae.posteriors import Posterior
from tests.serving import small_posteriors

N, P, L = 15, 4, 2
NOISE = 0.3


def network(num_inputs: int, num_outputs: int, seed: int) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def parts() -> dict:
    return {
        "decoder": network(L, P, 0),
        "encoder": network(P, 2 * L, 1),
        "likelihood": Gaussian(NOISE),
        "latent_dim": L,
    }


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(lengthscales=0.8, variance=1.4)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return np.sort(rng.uniform(0.0, 4.0, N))[:, None], rng.normal(size=(N, P))


def decoder_matrix(model: models.VariationalAutoencoder) -> tuple[np.ndarray, np.ndarray]:
    W, b = (v.numpy().astype(np.float64) for v in model.decoder.weights)
    return W, b


def regressions(model: models.GPVAE, mean_function: object = None) -> list[gpflow.models.GPR]:
    """GPflow's regression of each channel's pseudo-observations, with their noise."""
    X, Y = data()
    mean, variance = (v.numpy()[0] for v in model.encode(X[None], tf.constant(Y[None], tf.float32)))
    found = []
    for channel in range(L):
        likelihood = gpflow.likelihoods.Gaussian(variance=_Fixed(variance[:, channel]))
        found.append(
            gpflow.models.GPR(
                (X, mean[:, channel : channel + 1]),
                model.kernel,
                mean_function=mean_function,
                likelihood=likelihood,
            )
        )
    return found


class _Fixed(gpflow.functions.Function):
    """Known noise at the training inputs."""

    def __init__(self, values: np.ndarray):
        super().__init__()
        self._values = values

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return tf.constant(self._values[:, None])


def test_predict_f_is_gpflow_s_regression_of_the_pseudo_observations() -> None:
    """With full covariances and without, and with a mean function."""
    X, Y = data()
    X_new = np.linspace(-0.5, 4.5, 6)[:, None]
    mean_function = gpflow.functions.Linear(np.array([[0.7]]), np.array([-0.4]))
    for function in (None, mean_function):
        model = models.GPVAE(kernel(), **parts(), mean_function=function)
        expected = [m.predict_f(X_new, full_cov=True) for m in regressions(model, function)]
        mean, covariance = model.predict_f(X_new, given=(X, Y), full_cov=True)
        assert mean.shape == (6, L) and covariance.shape == (L, 6, 6)
        for channel, (m, c) in enumerate(expected):
            # Observations are float32, and the prior has the jitter as code noise.
            np.testing.assert_allclose(mean[:, channel], m[:, 0], atol=2e-5)
            np.testing.assert_allclose(covariance[channel], c[0], atol=2e-5)
        marginal_mean, marginal = model.predict_f(X_new, given=(X, Y))
        np.testing.assert_allclose(marginal_mean, mean, atol=1e-10)
        np.testing.assert_allclose(marginal, np.einsum("lnn->nl", covariance), atol=1e-10)


def test_the_bound_is_that_of_a_linear_gaussian_model() -> None:
    """Mirrored draws leave no error but that of the squares of the noise."""
    X, Y = data()
    Y[2:5, :2] = np.nan
    model = models.GPVAE(kernel(), **parts())
    seen = ~np.isnan(Y)
    filled = tf.constant(np.where(seen, Y, 0.0)[None], tf.float32)
    q = model.posterior(X[None], filled, seen[None])
    W, b = decoder_matrix(model)
    mean, variance = q.mean.numpy()[0], q.variance.numpy()[0]
    residual = np.where(seen, Y - mean @ W - b, 0.0)
    spread = np.where(seen, variance @ W**2, 0.0)
    constant = -0.5 * seen.sum() * np.log(2 * np.pi * NOISE)
    expected = constant - 0.5 * (np.sum(residual**2) + np.sum(spread)) / NOISE
    batch = model._batch((X, Y))
    expected -= model.approximate_posterior(batch).divergence.numpy()
    # Of 4 independent squares: the trace of (S W W^T S)^2 / NOISE^2 is their variance times 2.
    root = np.sqrt(variance)
    quadratic = np.einsum("nl,lp,np,mp,nm->nlm", root, W, seen, W, root)
    error = np.sqrt(0.5 * np.sum(quadratic**2)) / NOISE / np.sqrt(4)
    bound = model.elbo((X, Y)).numpy()
    assert abs(bound - expected) < 4 * error
    assert bound == model.elbo((X, Y)).numpy()  # the same draws each time
    many = model.elbo((X, Y), num_draws=2000).numpy()
    assert abs(many - expected) < 4 * error * np.sqrt(8 / 2000)


def test_minibatches_estimate_the_bound_of_all_points() -> None:
    """SVGP-VAE at fixed q of inducing outputs would be exact; here two halves that are alike."""
    X, Y = data()
    model = models.VAE(**parts(), num_data=2 * N)
    whole = models.VAE(**parts())
    twice = whole.elbo((None, np.concatenate([Y, Y])), num_draws=400).numpy()
    half = model.elbo((None, Y), num_draws=400).numpy()
    # Codes of a VAE are independent, so half of the points twice are all; draws differ.
    assert abs(half - twice) < 0.01 * abs(twice)
    sparse = models.SVGPVAE(kernel(), X[::3], **parts(), num_data=N)
    np.testing.assert_allclose(  # a batch of everything is everything
        sparse.elbo((X, Y)), models.SVGPVAE(kernel(), X[::3], **parts()).elbo((X, Y)), rtol=1e-12
    )


def test_log_densities_of_new_rows_are_those_of_a_gaussian() -> None:
    """y | x ~ N(W m + b, W V W^T + noise); over 4,000 draws of the codes."""
    X, Y = data()
    model = models.GPVAE(kernel(), **parts())
    X_new, Y_new = X[:3] + 0.1, Y[:3] * 0.5
    Y_new[1, 2] = np.nan
    mean, variance = model.predict_f(X_new, given=(X, Y))
    W, b = decoder_matrix(model)
    expected = []
    for m, v, y in zip(mean.numpy(), variance.numpy(), Y_new, strict=True):
        seen = ~np.isnan(y)
        covariance = (W.T * v) @ W + NOISE * np.eye(P)
        normal = scipy.stats.multivariate_normal((m @ W + b)[seen], covariance[np.ix_(seen, seen)])
        expected.append(normal.logpdf(y[seen]))
    # The relative error of a mean of densities, which vary by about their own size, is 1/sqrt(S).
    found = model.predict_log_density((X_new, Y_new), given=(X, Y), num_draws=4000)
    np.testing.assert_allclose(found, expected, atol=4 / np.sqrt(4000))
    posterior = Posterior.from_point(model, (X, Y))
    again = posterior.predict_log_density((X_new, Y_new), num_codes=1000)
    np.testing.assert_allclose(again, expected, atol=4 / np.sqrt(1000))
    y_mean, y_variance = model.predict_y(X_new, given=(X, Y), num_draws=4000)
    exact = np.stack([np.diag((W.T * v) @ W) + NOISE for v in variance.numpy()])
    np.testing.assert_allclose(y_variance, exact, rtol=4 * np.sqrt(2 / 4000))
    np.testing.assert_allclose(y_mean, mean @ W + b, atol=4 * np.sqrt(exact.max() / 4000))


def test_draws_of_a_posterior_have_its_moments() -> None:
    """1,000 draws with and without covariances between points."""
    X, Y = data()
    model = models.SVGPVAE(kernel(), X[::3], **parts())
    posterior = Posterior.from_point(model, (X, Y))
    X_new = np.linspace(0.0, 4.0, 5)[:, None]
    mean, covariance = posterior.predict_f(X_new, full_cov=True)
    of_model = model.predict_f(X_new, given=(X, Y), full_cov=True)
    np.testing.assert_allclose(mean, of_model[0], atol=1e-6)
    np.testing.assert_allclose(covariance, of_model[1], atol=1e-6)
    draws = posterior.predict_f_samples(X_new, 1000)
    assert draws.shape == (1000, 5, L)
    scale = np.sqrt(np.einsum("lnn->nl", covariance).max())
    np.testing.assert_allclose(draws.mean(0), mean, atol=4 * scale / np.sqrt(1000))
    for channel in range(L):
        found = np.cov(draws[:, :, channel].T)
        np.testing.assert_allclose(found, covariance[channel], atol=6 * scale**2 / np.sqrt(1000))
    assert posterior.predict_f_samples(X_new, full_cov=False).shape == (5, L)
    # Through the decoder: with the noise of the observations these are predict_y's.
    outputs = posterior.predict_mean_samples(X_new, 1000)
    expected = posterior.predict(X_new, num_codes=4000)
    spread = np.sqrt(expected.epistemic_variance.max())
    np.testing.assert_allclose(outputs.mean(0), expected.mean, atol=4 * spread / np.sqrt(1000))
    np.testing.assert_allclose(
        outputs.var(0), expected.epistemic_variance, rtol=6 * np.sqrt(2 / 1000)
    )
    assert posterior.predict_mean_samples(X_new).shape == outputs.shape[1:]
    # GPflow's layouts of covariances between channels.
    assert posterior.predict_f(X_new, full_output_cov=True)[1].shape == (5, L, L)
    joint = posterior.predict_f(X_new, full_cov=True, full_output_cov=True)[1]
    np.testing.assert_array_equal(joint[:, 1, :, 1], covariance[1])
    assert not joint[:, 0, :, 1].any()


def test_results_have_the_axes_of_what_came_in() -> None:
    """One task as [N, P] goes without an axis of tasks; as [1, N, P] it keeps it."""
    X, Y = data()
    model = models.SVGPVAE(kernel(), X[::3], **parts())
    flat, stacked = (Posterior.from_point(model, (X, y)) for y in (Y, Y[None]))
    for posterior, lead in ((flat, ()), (stacked, (1,))):
        assert posterior.predict_y(X[:2])[0].shape == (*lead, 2, P)
        assert posterior.predict_latent()[1].shape == (*lead, N, L)
        assert posterior.predict_latent(X[None, :2])[1].shape == (1, 2, L)
        assert posterior.latent_samples(X[:2]).mean.shape == (1, *lead, 2, L)
    np.testing.assert_array_equal(flat.predict_y(X)[0], stacked.predict_y(X)[0][0])
    assert flat.impute(Y, X)[0].shape == Y.shape and flat.encode(Y).shape == (1, 16, N, L)


class RationalKernel(gpflow.kernels.IsotropicStationary):
    """A kernel of a user's own."""

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return self.variance / (1.0 + r2)


@functools.lru_cache
def user_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(0.0, 10.0, 120))[:, None]
    truth = np.concatenate([np.sin(X), np.cos(0.7 * X)], 1) @ rng.normal(size=(2, 6))
    Y = truth + 0.05 * rng.normal(size=truth.shape)
    Y[40:46, :3] = np.nan
    return X, truth, Y


def test_a_gpflow_user_s_script(tmp_path) -> None:
    """Own kernel, Scipy, Adam with minibatches of a tf.data.Dataset, predict_y, save and load."""
    X, truth, Y = user_data()

    def build() -> models.SVGPVAE:
        keras.utils.set_random_seed(0)
        return models.SVGPVAE(
            RationalKernel(),
            np.linspace(0.0, 10.0, 16)[:, None],
            decoder=keras.Sequential([keras.Input((2,)), keras.layers.Dense(6)]),
            encoder=keras.Sequential(
                [keras.Input((6,)), keras.layers.Dense(12, "tanh"), keras.layers.Dense(4)]
            ),
            likelihood=gpflow.likelihoods.Gaussian(0.1),
            latent_dim=2,
        )

    model = build()
    assert isinstance(model.kernel, RationalKernel)
    loss = model.training_loss_closure((X, Y))
    before = loss().numpy()
    result = optimizers.Scipy().minimize(loss, model.trainable_variables, options={"maxiter": 40})
    assert result.fun < before

    model.num_data = len(X)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(len(X), seed=0).repeat().batch(40)
    loss = model.training_loss_closure(iter(dataset))
    adam = keras.optimizers.Adam(3e-3)
    for _ in range(10):
        with tf.GradientTape() as tape:
            value = loss()
        gradients = tape.gradient(value, model.trainable_variables)
        adam.apply(gradients, model.trainable_variables)
    model.num_data = None
    mean, variance = model.predict_y(X, given=(X, Y))
    hole = np.isnan(Y)
    spread = truth.std(0).mean()
    # A hole of six rows of a smooth function, three outputs of which are seen.
    assert np.sqrt(np.mean((mean.numpy() - truth)[hole] ** 2)) < 0.2 * spread
    assert np.all(variance.numpy() > 0)

    posterior = Posterior.from_point(model, (X, Y))
    assert share_explained(posterior) > 0.95
    posterior.save(tmp_path / "fit.npz")
    loaded = Posterior.load(tmp_path / "fit.npz", build())
    np.testing.assert_array_equal(loaded.predict_y(X[:4])[0], posterior.predict_y(X[:4])[0])
    assert loaded.predict_y(X[:4])[0].shape == (4, 6)


def test_gpflow_s_own_optimizer_takes_networks_in_double_precision() -> None:
    X, Y = data()
    layers = {"dtype": "float64"}
    model = models.GPVAE(
        kernel(),
        decoder=keras.Sequential([keras.Input((L,), **layers), keras.layers.Dense(P, **layers)]),
        encoder=keras.Sequential(
            [keras.Input((P,), **layers), keras.layers.Dense(2 * L, **layers)]
        ),
        likelihood=Gaussian(NOISE),
        latent_dim=L,
    )
    loss = model.training_loss_closure((X, Y))
    before = loss().numpy()
    options = {"maxiter": 5}
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options=options)
    assert loss().numpy() < before


def test_priors_only_where_something_is_sampled() -> None:
    """A variational model leaves the kernel as it is; a sampled one has priors on a copy."""
    mine = gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(), period=2.0)
    Z = np.linspace(0.0, 4.0, 4)[:, None]
    model = models.SVGPVAE(mine, Z, **parts())
    assert model.kernel is mine and all(p.prior is None for p in mine.parameters)
    sampled = parts() | {"encoder": network(2 * P, L, 1)}
    with pytest.raises(ValueError, match="period is sampled but has no prior"):
        models.SGPBAE(mine, Z, **sampled)
    gpflow.set_trainable(mine.period, False)
    model = models.SGPBAE(mine, Z, **sampled)
    assert all(p.prior is None for p in mine.parameters)
    assert model.kernel is not mine
    assert model.kernel.base_kernel.lengthscales.prior is not None
    models.set_default_kernel_priors(mine)
    assert models.SGPBAE(mine, Z, **sampled).kernel is mine  # nothing to add


def test_kernels_of_several_outputs() -> None:
    """Those that keep channels apart are taken apart; those that mix them are refused by name."""
    Z = np.linspace(0.0, 4.0, 4)[:, None]
    pair = [kernel(), gpflow.kernels.Matern32()]
    shared = models.SVGPVAE(gpflow.kernels.SharedIndependent(kernel(), L), Z, **parts())
    assert isinstance(shared.kernel, gpflow.kernels.Matern52)
    separate = models.SVGPVAE(gpflow.kernels.SeparateIndependent(pair), Z, **parts())
    assert separate.kernel == pair
    mixing = gpflow.kernels.LinearCoregionalization(pair, W=np.eye(L))
    with pytest.raises(TypeError, match="LinearCoregionalization, which mixes the latent channels"):
        models.SVGPVAE(mixing, Z, **parts())
    with pytest.raises(TypeError, match="must be a GPflow kernel or a list of them, got str"):
        latent_priors.GP(["rbf"], 1)
    with pytest.raises(AttributeError, match="StandardNormal has no kernel"):
        _ = models.VAE(**parts()).kernel


def test_tasks_of_unequal_lengths_are_lists_of_arrays() -> None:
    """Tasks are independent given the parameters, so each is predicted as it would be alone."""
    X, Y = data()
    model = models.SVGPVAE(kernel(), X[::3], **parts())
    tasks = [X[:9], X[9:]], [Y[:9], Y[9:]]
    at = np.array([[0.5], [2.5]])
    posterior = Posterior.from_point(model, tasks)
    of_posterior = posterior.predict_f(at)
    for task, rows in enumerate((slice(9), slice(9, N))):
        alone = {"given": (X[rows], Y[rows])}
        for Xnew, of_all in ((None, model.predict_f(None, given=tasks)), (at, of_posterior)):
            expected = np.stack(model.predict_f(Xnew, **alone))
            found = np.stack(of_all)[:, task, : expected.shape[1]]
            # Pseudo-observations are float32, and sums over padded rows have another order.
            np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.isfinite(model.training_loss_closure(tasks, compile=False)())
    assert model.predict_log_density((None, tasks[1]), given=tasks).shape == (2, 9)
    for wrong in ((tasks[0][::-1], tasks[1]), (X, tasks[1]), (tasks[0], Y)):
        with pytest.raises(ValueError, match="must then both be lists, with the same numbers"):
            model.elbo(wrong)


def test_mistakes_are_named() -> None:
    X, Y = data()
    model = models.SVGPVAE(kernel(), X[::3], **parts())
    for call, message in (
        (lambda: model.predict_y(X), r"given is missing: .*pass given=\(X, Y\)"),
        (
            lambda: model.predict_f(np.zeros((3, 2)), given=(X, Y)),
            r"Xnew must .* D = 1 .*got \(3, 2\)",
        ),
        (lambda: model.elbo((X, Y[:, :2])), r"P = 4, the width of the decoder, got \(15, 2\)"),
        (lambda: model.elbo((None, Y)), "TitsiasGP is a prior over inputs: X is needed"),
        (lambda: model.elbo((X, Y), num_draws=3), "an even number from 2 on, got 3"),
        (lambda: model.elbo((X, Y, Y)), r"data must be a pair \(X, Y\), .*got 3 values"),
        (lambda: model.training_loss_closure(iter([(X, Y)])), "set model.num_data to the number"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    whole = models.SGPVAE(kernel(), X[::3], **parts(), num_data=3 * N)
    with pytest.raises(ValueError, match="needs all points of a task at once"):
        whole.elbo((X, Y))
    # Predictions may condition on any data, whatever num_data says of the fit's.
    assert whole.predict_f(X[:2], given=(X, Y))[0].shape == (2, L)
    for bad, message in (
        ((X, np.where(Y > 1.0, np.inf, Y)), "Y holds infinity"),
        ((np.where(X > 1.0, np.nan, X), Y), "X holds NaN or infinity"),
    ):
        with pytest.raises(ValueError, match=message):
            model.elbo(bad)
    posterior = Posterior.from_point(model, (X, Y))
    with pytest.raises(ValueError, match=r"Xnew must .* D = 1 as in training, got \(3, 2\)"):
        posterior.predict_y(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"Ynew must have shape \(15, 4\) .* got \(15, 2\)"):
        posterior.predict_log_density((X, Y[:, :2]))


def test_draws_of_outputs_go_through_the_decoder_of_their_sample() -> None:
    """Of a chain with code noise; what weights the model itself has changes nothing."""
    sampled = small_posteriors.sampled_sgp_bae()
    X_new = np.linspace(-1.0, 1.0, 3)[:, None]
    expected = sampled.predict(X_new, num_codes=2000)
    draws = sampled.predict_mean_samples(X_new, 4000)
    spread = np.sqrt(expected.epistemic_variance)
    np.testing.assert_allclose(draws.mean(0), expected.mean, atol=5 * spread.max() / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(0), spread, rtol=0.1)
    for weight in sampled.model.decoder.weights:
        weight.assign(tf.zeros_like(weight))
    np.testing.assert_array_equal(sampled.predict_mean_samples(X_new, 4000), draws)
