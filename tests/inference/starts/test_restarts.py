"""Many climbs: a posterior with one mode in closed form, and one with several."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference
from gpflow_bae.data import prepare_data
from tests.inference.amortized_models import bae
from tests.inference.engines.test_tempered import linear_regression, rows, small_model


def log_posterior(model: Any, Y: np.ndarray) -> float:
    batch = prepare_data(model, (None, Y)).gather(None)
    values = model.sampled.values()
    lifted = [v[tf.newaxis] for v in values]
    return float(model.log_likelihood(lifted, batch)[0] + model.sampled.log_prior(values))


def test_every_climb_of_a_posterior_with_one_mode_ends_there() -> None:
    """Bayesian linear regression: its mode is its mean, in float32 to about 1e-4."""
    model, mean, _ = linear_regression()
    found = inference.best_restart(model, (None, rows()), 3, 500, progress=False)
    kernel, bias = (p.numpy() for p in model.sampled.parameters)
    np.testing.assert_allclose(np.vstack([kernel, bias]), mean, atol=2e-3)
    np.testing.assert_allclose(found.log_posterior, found.log_posterior[0], atol=0.01)


def test_the_best_of_several_modes_is_kept_and_the_others_are_reported() -> None:
    data: Any = (None, rows())
    options: Any = {"seed": 5, "progress": False}
    short = inference.best_restart(small_model(), data, 4, 20, 0, **options)
    model = small_model()
    found = inference.best_restart(model, data, 4, 20, 2, **options)
    finalists = np.argsort(-short.log_posterior)[:2]
    gained = found.log_posterior - short.log_posterior
    assert gained[finalists].min() >= 0.0 and gained[finalists].max() > 0.1
    np.testing.assert_allclose(np.delete(gained, finalists), 0.0, atol=1e-6)
    assert found.log_posterior.shape == found.log_likelihood.shape == (4,)
    assert np.ptp(found.log_posterior) > 1.0  # or there would be nothing to choose
    assert found.best == np.argmax(found.log_posterior)
    np.testing.assert_allclose(
        log_posterior(model, rows()), found.log_posterior[found.best], rtol=1e-5
    )
    assert f"{found.log_posterior.max():.1f}" in str(found) and "behind" in str(found)
    alone = inference.Restarts(np.array([1.0]), np.array([2.0]), 0)
    assert str(alone).endswith("log posterior 1.0, log likelihood 2.0 nats.")


def test_restarts_from_draws_of_ones_own() -> None:
    """Each is given its number, and one without iterations stays where it was drawn."""
    model = small_model()
    seen: list[int] = []

    def draw(number: int) -> tuple[tf.Tensor, ...]:
        seen.append(number)
        return tuple(v + 0.01 * number for v in model.sampled.values())

    inference.best_restart(model, (None, rows()), 2, 1, draw=draw, seed=7, progress=False)
    assert seen == [7, 8]


def test_what_cannot_be_climbed_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a TemperedBAE, got BAE"):
        inference.best_restart(bae(), (None, rows()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_restarts must be at least 1, got 0"):
        inference.best_restart(small_model(), (None, rows()), 0)
    model = small_model()

    def nowhere(number: int) -> list[tf.Tensor]:
        return [tf.fill(v.shape, tf.cast(np.nan, v.dtype)) for v in model.sampled.values()]

    with pytest.raises(ValueError, match="None of 1 restarts ended at a finite log posterior"):
        inference.best_restart(model, (None, rows()), 1, 5, draw=nowhere, progress=False)


def test_chains_of_an_ensemble_start_at_modes_of_their_own() -> None:
    """Chain c is that of one chain with seed + c, from the climb with that number; what it begins
    at is found again by the climb alone.
    """
    start = inference.ModeStart(max_iterations=50)
    settings, sampler = inference.amortized_preset("ensemble")
    settings = dataclasses.replace(settings, burnin=50, num_samples=2, thinning=50)
    options: Any = {"sampler": sampler, "warm_start": start, "progress": False}
    model = small_model()
    before = [v.numpy() for v in model.sampled.values()]
    several = inference.sample_amortized(
        model, (None, rows()), settings, num_chains=2, seed=3, **options
    )
    assert several.bank.trace["step_size"].shape[0] == 2
    losses = several.bank.trace["warm_start_loss"]
    assert losses.shape == (2, 1) and losses[0] != losses[1]
    for c in range(2):
        alone = small_model()
        alone.sampled.assign([tf.constant(v) for v in before])
        found = inference.sample_amortized(
            alone, (None, rows()), settings, num_chains=1, seed=3 + c, **options
        )
        for path, draws in several.bank.parameters.items():
            np.testing.assert_array_equal(draws[c], found.bank.parameters[path][0])
        mode = inference.best_restart(
            small_model(), (None, rows()), 1, 50, 0, seed=3 + c, progress=False
        )
        np.testing.assert_allclose(-losses[c], mode.log_posterior, rtol=1e-5)


def test_modes_are_for_models_of_weights_alone() -> None:
    with pytest.raises(TypeError, match="ModeStart is for a TemperedBAE, got BAE"):
        inference.ModeStart().run(bae(), prepare_data(bae(), (None, rows())), seed=0)
    with pytest.raises(ValueError, match="num_restarts must be positive"):
        inference.ModeStart(num_restarts=0)
