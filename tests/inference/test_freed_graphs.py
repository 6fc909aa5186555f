"""What an algorithm compiled goes with it: a process may train one model after another."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from gpflow_bae.inference.optimise.optimisation import Optimisation
from gpflow_bae.posteriors.sample_loop import SampleLoop
from tests.inference.amortized_models import advance, bae, compiled_round, random_data


def round_of_a_chain() -> None:
    """Its noise variance is sampled through a softplus, whose prior has a custom gradient."""
    algorithm = compiled_round(bae(), random_data(2, 3))
    advance(algorithm, algorithm.initial_chain(tf.constant([0, 0])), tf.constant([1, 1]), True)


def block_of_adam() -> None:
    """On a parameter that GPflow transforms whenever it is read."""
    variance = bae().likelihood.variance
    trained = [variance.unconstrained_variable]
    fit = Optimisation(
        lambda seed, carried, constants: (tf.square(variance), carried),
        {"variance": trained[0]},
        [(trained, 0.1)],
        num_steps=1,
        steps_per_call=1,
        seed=[0, 0],
        label="test",
    )
    fit.step(None, 0, 1)


def samples_of_a_bank() -> None:
    """Pushed through the transform of a parameter."""
    transform = bae().likelihood.variance.transform
    SampleLoop(transform.forward).map((np.zeros(3),), dtypes=tf.float64)


@pytest.mark.parametrize("use", [round_of_a_chain, block_of_adam, samples_of_a_bank])
def test_no_graph_stays(use: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """All graphs that were made, those of loops included, are gone with what made them."""
    graphs: list[weakref.ref[FuncGraph]] = []
    make = FuncGraph.__init__

    def recorded(graph: FuncGraph, *args: object, **kwargs: object) -> None:
        make(graph, *args, **kwargs)
        graphs.append(weakref.ref(graph))

    monkeypatch.setattr(FuncGraph, "__init__", recorded)
    use()
    gc.collect()
    assert graphs
    assert not [graph().name for graph in graphs if graph() is not None]
