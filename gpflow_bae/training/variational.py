"""Variational training: Adam on the evidence lower bound, a compiled block of steps at a time."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from tqdm.auto import tqdm

from .. import functional
from ..models import VariationalAutoencoder
from .data import TrainingData, draw_indices, prepare_data
from .loops import repeat
from .settings import VariationalSettings

__all__ = ["fit_variational", "variational_loss"]


def variational_loss(
    model: VariationalAutoencoder,
    data: TrainingData,
    indices: tf.Tensor | None,
    seed: TensorType,
    prior_on_parameters: bool = True,
) -> tf.Tensor:
    """-(N/B ELBO(batch) + log prior of the parameters) / number of points."""
    batch = data.gather(indices)
    scale = 1.0 if indices is None else data.num_items / indices.shape[0]
    objective = scale * model.elbo(batch, seed)
    if prior_on_parameters:
        parameters = model.sampled_parameters
        values = [p.unconstrained_variable for p in parameters]
        objective += functional.log_prior_density(parameters, values)
    return -objective / float(data.Y.shape[0] * data.Y.shape[1])


def _optimizers(
    model: VariationalAutoencoder, variables: list[tf.Variable], settings: VariationalSettings
) -> list[tuple[keras.optimizers.Optimizer, list[int]]]:
    """Built optimisers, and which variables each moves: the latent prior's apart from the rest."""
    in_prior = {id(v) for v in model.latent_prior.trainable_variables}
    groups = []
    for of_prior in (False, True):
        members = [i for i, v in enumerate(variables) if (id(v) in in_prior) == of_prior]
        if not members:
            continue
        rate = settings.learning_rate
        if of_prior and settings.prior_learning_rate is not None:
            rate = settings.prior_learning_rate
        fraction = settings.final_learning_rate_fraction
        if fraction < 1.0:
            rate = keras.optimizers.schedules.CosineDecay(rate, settings.num_steps, alpha=fraction)
        optimizer = keras.optimizers.Adam(rate)
        optimizer.build([variables[i] for i in members])
        groups.append((optimizer, members))
    return groups


def fit_variational(
    model: VariationalAutoencoder,
    data: tuple[object, object],
    settings: VariationalSettings | None = None,
    *,
    seed: int = 0,
    steps_per_call: int = 50,
    jit_compile: bool = False,
    progress: bool = True,
    callback: Callable[[int, float], None] | None = None,
) -> np.ndarray:
    """Maximise the evidence lower bound of ``model`` in place.

    :param data: ``(X, Y)`` as in :func:`~gpflow_bae.training.prepare_data`.
    :param seed: of minibatches and code draws; equal seeds give equal fits.
    :param steps_per_call: Adam steps in one compiled call; the loss is recorded once per call.
    :param callback: called with (steps done, mean loss) after each call.
    :return: the mean loss per point of each call, in nats.
    :raises FloatingPointError: if the loss becomes non-finite; the model then holds the last
        parameters for which it was finite.
    """
    settings = settings or VariationalSettings()
    training_data = prepare_data(model, data, settings.batch_size)
    num_items = training_data.num_items
    variables = list(model.trainable_variables)
    groups = _optimizers(model, variables, settings)

    @tf.function(autograph=False, jit_compile=jit_compile)
    def steps(block_seed: tf.Tensor) -> tf.Tensor:
        def step(i: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
            seeds = tf.random.split(tf.random.fold_in(block_seed, i, alg="philox"), alg="philox")
            indices = draw_indices(num_items, settings.batch_size, seeds[0])
            with tf.GradientTape() as tape:
                loss = variational_loss(
                    model, training_data, indices, seeds[1], settings.prior_on_parameters
                )
            gradients = tape.gradient(loss, variables)
            for optimizer, members in groups:
                chosen = [gradients[j] for j in members]
                optimizer.apply(chosen, [variables[j] for j in members])
            return total + tf.cast(loss, tf.float64)

        return repeat(steps_per_call, step, tf.zeros([], tf.float64)) / steps_per_call

    base_seed = tf.constant([seed, 0x7A1], tf.int32)
    losses: list[float] = []
    num_calls = -(-settings.num_steps // steps_per_call)
    # Parameters from which a whole block of losses was finite; those after it need not be good.
    last_good = [tf.identity(v) for v in variables]
    with tqdm(total=num_calls * steps_per_call, disable=not progress, desc="variational") as bar:
        for call in range(num_calls):
            before = [tf.identity(v) for v in variables]
            loss = float(steps(tf.random.fold_in(base_seed, call, alg="philox")))
            if not np.isfinite(loss):
                for variable, value in zip(variables, last_good, strict=True):
                    variable.assign(value)
                raise FloatingPointError(
                    f"The variational loss became {loss} between steps {call * steps_per_call} "
                    f"and {(call + 1) * steps_per_call}; the model holds the last parameters for "
                    "which it was finite. Lower the learning rate or raise the jitter."
                )
            last_good = before
            losses.append(loss)
            bar.update(steps_per_call)
            bar.set_postfix(loss=f"{loss:.2f}")
            if callback is not None:
                callback((call + 1) * steps_per_call, loss)
    return np.array(losses)
