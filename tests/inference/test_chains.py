"""Chains as an axis: each is what it is alone, whatever the model and the sampler."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_bae
from gpflow_bae import encoders, inference, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference import sampling
from tests.inference.amortized_models import SETTINGS, L, P, network, random_data, sgp_bae

NUM_CHAINS, SEED = 3, 5
SHORT = dataclasses.replace(
    SETTINGS,
    burnin=4,
    num_samples=4,
    thinning=4,
    encoder=dataclasses.replace(SETTINGS.encoder, batch_size=4),
)


ONE_ROUND = dataclasses.replace(SHORT, burnin=0, num_samples=1, thinning=4)


def seeded_model() -> models.SGPBAE:
    keras.utils.set_random_seed(0)
    return sgp_bae(inducing_outputs="sampled")


def start(num_steps: int = 20) -> inference.WarmStart:
    keras.utils.set_random_seed(1)
    return inference.WarmStart(
        encoders.GaussianEncoder(network(P, 2 * L)),
        inference.VariationalSettings(num_steps=num_steps),
        distillation=inference.EncoderSettings(batch_size=256, num_steps=10),
        num_initial_steps=0,
    )


def sample(
    seed: int, settings: inference.AmortizedSettings = SHORT, **options: Any
) -> gpflow_bae.Posterior:
    settings = dataclasses.replace(settings, batch_size=4, steps_per_batch=2)
    return inference.sample_amortized(
        seeded_model(),
        random_data(1, 9),
        settings,
        seed=seed,
        progress=False,
        **({"warm_start": None} | options),
    )


@functools.cache
def three_chains() -> gpflow_bae.Posterior:
    return sample(SEED, num_chains=NUM_CHAINS)


def assert_last_chain_is(together: gpflow_bae.Posterior, alone: gpflow_bae.Posterior) -> None:
    """Bit by bit: codes, parameters, encoder and statistics; and the chains differ."""
    for part in ("parameters", "encoder", "trace"):
        for path, values in getattr(together.bank, part).items():
            np.testing.assert_array_equal(
                values[-1], getattr(alone.bank, part)[path][0], err_msg=path
            )
    np.testing.assert_array_equal(together.bank.latents[-1], alone.bank.latents[0])
    latents = together.bank.latents
    assert all(np.all(a != b) for a, b in itertools.pairwise(latents))


def test_a_chain_of_many_is_the_chain_alone() -> None:
    assert three_chains().bank.num_chains == NUM_CHAINS
    assert_last_chain_is(three_chains(), sample(SEED + NUM_CHAINS - 1))


def test_warm_starts_are_those_of_chains_alone() -> None:
    """One for all chains, or of other lengths, whose losses are then no table.

    The second chain has the same start in three runs: of two chains with the start, of two with
    starts of their own, and alone.
    """
    first, second, alone = (
        sample(seed, ONE_ROUND, warm_start=starts, num_chains=num_chains)
        for seed, num_chains, starts in (
            (SEED, 2, start(20)),
            (SEED, 2, [start(70), start(20)]),
            (SEED + 1, 1, [start(20)]),
        )
    )
    assert_last_chain_is(first, alone)
    np.testing.assert_array_equal(second.bank.latents[1], alone.bank.latents[0])
    assert np.all(second.bank.latents[0] != first.bank.latents[0])
    assert "warm_start_loss" not in second.bank.trace and "warm_start_loss" in first.bank.trace


def test_chains_give_r_hat_without_any_work() -> None:
    arviz = pytest.importorskip("arviz")
    together = three_chains()
    data = together.to_inference_data()
    assert dict(data.posterior.sizes)["chain"] == NUM_CHAINS
    assert np.isfinite(float(arviz.rhat(data)["likelihood.variance"]))


def _prepared() -> Any:
    return prepare_data(seeded_model(), random_data(1, 9))


def test_one_trace_for_a_scheduled_step_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule is a tensor of the step: burn-in, sampling and every step size are one trace."""
    made = []

    class Recorded(inference.AmortizedSampling):
        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(sampling, "AmortizedSampling", Recorded)
    sampler = mcmc.sgld.build(step_size=lambda step: 1e-4 / (1.0 + tf.cast(step, tf.float64)))
    posterior = inference.sample_amortized(
        seeded_model(), random_data(1, 9), SHORT, sampler=sampler, progress=False, warm_start=None
    )
    assert [algorithm.tracing_count for algorithm in made] == [1]
    assert np.isfinite(posterior.latents).all()


def test_settings_are_not_in_the_trace() -> None:
    """Another step size in the state of the same compiled round: another end, no new trace."""
    algorithm = inference.AmortizedSampling(seeded_model(), _prepared(), SHORT)
    chains = algorithm.initial()
    ends = []
    for step_size in (0.01, 0.02):
        shared = chains.sampler.shared | {"step_size": tf.constant([step_size], tf.float64)}
        moved, _ = algorithm.round(
            chains._replace(sampler=chains.sampler._replace(shared=shared)), 0
        )
        ends.append(moved.sampler.position.codes.numpy())
    assert algorithm.tracing_count == 1
    assert np.all(ends[0] != ends[1])


def test_chains_and_starts_that_do_not_fit() -> None:
    data = random_data(1, 9)
    with pytest.raises(ValueError, match="num_chains must be at least 1, got 0"):
        inference.sample_amortized(seeded_model(), data, SHORT, num_chains=0, warm_start=None)
    with pytest.raises(ValueError, match="2 starts for num_chains=3 chains"):
        inference.sample_amortized(
            seeded_model(), data, SHORT, num_chains=3, warm_start=[start(), start()]
        )
    settings = inference.VariationalSettings()  # of a start, instead of a start
    with pytest.raises(TypeError, match=r"WarmStart\(settings\).*got VariationalSettings"):
        inference.sample_amortized(seeded_model(), data, SHORT, warm_start=settings)


def test_point_estimates_need_a_temperature_for_each_parameter() -> None:
    data = random_data(1, 9)
    with pytest.raises(ValueError, match="point_estimates need a sampler with a temperature"):
        inference.sample_amortized(
            seeded_model(),
            data,
            SHORT,
            sampler=mcmc.mclmc.build(),
            point_estimates=(".decoder",),
            warm_start=None,
        )
