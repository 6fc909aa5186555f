"""Tempered MCMC over weights: against a closed form, resumed, and in whitened coordinates."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae import decoders, inference, models
from gpflow_bae.core import functional
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.preconditioning import AffineMap, affine_map

N, P, L = 30, 3, 2
NOISE_VARIANCE, PRIOR_SCALE = 0.25, 2.0


def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((N, P)).astype(np.float32)


def dense(num_inputs: int, *widths: int, activation: str | None = None) -> keras.Model:
    layers = [keras.layers.Dense(width, activation=activation) for width in widths]
    return keras.Sequential([keras.Input((num_inputs,)), *layers])


def linear_regression() -> tuple[models.TemperedBAE, np.ndarray, np.ndarray]:
    """A fixed linear encoder, and a linear decoder that is all there is to sample.

    :return: the model, and the exact posterior mean [L + 1, P] and covariance [L + 1, L + 1] of
        each output's weights and bias.
    """
    model = models.TemperedBAE(
        dense(P, L),
        dense(L, P),
        weight_prior=decoders.normal_prior(PRIOR_SCALE),
        noise_variance=NOISE_VARIANCE,
    )
    gpflow.set_trainable(model.encoder, False)
    gpflow.set_trainable(model.likelihood, False)
    Y = rows()
    codes = model.encode(tf.constant(Y)).numpy().astype(float)
    design = np.concatenate([codes, np.ones((N, 1))], 1)
    precision = design.T @ design / NOISE_VARIANCE + np.eye(L + 1) / PRIOR_SCALE**2
    covariance = np.linalg.inv(precision)
    return model, covariance @ design.T @ Y / NOISE_VARIANCE, covariance


def stacked(posterior: Any) -> np.ndarray:
    """[R, S, L + 1, P]: kernel and bias of the decoder."""
    kernel, bias = posterior.parameters
    return np.concatenate([kernel, bias[:, :, None]], 2)


@pytest.mark.parametrize(
    "proposal, kind",
    [
        (inference.Proposal(noise_scale=0.05, adam_learning_rate=1e-3), "none"),
        (inference.Proposal("random_walk", noise_scale=0.05), "none"),
        (inference.Proposal("lg", noise_scale=1.0), "dense"),
        (inference.Proposal("lg", noise_scale=1.0), "kronecker"),
        (inference.Proposal("hmc", noise_scale=0.05, max_leapfrog_steps=5), "none"),
    ],
    ids=lambda v: v if isinstance(v, str) else v.method,
)
def test_samples_are_those_of_bayesian_linear_regression(
    proposal: inference.Proposal, kind: Any
) -> None:
    model, mean, covariance = linear_regression()
    share = 0.234 if proposal.method == "random_walk" else 0.6
    posterior = inference.sample_tempered(
        model,
        rows(),
        inference.TemperedSettings(
            dataclasses.replace(proposal, target_acceptance=share),
            num_samples=4000 if proposal.method in ("lg", "hmc") else 9000,
            num_replicas=4,
            whitening=inference.Whitening(kind),
        ),
        seed=1,
        progress=False,
    )
    draws = stacked(posterior)
    # Replicas are chains of the posterior after burn-in: the spread of their averages gives the
    # Monte Carlo error, pooled over the nine scalars in units of their standard deviations.
    scale = np.sqrt(np.diag(covariance))[:, None]
    per_chain = (draws.mean(1) - mean) / scale
    error = np.sqrt(np.mean(per_chain.var(0, ddof=1)) / len(per_chain))
    assert error < 0.1, "not precise enough to tell"
    assert np.all(np.abs(per_chain.mean(0)) < 4 * error)
    ratio = draws.reshape(-1, L + 1, P).std(0) / scale
    np.testing.assert_allclose(ratio.mean(), 1.0, atol=0.1)
    np.testing.assert_allclose(ratio, 1.0, atol=0.25)
    assert set(posterior.trace["temperature"][-1]) == {1.0}
    np.testing.assert_allclose(sorted(posterior.trace["temperature"][0])[-1], 2.0)


def small_model() -> models.TemperedBAE:
    keras.utils.set_random_seed(3)
    return models.TemperedBAE(
        dense(P, 4, L, activation="sigmoid"), dense(L, 4, P, activation="sigmoid")
    )


SHORT = inference.TemperedSettings(
    inference.Proposal(target_acceptance=0.5),
    num_samples=60,
    num_replicas=3,
    thinning=5,
    start=inference.AdamStart(10),
)


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("method, stop", [("adapt_lg_star", 16), ("lg", 6)])
def test_a_resumed_run_is_the_same_run(
    tmp_path: pathlib.Path, method: Any, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Vectorised replicas are traced whatever else is not.
    monkeypatch.setattr("gpflow_bae.models.tempered._VECTORISE_UP_TO", 0)
    settings = dataclasses.replace(
        SHORT,
        proposal=inference.Proposal(method, target_acceptance=0.5),
        whitening=inference.Whitening("kronecker", num_draws=10),
        num_samples=20,
        swap_interval=2,
        thinning=2,
    )
    common: dict[str, Any] = {"seed": 2, "progress": False}
    whole = inference.sample_tempered(small_model(), rows(), settings, **common)
    folder = tmp_path / "run"
    if stop < settings.num_burnin:
        with pytest.raises(ValueError, match="max_steps = 6 ends before the first sample"):
            inference.sample_tempered(
                small_model(), rows(), settings, out_dir=folder, max_steps=stop, **common
            )
    else:
        inference.sample_tempered(
            small_model(), rows(), settings, out_dir=folder, max_steps=stop, **common
        )
    resumed = inference.sample_tempered(
        small_model(), rows(), settings, out_dir=folder, resume=True, **common
    )
    for a, b in zip(whole.parameters, resumed.parameters, strict=True):
        np.testing.assert_array_equal(a, b)
    for name, values in whole.trace.items():
        np.testing.assert_array_equal(values, resumed.trace[name])
    with pytest.raises(ValueError, match="holds a run with other settings"):
        inference.sample_tempered(
            small_model(), rows(), dataclasses.replace(settings, thinning=10), out_dir=folder
        )


def test_each_phase_is_traced_once() -> None:
    model = small_model()
    data = prepare_data(model, (None, rows()))
    algorithm = inference.TemperedSampling(model, data, SHORT)
    coordinates = AffineMap(algorithm.replicated_values())
    inference.run(algorithm, lambda: algorithm.initial_chain(coordinates), progress=False)
    assert algorithm.tracing_count == 2


def test_density_is_an_independent_computation() -> None:
    model = small_model()
    values = [tf.stack([v, 1.1 * v]) for v in functional.unconstrained_values(
        model.sampled.parameters)]  # fmt: skip
    Y = rows()
    data = prepare_data(model, (None, Y))
    found = model.log_likelihood(values, data.gather(None)).numpy()
    prior = model.log_prior(values).numpy()
    for r in range(2):
        by_path = dict(zip(model.sampled.paths, (v[r].numpy() for v in values), strict=True))
        h = Y.astype(float)
        log_prior = 0.0
        for network in ("encoder", "decoder"):
            for i in range(0, 4, 2):
                W, b = (by_path[f".{network}.weights[{i + j}]"].astype(float) for j in range(2))
                h = 1.0 / (1.0 + np.exp(-(h @ W + b)))
                for w in (W, b):
                    log_prior += np.sum(-0.5 * (w / 5.0) ** 2 - np.log(5.0 * np.sqrt(2 * np.pi)))
        raw = float(by_path[".likelihood.variance"])
        variance = 1e-6 + np.log1p(np.exp(raw))
        expected = np.sum(-0.5 * np.log(2 * np.pi * variance) - 0.5 * (Y - h) ** 2 / variance)
        np.testing.assert_allclose(found[r], expected, rtol=1e-5)
        noise = tfp.distributions.InverseGamma(np.float64(0.01), np.float64(3.0))
        log_prior += float(noise.log_prob(variance)) - np.log1p(np.exp(-raw))
        np.testing.assert_allclose(prior[r], log_prior, rtol=1e-6)


def test_vectorised_and_unrolled_replicas_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    values = [tf.stack([v, 0.5 * v, 2 * v]) for v in functional.unconstrained_values(
        model.sampled.parameters)]  # fmt: skip
    data = prepare_data(model, (None, rows())).gather(None)
    vectorised = model.log_likelihood(values, data)
    monkeypatch.setattr("gpflow_bae.models.tempered._VECTORISE_UP_TO", 0)
    np.testing.assert_allclose(model.log_likelihood(values, data), vectorised, rtol=1e-6)


def test_missing_entries_drop_out_of_the_likelihood() -> None:
    model, Y = small_model(), rows()
    Y[::3, 1] = np.nan
    data = prepare_data(model, (None, Y)).gather(None)
    values = [v[None] for v in model.sampled.values()]
    F = model.reconstruct(tf.constant(np.nan_to_num(Y))).numpy().astype(float)
    observed = ~np.isnan(Y)
    variance = float(model.likelihood.variance.numpy())
    expected = np.sum(
        (-0.5 * np.log(2 * np.pi * variance) - 0.5 * (Y - F) ** 2 / variance)[observed]
    )
    np.testing.assert_allclose(model.log_likelihood(values, data)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "kronecker"])
def test_whitening_is_the_posterior_covariance_where_that_is_known(kind: Any) -> None:
    """For a linear decoder the Fisher information is X^T X / tau^2 for each output."""
    model, _, covariance = linear_regression()
    data = prepare_data(model, (None, rows()))
    values = tuple(v[None] for v in model.sampled.values())
    coordinates = affine_map(model, data, values, inference.Whitening(kind, 4000), seed=0)
    size = (L + 1) * P
    position = []  # the unit vectors, as a batch
    units, start = np.eye(size), 0
    for v in values:
        count = int(np.prod(v.shape[1:]))
        block = units[:, start : start + count].reshape(size, *v.shape[1:])
        position.append(tf.constant(block, coordinates.centre()[0].dtype))
        start += count
    moved = coordinates.forward(position)
    columns = np.concatenate(
        [np.reshape(m - v, [size, -1]) for m, v in zip(moved, values, strict=True)], 1
    ).astype(float)
    found = columns.T @ columns  # L L^T, in the order kernel [L, P], bias [P]
    if kind == "dense":
        expected = np.kron(covariance, np.eye(P))
        np.testing.assert_allclose(found, expected, atol=0.1 * np.abs(expected).max())
    else:  # kernel and bias apart: each is right given the other
        precision = np.linalg.inv(covariance)
        expected = np.kron(np.linalg.inv(precision[:L, :L]), np.eye(P))
        kernel = found[: L * P, : L * P]
        np.testing.assert_allclose(kernel, expected, atol=0.1 * np.abs(expected).max())


def test_damping_caps_the_scale() -> None:
    model, _, _ = linear_regression()
    data = prepare_data(model, (None, rows()))
    values = tuple(v[None] for v in model.sampled.values())
    whitening = inference.Whitening("dense", num_draws=100, damping=400.0)
    (found,) = affine_map(model, data, values, whitening, seed=0).maps
    assert np.max(found.scale) <= 1 / 20.0 + 1e-9


def test_the_climb_ends_at_the_mode() -> None:
    model, mean, _ = linear_regression()
    data = prepare_data(model, (None, rows()))
    start = inference.AdamStart(1500, learning_rate=0.05)
    codes, losses = start.run(model, data, seed=0, progress=False)
    assert codes is None
    found = np.vstack([p.numpy() for p in model.sampled.parameters])
    np.testing.assert_allclose(found, mean, atol=1e-3)
    assert losses[-1] < losses[0] and len(losses) == 15


@pytest.mark.parametrize(
    "start",
    [inference.AdamStart(100, learning_rate=0.05), inference.ModeStart(max_iterations=20)],
    ids=lambda start: type(start).__name__,
)
def test_replicas_start_where_their_start_ends_and_the_model_stays(start: Any) -> None:
    model, _, _ = linear_regression()
    before = [v.numpy() for v in model.sampled.values()]
    proposal = inference.Proposal("random_walk", noise_scale=1e-5)
    settings = inference.TemperedSettings(proposal, num_samples=10, num_replicas=2, start=start)
    posterior = inference.sample_tempered(model, rows(), settings, progress=False)
    for value, old in zip(model.sampled.values(), before, strict=True):
        np.testing.assert_array_equal(value, old)
    data = prepare_data(model, (None, rows()))
    start.run(model, data, seed=0, progress=False)
    expected = model.data_log_likelihood(data.gather(None))
    # Slopes are some hundred nats for each unit, and a step is 1e-5.
    np.testing.assert_allclose(posterior.trace["log_likelihood"][0], expected, atol=0.02)
    assert np.any(model.sampled.values()[0] != before[0])


@pytest.mark.parametrize(
    "part, argument, value, message",
    [
        ("TemperedSettings", "num_replicas", 1, "num_replicas must be at least 2, got 1"),
        ("TemperedSettings", "max_temperature", 1.0, "max_temperature must be above 1, got 1.0"),
        ("TemperedSettings", "swap_interval", 0, "swap_interval must be positive, got 0"),
        ("TemperedSettings", "burnin_fraction", 1.0, "burnin_fraction must lie in"),
        ("TemperedSettings", "whitening", "dense", "whitening must be a Whitening, got 'dense'"),
        ("Proposal", "method", "hamiltonian", "method must be one of"),
        ("Proposal", "noise_scale", 0.0, "noise_scale must be positive"),
        ("Proposal", "target_acceptance", 1.0, "target_acceptance must lie in"),
        ("Proposal", "gradient_probability", 1.5, "gradient_probability must be in"),
        ("Whitening", "kind", "diagonal", "kind must be one of"),
        ("Whitening", "damping", -1.0, "damping must be at least 0"),
        ("AdamStart", "num_steps", -1, "num_steps must be at least 0"),
        ("AdamStart", "learning_rate", 0.0, "learning_rate must be positive"),
    ],
)
def test_bad_settings_are_refused(part: str, argument: str, value: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(inference, part)(**{argument: value})


def test_records_have_the_names_of_flags() -> None:
    """A flat record: experiments write it, and stored rows have it."""
    settings = inference.TemperedSettings(
        inference.Proposal("hmc", max_leapfrog_steps=3),
        whitening=inference.Whitening("dense", 7, 2.0),
        start=inference.AdamStart(5, 4, 0.1),
    )
    found = settings.describe()
    expected = {
        "method": "hmc",
        "max_leapfrog_steps": 3,
        "whitening": "dense",
        "num_fisher_draws": 7,
        "whitening_damping": 2.0,
        "num_start_steps": 5,
        "start_batch_size": 4,
        "start_learning_rate": 0.1,
    }
    assert {name: found[name] for name in expected} == expected
    assert inference.TemperedSettings().describe()["num_start_steps"] == 0


def test_a_target_that_is_not_finite_at_the_start_is_refused() -> None:
    model = small_model()
    model.decoder.weights[0].unconstrained_variable.assign(np.full([L, 4], np.inf))
    with pytest.raises(ValueError, match="not finite at the initial position"):
        inference.sample_tempered(
            model, rows(), inference.TemperedSettings(num_samples=20), progress=False
        )


def test_dense_whitening_of_a_large_network_is_refused() -> None:
    model = models.TemperedBAE(dense(80, 60), dense(60, 80))
    with pytest.raises(ValueError, match='above 5000 take "kronecker"'):
        inference.sample_tempered(
            model,
            np.zeros((4, 80)),
            inference.TemperedSettings(whitening=inference.Whitening("dense")),
            progress=False,
        )
