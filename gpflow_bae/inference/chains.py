"""Map a function over chains, the leading axis of every leaf of a state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["chain_seeds", "map_chains", "of_chain", "stack_chains"]


def map_chains(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    like: Callable[[], Any],
) -> Any:
    """Apply ``function`` to each chain's part of ``arguments``, and stack the results.

    This is a loop in the graph, whose iterations may overlap: so the values of a chain are, bit by
    bit, those of a run of that chain alone, for any networks.

    :param arguments: structures whose leaves are [C, ...].
    :param like: returns a structure of tensors with the shapes and types of one chain's result.
    """
    count = tf.nest.flatten(arguments)[0].shape[0]
    if count == 1:
        result = function(*tf.nest.map_structure(lambda v: tf.squeeze(v, 0), arguments))
        return tf.nest.map_structure(lambda v: tf.expand_dims(v, 0), result)
    return tf.map_fn(
        lambda parts: function(*parts),
        arguments,
        fn_output_signature=tf.nest.map_structure(
            lambda v: tf.TensorSpec(v.shape, v.dtype), like()
        ),
        parallel_iterations=count,
    )


def stack_chains(states: Sequence[Any]) -> Any:
    """Stack the states of single chains along a leading axis of chains."""
    return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *states)


def of_chain(state: Any, chain: int) -> Any:
    """Return the state of one chain."""
    return tf.nest.map_structure(lambda v: v[chain], state)


def chain_seeds(seed: int, num_chains: int) -> list[int]:
    """Return the seed of each chain: chain c equals a single-chain run with ``seed + c``."""
    return [seed + c for c in range(num_chains)]
