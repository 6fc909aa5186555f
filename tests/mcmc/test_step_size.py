"""Step sizes from the largest curvature: NumPy's eigenvalues, and a chain that is the sampler's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc import adaptive_sghmc, sghmc
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, State, Step, Target
from gpflow_bae.mcmc.step_size import from_curvature

D = 12


def precision(seed: int, largest: float) -> np.ndarray:
    """Of a Gaussian whose stiffest direction is not along an axis."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(D, D)))
    return basis @ np.diag(np.append(np.linspace(1.0, 0.4 * largest, D - 1), largest)) @ basis.T


def gaussian(matrix: Any) -> Target:
    """The position is a pair, so that norms and products are over all leaves."""
    matrix = tf.convert_to_tensor(matrix, tf.float64)

    def gradient(position: Any, seed: Any) -> Any:
        q = tf.concat([position[0], tf.reshape(tf.cast(position[1], tf.float64), [-1])], 0)
        g = -tf.linalg.matvec(matrix, q)
        return g[:4], tf.cast(tf.reshape(g[4:], [2, -1]), tf.float32)

    return Target(gradient)


def start(sampler: SamplingAlgorithm, target: Target) -> State:
    rng = np.random.default_rng(0)
    position = (tf.constant(rng.normal(size=4)), tf.constant(rng.normal(size=[2, 4]), tf.float32))
    return sampler.init(position, target)


def advance(
    sampler: SamplingAlgorithm, state: State, target: Target, steps: range, adapt: bool
) -> State:
    for i in steps:
        at = Step(tf.constant(i), tf.constant(adapt))
        state = sampler.step(state, target, tf.constant([5, i]), at)
    return state


def baoab(**settings: Any) -> SamplingAlgorithm:
    return sghmc.build(
        **({"step_size": 0.01, "momentum_decay": 0.02} | settings), integrator="baoab"
    )


def test_a_search_begins_with_the_first_step_whatever_its_number() -> None:
    """As where an engine begins anew, in other coordinates; number 3 is no multiple of ten."""
    target = gaussian(precision(1, largest=900.0))
    sampler = from_curvature(baoab(step_size=0.3))
    state = advance(sampler, start(sampler, target), target, range(3, 4), adapt=True)
    np.testing.assert_allclose(state.shared["step_size"], 2 * 0.5 / 30.0, rtol=0.05)
    assert int(state.shared["estimates"]) > 0


@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_the_step_size_is_that_of_the_largest_eigenvalue(fraction: float) -> None:
    matrix = precision(1, largest=900.0)
    sampler, target = from_curvature(baoab(step_size=0.3), fraction, every=1), gaussian(matrix)
    state = advance(sampler, start(sampler, target), target, range(10), adapt=True)
    largest = np.linalg.eigvalsh(matrix)[-1]
    # 40 iterations with a ratio of eigenvalues of 0.4 leave 1e-16 of the others; what is left is
    # the noise of float32 in a difference of gradients.
    np.testing.assert_allclose(float(state.shared["curvature"]), largest, rtol=1e-4)
    np.testing.assert_allclose(
        float(state.shared["step_size"]), 2 * fraction / np.sqrt(largest), rtol=1e-4
    )
    assert float(sampler.info(state)["step_size"]) == float(state.shared["step_size"])


def test_velocities_and_friction_stay_what_they_are() -> None:
    # One step without noise: a momentum 0.12 of steps of 0.04 is one of 0.06 of steps of 0.02, and
    # two small steps' damping is that of a large one.
    curvature = 2500.0
    sampler, target = (
        from_curvature(
            baoab(step_size=0.04, momentum_decay=1.0 - 0.98**4, temperature=0.0), every=1
        ),
        gaussian(curvature * np.eye(D)),
    )
    state = start(sampler, target)
    momentum = tf.nest.map_structure(
        lambda q: tf.fill(q.shape, tf.cast(0.12, q.dtype)), state.position
    )
    state = state._replace(elements={**state.elements, "momentum": momentum})
    after = advance(sampler, state, target, range(1), adapt=True)
    np.testing.assert_allclose(float(after.shared["step_size"]), 0.02, rtol=1e-4)
    np.testing.assert_allclose(float(after.shared["momentum_decay"]), 1 - 0.98**2, rtol=1e-3)
    expected = 0.98**2 * (0.06 - 0.02**2 * curvature * state.position[0].numpy())
    np.testing.assert_allclose(after.elements["momentum"][0], expected, rtol=1e-3)


@pytest.mark.parametrize("adapted_steps", [0, 7])
def test_after_burn_in_it_is_the_sampler_with_that_step_size(adapted_steps: int) -> None:
    sampler, target = from_curvature(baoab(), every=3), gaussian(precision(2, largest=400.0))
    state = advance(sampler, start(sampler, target), target, range(adapted_steps), adapt=True)
    found = {k: state.shared[k] for k in ("step_size", "momentum_decay")}
    assert (float(found["step_size"]) == 0.01) == (adapted_steps == 0)
    plain = baoab(**found)
    other = State(
        state.position,
        {"momentum": state.elements["momentum"]},
        plain.init(state.position, target).shared,
    )
    steps = range(adapted_steps, adapted_steps + 20)
    state = advance(sampler, state, target, steps, adapt=False)
    other = advance(plain, other, target, steps, adapt=False)
    for a, b in zip(
        tf.nest.flatten((state.position, state.elements["momentum"])),
        tf.nest.flatten((other.position, other.elements["momentum"])),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_stiff_places_are_remembered() -> None:
    stiff, soft = 400.0, 100.0
    sampler = from_curvature(baoab(step_size=0.3), every=1)
    direction = np.eye(D)[3]
    of = {
        c: gaussian(np.eye(D) + (c - 1.0) * np.outer(direction, direction)) for c in (stiff, soft)
    }
    state = advance(sampler, start(sampler, of[soft]), of[soft], range(3), adapt=True)
    state = advance(sampler, state, of[stiff], range(3, 5), adapt=True)
    np.testing.assert_allclose(float(state.shared["curvature"]), stiff, rtol=1e-4)
    state = advance(sampler, state, of[soft], range(5, 55), adapt=True)
    # 50 estimates, each 1 / 100 of the way on the logarithm's scale.
    expected = soft * (stiff / soft) ** (0.99**50)
    np.testing.assert_allclose(float(state.shared["curvature"]), expected, rtol=1e-4)


def test_steps_grow_gradually_from_the_first_and_shrink_at_once() -> None:
    """A chain that starts at a mode does not yet know the stiffer places around it."""
    # Of 20 estimates, each going 1 / 5, 1 / 6, ... of the way, 4 / 24 is left on a log scale.
    for first, number, expected in ((0.01, 20, 25.0 * (1e4 / 25.0) ** (4 / 24)), (0.3, 1, 25.0)):
        sampler, target = from_curvature(baoab(step_size=first), every=1), gaussian(25 * np.eye(D))
        state = advance(sampler, start(sampler, target), target, range(number), adapt=True)
        np.testing.assert_allclose(float(state.shared["curvature"]), expected, rtol=1e-4)


def test_where_gradients_are_not_finite_the_step_is_halved() -> None:
    sampler = from_curvature(baoab(), every=1)
    target = gaussian(precision(1, largest=400.0))
    state = advance(sampler, start(sampler, target), target, range(1), adapt=True)
    broken = Target(lambda position, seed: tf.nest.map_structure(lambda q: q * np.nan, position))
    after = advance(sampler, state, broken, range(1, 2), adapt=True)
    ratio = float(after.shared["step_size"]) / float(state.shared["step_size"])
    np.testing.assert_allclose(ratio, 0.5, rtol=1e-6)
    for new, old in zip(
        tf.nest.flatten(after.elements["direction"]),
        tf.nest.flatten(state.elements["direction"]),
        strict=True,
    ):
        np.testing.assert_allclose(new, old, rtol=1e-6)  # normalised again


@pytest.mark.parametrize(
    "arguments, named",
    [({"fraction": 0.0}, "fraction"), ({"fraction": 1.0}, "fraction"), ({"every": 0}, "every")],
)
def test_arguments_are_checked(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        from_curvature(baoab(), **arguments)


def test_settings_have_the_number_that_the_search_begins_with() -> None:
    settings = from_curvature(baoab(step_size=0.3), 0.25).settings
    assert settings == baoab(step_size=0.3).settings | {
        "step_size_search": "curvature, fraction 0.25"
    }


@pytest.mark.parametrize("sampler", [adaptive_sghmc.build(), baoab(step_size=lambda step: 0.1)])
def test_samplers_whose_step_size_is_not_free_are_refused(sampler: SamplingAlgorithm) -> None:
    target = gaussian(np.eye(D))
    with pytest.raises(ValueError, match="curvature cannot set"):
        start(from_curvature(sampler), target)
