"""Kinetic temperatures against theory, and chains that are too hot on purpose are caught."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from gpflow_bae import inference, mcmc
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
