"""What a posterior says of inputs that were not known."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from .. import functional
from ..arguments import check_arguments
from ..tracing import compiled
from .amortized import Posterior

__all__ = ["completed_inputs"]


@check_arguments(num_draws=1, seed=0)
@check_shapes("return: [S, batch..., N, E]")
def completed_inputs(posterior: Posterior, *, num_draws: int = 1, seed: int = 0) -> np.ndarray:
    """The training inputs, completed by each posterior sample.

    Entries that are known are the same in all of them. Of a point estimate with a distribution for
    each missing input (``q="gaussian"``) there are draws; of values (``q="point"``) copies.

    :param num_draws: of each sample: 1 for chains, some hundred for a point estimate.
    :param seed: of draws.
    :return: [S num_draws, N, E], or [S num_draws, T, N, E] where data have an axis of tasks; E is
        the number of columns, ids replaced by vectors.
    :raises TypeError: for a model whose inputs are known.
    """
    model = posterior.model
    inputs = model.inputs
    if inputs is None:
        raise TypeError(
            "completed_inputs needs a model whose kernel is CompletedInputs(kernel, inputs); the "
            f"inputs of this {type(model).__name__} are known."
        )
    own = gpflow.utilities.parameter_dict(inputs)
    paths = {id(p): path for path, p in own.items()}
    sampled = [
        (paths[id(p)], p, posterior.bank.parameters[path])
        for path, p in zip(model.sampled.paths, model.sampled.parameters, strict=True)
        if id(p) in paths
    ]
    X = posterior.data.X

    @compiled
    def complete(values: list[tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
        constrained = functional.constrain([p for _, p, _ in sampled], values)
        replaced = dict(zip([path for path, *_ in sampled], constrained, strict=True))
        return functional.functional_copy(inputs, replaced).with_seed(seed).complete(X)

    found = []
    for s in range(posterior.num_samples):
        c, i = divmod(s, posterior.bank.num_samples)
        values = [tf.constant(held[c, i]) for *_, held in sampled]
        for d in range(num_draws):
            found.append(complete(values, tf.constant([seed, s * num_draws + d], tf.int32)).numpy())
    result = np.stack(found)
    return result if posterior.data.has_tasks else result[:, 0]
