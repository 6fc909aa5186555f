"""Where tempered chains start: at given or fresh networks, or at a posterior mode near them."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from .. import functional
from ..data import Observations, draw_indices
from ..models import TemperedBAE
from .loops import repeat
from .tempered_settings import TemperedSettings

__all__ = ["initial_values"]

Values = tuple[tf.Tensor, ...]


def initial_values(
    model: TemperedBAE,
    data: Observations,
    settings: TemperedSettings,
    *,
    seed: int,
    progress: bool = True,
) -> tuple[Values, np.ndarray]:
    """Unconstrained values [R, ...] for the replicas to start from, and the losses on the way.

    The first network starts at the model's own weights, the others where Keras initialises fresh
    copies; ``settings.num_start_steps`` steps of Adam then climb the log posterior. Nothing of it
    sees more than the training data.

    :return: values by parameter, and the mean loss of every hundred steps, in nats per row.
    """
    given = functional.unconstrained_values(model.sampled_parameters)
    starts = [given]
    for _ in range(1, settings.num_starts):
        fresh = iter(_fresh_weights(model))
        starts.append(
            tuple(
                next(fresh) if path.startswith((".encoder.", ".decoder.")) else value
                for path, value in zip(model.sampled_paths, given, strict=True)
            )
        )
    values = tuple(tf.stack(parts) for parts in zip(*starts, strict=True))
    losses = np.zeros(0)
    if settings.num_start_steps:
        values, losses = _climb(model, data, settings, values, seed, progress)
    order = np.arange(settings.num_replicas) % settings.num_starts
    return tuple(tf.gather(v, order) for v in values), losses


def _fresh_weights(model: TemperedBAE) -> list[tf.Tensor]:
    """What Keras's initialisers give for copies of both networks (decoder first, as in paths)."""
    by_module = {}
    for name in ("decoder", "encoder"):
        clone = keras.models.clone_model(getattr(model, name).model)
        by_module[name] = [tf.identity(v.value) for v in clone.trainable_variables]
    weights = []
    for path in model.sampled_paths:
        name = path.split(".")[1]
        if name in by_module:
            weights.append(by_module[name].pop(0))
    return weights


def _climb(
    model: TemperedBAE,
    data: Observations,
    settings: TemperedSettings,
    values: Values,
    seed: int,
    progress: bool,
) -> tuple[Values, np.ndarray]:
    """Adam on minus the log posterior of all starts at once, minibatches shared."""
    num_rows = data.num_items
    size = min(settings.start_batch_size or num_rows, num_rows)
    variables = [tf.Variable(v) for v in values]
    rate = keras.optimizers.schedules.CosineDecay(
        settings.start_learning_rate, settings.num_start_steps
    )
    optimizer = keras.optimizers.Adam(rate)
    optimizer.build(variables)

    @tf.function(autograph=False)
    def steps(block_seed: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        def step(i: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
            indices = draw_indices(num_rows, size, tf.random.fold_in(block_seed, i, alg="philox"))
            batch = data.gather(indices)
            with tf.GradientTape() as tape:
                parts = [tf.convert_to_tensor(v) for v in variables]
                log_density = num_rows / size * model.log_likelihood(parts, batch)
                log_density += model.log_prior(parts)
                loss = -tf.reduce_sum(log_density) / num_rows
            optimizer.apply(tape.gradient(loss, variables), variables)
            return total + loss / settings.num_starts

        total = repeat(count, step, tf.zeros([], gpflow.default_float()))
        return total / tf.cast(count, total.dtype)

    base_seed = tf.constant([seed, 0x57A], tf.int32)
    losses: list[float] = []
    with tqdm(total=settings.num_start_steps, disable=not progress, desc="mode") as bar:
        for call, first in enumerate(range(0, settings.num_start_steps, 100)):
            count = min(100, settings.num_start_steps - first)
            block_seed = tf.random.fold_in(base_seed, call, alg="philox")
            losses.append(float(steps(block_seed, tf.constant(count))))
            if not np.isfinite(losses[-1]):
                raise FloatingPointError(
                    f"The log posterior became {-losses[-1]} within {first + count} steps of Adam "
                    f"towards its mode; lower start_learning_rate ({settings.start_learning_rate})."
                )
            bar.update(count)
            bar.set_postfix(loss=f"{losses[-1]:.4g}")
    return tuple(tf.convert_to_tensor(v) for v in variables), np.array(losses)
