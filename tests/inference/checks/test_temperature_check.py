"""Kinetic temperatures against theory, and chains that are too hot on purpose are caught."""

from __future__ import annotations

import dataclasses
import types
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from gpflow_bae import inference, mcmc
from gpflow_bae.inference.checks.temperature_check import (
    blocks_off_temperature,
    warn_of_temperature,
)
from gpflow_bae.inference.loops import repeat
from gpflow_bae.mcmc.algorithm import Step, Target
from gpflow_bae.mcmc.noise import noise_like
from gpflow_bae.posteriors import Posterior
from tests.inference.amortized_models import P, bae

NUM = 40_000  # scalars of a leaf: a temperature is known to sqrt(2 / NUM), 0.7 %


def expected(step_size: float, decay: float, gradient_variance: float) -> float:
    """Stationary momentum^2 / h^2 of SGHMC on N(0, 1), by its discrete Lyapunov equation.

    A step is linear: r <- (1 - a) r - h^2 q + noise, q <- q + r.
    """
    h, a = step_size, decay
    A = np.array([[1.0 - h**2, 1.0 - a], [-(h**2), 1.0 - a]])
    noise = (2.0 * a * h**2 + h**4 * gradient_variance) * np.ones((2, 2))
    return float(scipy.linalg.solve_discrete_lyapunov(A, noise)[1, 1] / h**2)


@pytest.mark.parametrize("decay", [0.05, 0.3])
def test_noisy_gradients_heat_the_blocks_they_are_in_as_theory_says(decay: float) -> None:
    """Of a linear-Gaussian model; a larger friction is one of the remedies."""
    h, variances = 0.2, {"exact": 0.0, "noisy": 20.0}
    sampler = mcmc.sghmc.build(step_size=h, momentum_decay=decay)

    def gradient(position, seed):  # type: ignore[no-untyped-def]
        noise = noise_like(position, tf.random.fold_in(seed, 1, alg="philox"))
        return {k: -q + np.sqrt(variances[k]) * noise[k] for k, q in position.items()}

    target = Target(gradient)

    @tf.function(autograph=False)
    def run():  # type: ignore[no-untyped-def]
        def body(i, state):  # type: ignore[no-untyped-def]
            seed = tf.random.fold_in(tf.constant([0, 7]), i, alg="philox")
            return sampler.step(state, target, seed, Step(i, False))

        # q relaxes within a / h^2, at most ten steps, and r within 1 / a, at most twenty.
        start = sampler.init({k: tf.zeros([NUM]) for k in variances}, target)
        return sampler.temperatures(repeat(300, body, start))

    found = {k: float(v) for k, v in run().items()}
    theory = {k: expected(h, decay, v) for k, v in variances.items()}
    assert theory["noisy"] > 1.5 and theory["exact"] < 1.25
    for name, value in theory.items():
        assert found[name] == pytest.approx(value, rel=5.0 * np.sqrt(2.0 / NUM))


def sampled(batch_size: int | None, step_size: float, **settings) -> Posterior:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((60, 1, 2)) @ rng.standard_normal((2, P))
    return inference.sample_amortized(
        bae(),
        (None, Y + 0.3 * rng.standard_normal(Y.shape)),
        settings=inference.AmortizedSettings(
            batch_size=batch_size,
            num_sampler_steps=10,
            encoder=inference.EncoderSettings(num_steps=1),
            burnin=1000,
            num_samples=4,
            thinning=500,
            codes="carried",
            **settings,
        ),
        sampler=mcmc.sghmc.build(step_size=step_size, momentum_decay=0.05),
        warm_start=None,
        seed=0,
        progress=False,
    )


def test_full_batches_of_small_steps_are_at_temperature_one() -> None:
    """Every block, within what 200 rounds of a small block can tell."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The chains were not at their temperature")
        posterior = sampled(None, 0.004)
    found = posterior.kinetic_temperatures
    assert list(found) == [*posterior.model.sampled.paths, "codes"]
    assert all(v.shape == (1,) for v in found.values())
    assert found["codes"][0] == pytest.approx(1.0, abs=0.1)
    assert inference.blocks_off_temperature(posterior) == {}
    rounds = posterior.bank.trace["kinetic_temperature"]
    assert rounds.shape == (1, 300, len(found))
    # 1000 of 3000 steps, ten to a round, are burn-in and do not count.
    np.testing.assert_allclose([v[0] for v in found.values()], rounds[0, 100:].mean(0))
    assert inference.block_temperatures(posterior)["codes"].shape == (1, 200)
    # Without a trace there are none.
    assert posterior.select([0]).kinetic_temperatures == {}


def test_minibatches_that_heat_a_chain_are_named_with_a_remedy() -> None:
    with pytest.warns(
        UserWarning, match="control_variates.*a larger batch_size than 3 .*larger momentum_decay"
    ):
        posterior = sampled(3, 0.02)
    off = inference.blocks_off_temperature(posterior)
    assert off and max(off.values()) > 1.5
    temperatures = list(off.values())
    assert temperatures == sorted(temperatures, key=lambda t: -abs(np.log(t)))
    # Had it been BAOAB, positions would be hotter than its momenta (exactly so of a free particle).
    momenta = max(off.values())
    sampler = {"integrator": "baoab", "momentum_decay": 0.5}
    settings = posterior.bank.settings | {"sampler_settings": sampler}
    of_baoab = Posterior(
        posterior.model, dataclasses.replace(posterior.bank, settings=settings), posterior.data
    )
    positions = max(inference.blocks_off_temperature(of_baoab).values())
    np.testing.assert_allclose(positions - 1.0, 2.25 * (momenta - 1.0), rtol=1e-6)
    of_baoab.bank.settings["sampler_settings"] = sampler | {"integrator": "obabo"}
    assert max(inference.blocks_off_temperature(of_baoab).values()) == momenta
    # What is meant to be cold, or redrawn in every round, is not looked at.
    first = next(iter(off))
    settings = posterior.bank.settings | {"point_estimates": [first]}
    posterior.bank = dataclasses.replace(posterior.bank, settings=settings)
    assert first not in inference.blocks_off_temperature(posterior)


def recorded(rounds: np.ndarray) -> Any:
    """What the check reads of a chain with these temperatures [rounds] of one block."""
    blocks = {"block": rounds[None]}
    means = {name: v.mean(1) for name, v in blocks.items()}
    return types.SimpleNamespace(
        temperature=1.0,
        bank=types.SimpleNamespace(settings={}),
        model=None,
        kinetic_temperature_rounds=blocks,
        kinetic_temperatures=means,
    )


def test_estimates_of_short_chains_are_judged_in_proportion_to_their_size() -> None:
    """Of 40 rounds, as the default run has. Temperatures of one number are chi-squared; one of two
    effective draws in a round is often half off by chance, and a hot one fluctuates as it is hot.
    """
    rng = np.random.default_rng(0)
    chance = rng.chisquare(2.0, (1000, 40)) / 2.0
    bursts = np.exp(0.8 * rng.standard_normal((1000, 8))).repeat(5, axis=1)
    hot = 4.0 * bursts / np.exp(0.32) * chance
    share = [
        np.mean([bool(blocks_off_temperature(recorded(r))) for r in rounds])
        for rounds in (chance, hot)
    ]
    # A t statistic of seven degrees of freedom passes 3 in 2 % of cases; skewness adds some.
    assert share[0] < 0.04
    assert share[1] > 0.7  # 0.2 if deviations are compared with the error itself


def test_a_chain_too_short_to_know_says_so() -> None:
    rng = np.random.default_rng(1)
    few = rng.chisquare(8.0, 10)
    with pytest.warns(UserWarning, match="too short .* in the 10 rounds .* 1 of 1 .*: block 2.08"):
        warn_of_temperature(recorded(few * 2.08 / few.mean()))
    rare = np.ones(40)
    rare[5] = 44.2  # 2.08 on average, and all of the excess in one round
    with pytest.warns(UserWarning, match="too short .* in the 40 rounds .* block 2.08"):
        warn_of_temperature(recorded(rare))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_temperature(recorded(np.full(10, 1.2)))
