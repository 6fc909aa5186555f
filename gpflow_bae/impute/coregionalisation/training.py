"""Hyperparameters by L-BFGS on blocks of a table: their density, then what they predict."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Sequence

import gpflow
import numpy as np
import scipy.optimize
import tensorflow as tf
from tqdm.auto import tqdm

from ...tracing import compiled
from .model import Block, LinearCoregionalisation

__all__ = ["SIGNATURE", "in_threads", "maximise_density", "maximise_prediction"]

_MOST_THREADS = 8
_BARRIER = 1e10  # where a covariance is not positive definite
_FLOAT, _INT = tf.float64, tf.int32

#: Of a block: rows and numbers of cells differ from one to the next.
SIGNATURE = (
    tf.TensorSpec([None, None], _FLOAT),
    tf.TensorSpec([None], _INT),
    tf.TensorSpec([None], _INT),
    tf.TensorSpec([None], _FLOAT),
    tf.TensorSpec([None], _INT),
    tf.TensorSpec([None], _INT),
)

_Loss = Callable[..., tf.Tensor]


def maximise_density(
    model: LinearCoregionalisation, blocks: Sequence[Block], num_steps: int, progress: bool
) -> None:
    """Moves the model to the highest density of the blocks' observed cells, prior included."""

    def loss(X, row, column, value, target_row, target_column, truth):  # type: ignore[no-untyped-def]
        return -model.log_marginal(X, row, column, value)

    examples = [(*block, np.zeros(0)) for block in blocks]
    cells = sum(len(block.value) for block in blocks)
    _minimise(model, loss, examples, cells, num_steps, progress, "density of observed cells")


def maximise_prediction(
    model: LinearCoregionalisation,
    examples: Sequence[tuple[Block, np.ndarray]],
    num_steps: int,
    progress: bool,
) -> None:
    """Moves the model to the highest density of hidden cells, each given what is observed around.

    A density of everything together is dominated by what changes from one row to the next, while
    gaps are filled by what goes slowly; and where the model is wrong, which it is for real tables,
    the two want other hyperparameters. So blocks are trained as they are used (Rasmussen and
    Williams 2006, section 5.4.2, with gaps in the place of single cells).

    :param examples: blocks, with the truth of their targets.
    """

    def loss(X, row, column, value, target_row, target_column, truth):  # type: ignore[no-untyped-def]
        mean, variance = model.predict(X, row, column, value, target_row, target_column)
        return 0.5 * tf.reduce_sum(tf.math.log(variance) + tf.square(truth - mean) / variance)

    cells = sum(len(truth) for _, truth in examples)
    flat = [(*block, truth) for block, truth in examples]
    _minimise(model, loss, flat, cells, num_steps, progress, "prediction of hidden cells")


def in_threads(function: Callable, arguments: Sequence[tuple]) -> list:
    """Results in the order of the arguments, computed on as many threads as there are cores."""
    count = min(len(arguments), os.cpu_count() or 1, _MOST_THREADS)
    if count <= 1:
        return [function(*each) for each in arguments]
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda each: function(*each), arguments))


def _minimise(
    model: LinearCoregionalisation,
    loss: _Loss,
    examples: Sequence[tuple],
    cells: int,
    num_steps: int,
    progress: bool,
    label: str,
) -> None:
    """L-BFGS on the mean loss of a cell; every step sees all examples."""
    variables = list(model.trainable_variables)
    scipy_optimizer = gpflow.optimizers.Scipy

    def gradients(tape: tf.GradientTape, value: tf.Tensor) -> tf.Tensor:
        found = tape.gradient(value, variables, unconnected_gradients="zero")
        return tf.concat([tf.reshape(tf.convert_to_tensor(g), [-1]) for g in found], 0)

    def of_block(*example: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            value = loss(*example)
        return value, gradients(tape, value)

    def of_prior() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            densities = [p.log_prior_density() for p in model.trainable_parameters]
            value = -tf.add_n(densities)
        return value, gradients(tape, value)

    of_block = compiled(of_block, input_signature=(*SIGNATURE, tf.TensorSpec([None], _FLOAT)))
    of_prior = compiled(of_prior)

    def move(x: np.ndarray) -> None:
        scipy_optimizer.assign_tensors(variables, scipy_optimizer.unpack_tensors(variables, x))

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        move(x)
        try:
            results = [of_prior(), *in_threads(of_block, examples)]
        except tf.errors.InvalidArgumentError:  # a GPU's Cholesky raises where a CPU's gives NaN
            return _BARRIER, np.zeros_like(x)
        value = sum(float(v) for v, _ in results) / cells
        slope = np.sum([g.numpy() for _, g in results], axis=0) / cells
        finite = np.isfinite(value) and np.isfinite(slope).all()
        return (value, slope) if finite else (_BARRIER, np.zeros_like(x))

    start = scipy_optimizer.pack_tensors(variables).numpy()
    with tqdm(total=num_steps, desc=label, disable=not progress, leave=False) as bar:
        found = scipy.optimize.minimize(
            evaluate,
            start,
            jac=True,
            method="L-BFGS-B",
            callback=lambda _: bar.update(),
            options={"maxiter": num_steps, "maxfun": 2 * num_steps},
        )
    move(found.x if found.fun < _BARRIER else start)
