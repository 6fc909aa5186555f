"""What a posterior says of inputs that were not known."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from ..arguments import check_arguments
from ..base import Batch
from .amortized import Posterior
from .sample_loop import SampleLoop, chain_after_chain

__all__ = ["completed_inputs"]


@check_arguments(num_draws=1, seed=0)
@check_shapes("return: [S, batch..., N, E]")
def completed_inputs(posterior: Posterior, *, num_draws: int = 1, seed: int = 0) -> np.ndarray:
    """The training inputs, completed by each posterior sample.

    Entries that are known are the same in all of them. Of a point estimate with a distribution for
    each missing input (``q="gaussian"``) there are draws; of values (``q="point"``) copies.

    :param num_draws: of each sample: 1 for chains; of a fit, which has 16 equal samples where
        inputs have distributions, ten or more.
    :param seed: of draws.
    :return: [S num_draws, N, E], or [S num_draws, T, N, E] where data have an axis of tasks; E is
        the number of columns, ids replaced by vectors.
    :raises TypeError: for a model whose inputs are known.
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
    seeds = np.arange(number * num_draws, dtype=np.int32).reshape(number, num_draws, 1)
    seeds = np.concatenate([np.full_like(seeds, seed), seeds], -1)
    parameters = [chain_after_chain(v) for v in posterior.bank.parameters.values()]
    found = SampleLoop(of_sample).map((parameters, seeds), dtypes=gpflow.default_float())
    result = found.reshape(-1, *found.shape[2:])
    return result if data.has_tasks else result[:, 0]
