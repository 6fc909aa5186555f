"""Adam on any loss in compiled blocks of steps, for all fits by gradient descent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...core.tracing import compiled
from ...mcmc.noise import fold_in
from ..loops import repeat
from ..runs.run import Algorithm, Trace
from .row_adam import RowAdam

__all__ = ["Loss", "Optimisation", "cosine_decay"]

Loss = Callable[[tf.Tensor, Any, Any], tuple[tf.Tensor, Any]]
"""(seed, carried state, constants of the block) -> (loss, state for the next step)."""


def cosine_decay(rate: float, num_steps: int, fraction: float) -> Any:
    """Return a learning rate with cosine decay to ``fraction`` of ``rate``; constant for 1."""
    rate = float(rate)  # Keras does not accept NumPy scalars
    if fraction == 1.0:
        return rate
    return keras.optimizers.schedules.CosineDecay(rate, num_steps, alpha=fraction)


class Optimisation(Algorithm):
    """Adam on a loss of variables, in place; checkpoints hold their values and Adam's state.

    If the loss of a block is not finite, variables get their values from before the last block with
    a finite loss, because that block may already have diverged.
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
        :param variables: all variables that change, by name.
        :param groups: pairs of variables that Adam updates and their learning rate (a number or a
            Keras schedule); a group may be empty.
        :param seed: two integers; call k folds k into it.
        :param label: name shown beside the progress bar.
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
        """Reset Adam's state and the seed, keeping the variables' values and the compiled graph.

        :param seed: two integers, as in the constructor.
        """
        of_adam = [v for o, _ in self._groups for v in o.variables if v is not o.learning_rate]
        for variable in (*of_adam, *self.rows.state):
            variable.assign(tf.zeros_like(variable))
        self._seed = tf.constant(seed, tf.int32)
        self._good = self._values()

    def constants(self) -> Any:
        """Return tensors that all steps of a block share, computed at its start."""
        return None

    def feed(self, number: int) -> Any:
        """Return inputs to the graph of the block that follows ``number`` steps."""
        return ()

    def of_step(self, constants: Any, fed: Any, i: tf.Tensor) -> Any:
        """Return the constants that the loss of step i of a block receives.

        :param fed: see :meth:`feed`.
        """
        return constants

    def before_step(self, seed: tf.Tensor, loss: Callable[[], tf.Tensor]) -> None:
        """Update variables that Adam does not; called before each Adam step.

        :param seed: seed of this step, with which the loss is also called.
        """

    def gradients(
        self, seed: tf.Tensor, carried: Any, constants: Any, variables: list[tf.Variable]
    ) -> tuple[tf.Tensor, Any, list[Any]]:
        """Return the loss of a step, the next carried state, and the gradients by ``variables``."""
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
            step_seed = fold_in(seed, i)
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
                # Keras warns about each variable without a gradient, such as the noise under GECO.
                known = [(g, variable) for g, variable in moved if g is not None] or moved
                optimizer.apply([g for g, _ in known], [variable for _, variable in known])
            return total + tf.cast(loss, tf.float64), following

        total, carried = repeat(count, step, (tf.zeros([], tf.float64), carried))
        return total / tf.cast(count, tf.float64), carried

    def step(self, state: Any, number: int, stop: int) -> tuple[Any, int, Trace]:
        """Run a block of steps; the loss is its mean."""
        before = self._values()
        call = number // self.steps_per_call
        seed = fold_in(self._seed, call)
        count = min(self.steps_per_call, self.num_steps - number)
        loss, self.carried = self.block(seed, self.carried, tf.constant(count), self.feed(number))
        loss = float(loss)
        if np.isfinite(loss) and not self._is_finite():
            loss = np.nan  # losses precede their updates, so only the next one would show it
        if np.isfinite(loss):
            self._good = before
        return None, count, {"loss": np.array([loss])}

    def diagnose(self, state: Any, number: int, trace: Trace, saved: str) -> Exception | None:
        """Return an error if the loss is not finite, and restore the last good values."""
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
        """Return the label and the loss."""
        return self.label, {"loss": f"{float(trace['loss'][-1]):.4g}"}

    def _all(self) -> list[tf.Variable]:
        """Return all variables that a step changes."""
        slots = [v.value for optimizer, _ in self._groups for v in optimizer.variables]
        return [*self.variables.values(), *slots, *self.rows.state]

    def _is_finite(self) -> bool:
        values = [v for v in self.variables.values() if v.dtype.is_floating]
        return all(bool(tf.reduce_all(tf.math.is_finite(v))) for v in values)

    def _values(self) -> list[tf.Tensor]:
        return [tf.identity(v) for v in self.variables.values()]

    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        """Return variables by name, Adam's variables by number, and the carried state."""
        others = self._all()[len(self.variables) :]
        return (
            {f"variable/{name}": v.numpy() for name, v in self.variables.items()}
            | {f"adam/{i}": v.numpy() for i, v in enumerate(others)}
            | {f"carried/{i}": np.asarray(v) for i, v in enumerate(tf.nest.flatten(self.carried))}
        )

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Assign the arrays that :meth:`arrays` returned to the variables."""
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
