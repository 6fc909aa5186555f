"""Variational fits: Adam on the objective, with natural gradients and sparse row updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ...base import Batch, VariationalModel
from ...core import functional
from ...data import Observations, SparseTable, StreamedObservations, draw_indices
from ...mcmc.noise import fold_in, split
from ..runs.model_record import model_record
from ..runs.run import Trace
from ..settings import VariationalSettings
from ..sharding.replicas import ALONE, Replicas, Share
from ..sharding.spread import check_items
from .objectives import EvidenceLowerBound
from .optimisation import Optimisation, cosine_decay
from .relocation import Relocations
from .row_adam import RowAdam

__all__ = ["VariationalFit"]


class VariationalFit(Optimisation):
    """Fit of a variational model by stochastic gradients of its objective."""

    def __init__(
        self,
        model: VariationalModel,
        data: Observations | SparseTable | StreamedObservations,
        settings: VariationalSettings,
        *,
        seed: int,
        steps_per_call: int = 50,
        jit_compile: bool = False,
        replicas: Replicas = ALONE,
        label: str = "variational",
    ):
        """
        :param replicas: replicas that share the items of minibatches.
        :raises ValueError: for natural gradients of a model without a free q(u), or settings that
            replicas cannot share.
        :raises TypeError: for relocations of codes that are not free for each row.
        """
        self.model, self.settings = model, settings
        self.data: Any = data
        self._num_points = float(data.num_seen)
        self.replicas = replicas
        if replicas.size > 1:
            _check_replicas(model, data, settings, replicas, jit_compile)
        self._natural = self._natural_gradients()
        trained = list(model.trainable_variables)
        natural = {id(p.unconstrained_variable) for pair in self._natural_pairs for p in pair}
        rows = self._row_optimizer(trained)
        apart = natural | {id(v) for v in rows.variables}
        of_prior = {id(v) for v in model.latent_prior_variables}
        adam = [v for v in trained if id(v) not in apart]
        rate = settings.learning_rate
        prior_rate = settings.prior_learning_rate or rate
        super().__init__(
            self._fresh_loss,
            {f"{i}:{v.name}": v for i, v in enumerate(trained)},
            [
                ([v for v in adam if id(v) not in of_prior], self._decay(rate)),
                ([v for v in adam if id(v) in of_prior], self._decay(prior_rate)),
            ],
            # Rounded up to whole calls.
            num_steps=-(-settings.num_steps // steps_per_call) * steps_per_call,
            steps_per_call=steps_per_call,
            seed=_step_seed(seed),
            label=label,
            jit_compile=jit_compile,
        )
        self.rows = rows
        self._begin(seed)

    def _begin(self, seed: int) -> None:
        """Initialise relocations, the stream reader and the objective's state."""
        model, data, settings = self.model, self.data, self.settings
        self._relocations = Relocations(model, data, settings.relocations, settings.num_steps, seed)
        order = [seed, 0x7A2]
        self._reader = data.reader(settings.num_items, self.steps_per_call, order, model)
        self.carried = settings.objective.initial_state()

    def refit(self, seed: int) -> None:
        """Prepare to fit again from the current values, with the compiled graph.

        The result is that of a new fit of the same model with this seed, without tracing again.
        """
        self.begin_again(_step_seed(seed))
        self._begin(seed)

    def _natural_gradients(self) -> gpflow.optimizers.NaturalGradient | None:
        step_size = self.settings.natural_gradient_step_size
        self._natural_pairs: list[Any] = []
        if step_size is None:
            return None
        self._natural_pairs = self.model.natural_parameters
        if not self._natural_pairs:
            raise ValueError(
                "natural_gradient_step_size is set, but "
                f"{type(self.model).__name__} has no free q(u); set it to None."
            )
        return gpflow.optimizers.NaturalGradient(gamma=step_size)

    def _row_optimizer(self, trained: list[tf.Variable]) -> RowAdam:
        """Return the optimiser of per-item variables, of which a minibatch updates its own rows."""
        settings = self.settings
        whole = settings.num_items in (None, self.data.num_items)
        rows = () if whole else self.model.row_variables
        known = {id(v) for v in trained}
        rate = settings.row_learning_rate or settings.learning_rate
        return RowAdam([v for v in rows if id(v) in known], self._decay(rate))

    def _decay(self, rate: float) -> Any:
        fraction = self.settings.final_learning_rate_fraction
        return cosine_decay(rate, self.settings.num_steps, fraction)

    def constants(self) -> Any:
        """Return the model's snapshot of points outside of a batch."""
        return self.model.snapshot(self.data)

    def feed(self, number: int) -> Any:
        """Return the block's minibatches of a stream; () without a stream."""
        return () if self._reader is None else self._reader.read(number)

    def of_step(self, constants: Any, fed: Any, i: tf.Tensor) -> Any:
        """Return the snapshot, and the step's minibatch of a stream or None."""
        return constants, None if self._reader is None else self.data.batch(fed, i)

    def before_step(self, seed: tf.Tensor, loss: Callable[[], tf.Tensor]) -> None:
        """Take a natural gradient step of q(u).

        The gradient is that of the whole bound, not of the bound per point, so that a step of size
        1 is the conjugate update if there is one.
        """
        if self._natural is not None:
            self._natural.minimize(lambda: self._num_points * loss(), self._natural_pairs)

    def _fresh_loss(self, seed: tf.Tensor, state: Any, known: Any) -> tuple[tf.Tensor, Any]:
        """Return the objective of a new minibatch, per point of the data, and the next state.

        :param known: see :meth:`of_step`.
        """
        snapshot, given = known
        batch, batch_seed = self._batch(seed, given)
        return self.batch_loss(batch, batch_seed, state, snapshot)

    def gradients(
        self, seed: tf.Tensor, carried: Any, constants: Any, variables: list[tf.Variable]
    ) -> tuple[tf.Tensor, Any, list[Any]]:
        """Return loss, state and gradients, summed over the replicas' shares of the minibatch."""
        if self.replicas.size == 1:
            return super().gradients(seed, carried, constants, variables)
        snapshot, given = constants
        batch, batch_seed = self._batch(seed, given)
        axis = self.data.axis

        def part(_: Any, share: Share) -> tf.Tensor:
            own = share.of(batch, axis)
            with share.noise(axis - 3):
                return self.batch_loss(own, batch_seed, carried, snapshot, share.is_first)[0]

        size = batch.Y.shape[axis]
        loss, gradients = self.replicas.value_and_gradient(part, variables, size)
        return loss, carried, gradients

    def step(self, state: Any, number: int, stop: int) -> tuple[Any, int, Trace]:
        """Run a block of steps, then copy the chief's variables to all processes."""
        workers = self.replicas.workers
        with workers.in_words():
            found = super().step(state, number, stop)
            if np.isfinite(found[2]["loss"][-1]):
                self._relocations.after(number, number + found[1])
            if workers.count > 1:
                variables = self._all()
                for variable, value in zip(variables, workers.agreed(variables), strict=True):
                    variable.assign(value)
        return found

    def _batch(self, seed: tf.Tensor, given: Batch | None = None) -> tuple[Batch, tf.Tensor]:
        """Return the minibatch of a step, drawn unless given, and the seed of the step's draws."""
        settings, data = self.settings, self.data
        seeds = split(seed)
        if given is not None:
            return given, seeds[1]
        indices = draw_indices(data.num_items, settings.num_items, seeds[0])
        columns = None
        if settings.num_columns is not None:
            column_seed = fold_in(seeds[0], 1)
            columns = draw_indices(data.num_outputs, settings.num_columns, column_seed)
        return data.gather(indices, columns, seeds[1]), seeds[1]

    def batch_loss(
        self,
        batch: Batch,
        seed: tf.Tensor,
        state: Any,
        snapshot: Any,
        with_prior: bool = True,
    ) -> tuple[tf.Tensor, Any]:
        """Return the objective of a batch, per observed point of the data, and its next state.

        :param with_prior: whether to add the log prior of parameters, if settings include it.
        """
        settings = self.settings
        terms = self.model.terms(batch, seed, snapshot)
        likelihood = self.model.observation_likelihood
        loss, state = settings.objective.loss(terms, batch, likelihood, state)
        loss *= batch.scale
        if settings.prior_on_parameters and with_prior:
            loss -= functional.log_prior_of_mode(self.model.prior_parameters)
        return loss / self._num_points, state

    def describe(self) -> dict[str, Any]:
        """Return the settings that a resumed fit must share with this one."""
        return {
            **self.settings.describe(),
            "relocations": self._relocations.count,
            "seed": int(self._seed[0]),
            "steps_per_call": self.steps_per_call,
            "model": type(self.model).__name__,
            **model_record(self.model),
            "trained": [f"{v.name}{tuple(v.shape)}" for v in self.model.trainable_variables],
            "data": self.data.describe(),
        }


def _step_seed(seed: int) -> list[int]:
    return [seed, 0x7A1]


def _check_replicas(
    model: VariationalModel,
    data: Any,
    settings: VariationalSettings,
    replicas: Replicas,
    jit_compile: bool,
) -> None:
    """Check that replicas can share this fit.

    :raises ValueError: if they cannot, with the reason and an alternative.
    """
    refused = {
        "a SparseTable, whose rows are of unequal length": isinstance(data, SparseTable),
        "jit_compile=True, which compiles for one device alone": jit_compile,
        "an objective that carries something from step to step, such as GECO": not isinstance(
            settings.objective, EvidenceLowerBound
        ),
        "natural gradients": settings.natural_gradient_step_size is not None,
        "variables of single items, of which a step moves some": bool(model.row_variables),
    }
    for what, present in refused.items():
        if present:
            raise ValueError(f"Replicas of a strategy cannot share {what}: fit without strategy.")
    check_items(model, data, settings.num_items, replicas)
