"""Where tempered chains start: at given or fresh networks, or at a posterior mode near them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...data import Observations, draw_indices
from ...models import TemperedBAE
from ..optimise.optimisation import Optimisation, cosine_decay
from ..runs.checkpoints import RunDirectory
from ..runs.run import run
from ..tempered_settings import TemperedSettings

__all__ = ["fresh_values", "initial_values"]

Values = tuple[tf.Tensor, ...]


def initial_values(
    model: TemperedBAE,
    data: Observations,
    settings: TemperedSettings,
    *,
    seed: int,
    progress: bool = True,
    directory: RunDirectory | None = None,
) -> tuple[Values, np.ndarray]:
    """Unconstrained values [R, ...] for the replicas to start from, and the losses on the way.

    The first network starts at the model's own weights, the others where Keras initialises fresh
    copies; ``settings.num_start_steps`` steps of Adam then climb the log posterior. Nothing of it
    sees more than the training data.

    :param directory: where the climb keeps its checkpoints; None keeps none.
    :return: values by parameter, and the mean loss of every hundred steps, in nats per row.
    """
    given = model.sampled.values()
    starts = [given]
    starts += [fresh_values(model, given) for _ in range(1, settings.num_starts)]
    values = tuple(tf.stack(parts) for parts in zip(*starts, strict=True))
    losses = np.zeros(0)
    if settings.num_start_steps:
        values, losses = _climb(model, data, settings, values, seed, progress, directory)
    order = np.arange(settings.num_replicas) % settings.num_starts
    return tuple(tf.gather(v, order) for v in values), losses


def fresh_values(model: TemperedBAE, given: Values) -> Values:
    """``given``, with all weights as Keras initialises them anew."""
    fresh = _fresh_weights(model)
    pairs = zip(model.sampled.parameters, given, strict=True)
    return tuple(fresh.get(id(parameter), value) for parameter, value in pairs)


def _fresh_weights(model: TemperedBAE) -> dict[int, tf.Tensor]:
    """What Keras's initialisers give for copies of both networks, by the parameter's identity."""
    fresh: dict[int, tf.Tensor] = {}
    for network in (model.decoder, model.encoder):
        clone = keras.models.clone_model(network.model)
        for parameter, variable in zip(network.weights, clone.trainable_variables, strict=True):
            fresh[id(parameter)] = tf.identity(variable.value)
    return fresh


def _climb(
    model: TemperedBAE,
    data: Observations,
    settings: TemperedSettings,
    values: Values,
    seed: int,
    progress: bool,
    directory: RunDirectory | None,
) -> tuple[Values, np.ndarray]:
    """Adam on minus the log posterior of all starts at once, minibatches shared."""
    num_rows = data.num_items
    size = min(settings.start_batch_size or num_rows, num_rows)
    variables = {path: tf.Variable(v) for path, v in zip(model.sampled.paths, values, strict=True)}
    rate = cosine_decay(settings.start_learning_rate, settings.num_start_steps, 0.0)

    def loss(seed: tf.Tensor, carried: Any, constants: Any) -> tuple[tf.Tensor, Any]:
        batch = data.gather(draw_indices(num_rows, size, seed))
        parts = [tf.convert_to_tensor(v) for v in variables.values()]
        log_density = batch.scale * model.log_likelihood(parts, batch) + model.log_prior(parts)
        return -tf.reduce_sum(log_density) / num_rows, carried

    climb = Optimisation(
        loss,
        variables,
        [(list(variables.values()), rate)],
        num_steps=settings.num_start_steps,
        steps_per_call=100,
        seed=[seed, 0x57A],
        label="mode",
    )
    if directory is not None:
        directory = directory.child("mode", {"num_steps": settings.num_start_steps})
    found = run(climb, lambda: None, directory=directory, progress=progress)
    return tuple(map(tf.convert_to_tensor, variables.values())), (
        found.trace["loss"] / settings.num_starts
    )
