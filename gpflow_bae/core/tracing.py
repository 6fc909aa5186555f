"""Compiled functions whose graphs are freed with them.

Two global tables would keep a graph until the process ends, tens of megabytes for the round of a
small model: TFP's bijectors cache what they transformed, including symbolic tensors, and TF
registers the gradient of every ``tf.custom_gradient``, a closure over tensors of its graph, by
name.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.python.framework import ops

__all__ = ["compiled", "forget_symbolic_tensors"]


def compiled(
    function: Callable[..., Any],
    *,
    jit_compile: bool = False,
    input_signature: Sequence[tf.TensorSpec] | None = None,
) -> tf.types.experimental.PolymorphicFunction:
    """Return ``tf.function(function)`` without AutoGraph, whose graphs are freed with it.

    It is differentiable like any other ``tf.function`` as long as it exists.

    :param input_signature: as in ``tf.function``: one trace for arguments of all sizes.
    """

    @tf.autograph.experimental.do_not_convert  # map_fn would convert under run_functions_eagerly
    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with _custom_gradients_belong_to(tf.compat.v1.get_default_graph()):
            result = function(*args, **kwargs)
        forget_symbolic_tensors()
        return result

    result = tf.function(
        traced, autograph=False, jit_compile=jit_compile, input_signature=input_signature
    )
    # Many fits in one process, as in a cross-validation, are each traced. TensorFlow counts these
    # traces together, because their code is the same, and would warn of frequent retracing.
    if hasattr(result, "_omit_frequent_tracing_warning"):
        result._omit_frequent_tracing_warning = True
    return result


def forget_symbolic_tensors() -> None:
    """Remove symbolic tensors from the cache of TFP's bijectors; call it during tracing.

    The cache keeps an input until its output is freed, and a graph keeps both.
    """
    cache = getattr(tfp.bijectors.Bijector, "_cache", None)
    if cache is None:  # a TFP with another cache: graphs are then not freed
        return
    storage = cache.storage
    for key, entry in list(storage.items()):
        if any(tf.is_symbolic_tensor(reference()) for reference in key.ref_set):
            # Without this their callbacks would search for the removed entry.
            for reference in (key, entry.input_ref, entry.output_ref):
                if reference is not None:
                    reference.cancel()
            storage.pop(key, None)


@contextmanager
def _custom_gradients_belong_to(graph: tf.Graph) -> Iterator[None]:
    """Let the graph, not TensorFlow's registry, own the custom gradients registered inside."""
    registry = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    known = set(registry)
    yield
    kept = []
    for name in registry.keys() - known:
        if not name.startswith("CustomGradient-"):
            continue  # registered by a library that was imported meanwhile
        gradient = registry[name]["type"]
        kept.append(gradient)
        registry[name]["type"] = _weak_call(gradient, functools.partial(registry.pop, name, None))
    graph._gpflow_bae_custom_gradients = kept


def _weak_call(function: Callable[..., Any], when_gone: Callable[[], Any]) -> Callable[..., Any]:
    reference = weakref.ref(function, lambda _: when_gone())

    def call(*arguments: Any) -> Any:
        alive = reference()
        assert alive is not None, "the graph that this gradient belongs to is gone"
        return alive(*arguments)

    return call
