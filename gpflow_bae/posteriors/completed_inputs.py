"""Posterior samples of unknown inputs."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from ..base import Batch
from ..core.annotations import check_arguments
from .amortized import Posterior
from .sample_loop import SampleLoop, chain_after_chain

__all__ = ["completed_inputs"]


@check_arguments(num_draws=1, seed=0)
@check_shapes("return: [R, batch..., N, E]")
def completed_inputs(posterior: Posterior, *, num_draws: int = 1, seed: int = 0) -> np.ndarray:
    """Return the training inputs, completed with draws from the posterior.

    Known entries are equal in all draws. A variational fit gives draws of missing inputs with
    distributions (``q="gaussian"``), and copies of point estimates (``q="point"``).

    :param num_draws: total number over all samples, at least one of each: 1 for chains, about 100
        for a fit whose inputs have distributions.
    :param seed: seed of the draws.
    :return: [R, N, E], or [R, T, N, E] if data have a task axis, with R the larger of
        ``num_draws`` and the number of samples; E is the number of columns, with ids replaced by
        vectors. NaN in rows that a task does not have.
    :raises TypeError: for a model without unknown inputs.
    """
    model, data = posterior.model, posterior.data
    if model.inputs is None:
        raise TypeError(
            "completed_inputs needs a model whose kernel is CompletedInputs(kernel, inputs); the "
            f"inputs of this {type(model).__name__} are known."
        )
    batch = Batch(data.X, tf.convert_to_tensor(data.Y), data.mask)

    def of_sample(values: list[tf.Tensor], seeds: tf.Tensor) -> tf.Tensor:
        bound = model.bind(values)

        def draw(own: tf.Tensor) -> tf.Tensor:
            inputs = bound.prior_for(batch, own).inputs
            assert inputs is not None
            return tf.cast(inputs.complete(data.X), gpflow.default_float())

        dtype = gpflow.default_float()
        return tf.map_fn(draw, seeds, fn_output_signature=dtype, parallel_iterations=1)

    number = posterior.num_samples
    of_each = -(-num_draws // number)
    seeds = np.arange(number * of_each, dtype=np.int32).reshape(number, of_each, 1)
    seeds = np.concatenate([np.full_like(seeds, seed), seeds], -1)
    parameters = [chain_after_chain(v) for v in posterior.bank.parameters.values()]
    found = SampleLoop(of_sample).map((parameters, seeds), dtypes=gpflow.default_float())
    result = found.reshape(-1, *found.shape[2:])[: max(number, num_draws)]
    if data.rows.lengths is not None:  # tasks may share inputs, but not lengths
        result = np.broadcast_to(result, [len(result), *data.Y.shape[:2], result.shape[-1]])
    return data.rows.of(result)
