"""Every ``build`` is its module's ``update``, with settings in the state and not in a trace."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import mcmc
from gpflow_bae.mcmc import State, Step, Target, adaptive_sghmc, sghmc, sgld
from gpflow_bae.mcmc.algorithm import Settings
from gpflow_bae.mcmc.noise import noise_like
from tests.mcmc.theory.builds import (
    EVALUATE,
    POSITION,
    ROWS,
    SEEDS,
    TARGET,
    Row,
    named,
    noisy_gradient,
)


def cases(some: list[Row]) -> Any:
    return pytest.mark.parametrize("row", some, ids=[row.name for row in some])


def at(number: int, adapt: bool = False) -> Step:
    return Step(tf.constant(number), tf.constant(adapt))


def assert_same(state: State, expected: Any) -> None:
    """Bit for bit: the fields of a module's state, wherever they are kept."""
    carried = {"position": state.position, **state.elements, **state.shared}
    for name, value in expected._asdict().items():
        tf.nest.map_structure(np.testing.assert_array_equal, carried[name], value)


@cases(ROWS)
def test_the_step_is_the_modules_update_bit_for_bit(row: Row) -> None:
    sampler = row.build()
    start = state = sampler.init(POSITION, None)
    expected = row.init()
    assert_same(state, expected)
    for structure in state.elements.values():
        tf.nest.assert_same_structure(structure, POSITION)
    for i, seed in enumerate(SEEDS):
        expected = row.update(expected, seed, i < 2)
        state = sampler.step(state, TARGET, seed, at(i, i < 2))
        assert_same(state, expected)
    tf.nest.assert_same_structure(start, state)
    for old, new in zip(tf.nest.flatten(start), tf.nest.flatten(state), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
    assert not np.array_equal(state.position["w"], POSITION["w"])
    assert sampler.settings.items() >= {**row.numbers, **row.choices}.items()


@cases(ROWS)
def test_settings_are_not_baked_into_a_trace(row: Row) -> None:
    # One function of another algorithm's step runs all of them.
    compiled = tf.function(
        lambda state, seed, at: row.build().step(state, TARGET, seed, at), autograph=False
    )
    ends = []
    for factor in (1.0, 0.5):
        numbers = {k: factor * v for k, v in row.numbers.items()}
        state = row.build(**numbers).init(POSITION, TARGET)
        expected = row.init()
        for i, seed in enumerate(SEEDS[:2]):
            state = compiled(state, seed, at(i, i < 1))
            expected = row.update(expected, seed, i < 1, **numbers)
        # A graph may be rearranged: not to the last bit.
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
            state.position,
            expected.position,
        )
        ends.append(state.position["w"].numpy())
    assert compiled.experimental_get_tracing_count() == 1
    assert not np.array_equal(*ends)


@cases(ROWS)
def test_every_setting_may_be_a_schedule(row: Row) -> None:
    def halving(value: float) -> Any:
        return lambda step: value / (1 + tf.cast(step, tf.float64))

    sampler = row.build(**{k: halving(v) for k, v in row.numbers.items()})
    state = sampler.init(POSITION, TARGET)
    assert not set(state.shared) & set(row.numbers)
    expected = row.init()
    for i, seed in enumerate(SEEDS):
        numbers = {k: v / (1 + i) for k, v in row.numbers.items()}
        expected = row.update(expected, seed, i < 1, **numbers)
        state = sampler.step(state, TARGET, seed, at(i, i < 1))
        assert_same(state, expected)
    assert sampler.temperatures(state) is None and sampler.diagnose(state) is None


def test_a_schedule_is_traced_once() -> None:
    """Cycles of four steps: a cosine of step sizes, of which the first half is without noise."""

    def step_size(step: tf.Tensor) -> tf.Tensor:
        return 0.1 * (1.0 + tf.cos(np.pi * tf.cast(step % 4, tf.float64) / 4.0)) / 2.0

    def temperature(step: tf.Tensor) -> tf.Tensor:
        return tf.where(step % 4 < 2, tf.constant(0.0, tf.float64), 2.0)

    sampler = sgld.build(step_size, temperature)

    @tf.function  # with AutoGraph, as a user might
    def compiled(state: State, seed: tf.Tensor, at: Step) -> State:
        return sampler.step(state, TARGET, seed, at)

    state, expected = sampler.init(POSITION, None), sgld.init(POSITION)
    for i in range(8):
        seed, fraction = tf.constant([3, i]), i % 4 / 4
        numbers = {
            "step_size": 0.1 * (1 + np.cos(np.pi * fraction)) / 2,
            "temperature": 2.0 * (fraction >= 0.5),
        }
        gradient = noisy_gradient(expected.position, seed)
        expected = sgld.update(expected, gradient, seed, **numbers)
        state = compiled(state, seed, at(i))
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), state.position, expected.position
    )
    assert compiled.experimental_get_tracing_count() == 1


def without_forces(position: Any, seed: tf.Tensor) -> Any:
    return tf.nest.map_structure(tf.zeros_like, position)


@cases(ROWS)
def test_without_forces_nothing_moves_at_temperature_0(row: Row) -> None:
    sampler = row.build(temperature=0.0)
    state = sampler.init(POSITION, None)
    for i, seed in enumerate(SEEDS):
        state = sampler.step(state, Target(without_forces), seed, at(i, i < 2))
    if "subtract_gradient_noise" in row.choices:  # there is no noise to take some off
        assert np.all(np.isnan(state.position["w"]))
        assert "largest valid step_size is 0 at momentum_decay 0.3, temperature 0 and the" in (
            sampler.diagnose(state) or ""
        )
    else:
        tf.nest.map_structure(np.testing.assert_array_equal, state.position, POSITION)


@cases([row for row in ROWS if row.per_leaf])
def test_a_leaf_at_temperature_0_is_optimised_and_the_others_are_sampled(row: Row) -> None:
    # Leaves do not see each other here: each is as in a chain that is all hot, or all cold.
    hot, cold = row.build(), row.build(temperature=0.0)
    begun = hot.init(POSITION, None)
    temperature = {**begun.shared["temperature"], "b": tf.constant(0.0, tf.float64)}
    mixed = begun._replace(shared={**begun.shared, "temperature": temperature})
    states = [(hot, begun), (cold, cold.init(POSITION, None)), (hot, mixed)]
    for i, seed in enumerate(SEEDS):
        states = [
            (sampler, sampler.step(state, TARGET, seed, at(i, i < 2))) for sampler, state in states
        ]
    (_, warm), (_, still), (_, both) = states
    for part in ("position", *both.elements):
        of = [s.position if part == "position" else s.elements[part] for s in (warm, still, both)]
        np.testing.assert_array_equal(of[2]["w"], of[0]["w"])
        np.testing.assert_array_equal(of[2]["b"], of[1]["b"])
    assert not np.any(warm.position["b"] == both.position["b"])


@pytest.mark.parametrize("name", ["sghmc", "adaptive_sghmc"])
def test_the_kinetic_temperature_is_that_of_the_velocities(name: str) -> None:
    # Momenta of variance T h^2 P: 2,000,000 scalars tell T to sqrt(2 / n) T.
    position = {"a": tf.zeros([1_000_000]), "b": tf.zeros([1_000_000], tf.float64)}
    sampler = getattr(mcmc, name).build(step_size=0.02)
    state = sampler.init(position, None)
    assert all(float(t) == 0.0 for t in sampler.temperatures(state).values())
    velocity = noise_like(position, SEEDS[0])
    root = 1.0
    if name == "adaptive_sghmc":
        spread = tf.nest.map_structure(lambda q: 0 * q + tf.cast(81.0, q.dtype), position)
        state.elements["mean_square_gradient"], root = spread, 1 / 3
    state.elements["momentum"] = tf.nest.map_structure(
        lambda v: tf.cast(np.sqrt(1.7) * 0.02 * root, v.dtype) * v, velocity
    )
    # b has half the velocity, so a quarter of the temperature.
    momentum = state.elements["momentum"]
    state.elements["momentum"] = momentum | {"b": 0.5 * momentum["b"]}
    found = sampler.temperatures(state)
    np.testing.assert_allclose([found["a"], found["b"]], [1.7, 1.7 / 4], rtol=5 * np.sqrt(2e-6))
    by_schedule = getattr(mcmc, name).build(step_size=lambda number: 0.02)
    assert by_schedule.temperatures(by_schedule.init(position, None)) is None


def test_the_smallest_valid_step_size_on_the_way_is_remembered() -> None:
    row = named("adaptive_sghmc, - h^4")
    sampler = row.build()
    state = sampler.init(POSITION, None)
    assert sampler.diagnose(state) is None
    smallest = np.inf
    for i, seed in enumerate(SEEDS):
        state = sampler.step(state, TARGET, seed, at(i, True))
        largest = max(np.max(v) for v in state.elements["mean_square_gradient"].values())
        smallest = min(smallest, np.sqrt(2 * 0.3 * 0.7 / np.sqrt(largest + 0.01)))
        np.testing.assert_allclose(state.shared["largest_step_size"], smallest, rtol=1e-6)
    assert sampler.diagnose(state) is None and np.isfinite(smallest)
    # A gradient that is too large for it: the chain is NaN, and it is known why ever after.
    blow = Target(lambda position, seed: tf.nest.map_structure(lambda q: 1e4 + 0 * q, position))
    for i, seed in enumerate(SEEDS):
        state = sampler.step(state, blow, seed, at(i, True))
        blow = TARGET
    assert np.all(np.isnan(state.position["w"]))
    message = sampler.diagnose(state) or ""
    for part in ("step_size 0.1 makes", "at momentum_decay 0.3, temperature 0.7 and", "negative"):
        assert part in message
    assert 0 < state.shared["largest_step_size"] < 0.1
    # Two temperatures, of which the lower one limits.
    values = adaptive_sghmc.largest_valid_step_size(
        adaptive_sghmc.init(POSITION),
        momentum_decay=0.3,
        temperature={"b": 0.5, "w": 2.0},
        jitter=0.0,
    )
    np.testing.assert_allclose(values, np.sqrt(2 * 0.3 * 0.5))


@cases(ROWS)
def test_a_target_that_does_not_offer_what_is_needed_is_refused(row: Row) -> None:
    sampler = row.build()
    with pytest.raises(TypeError, match="follows the gradient .*target.gradient is None"):
        sampler.step(sampler.init(POSITION, None), Target(None, EVALUATE), SEEDS[0], at(0))


BAD = {
    "step_size": (0.0, "step_size must be positive"),
    "temperature": (-1.0, "temperature must be finite and not negative"),
    "momentum_decay": (1.5, r"momentum_decay.*\(0, 1\], got 1.5"),
}


@cases(ROWS)
def test_bad_numbers_are_refused_when_it_is_built(row: Row) -> None:
    for name in row.numbers.keys() & BAD.keys():
        value, message = BAD[name]
        with pytest.raises(ValueError, match=message):
            row.build(**{name: value})


def test_bad_choices_are_refused_when_it_is_built() -> None:
    for row in ROWS:
        with pytest.raises(ValueError, match="noise must be one of .* got 'cauchy'"):
            row.module.build(noise="cauchy")
    for module in (sghmc, adaptive_sghmc):
        with pytest.raises(ValueError, match="integrator must be one of"):
            module.build(integrator="leapfrog")
    with pytest.raises(ValueError, match="subtract_gradient_noise .* integrator='euler'"):
        adaptive_sghmc.build(subtract_gradient_noise=True, integrator="baoab")
    with pytest.raises(ValueError, match="one for each of the 2 leaves of the position, got 3"):
        sgld.update(sgld.init(POSITION), POSITION, SEEDS[0], step_size=0.1, temperature=[1.0] * 3)


def test_settings_describe_themselves_in_plain_values() -> None:
    def slower(step: tf.Tensor) -> tf.Tensor:
        return 1 / step

    settings = Settings(a=0.1, b=tf.constant(2.0), c=None, d=slower, e=[1.0, 2.0])
    assert settings.describe() == {"a": 0.1, "b": 2.0, "d": "slower", "e": [1.0, 2.0]}
    seen = []
    tf.function(lambda x: seen.append(Settings(x=x).describe()))(tf.constant(1.0))
    assert seen == [{"x": "a tensor"}]


def test_settings_of_a_sampler_of_ones_own_need_no_list() -> None:
    """Numbers are part of the state, and words of the trace; names are whatever the module has."""

    class Decaying(NamedTuple):
        position: Any

    def update(state: Decaying, gradient: Any, seed: Any, *, rate: Any, side: str) -> Decaying:
        sign = {"up": 1.0, "down": -1.0}[side]
        moved = tf.nest.map_structure(
            lambda q, g: q + sign * tf.cast(rate, q.dtype) * g, state.position, gradient
        )
        return Decaying(moved)

    def build(rate: Any, side: str = "up", unused: float = 2.0) -> mcmc.SamplingAlgorithm:
        return mcmc.build_sampler("decaying", Decaying, Decaying, update, locals())

    sampler = build(0.25, "down")
    assert sampler.settings == {"rate": 0.25, "side": "down"}
    target = mcmc.Target(lambda position, seed: tf.nest.map_structure(tf.negative, position))
    state = sampler.init(tf.constant([4.0, 8.0]), target)
    at = mcmc.Step(tf.constant(0), tf.constant(False))
    seed = tf.constant([0, 0])
    assert float(state.shared["rate"]) == 0.25
    np.testing.assert_array_equal(sampler.step(state, target, seed, at).position, [5.0, 10.0])
    other = state._replace(shared={"rate": tf.constant(0.5, state.shared["rate"].dtype)})
    np.testing.assert_array_equal(sampler.step(other, target, seed, at).position, [6.0, 12.0])
    with pytest.raises(ValueError, match="rate must be finite, got inf"):
        build(np.inf)
