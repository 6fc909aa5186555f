"""Where codes start: slow features of a linear mixture, and what a warm start makes of them."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import gpflow
import keras
import numpy as np
import pytest

from gpflow_bae import decoders, encoders, inference, latent_priors, likelihoods, mcmc, models
from gpflow_bae.data import prepare_data

NUM_TASKS, N, P = 20, 25, 6
LENGTHSCALE = 3.0


def slow_and_fast(fast_scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, observations y = A (slow, fast...), and the slow source [T, N], a GP draw.

    Five fast sources are white in time, and by default each has as much variance as the slow one,
    so no principal component singles it out.
    """
    rng = np.random.default_rng(0)
    X = np.arange(N, dtype=float)[:, None]
    K = np.exp(-0.5 * ((X - X.T) / LENGTHSCALE) ** 2)
    root = np.linalg.cholesky(K + 1e-6 * np.eye(N))
    slow = rng.standard_normal((NUM_TASKS, N)) @ root.T
    fast = fast_scale * rng.standard_normal((NUM_TASKS, N, P - 1))
    sources = np.concatenate([slow[..., None], fast], -1)
    mixing, _ = np.linalg.qr(rng.standard_normal((P, P)))
    return np.tile(X, (NUM_TASKS, 1, 1)), sources @ mixing + 2.0, slow


def model_for(prior: latent_priors.base.GaussianLatentPrior) -> models.BayesianAutoencoder:
    def dense(num_inputs: int, num_outputs: int) -> keras.Model:
        return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])

    L = prior.latent_dim
    return models.BayesianAutoencoder(
        prior,
        decoders.KerasDecoder(dense(L, P)),
        encoders.StochasticEncoder(dense(2 * P, L)),
        likelihoods.Gaussian(0.5),
    )


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]))


def gp(latent_dim: int = 1) -> latent_priors.GP:
    return latent_priors.GP(gpflow.kernels.SquaredExponential(lengthscales=LENGTHSCALE), latent_dim)


def test_smoothest_projection_is_the_slow_source() -> None:
    """The one direction whose roughness is far below 1 / noise is found up to sampling error.

    The projection differs from the source by its sample correlations with five white sources in 500
    points, about sqrt(5 / 500) = 0.1 of its norm: a correlation of 0.995. The first principal
    component is an arbitrary mixture instead.
    """
    X, Y, slow = slow_and_fast()
    prior = gp()
    data = prepare_data(model_for(prior), (X, Y))
    codes = inference.smoothest_projections(prior, data)
    assert codes.shape == (NUM_TASKS, N, 1)
    assert correlation(codes, slow) > 0.95
    first_component = inference.smoothest_projections(latent_priors.StandardNormal(1), data)
    assert correlation(first_component, slow) < 0.9


def test_smoothest_projections_are_whitened_and_ordered() -> None:
    """Zero mean, unit covariance, and the smoothest first: least a^T W^T (K + 0.1 I)^-1 W a."""
    X, Y, _ = slow_and_fast()
    prior = gp(3)
    data = prepare_data(model_for(prior), (X, Y))
    codes = inference.smoothest_projections(prior, data)
    rows = codes.reshape(-1, 3)
    np.testing.assert_allclose(rows.mean(0), 0.0, atol=1e-6)
    np.testing.assert_allclose(np.cov(rows.T, bias=True), np.eye(3), atol=1e-6)
    K = np.exp(-0.5 * ((X[0] - X[0].T) / LENGTHSCALE) ** 2) + 0.1 * np.eye(N)
    roughness = np.einsum("tnl,nm,tml->l", codes, np.linalg.inv(K), codes)
    assert np.all(np.diff(roughness) > 0)


def test_with_a_standard_normal_prior_they_are_principal_components() -> None:
    """NumPy's SVD of the centred rows, scaled to unit variance; signs are free."""
    X, Y, _ = slow_and_fast()
    Y = Y * np.array([3.0, 2.0, 1.0, 1.0, 1.0, 1.0])  # distinct leading singular values
    prior = latent_priors.StandardNormal(2)
    codes = inference.smoothest_projections(prior, prepare_data(model_for(prior), (X, Y)))
    rows = Y.astype(np.float32).astype(np.float64).reshape(-1, P)
    U, _, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    expected = U[:, :2] * np.sqrt(len(rows))
    found = codes.reshape(-1, 2)
    signs = np.sign(np.sum(found * expected, 0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-6)


def test_missing_entries_are_filled_with_column_means() -> None:
    """The same as the projections of the data so filled."""
    X, Y, _ = slow_and_fast()
    prior = gp()
    model = model_for(prior)
    missing = np.random.default_rng(1).uniform(size=Y.shape) < 0.1
    gappy = np.where(missing, np.nan, Y)
    filled = np.where(missing, np.nanmean(gappy, axis=(0, 1)), Y)
    found, expected = (
        inference.smoothest_projections(prior, prepare_data(model, (X, y))) for y in (gappy, filled)
    )
    sign = np.sign(np.sum(found * expected))
    np.testing.assert_allclose(sign * found, expected, atol=1e-4)  # float32 data


@pytest.mark.parametrize("make", [gp, latent_priors.StandardNormal])
def test_padding_has_no_part_in_the_projections(make: Any) -> None:
    """Observed rows of tasks of unequal lengths have unit variance, however long the padding is."""
    X, Y, _ = slow_and_fast()
    prior, sizes = make(1), N - np.arange(NUM_TASKS)
    pairs = zip(X, Y, sizes, strict=True)
    short = [v[:n] for *pair, n in pairs for v in pair]
    data = prepare_data(model_for(prior), (short[::2], short[1::2]))
    own = np.arange(N) < sizes[:, None]
    codes = inference.smoothest_projections(prior, data)
    np.testing.assert_allclose([codes[own].mean(), codes[own].std()], [0.0, 1.0], atol=1e-6)
    assert not codes[~own].any()
    longer = [np.pad(v, [(0, 0), (0, 30), (0, 0)], mode="edge") for v in data.to_numpy()]
    longer[1][:, N:] = np.nan
    more = inference.smoothest_projections(prior, prepare_data(model_for(prior), tuple(longer)))
    np.testing.assert_allclose(np.abs(more[:, :N]), np.abs(codes), atol=1e-6)


def test_sampled_inducing_outputs_start_at_what_all_tasks_say() -> None:
    """GP regression on the codes of all tasks, in NumPy, with an inducing point at every input."""
    X, Y, _ = slow_and_fast(0.3)
    X, Y = X[:2, ::3], Y[:2, ::3]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=LENGTHSCALE)
    sparse = latent_priors.SparseGP(kernel, X[0], 1, inducing_outputs="sampled")
    model = model_for(sparse)
    (kernel,) = model.latent_prior.kernels  # a copy that has priors
    gaussian = encoders.GaussianEncoder(
        keras.Sequential([keras.Input((P,)), keras.layers.Dense(2)])
    )
    start = inference.default_start(model, prepare_data(model, (X, Y)))
    start = dataclasses.replace(start, encoder=gaussian)
    data = prepare_data(model, (X, Y))
    start._move_inducing_outputs(model, start._variational(model, start.latent_prior), data)
    mean, variance = (v.numpy()[..., 0].ravel() for v in gaussian(data.Y))
    K = kernel(np.concatenate([X[0], X[1]])).numpy()
    expected = (K @ np.linalg.solve(K + np.diag(variance), mean))[: len(X[0])]
    found, _ = model.latent_prior.given_inducing_outputs(X[:1])
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(found[0, :, 0], expected, atol=2e-3 * np.ptp(expected))


def test_too_few_dimensions_are_refused() -> None:
    X, Y, _ = slow_and_fast()
    rank_one = Y[..., :1] * np.ones(P)
    prior = gp(2)
    data = prepare_data(model_for(prior), (X, rank_one))
    with pytest.raises(ValueError, match="Y spans 1 dimensions, fewer than latent_dim = 2"):
        inference.smoothest_projections(prior, data)


def test_warm_start_finds_the_slow_source_and_trains_the_encoder() -> None:
    """Codes of the variational posterior, and the stochastic encoder fitted to draws of them.

    To a decoder with one code the fast sources are noise, of standard deviation 0.3; the mixing is
    a rotation, so y determines the slow source to at most 0.3, and a draw of its posterior has a
    correlation of at least 1 / (1 + 0.3^2) = 0.92 with it (an untrained encoder: about
    1 / sqrt(P) = 0.4).
    """
    X, Y, slow = slow_and_fast(0.3)
    prior = gp()
    gpflow.set_trainable(prior, False)
    model = model_for(prior)
    data = prepare_data(model, (X, Y))
    gaussian = encoders.GaussianEncoder(
        keras.Sequential([keras.Input((P,)), keras.layers.Dense(2)])
    )
    warm_start = inference.WarmStart(
        gaussian,
        inference.VariationalSettings(num_steps=200, learning_rate=5e-3),
        distillation=inference.EncoderSettings(batch_size=256, num_steps=400, learning_rate=1e-2),
        num_initial_steps=400,
    )
    codes, losses = warm_start.run(model, data, seed=0, progress=False)
    assert codes.shape == (NUM_TASKS, N, 1) and np.isfinite(codes).all()
    assert np.isfinite(losses).all()
    assert correlation(codes.numpy(), slow) > 0.9
    draws = np.mean([model.encoder.sample(data.Y, [0, i]).numpy() for i in range(20)], 0)
    assert correlation(draws, slow) > 0.9
    # The sign of a code is free, but codes, encoder and variational encoder agree on one.
    assert np.corrcoef(draws.ravel(), codes.numpy().ravel())[0, 1] > 0.9


def test_a_chain_starts_where_the_warm_start_ends() -> None:
    """One step of 1e-9 moves nothing: the sample's codes are the warm start's draw."""
    _, Y, _ = slow_and_fast()
    results = []
    for sampled in (False, True):
        keras.utils.set_random_seed(1)
        model = model_for(latent_priors.StandardNormal(1))
        warm_start = inference.WarmStart(
            encoders.GaussianEncoder(keras.Sequential([keras.Input((P,)), keras.layers.Dense(2)])),
            inference.VariationalSettings(num_steps=50),
            distillation=inference.EncoderSettings(batch_size=256, num_steps=1),
            num_initial_steps=1,
        )
        if sampled:
            settings = inference.AmortizedSettings(
                num_sampler_steps=1,
                encoder=inference.EncoderSettings(num_steps=0),
                burnin=0,
                num_samples=1,
                thinning=1,
            )
            options = {"warm_start": warm_start, "seed": 5, "progress": False}
            options["sampler"] = mcmc.adaptive_sghmc.build(step_size=1e-9)
            posterior = inference.sample_amortized(model, (None, Y), settings, **options)
            results.append(posterior.latents[0])
            assert len(posterior.warm_start_losses) == 1
        else:
            data = prepare_data(model, (None, Y))
            results.append(warm_start.run(model, data, seed=5, progress=False)[0].numpy())
    np.testing.assert_allclose(*results, atol=1e-6)


def test_a_warm_start_under_another_prior_trains_what_the_two_share() -> None:
    X, Y, _ = slow_and_fast()
    L = 2
    kernel = gpflow.kernels.SquaredExponential()
    model = model_for(latent_priors.SparseGP(kernel, X[0, ::5], latent_dim=L))
    sparse = model.latent_prior  # with a copy of the kernel, which has priors
    exact = latent_priors.GP(sparse.kernels, L)
    exact.code_noise_variance = sparse.code_noise_variance
    before = {k: v.numpy() for k, v in gpflow.utilities.parameter_dict(sparse).items()}
    warm_start = inference.WarmStart(
        encoders.GaussianEncoder(keras.Sequential([keras.Input((P,)), keras.layers.Dense(2 * L)])),
        inference.VariationalSettings(num_steps=50),
        latent_prior=exact,
        distillation=inference.EncoderSettings(batch_size=256, num_steps=0),
        num_initial_steps=1,
    )
    warm_start.run(model, prepare_data(model, (X, Y)), seed=0, progress=False)
    after = {k: v.numpy() for k, v in gpflow.utilities.parameter_dict(sparse).items()}
    for path, value in before.items():
        # Its own inducing inputs are no business of the exact prior's.
        assert np.array_equal(value, after[path]) == path.endswith(".Z"), path
    assert warm_start.describe()["latent_prior"] == "GP"
    stranger = dataclasses.replace(warm_start, latent_prior=latent_priors.GP(kernel, L))
    with pytest.raises(ValueError, match="shares no kernel with the model"):
        stranger.run(model, prepare_data(model, (X, Y)), seed=0, progress=False)


@pytest.mark.parametrize("deep", [False, True])
def test_a_warm_start_under_fewer_inducing_points_moves_all_of_the_chain_s(deep: bool) -> None:
    """An SVGP-VAE of 5 points is fitted; the chain has one at every input, where FITC is exact.

    Its inducing outputs must then be the posterior mean of GP regression on what the fit's encoder
    says at the training inputs, in NumPy; whitened codes start at their prior's mean, which is the
    same. Tolerance: the jitter of 1e-6 and float32 networks. A deep prior starts as its last layer:
    the hidden layer is the identity, up to draws with the jitter's standard deviation of 1e-3.
    """
    X, Y, _ = slow_and_fast(0.3)
    X, Y = X[0, ::2], Y[:1, ::2]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=LENGTHSCALE)
    sparse = latent_priors.SparseGP(kernel, X, 1, 1e-3, inducing_outputs="sampled")
    prior: latent_priors.base.GaussianLatentPrior = sparse
    if deep:
        hidden = gpflow.kernels.SquaredExponential(lengthscales=LENGTHSCALE)
        prior = latent_priors.DeepSparseGP([hidden, kernel], [X, X], 1)
        sparse = prior.last_layer
    gpflow.set_trainable(sparse.inducing_variable, False)
    with_one_prior = model_for(prior)
    model = models.BayesianAutoencoder(
        with_one_prior.latent_prior,
        with_one_prior.decoder,
        with_one_prior.encoder,
        with_one_prior.likelihood,
        whitened_codes=True,
    )
    sparse = model.latent_prior.last_layer if deep else model.latent_prior
    (kernel,) = sparse.kernels  # a copy that has priors
    gaussian = encoders.GaussianEncoder(
        keras.Sequential([keras.Input((P,)), keras.layers.Dense(2)])
    )
    warm_start = inference.WarmStart(
        gaussian,
        inference.VariationalSettings(num_steps=100, learning_rate=1e-2),
        latent_prior=latent_priors.TitsiasGP(sparse.kernels, X[::3], 1),
        distillation=inference.EncoderSettings(batch_size=256, num_steps=0, learning_rate=1e-2),
        num_initial_steps=200,
    )
    data = prepare_data(model, (X[None], Y))
    codes, _ = warm_start.run(model, data, seed=0, progress=False)
    mean, variance = (v.numpy()[0, :, 0] for v in gaussian(data.Y))
    K = kernel(X).numpy()
    expected = K @ np.linalg.solve(K + np.diag(variance), mean)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(codes.numpy()[0, :, 0], expected, atol=2e-3 * np.ptp(expected))


def test_smoothest_projections_of_a_long_task_need_few_of_its_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Directions come from some points, of some tasks; every point has a code.

    The prior's lengthscale is eight points: a third of 600 of them, of half of the tasks, tell a
    slow source from five that are white.
    """
    rng = np.random.default_rng(0)
    T, N = 4, 600
    X = np.arange(N, dtype=float)[:, None]
    root = np.linalg.cholesky(np.exp(-0.5 * ((X - X.T) / 8.0) ** 2) + 1e-6 * np.eye(N))
    slow = rng.standard_normal((T, N)) @ root.T
    sources = np.concatenate([slow[..., None], rng.standard_normal((T, N, P - 1))], -1)
    Y = sources @ np.linalg.qr(rng.standard_normal((P, P)))[0]
    prior = latent_priors.GP(gpflow.kernels.SquaredExponential(lengthscales=8.0), 1)
    data = prepare_data(model_for(prior), (np.tile(X, (T, 1, 1)), Y))
    module = importlib.import_module("gpflow_bae.inference.starts.initial_codes")
    monkeypatch.setattr(module, "MAX_POINTS", N // 3)
    monkeypatch.setattr(module, "_MAX_COST", 2.0 * (N // 3) ** 3)
    codes = inference.smoothest_projections(prior, data)
    assert codes.shape == (T, N, 1)
    assert abs(np.corrcoef(codes.ravel(), slow.ravel())[0, 1]) > 0.95
