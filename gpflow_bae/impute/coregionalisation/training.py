"""Hyperparameters by L-BFGS on blocks of a table: their density, and what they predict."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

import gpflow
import numpy as np
import scipy.optimize
import tensorflow as tf
from gpflow.base import Parameter
from tqdm.auto import tqdm

from ...tracing import compiled
from .model import Block, LinearCoregionalisation

__all__ = ["SIGNATURE", "Start", "in_threads", "maximise"]

_MOST_THREADS = 8
_BARRIER = 1e10  # where a covariance is not positive definite
_FLOAT, _INT = tf.float64, tf.int32

Start: TypeAlias = Sequence[tuple[Parameter, np.ndarray]]

#: Of a block: rows and numbers of cells differ from one to the next.
SIGNATURE = (
    tf.TensorSpec([None, None], _FLOAT),
    tf.TensorSpec([None], _INT),
    tf.TensorSpec([None], _INT),
    tf.TensorSpec([None], _FLOAT),
    tf.TensorSpec([None], _INT),
    tf.TensorSpec([None], _INT),
)


def maximise(
    model: LinearCoregionalisation,
    blocks: Sequence[Block],
    examples: Sequence[tuple[Block, np.ndarray]],
    num_steps: int,
    progress: bool,
    starts: Sequence[Start] = ((),),
) -> None:
    """Moves the model to blocks of high density that predict hidden cells well, by L-BFGS.

    The objective is the mean log density of an observed cell, and of a hidden cell given what is
    observed around it, with equal weights, and the prior. A density alone is dominated by what
    changes from one row to the next, while gaps are filled by what goes slowly; and where the model
    is wrong, which it is for real tables, the two want other hyperparameters. So blocks are trained
    as they are used (Rasmussen and Williams 2006, section 5.4.2, with gaps in the place of single
    cells); the density keeps small tables from being learnt by heart.

    :param blocks: whose observed cells have a density.
    :param examples: blocks, with the truth of their targets.
    :param starts: values of parameters to start from; the one with the best objective is taken.
    """

    def density(X, row, column, value, target_row, target_column, truth):  # type: ignore[no-untyped-def]
        return -model.log_marginal(X, row, column, value)

    def prediction(X, row, column, value, target_row, target_column, truth):  # type: ignore[no-untyped-def]
        mean, variance = model.predict(X, row, column, value, target_row, target_column)
        return 0.5 * tf.reduce_sum(tf.math.log(variance) + tf.square(truth - mean) / variance)

    _minimise(
        model,
        [
            (
                density,
                [(*block, np.zeros(0)) for block in blocks],
                sum(len(b.value) for b in blocks),
            ),
            (prediction, [(*b, t) for b, t in examples], sum(len(t) for _, t in examples)),
        ],
        num_steps,
        progress,
        starts,
    )


def in_threads(function: Callable, arguments: Sequence[tuple]) -> list:
    """Results in the order of the arguments, computed on as many threads as there are cores."""
    count = min(len(arguments), os.cpu_count() or 1, _MOST_THREADS)
    if count <= 1:
        return [function(*each) for each in arguments]
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda each: function(*each), arguments))


def _minimise(
    model: LinearCoregionalisation,
    objectives: Sequence[tuple[Callable[..., tf.Tensor], Sequence[tuple], int]],
    num_steps: int,
    progress: bool,
    starts: Sequence[Start],
) -> None:
    """L-BFGS on a sum of mean losses of a cell; every step sees all examples.

    :param objectives: loss of a block, blocks, and their number of cells.
    """
    variables = list(model.trainable_variables)
    scipy_optimizer = gpflow.optimizers.Scipy

    def with_gradient(loss: Callable[..., tf.Tensor]) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
        def evaluated(*example: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                value = loss(*example)
            found = tape.gradient(value, variables, unconnected_gradients="zero")
            flat = [tf.reshape(tf.convert_to_tensor(g), [-1]) for g in found]
            return value, tf.concat(flat, 0)

        return evaluated

    def prior() -> tf.Tensor:
        return -tf.add_n([p.log_prior_density() for p in model.trainable_parameters])

    signature = (*SIGNATURE, tf.TensorSpec([None], _FLOAT))
    terms = [
        (compiled(with_gradient(loss), input_signature=signature), examples, cells)
        for loss, examples, cells in objectives
        if cells
    ]
    of_prior = compiled(with_gradient(prior))
    weight = max(cells for _, _, cells in terms)

    def move(x: np.ndarray) -> None:
        scipy_optimizer.assign_tensors(variables, scipy_optimizer.unpack_tensors(variables, x))

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        move(x)
        try:
            results = [(*of_prior(), weight)]
            for function, examples, cells in terms:
                results += [(v, g, cells) for v, g in in_threads(function, examples)]
        except tf.errors.InvalidArgumentError:  # a GPU's Cholesky raises where a CPU's gives NaN
            return _BARRIER, np.zeros_like(x)
        value = sum(float(v) / cells for v, _, cells in results)
        slope = np.sum([g.numpy() / cells for _, g, cells in results], axis=0)
        finite = np.isfinite(value) and np.isfinite(slope).all()
        return (value, slope) if finite else (_BARRIER, np.zeros_like(x))

    vectors = []
    for values in starts:
        for parameter, value in values:
            parameter.assign(value)
        vectors.append(scipy_optimizer.pack_tensors(variables).numpy())
    start = min(vectors, key=lambda x: evaluate(x)[0]) if len(vectors) > 1 else vectors[0]
    with tqdm(total=num_steps, desc="fit", disable=not progress, leave=False) as bar:
        found = scipy.optimize.minimize(
            evaluate,
            start,
            jac=True,
            method="L-BFGS-B",
            callback=lambda _: bar.update(),
            options={"maxiter": num_steps, "maxfun": 2 * num_steps},
        )
    move(found.x if found.fun < _BARRIER else start)
