"""Adam on any loss, a compiled block of steps at a time: the one loop for all that is fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...core.tracing import compiled
from ..loops import repeat
from ..runs.run import Algorithm, Trace
from .row_adam import RowAdam

__all__ = ["Loss", "Optimisation", "cosine_decay"]

Loss = Callable[[tf.Tensor, Any, Any], tuple[tf.Tensor, Any]]
"""(seed, carried, constants of the block) -> (loss, what is carried to the next step)."""


def cosine_decay(rate: float, num_steps: int, fraction: float) -> Any:
    """A learning rate that falls to ``fraction`` of itself along a cosine; 1 keeps it."""
    rate = float(rate)  # Keras takes no number of NumPy's
    if fraction == 1.0:
        return rate
    return keras.optimizers.schedules.CosineDecay(rate, num_steps, alpha=fraction)


class Optimisation(Algorithm):
    """Variables that move down a loss, in place; their checkpoint is their values and Adam's.

    Where a block of losses is not finite the variables go back to where they were before the last
    block that was: those after it need not be good.
    """

    def __init__(
        self,
        loss: Loss,
        variables: Mapping[str, tf.Variable],
        groups: Sequence[tuple[Sequence[tf.Variable], Any]],
        *,
        num_steps: int,
        steps_per_call: int,
        seed: Sequence[int],
        label: str,
        jit_compile: bool = False,
    ):
        """
        :param variables: all that moves, by name.
        :param groups: variables that Adam moves, with a learning rate each (a number or a Keras
            schedule); a group may be empty.
        :param seed: two integers; call number k has what is folded from it and k.
        :param label: what the bar says.
        """
        self.loss, self.variables = loss, dict(variables)
        self.num_steps, self.steps_per_call, self.label = num_steps, steps_per_call, label
        self.carried: Any = ()
        self.rows = RowAdam([], 0.0)
        self._groups: list[tuple[keras.optimizers.Optimizer, list[tf.Variable]]] = []
        for members, rate in groups:
            if members:
                optimizer = keras.optimizers.Adam(rate)
                optimizer.build(list(members))
                self._groups.append((optimizer, list(members)))
        self._seed = tf.constant(seed, tf.int32)
        self._good = self._values()
        self.block = compiled(self._block, jit_compile=jit_compile)

    def begin_again(self, seed: Sequence[int]) -> None:
        """From the variables as they are now, by the graph that is there: Adam is at rest.

        :param seed: as when this was made.
        """
        of_adam = [v for o, _ in self._groups for v in o.variables if v is not o.learning_rate]
        for variable in (*of_adam, *self.rows.state):
            variable.assign(tf.zeros_like(variable))
        self._seed = tf.constant(seed, tf.int32)
        self._good = self._values()

    def constants(self) -> Any:
        """What all steps of a block share, computed at its start."""
        return None

    def feed(self, number: int) -> Any:
        """What the block after ``number`` steps is given from outside of its graph."""
        return ()

    def of_step(self, constants: Any, fed: Any, i: tf.Tensor) -> Any:
        """What the loss of step i of a block is given for its constants.

        :param fed: see :meth:`feed`.
        """
        return constants

    def before_step(self, seed: tf.Tensor, loss: Callable[[], tf.Tensor]) -> None:
        """A hook for what moves variables of its own before Adam does.

        :param seed: of this step, the one that the loss is called with.
        """

    def gradients(
        self, seed: tf.Tensor, carried: Any, constants: Any, variables: list[tf.Variable]
    ) -> tuple[tf.Tensor, Any, list[Any]]:
        """The loss of a step, what is carried on, and the gradient by ``variables``."""
        with tf.GradientTape() as tape:
            loss, following = self.loss(seed, carried, constants)
        return loss, following, tape.gradient(loss, variables)

    def _block(
        self, seed: tf.Tensor, carried: Any, count: tf.Tensor, fed: Any = ()
    ) -> tuple[tf.Tensor, Any]:
        shared = self.constants()
        trained = [v for _, group in self._groups for v in group]

        def step(i: tf.Tensor, state: tuple[tf.Tensor, Any]) -> tuple[tf.Tensor, Any]:
            total, carried = state
            step_seed = tf.random.fold_in(seed, i, alg="philox")
            constants = self.of_step(shared, fed, i)
            self.before_step(step_seed, lambda: self.loss(step_seed, carried, constants)[0])
            moved_together = [*trained, *self.rows.variables]
            loss, following, gradients = self.gradients(
                step_seed, carried, constants, moved_together
            )
            self.rows.apply(gradients[len(trained) :])
            remaining = iter(gradients)
            for optimizer, group in self._groups:
                moved = [(next(remaining), variable) for variable in group]
                # Keras warns of each variable without a gradient, such as the noise under GECO.
                known = [(g, variable) for g, variable in moved if g is not None] or moved
                optimizer.apply([g for g, _ in known], [variable for _, variable in known])
            return total + tf.cast(loss, tf.float64), following

        total, carried = repeat(count, step, (tf.zeros([], tf.float64), carried))
        return total / tf.cast(count, tf.float64), carried

    def step(self, state: Any, number: int, stop: int) -> tuple[Any, int, Trace]:
        """A block of steps; the loss is its mean."""
        before = self._values()
        call = number // self.steps_per_call
        seed = tf.random.fold_in(self._seed, call, alg="philox")
        count = min(self.steps_per_call, self.num_steps - number)
        loss, self.carried = self.block(seed, self.carried, tf.constant(count), self.feed(number))
        loss = float(loss)
        if np.isfinite(loss) and not self._is_finite():
            loss = np.nan  # of the next step: a loss is that of before its step
        if np.isfinite(loss):
            self._good = before
        return None, count, {"loss": np.array([loss])}

    def diagnose(self, state: Any, number: int, trace: Trace, saved: str) -> Exception | None:
        """Losses that are not finite; the variables then hold the last good values."""
        loss = float(trace["loss"][-1])
        if np.isfinite(loss):
            return None
        for variable, value in zip(self.variables.values(), self._good, strict=True):
            variable.assign(value)
        last = min(number + self.steps_per_call, self.num_steps)
        return FloatingPointError(
            f"The {self.label} loss became {loss} between steps {number} and {last}; the model "
            "holds the last parameters for which it was finite. Lower the learning rate or raise "
            "the jitter."
        )

    def summary(self, number: int, trace: Trace) -> tuple[str, dict[str, str]]:
        """The loss."""
        return self.label, {"loss": f"{float(trace['loss'][-1]):.4g}"}

    def _all(self) -> list[tf.Variable]:
        """Everything that a step changes."""
        slots = [v.value for optimizer, _ in self._groups for v in optimizer.variables]
        return [*self.variables.values(), *slots, *self.rows.state]

    def _is_finite(self) -> bool:
        values = [v for v in self.variables.values() if v.dtype.is_floating]
        return all(bool(tf.reduce_all(tf.math.is_finite(v))) for v in values)

    def _values(self) -> list[tf.Tensor]:
        return [tf.identity(v) for v in self.variables.values()]

    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        """Variables by name, Adam's by number, and what is carried."""
        others = self._all()[len(self.variables) :]
        return (
            {f"variable/{name}": v.numpy() for name, v in self.variables.items()}
            | {f"adam/{i}": v.numpy() for i, v in enumerate(others)}
            | {f"carried/{i}": np.asarray(v) for i, v in enumerate(tf.nest.flatten(self.carried))}
        )

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The inverse of :meth:`arrays`, in place."""
        names = [f"variable/{name}" for name in self.variables]
        every = self._all()
        names += [f"adam/{i}" for i in range(len(every) - len(names))]
        for variable, name in zip(every, names, strict=True):
            variable.assign(arrays[name])
        flat = [
            tf.constant(arrays[f"carried/{i}"], leaf.dtype)
            for i, leaf in enumerate(tf.nest.flatten(self.carried))
        ]
        self.carried = tf.nest.pack_sequence_as(self.carried, flat)
        self._good = self._values()
