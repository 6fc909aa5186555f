"""Chains are the leading axis of every leaf of a state: one chain's function for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["chain_seeds", "map_chains", "of_chain", "stack_chains"]


def map_chains(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    signature: Any,
) -> Any:
    """``function`` of each chain's part of ``arguments``, and the results stacked.

    A loop in the graph, whose iterations may overlap: a chain is then, bit by bit, what it is
    alone, whatever the networks.

    :param arguments: structures whose leaves are [C, ...].
    :param signature: ``tf.TensorSpec`` of each leaf of one chain's result.
    """
    count = tf.nest.flatten(arguments)[0].shape[0]
    if count == 1:
        result = function(*tf.nest.map_structure(lambda v: tf.squeeze(v, 0), arguments))
        return tf.nest.map_structure(lambda v: v[tf.newaxis], result)
    return tf.map_fn(
        lambda parts: function(*parts),
        arguments,
        fn_output_signature=signature,
        parallel_iterations=count,
    )


def stack_chains(states: Sequence[Any]) -> Any:
    """The states of single chains as one, with the chains in front."""
    return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *states)


def of_chain(state: Any, chain: int) -> Any:
    """One chain's state."""
    return tf.nest.map_structure(lambda v: v[chain], state)


def chain_seeds(seed: int, num_chains: int) -> list[int]:
    """The seed of each chain: chain c of many is the only chain of a run with the c-th of these."""
    return [seed + c for c in range(num_chains)]
