"""Variational training: probabilistic PCA is the model whose bound can be tight."""

from __future__ import annotations

import pathlib
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import encoders, inference, latent_priors, likelihoods, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.optimise.optimisation import Optimisation
from gpflow_bae.inference.runs.run import run
from gpflow_bae.inference.variational import climb

N, P, L = 400, 5, 2


def dense(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def linear_vae(noise_variance: float = 1.0) -> models.VAE:
    likelihood = likelihoods.Gaussian(noise_variance)
    return models.VAE(dense(L, P), dense(P, 2 * L), likelihood, latent_dim=L)


def linear_data() -> np.ndarray:
    """[1, N, P] from a linear model with noise variance 0.25."""
    rng = np.random.default_rng(0)
    W = np.array([[2.0, 1.0, 0.0, -1.0, 0.5], [0.0, 0.5, 1.0, 0.5, -0.5]])
    Y = rng.standard_normal((N, L)) @ W + 0.5 * rng.standard_normal((N, P)) + 1.0
    return Y[None].astype(np.float32).astype(np.float64)


def gaussian_log_density(Y: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> float:
    """Mean log density of the rows, in NumPy."""
    residual = Y - mean
    quadratic = np.mean(np.sum(residual @ np.linalg.inv(covariance) * residual, 1))
    return float(-0.5 * (np.linalg.slogdet(2 * np.pi * covariance)[1] + quadratic))


def ppca_maximum(Y: np.ndarray) -> float:
    """Largest log likelihood per point (Tipping and Bishop 1999, eq. 7-9), from eigenvalues."""
    eigenvalues = np.linalg.eigvalsh(np.cov(Y.T, bias=True))[::-1]
    noise = eigenvalues[L:].mean()
    log_det = np.log(eigenvalues[:L]).sum() + (P - L) * np.log(noise)
    return float(-0.5 * (P * np.log(2 * np.pi) + log_det + P))


def test_linear_vae_reaches_the_maximum_of_probabilistic_pca() -> None:
    """The bound is tight there (Lucas et al. 2019): a linear VAE has no gap at its optimum.

    A rotation of the codes makes their exact posterior diagonal, and its mean is linear in y. So
    the bound at the end must be the closed-form maximum, and the marginal likelihood of the fitted
    W, mean and noise, computed from their covariance matrix, lies between the two. Tolerance 0.02
    nats per point: 0.005 for the Monte Carlo error of the bound (200 draws of 400 points, each of
    standard deviation 1 or 2), the rest for 3000 steps of Adam. One component less costs 1.0.
    """
    Y = linear_data()
    model = linear_vae(noise_variance=0.1)
    settings = inference.VariationalSettings(
        num_steps=3000,
        learning_rate=1e-2,
        final_learning_rate_fraction=0.01,
        prior_on_parameters=False,
    )
    losses = inference.fit_variational(model, (None, Y), settings, seed=0, progress=False)
    data = prepare_data(model, (None, Y))
    draw = tf.function(lambda seed: model.batch_elbo(data.gather(None), seed), autograph=False)
    bound = np.mean([draw(tf.constant([9, i])).numpy() for i in range(200)]) / data.num_points

    W, mean = (w.numpy().astype(np.float64) for w in model.decoder.weights)
    covariance = W.T @ W + model.likelihood.variance.numpy() * np.eye(P)
    at_fit = gaussian_log_density(Y[0], mean, covariance)
    best = ppca_maximum(Y[0])
    assert bound - 0.005 < at_fit < best + 1e-6
    np.testing.assert_allclose(bound, best, atol=0.02)
    np.testing.assert_allclose(losses[-1], -best, atol=0.05)  # 50 draws, at the last rates


def test_loss_is_the_scaled_bound_with_the_prior_once() -> None:
    """(N/B ELBO(batch) + log prior) / N: minibatch losses of a partition average to the whole.

    With the draws of the codes tied to nothing but the bound's own seed the two differ; so the
    encoder's variance is made tiny (clipped to 1e-6) and a draw is its mean, up to 1e-3.
    """
    model = linear_vae()
    model.encoder.weights[1].assign([0.0, 0.0, -50.0, -50.0])
    model.encoder.weights[0].assign(
        tf.concat([model.encoder.weights[0][:, :L], tf.zeros([P, L])], 1)
    )
    data = prepare_data(model, (None, linear_data()), batch_size=100)
    seed = tf.constant([0, 0])
    partition = np.random.default_rng(0).permutation(N).reshape(-1, 100)
    losses = {}
    for prior in (False, True):
        settings = inference.VariationalSettings(prior_on_parameters=prior)
        fit = inference.VariationalFit(model, data, settings, seed=0)
        whole, *parts = (
            fit.batch_loss(data.gather(rows), seed, (), None)[0].numpy()
            for rows in (None, *tf.constant(partition, tf.int32))
        )
        losses[prior] = whole
        # 1e-3 of noise on codes whose gradient is of order 1, averaged over 400 points.
        np.testing.assert_allclose(np.mean(parts), whole, atol=1e-3)
    # N(0, 1) weights; the noise variance 1 = softplus(u) has LogNormal(0, 1) and the Jacobian of
    # the softplus, sigmoid(u) = 1 - 1/e, as the density is that of the unconstrained u.
    weights = np.concatenate([w.numpy().ravel() for w in model.decoder.weights])
    log_prior = -0.5 * np.sum(weights**2) - 0.5 * (weights.size + 1) * np.log(2 * np.pi)
    log_prior += np.log(1 - np.exp(-1.0))
    np.testing.assert_allclose(losses[False] - losses[True], log_prior / N, rtol=1e-4)


@pytest.mark.usefixtures("untraced")
def test_minibatches_and_seeds() -> None:
    """Equal seeds give equal fits, other seeds others."""
    fits = []
    for seed in (3, 3, 4):
        keras.utils.set_random_seed(0)
        model = linear_vae()
        settings = inference.VariationalSettings(num_steps=6, batch_size=20)
        inference.fit_variational(
            model, (None, linear_data()), settings, seed=seed, steps_per_call=3, progress=False
        )
        fits.append([v.numpy() for v in model.trainable_variables])
    assert all(np.array_equal(a, b) for a, b in zip(fits[0], fits[1], strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(fits[0], fits[2], strict=True))


@pytest.mark.usefixtures("untraced")
def test_a_loss_that_diverges_restores_the_parameters() -> None:
    """Adam moves each weight by its learning rate, 1e30: the second loss overflows float32.

    With one step to a call the first loss is finite and the parameters after it are useless; with
    two steps the first call fails. Either way the start is the last state with a finite loss.
    """
    for steps_per_call in (1, 2):
        model = linear_vae()
        before = [v.numpy() for v in model.trainable_variables]
        settings = inference.VariationalSettings(num_steps=4, learning_rate=1e30)
        with pytest.raises(FloatingPointError, match="loss became .* Lower the learning rate"):
            inference.fit_variational(
                model,
                (None, linear_data()),
                settings,
                steps_per_call=steps_per_call,
                progress=False,
            )
        for variable, value in zip(model.trainable_variables, before, strict=True):
            np.testing.assert_array_equal(variable, value)


@pytest.mark.usefixtures("untraced")
def test_losses_and_callback_are_per_call() -> None:
    """Ten steps in calls of four: three calls, twelve steps."""
    calls: list[tuple[int, float]] = []
    losses = inference.fit_variational(
        linear_vae(),
        (None, linear_data()),
        inference.VariationalSettings(num_steps=10),
        steps_per_call=4,
        progress=False,
        callback=lambda steps, loss: calls.append((steps, loss)),
    )
    assert [steps for steps, _ in calls] == [4, 8, 12]
    np.testing.assert_array_equal(losses, [loss for _, loss in calls])


@pytest.mark.usefixtures("untraced")
def test_a_callback_ends_the_fit() -> None:
    """By True, after whole calls; anything else is no answer."""
    losses = inference.fit_variational(
        linear_vae(),
        (None, linear_data()),
        inference.VariationalSettings(num_steps=20),
        steps_per_call=4,
        progress=False,
        callback=lambda steps, loss: True if steps == 8 else 1,  # type: ignore[return-value]
    )
    assert len(losses) == 2


def test_a_model_without_a_bound_is_refused() -> None:
    model = models.BAE(dense(L, P), dense(2 * P, L), likelihoods.Gaussian(1.0), L)
    with pytest.raises(TypeError, match="needs a model with a bound.*got BAE; sampled models"):
        inference.fit_variational(model, (None, linear_data()), progress=False)


def test_a_gp_prior_needs_inputs() -> None:
    model = models.VariationalAutoencoder(
        latent_priors.GP(gpflow.kernels.SquaredExponential(), L),
        linear_vae().decoder,
        encoders.GaussianEncoder(dense(P, 2 * L)),
        likelihoods.Gaussian(1.0),
    )
    with pytest.raises(ValueError, match="GP is a prior over inputs: X is needed"):
        inference.fit_variational(model, (None, linear_data()), progress=False)


@pytest.mark.usefixtures("untraced")
def test_the_latent_prior_may_have_its_own_learning_rate() -> None:
    """Adam's first step is the learning rate times the sign of the gradient, whatever its size."""
    prior = latent_priors.GP(gpflow.kernels.SquaredExponential(), L)
    encoder = encoders.GaussianEncoder(dense(P, 2 * L))
    model = models.VariationalAutoencoder(
        prior, linear_vae().decoder, encoder, likelihoods.Gaussian(1.0)
    )
    before = [v.numpy() for v in model.trainable_variables]
    settings = inference.VariationalSettings(
        num_steps=1, learning_rate=1e-3, prior_learning_rate=1e-2
    )
    X = np.linspace(0.0, 5.0, 20)[:, None]
    data = (X, linear_data()[:, :20])
    inference.fit_variational(model, data, settings, steps_per_call=1, progress=False)
    of_prior = {id(v) for v in prior.trainable_variables}
    assert len(of_prior) == 3  # lengthscale, variance, code noise
    for variable, value in zip(model.trainable_variables, before, strict=True):
        rate = 1e-2 if id(variable) in of_prior else 1e-3
        # Weights: float32 of order 1: 1e-7 beside 1e-3. Adam's epsilon 1e-7 is beside gradients.
        np.testing.assert_allclose(np.abs(variable - value), rate, rtol=0.01)


class _Killed(Exception):
    pass


@pytest.mark.parametrize("geco", [False, True])
@pytest.mark.usefixtures("untraced")
def test_a_fit_that_died_and_is_resumed_is_an_uninterrupted_one(
    geco: bool, tmp_path: pathlib.Path
) -> None:
    """Bit by bit: parameters, losses, Adam's moments and GECO's multiplier are in the checkpoint.

    The fit dies after five calls of eight, with its last checkpoint after four.
    """
    objective = inference.GECO() if geco else inference.EvidenceLowerBound()
    settings = inference.VariationalSettings(
        num_steps=16, batch_size=20, objective=objective, final_learning_rate_fraction=0.1
    )

    def fit(out_dir: pathlib.Path | None, **options: Any) -> tuple[list[np.ndarray], np.ndarray]:
        keras.utils.set_random_seed(0)
        model = linear_vae()
        losses = inference.fit_variational(
            model,
            (None, linear_data()),
            settings,
            steps_per_call=2,
            checkpoint_every=2,
            out_dir=out_dir,
            progress=False,
            **options,
        )
        return [v.numpy() for v in model.trainable_variables], losses

    def die(steps: int, loss: float) -> None:
        if steps == 10:
            raise _Killed

    whole, losses = fit(None)
    with pytest.raises(_Killed):
        fit(tmp_path, callback=die)
    resumed, resumed_losses = fit(tmp_path, resume=True)
    np.testing.assert_array_equal(losses, resumed_losses)
    for a, b in zip(whole, resumed, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="holds a run with these settings already"):
        fit(tmp_path)


@pytest.mark.parametrize("decay", [0.1, 1.0])
def test_a_refit_is_a_new_fit_without_a_new_trace(decay: float) -> None:
    """Of equal variables, bit by bit, GECO's multiplier and a learning rate's decay included."""
    settings = inference.VariationalSettings(
        num_steps=8,
        batch_size=20,
        objective=inference.GECO(),
        final_learning_rate_fraction=decay,
    )
    keras.utils.set_random_seed(0)
    model = linear_vae()
    start = [v.numpy() for v in model.trainable_variables]
    data = prepare_data(model, (None, linear_data()))
    shared = inference.VariationalFit(model, data, settings, seed=3, steps_per_call=4)
    climb(shared, progress=False)
    traces = shared.block.experimental_get_tracing_count()
    assert traces == 1
    new: dict[int, list[np.ndarray]] = {}
    for seed in (4, 3):
        for refit in (True, False):
            for variable, value in zip(model.trainable_variables, start, strict=True):
                variable.assign(value)
            fit = shared
            if refit:
                shared.refit(seed)
            else:
                fit = inference.VariationalFit(model, data, settings, seed=seed, steps_per_call=4)
            losses = climb(fit, progress=False)
            found = [losses, *(v.numpy() for v in model.trainable_variables)]
            if not refit:
                assert all(map(np.array_equal, found, new[seed]))
            new[seed] = found
    assert not np.array_equal(new[3][0], new[4][0])
    assert shared.block.experimental_get_tracing_count() == traces


def test_parameters_that_the_last_step_broke_are_put_back() -> None:
    """The slope of a root is infinite at 0, and its value is not: no later loss would tell."""
    variable = tf.Variable(0.0)
    fit = Optimisation(
        lambda seed, carried, constants: (tf.sqrt(variable), carried),
        {"variable": variable},
        [([variable], 0.1)],
        num_steps=1,
        steps_per_call=1,
        seed=[0, 0],
        label="toy",
    )
    with pytest.raises(FloatingPointError, match="toy loss became nan .* Lower the learning rate"):
        run(fit, lambda: None, progress=False)
    assert variable.numpy() == 0.0
