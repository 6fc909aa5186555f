"""Every sampler of the table: its contract, its distribution, its bias; and broken ones fail."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc import adaptive_sghmc, sghmc, sgld
from gpflow_bae.mcmc.calibrated import random_walk
from tests.mcmc.theory import mutations
from tests.mcmc.theory.assertions import (
    assert_banana,
    assert_crosses_modes,
    assert_gaussian,
    assert_standard_normal,
    compiled,
    measure_bias_order,
    run,
)
from tests.mcmc.theory.calibration import BATCH_SIZE, assert_calibrated
from tests.mcmc.theory.densities import ANHARMONIC, GAUSSIAN
from tests.mcmc.theory.harness import CASES, SamplerCase, case_named

SEED = tf.constant([1, 2])
COMPILED = ("sghmc_obabo", "hmc", "tempered_mala")


def cases(condition: Any = lambda case: True) -> Any:
    rows = [case for case in CASES if condition(case)]
    return pytest.mark.parametrize("case", rows, ids=[case.name for case in rows])


def start(dtype: tf.DType = tf.float32, num_chains: int = 5) -> tf.Tensor:
    return tf.reshape(tf.linspace(tf.constant(-1, dtype), 1, 2 * num_chains), [num_chains, 2])


def advance(case: SamplerCase, state: Any, first: int, last: int, **options: Any) -> Any:
    steps = (tf.constant(i) for i in (first, last, last))
    numbers = tf.constant(1.0), tf.constant(case.step_size)
    return compiled(case, GAUSSIAN.log_prob, **options)(state, *numbers, *steps)[0]


def initial(case: SamplerCase, num_chains: int) -> Any:
    return case.make(GAUSSIAN.log_prob, 1.0).init(start(num_chains=num_chains), SEED)


@cases()
def test_structure_shapes_and_dtypes_are_stable(case: SamplerCase) -> None:
    sampler = case.make(GAUSSIAN.log_prob, 1.0)
    for dtype in (tf.float32, tf.float64):
        before = sampler.init(start(dtype), SEED)
        after = sampler.step(before, SEED)
        tf.nest.assert_same_structure(before, after)
        for old, new in zip(tf.nest.flatten(before), tf.nest.flatten(after), strict=True):
            assert (old.shape, old.dtype) == (new.shape, new.dtype)
        position = sampler.position(after)
        assert position.dtype == dtype and position.shape == [5, 2]
        assert np.all(position != start(dtype)) or case.calibrated


@cases()
def test_resumed_is_the_same_chain_traced_once(case: SamplerCase) -> None:
    # With as many chains as below, so that it is their trace.
    state, function = initial(case, case.num_chains), compiled(case, GAUSSIAN.log_prob)
    whole = advance(case, state, 0, 12)
    count = function.experimental_get_tracing_count()
    halves = advance(case, advance(case, state, 0, 6), 6, 12)
    assert function.experimental_get_tracing_count() == count
    tf.nest.map_structure(np.testing.assert_array_equal, whole, halves)


# Compiling is dear: one row of those that share their operations. test_kernels.py compiles sghmc
# and adaptive_sghmc.
@cases(lambda case: case.name in COMPILED)
def test_xla_draws_the_same(case: SamplerCase) -> None:
    # The bits of the noise are equal; log, sin, cos and the order of sums are rounded otherwise.
    state = initial(case, 5)
    whole, xla = (advance(case, state, 0, 12, jit_compile=jit) for jit in (False, True))
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5), whole, xla
    )


@cases()
def test_a_chain_that_diverges_leaves_the_others_alone(case: SamplerCase) -> None:
    # Not from the first step on: initial positions may be checked.
    state = initial(case, case.num_chains)
    broken = tf.nest.map_structure(
        lambda part: (
            tf.concat([part[:1] * np.nan, part[1:]], axis=0)
            if part.shape[:1] == [case.num_chains] and part.dtype.is_floating
            else part
        ),
        state,
    )
    position = case.make(GAUSSIAN.log_prob, 1.0).position
    ends = [position(advance(case, each, 0, 6)) for each in (state, broken)]
    np.testing.assert_array_equal(ends[0][1:], ends[1][1:])


@cases(lambda case: not case.calibrated)
def test_nothing_moves_without_forces(case: SamplerCase) -> None:
    sampler = case.make(lambda x: tf.reduce_sum(0.0 * x, axis=-1), 0.0)
    state = sampler.init(start(), SEED)
    for _ in range(3):
        state = sampler.step(state, SEED)
    np.testing.assert_array_equal(sampler.position(state), start())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@cases()
def test_gaussian(case: SamplerCase, temperature: float) -> None:
    assert_gaussian(case, temperature)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@cases(lambda case: case.calibrated)
def test_banana(case: SamplerCase, temperature: float) -> None:
    assert_banana(case, temperature)


@cases(lambda case: not case.calibrated)
def test_banana_without_accept_reject_step(case: SamplerCase) -> None:
    # The temperature enters through the noise alone, which the Gaussian sees at all three.
    assert_banana(case, 2.0)


# And those that do not: without a gradient, with one, with a momentum.
LOCAL = ("random_walk", "mala", "hmc", "sghmc")


@cases(lambda case: case.crosses_modes or case.name in LOCAL)
def test_only_tempering_crosses_between_modes(case: SamplerCase) -> None:
    if case.crosses_modes:
        assert_crosses_modes(case, case.num_chains)
    else:
        with pytest.raises(AssertionError, match="fraction="):
            assert_crosses_modes(case, 200)


@cases(lambda case: case.bias_order is not None)
def test_order_of_the_bias(case: SamplerCase) -> None:
    measured = measure_bias_order(case)
    # Precise enough to tell 1 from 2; what is left of the next order is below 0.25.
    assert measured.error < 0.08, measured
    assert abs(measured.slope - case.bias_order) < 4 * measured.error + 0.25, measured


def test_baoab_is_far_more_accurate_than_obabo() -> None:
    # At h = 0.64 OBABO's E[x^2] is 30 per cent too large. test_integrators.py has BAOAB's order.
    for name, low, high in (("sghmc_obabo", 0.27, 0.32), ("sghmc_baoab", -0.012, 0.006)):
        path = run(case_named(name), ANHARMONIC.log_prob, step_size=0.64)
        second = np.diagonal(path.second, axis1=1, axis2=2).mean()
        assert low < second / ANHARMONIC.second_moment - 1 < high


@cases(lambda case: case.calibrated or case.sbc_step_size is not None)
def test_simulation_based_calibration(case: SamplerCase) -> None:
    assert_calibrated(case)


# The harness has teeth: each of these is broken on purpose.


def with_scaled_noise(
    case: SamplerCase, module: Any, factor: float, patch: pytest.MonkeyPatch
) -> SamplerCase:
    original = module.noise_like

    def scaled(*args: Any) -> Any:
        return tf.nest.map_structure(lambda xi: factor * xi, original(*args))

    patch.setattr(module, "noise_like", scaled)
    return dataclasses.replace(case, name=f"{case.name}, noise times {factor}")


@pytest.mark.parametrize(
    "name, module, factor",
    [
        ("sgld", sgld, 0.9),
        ("sgld", sgld, 1.1),
        ("sghmc", sghmc, 0.9),
        ("sghmc_obabo", sghmc, 1.1),
        ("sghmc_baoab", sghmc, 1.1),
        ("adaptive_sghmc", adaptive_sghmc, 1.1),
    ],
)
def test_noise_of_the_wrong_size_is_caught(
    name: str, module: Any, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = with_scaled_noise(case_named(name), module, factor, monkeypatch)
    with pytest.raises(AssertionError, match="difference="):
        assert_gaussian(broken, 1.0)


def test_a_wrong_spread_or_place_is_caught_by_the_distribution_alone() -> None:
    z = np.random.default_rng(0).normal(size=[5000, 2])
    assert_standard_normal(z)
    for wrong in (1.15 * z, z + [0.1, 0.0], z**3 / np.sqrt(15)):
        with pytest.raises(AssertionError, match="statistic="):
            assert_standard_normal(wrong)


@pytest.mark.parametrize("name", ["sgld", "sghmc"])
def test_a_missing_scale_of_the_minibatch_is_caught(name: str) -> None:
    with pytest.raises(AssertionError, match="p_value="):
        assert_calibrated(case_named(name), claimed_num_data=BATCH_SIZE)


def test_noise_of_the_wrong_size_is_caught_by_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = with_scaled_noise(case_named("sgld"), sgld, 1.2, monkeypatch)
    with pytest.raises(AssertionError, match="p_value="):
        assert_calibrated(broken)


@pytest.mark.parametrize(
    "name, mutation",
    [
        ("mala", mutations.wrong_sign_of_the_asymmetry),
        ("langevin", mutations.wrong_sign_of_the_asymmetry),
        ("adaptive_langevin", mutations.wrong_sign_of_the_asymmetry),
        ("mala", mutations.no_accept_reject_step),
        ("hmc", mutations.no_accept_reject_step),
        ("mala", mutations.larger_noise),
        ("hmc", mutations.larger_noise),
        ("tempered_random_walk", mutations.wrong_sign_of_the_swap_ratio),
    ],
)
def test_broken_calibrated_samplers_are_caught(
    name: str, mutation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    case = case_named(name)
    broken = dataclasses.replace(case, name=f"{name}, {mutation.__name__}", num_chains=1200)
    # Averages over a path may also be too uncertain, which fails just as well.
    with pytest.raises(AssertionError, match="difference=|not precise enough"):
        assert_gaussian(broken, 1.0)


def test_a_random_walk_is_exact_whatever_the_size_of_its_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert_gaussian(
        with_scaled_noise(case_named("random_walk"), random_walk, 1.2, monkeypatch), 1.0
    )


def test_a_wrong_correction_is_caught_by_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    mutations.wrong_sign_of_the_asymmetry(monkeypatch)
    with pytest.raises(AssertionError, match="p_value="):
        assert_calibrated(case_named("mala"))
