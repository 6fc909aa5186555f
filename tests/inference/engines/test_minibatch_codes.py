"""Codes of a minibatch among those of all items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.inference.chain_state import Point
from gpflow_bae.inference.engines.minibatch_codes import gather_codes, scatter_codes
from gpflow_bae.mcmc import State, Step, Target, adaptive_sghmc

INDICES = [4, 0, 3]


def point(seed: int, shape: tuple[int, ...]) -> Point:
    return Point((tf.constant(0.0),), tf.random.stateless_normal(shape, [seed, 0]))


def state(first_seed: int, shape: tuple[int, ...]) -> State:
    elements = {n: point(first_seed + i, shape) for i, n in enumerate(("momentum", "tau"), 1)}
    return State(point(first_seed, shape), elements, {})


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("adapt", [False, True])
def test_items_of_a_minibatch_are_put_where_they_were(axis: int, adapt: bool) -> None:
    """Everything else stays; what a sampler only adapts stays whole where it did not adapt."""
    shape, part = ((6, 4, 2), (3, 4, 2)) if axis == 0 else ((1, 6, 2), (1, 3, 2))
    store, new = state(0, shape), state(10, part)

    @tf.function(autograph=False)  # a branch of the graph
    def scattered(adapt: tf.Tensor) -> State:
        return scatter_codes(store, new, tf.constant(INDICES), axis, ("tau",), adapt)

    found = scattered(tf.constant(adapt))
    where: Any = INDICES if axis == 0 else (slice(None), INDICES)
    pairs = [(found.position, store.position, new.position, True)]
    for name, changed in (("momentum", True), ("tau", adapt)):
        pairs.append((found.elements[name], store.elements[name], new.elements[name], changed))
    for after, before, given, changed in pairs:
        expected = before.codes.numpy()
        if changed:
            expected[where] = given.codes
        np.testing.assert_array_equal(after.codes, expected)
    back = gather_codes(found, tf.constant(INDICES), axis)
    np.testing.assert_array_equal(back.position.codes, new.position.codes)


def test_elements_that_are_said_to_be_adapted_change_only_then() -> None:
    sampler = adaptive_sghmc.build()
    assert sampler.adapted
    target = Target(lambda position, seed: -position, None)
    start = sampler.init(tf.constant([1.0, 2.0]), target)
    # From the second step on: the first one leaves tau at its least.
    before = sampler.step(start, target, tf.constant([0, 0]), Step(tf.constant(0), True))
    for adapt in (False, True):
        after = sampler.step(before, target, tf.constant([0, 1]), Step(tf.constant(1), adapt))
        for name, value in before.elements.items():
            same = np.array_equal(value, after.elements[name])
            assert same == (name in sampler.adapted and not adapt), (name, adapt)
