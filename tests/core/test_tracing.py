"""Compiled functions leave no graph behind, and are differentiated as if nothing had been cut."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae.core.tracing import compiled

softplus = tfp.bijectors.Softplus()  # lives as long as this module


@tf.custom_gradient
def twice(x: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
    """Whose gradient is 3, so that it is known to be this one."""
    return 2.0 * x, lambda upstream: 3.0 * upstream + 0.0 * x


def held(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether the graph of a compiled function is there after the function."""
    whole = compiled(function)
    whole(*arguments)
    graph = weakref.ref(whole.get_concrete_function(*arguments).graph)
    del whole
    gc.collect()
    return graph() is not None


def test_bijectors_hold_no_graph() -> None:
    """Not of forward, inverse or Jacobian, nor of what was transformed in a loop of the graph."""

    def transforms(x: tf.Tensor) -> tf.Tensor:
        y = softplus.forward(x) + softplus.forward_log_det_jacobian(x)
        looped = tf.while_loop(lambda v: v < 9.0, lambda v: (softplus.forward(v) + 1.0,), (y,))
        return softplus.inverse(looped[0]) + softplus.inverse_log_det_jacobian(y)

    assert not held(transforms, tf.constant(1.0))


def test_the_gradient_registry_holds_no_graph() -> None:
    """Not of a custom gradient, inside a loop either."""

    def grows(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda v: v < 9.0, lambda v: (twice(v),), (twice(x),))[0]

    assert not held(grows, tf.constant(1.0))


def test_custom_gradients_outlive_the_trace() -> None:
    """Taken by a tape outside, which asks the registry after the trace: 3 for each doubling.

    From 1 two doublings in the loop lead past 6, and one was before it.
    """

    def grows(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda v: v < 6.0, lambda v: (twice(v),), (twice(x),))[0]

    whole, x = compiled(grows), tf.constant(1.0)
    whole(x)
    gc.collect()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = whole(x)
    np.testing.assert_allclose(y, 8.0)
    np.testing.assert_allclose(tape.gradient(y, x), 27.0)


def test_bijectors_remember_while_they_are_traced() -> None:
    """The inverse of what was transformed is that itself, and eager tensors are not forgotten."""
    eager = tf.constant(-40.0)  # softplus underflows: only memory can know its inverse
    outside = softplus.forward(eager)
    back = compiled(lambda x: softplus.inverse(softplus.forward(x)))(eager)
    np.testing.assert_array_equal(back, eager)
    np.testing.assert_array_equal(softplus.inverse(outside), eager)
