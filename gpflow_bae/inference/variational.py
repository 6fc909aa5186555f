"""Variational training: Adam on a bound, a compiled block of steps at a time."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from tqdm.auto import tqdm

from .. import functional
from ..base import VariationalModel
from ..data import Observations, SparseTable, check_columns, draw_indices, prepare_data
from .checkpoints import RunDirectory
from .loops import repeat
from .objectives import EvidenceLowerBound, Objective
from .row_adam import RowAdam
from .settings import VariationalSettings

__all__ = ["fit_variational", "variational_loss"]


def variational_loss(
    model: VariationalModel,
    data: Observations,
    indices: tf.Tensor | None,
    seed: TensorType,
    prior_on_parameters: bool = True,
) -> tf.Tensor:
    """-(N/B ELBO(batch) + log prior of the parameters) / number of points."""
    loss, _ = _objective_loss(
        model, data, indices, seed, EvidenceLowerBound(), (), prior_on_parameters
    )
    return loss


def _objective_loss(
    model: VariationalModel,
    data: Observations | SparseTable,
    indices: tf.Tensor | None,
    seed: TensorType,
    objective: Objective,
    state: Any,
    prior_on_parameters: bool,
    snapshot: Any = None,
    columns: tf.Tensor | None = None,
) -> tuple[tf.Tensor, Any]:
    """(N/B loss(batch) - log prior of the parameters) / number of points, and the next state."""
    batch = data.gather(indices, columns, seed)._replace(snapshot=snapshot)
    scale = 1.0 if indices is None else data.num_items / indices.shape[0]
    loss, state = objective.loss(
        model.terms(batch, seed), batch, model.observation_likelihood, state
    )
    loss *= scale
    if prior_on_parameters:
        parameters = model.prior_parameters
        values = [p.unconstrained_variable for p in parameters]
        loss -= functional.log_prior_density(parameters, values)
    return loss / float(data.num_points), state


class _Fit:
    """The compiled block of steps, and everything that a resumed fit needs to go on bit by bit."""

    def __init__(
        self,
        model: VariationalModel,
        data: Observations | SparseTable,
        settings: VariationalSettings,
        steps_per_call: int,
        jit_compile: bool,
    ):
        self.model, self.data, self.settings = model, data, settings
        self.steps_per_call = steps_per_call
        self._natural = self._natural_gradients()
        natural = {id(p.unconstrained_variable) for pair in self._natural_pairs for p in pair}
        self.rows = self._row_optimizer()
        apart = natural | {id(v) for v in self.rows.variables}
        self.variables = [v for v in model.trainable_variables if id(v) not in apart]
        self.groups = self._optimizers()
        self.state = settings.objective.initial_state()
        self.losses: list[float] = []
        self.calls, self.seconds = 0, 0.0
        self.block = tf.function(self._block, autograph=False, jit_compile=jit_compile)

    def _natural_gradients(self) -> gpflow.optimizers.NaturalGradient | None:
        step_size = self.settings.natural_gradient_step_size
        self._natural_pairs: list[Any] = []
        if step_size is None:
            return None
        if not hasattr(self.model, "natural_parameters"):
            raise ValueError(
                "natural_gradient_step_size is set, but "
                f"{type(self.model).__name__} has no free q(u); set it to None."
            )
        self._natural_pairs = self.model.natural_parameters
        return gpflow.optimizers.NaturalGradient(gamma=step_size)

    def _row_optimizer(self) -> RowAdam:
        """For what belongs to single items, of which a minibatch moves its own only."""
        settings = self.settings
        whole = settings.batch_size in (None, self.data.num_items)
        rows = () if whole else getattr(self.model, "row_variables", ())
        trained = {id(v) for v in self.model.trainable_variables}
        rate = settings.row_learning_rate or settings.learning_rate
        return RowAdam([v for v in rows if id(v) in trained], self._decay(rate))

    def _decay(self, rate: float) -> Any:
        fraction = self.settings.final_learning_rate_fraction
        if fraction == 1.0:
            return rate
        return keras.optimizers.schedules.CosineDecay(rate, self.settings.num_steps, alpha=fraction)

    def _optimizers(self) -> list[tuple[keras.optimizers.Optimizer, list[int]]]:
        """Built optimisers, and which variables each moves: the latent prior's are apart."""
        settings = self.settings
        in_prior = {id(v) for v in self.model.latent_prior_variables}
        groups = []
        for of_prior in (False, True):
            members = [i for i, v in enumerate(self.variables) if (id(v) in in_prior) == of_prior]
            if not members:
                continue
            rate = settings.learning_rate
            if of_prior and settings.prior_learning_rate is not None:
                rate = settings.prior_learning_rate
            optimizer = keras.optimizers.Adam(self._decay(rate))
            optimizer.build([self.variables[i] for i in members])
            groups.append((optimizer, members))
        return groups

    def _block(self, block_seed: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        snapshot = self.model.snapshot(self.data)
        settings, data = self.settings, self.data

        def step(i: tf.Tensor, carried: tuple[tf.Tensor, Any]) -> tuple[tf.Tensor, Any]:
            total, state = carried
            seeds = tf.random.split(tf.random.fold_in(block_seed, i, alg="philox"), alg="philox")
            indices = draw_indices(data.num_items, settings.batch_size, seeds[0])
            columns = None
            if settings.num_columns is not None:
                column_seed = tf.random.fold_in(seeds[0], 1, alg="philox")
                columns = draw_indices(data.num_outputs, settings.num_columns, column_seed)

            def loss_and_state() -> tuple[tf.Tensor, Any]:
                return _objective_loss(
                    self.model,
                    data,
                    indices,
                    seeds[1],
                    settings.objective,
                    state,
                    settings.prior_on_parameters,
                    snapshot,
                    columns,
                )

            if self._natural is not None:
                self._natural.minimize(lambda: loss_and_state()[0], self._natural_pairs)
            with tf.GradientTape() as tape:
                loss, new_state = loss_and_state()
            gradients = tape.gradient(loss, [*self.variables, *self.rows.variables])
            self.rows.apply(gradients[len(self.variables) :])
            for optimizer, members in self.groups:
                chosen = [gradients[j] for j in members]
                optimizer.apply(chosen, [self.variables[j] for j in members])
            return total + tf.cast(loss, tf.float64), new_state

        total, state = repeat(self.steps_per_call, step, (tf.zeros([], tf.float64), state))
        return total / self.steps_per_call, state

    def all_variables(self) -> list[tf.Variable]:
        """The model's, and the optimisers'."""
        optimizers = [v.value for optimizer, _ in self.groups for v in optimizer.variables]
        return [*self.model.trainable_variables, *optimizers, *self.rows.state]

    def checkpoint(self) -> dict[str, np.ndarray]:
        """Everything as arrays."""
        arrays = {f"variable_{i}": v.numpy() for i, v in enumerate(self.all_variables())}
        arrays |= {f"state_{i}": v.numpy() for i, v in enumerate(tf.nest.flatten(self.state))}
        return arrays | {"losses": np.array(self.losses), "seconds": np.array(self.seconds)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """The inverse of :meth:`checkpoint`."""
        for i, variable in enumerate(self.all_variables()):
            variable.assign(arrays[f"variable_{i}"])
        flat = tf.nest.flatten(self.state)
        flat = [tf.constant(arrays[f"state_{i}"], v.dtype) for i, v in enumerate(flat)]
        self.state = tf.nest.pack_sequence_as(self.state, flat)
        self.losses = arrays["losses"].tolist()
        self.calls, self.seconds = len(self.losses), float(arrays["seconds"])


def fit_variational(
    model: VariationalModel,
    data: tuple[object, object] | Observations | SparseTable,
    settings: VariationalSettings | None = None,
    *,
    seed: int = 0,
    steps_per_call: int = 50,
    jit_compile: bool = False,
    out_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    checkpoint_every: int = 20,
    progress: bool = True,
    callback: Callable[[int, float], None] | None = None,
) -> np.ndarray:
    """Fit a variational model in place.

    :param data: ``(X, Y)`` as in :func:`~gpflow_bae.data.prepare_data`.
    :param seed: of minibatches and code draws; equal seeds give equal fits.
    :param steps_per_call: Adam steps in one compiled call; the loss is recorded once per call.
    :param out_dir: folder for checkpoints; None keeps none.
    :param resume: continue the fit in ``out_dir``, bit by bit as if it had not stopped.
    :param checkpoint_every: calls between checkpoints.
    :param callback: called with (steps done, mean loss) after each call.
    :return: the mean loss per point of each call, in nats.
    :raises FloatingPointError: if the loss becomes non-finite; the model then holds the last
        parameters for which it was finite.
    """
    settings = settings or VariationalSettings()
    training_data = prepare_data(model, data, settings.batch_size)
    check_columns(model, training_data, settings.num_columns)
    fit = _Fit(model, training_data, settings, steps_per_call, jit_compile)
    directory = None
    if out_dir is not None:
        record = {
            **dataclasses.asdict(settings),
            "objective": repr(settings.objective),
            "seed": seed,
            "steps_per_call": steps_per_call,
            "model": type(model).__name__,
            "trained": [f"{v.name}{tuple(v.shape)}" for v in model.trainable_variables],
            "data": training_data.describe(),
        }
        directory = RunDirectory(out_dir, record, resume)
        arrays = directory.read_state()
        if arrays is not None:
            fit.restore(arrays)

    base_seed = tf.constant([seed, 0x7A1], tf.int32)
    num_calls = -(-settings.num_steps // steps_per_call)
    # Parameters from which a whole block of losses was finite; those after it need not be good.
    variables = list(model.trainable_variables)
    last_good = [tf.identity(v) for v in variables]
    with tqdm(
        total=num_calls * steps_per_call,
        initial=fit.calls * steps_per_call,
        disable=not progress,
        desc="variational",
    ) as bar:
        for call in range(fit.calls, num_calls):
            started = time.perf_counter()
            before = [tf.identity(v) for v in variables]
            block_seed = tf.random.fold_in(base_seed, call, alg="philox")
            mean_loss, fit.state = fit.block(block_seed, fit.state)
            loss = float(mean_loss)
            if not np.isfinite(loss):
                for variable, value in zip(variables, last_good, strict=True):
                    variable.assign(value)
                raise FloatingPointError(
                    f"The variational loss became {loss} between steps {call * steps_per_call} "
                    f"and {(call + 1) * steps_per_call}; the model holds the last parameters for "
                    "which it was finite. Lower the learning rate or raise the jitter."
                )
            last_good = before
            fit.losses.append(loss)
            fit.seconds += time.perf_counter() - started
            if directory is not None and (
                (call + 1) % checkpoint_every == 0 or call + 1 == num_calls
            ):
                directory.write_state(fit.checkpoint())
            bar.update(steps_per_call)
            bar.set_postfix(loss=f"{loss:.2f}")
            if callback is not None:
                callback((call + 1) * steps_per_call, loss)
    return np.array(fit.losses)
