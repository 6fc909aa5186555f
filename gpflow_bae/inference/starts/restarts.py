"""Start chains at the best of several modes of the log posterior.

A network's posterior has many modes, whose masses differ by hundreds of nats, and a chain stays in
the basin where it begins. So the basin is sought first, by L-BFGS on all data from new initial
weights, and the other modes are reported too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ...core import functional
from ...core.annotations import check_fields
from ...core.tracing import compiled
from ...data import Observations, prepare_data
from ...models import TemperedBAE
from ..optimise.lbfgs import Minimum, lbfgs, vector_of
from ..runs.checkpoints import RunDirectory
from ..runs.progress import Progress
from .initializer import Initializer

__all__ = ["ModeStart", "Restarts", "best_restart", "fresh_starts", "restart_seed"]

_MAX_COMPILED = 5000  # largest number of scalars for compilation with XLA by default
_NUM_SEEDS = 2_000_000_000  # seeds are below this
_FINALIST_FACTOR = 5  # factor of the iterations of finalists


class Restarts(NamedTuple):
    """Log densities of the modes of all restarts, in nats of all data."""

    log_posterior: np.ndarray  # [R], in unconstrained space
    log_likelihood: np.ndarray  # [R]
    best: int

    def __str__(self) -> str:
        order = np.argsort(-self.log_posterior)
        behind = self.log_posterior[order[0]] - self.log_posterior[order[1:]]
        others = ""
        if len(behind):
            others = f"; the others are behind by {behind[0]:.0f} to {behind[-1]:.0f}"
        return (
            f"Best of {len(order)} restarts: log posterior {self.log_posterior[order[0]]:.1f}, log "
            f"likelihood {self.log_likelihood[order[0]]:.1f} nats{others}."
        )


def restart_seed(seed: int, number: int) -> int:
    """Return the seed of one of several fits; the first has the seed of a fit without restarts.

    The others are below ``_NUM_SEEDS``, so that an engine can add to them in 32 bits.
    """
    if number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0] >> 1) % _NUM_SEEDS


def fresh_starts(
    draw: Callable[[int], Sequence[Any]], seeds: Iterable[int]
) -> Iterator[tuple[int, tuple[tf.Tensor, ...]]]:
    """Draw initial values of each of several fits, with Keras seeded by the fit's seed.

    :param draw: maps a seed to values of a model's parameters.
    :return: pairs of a seed and its values.
    """
    for seed in seeds:
        keras.utils.set_random_seed(seed)
        yield seed, tuple(tf.convert_to_tensor(v) for v in draw(seed))


def best_restart(
    model: TemperedBAE,
    data: Any,
    num_restarts: int = 30,
    max_iterations: int = 5000,
    num_finalists: int = 5,
    *,
    draw: Callable[[int], Sequence[Any]] | None = None,
    seed: int = 0,
    jit_compile: bool | None = None,
    progress: bool = True,
) -> Restarts:
    """Maximise the log posterior from several initial weights, and set the model to the best mode.

    Chains that ``sample_amortized(..., warm_start=None, num_chains=4)`` starts there explore its
    basin. In float64 L-BFGS can converge; in float32 its line search stops early. After thousands
    of steps most restarts still improve, so the best of them are continued.

    :param data: ``(None, Y)``, rows ``Y [N, P]``, NaN where missing.
    :param max_iterations: iterations of L-BFGS in each restart.
    :param num_finalists: number of the best restarts that are continued, up to five times as long.
    :param draw: maps the number of a restart (``seed``, ``seed + 1``, ...) to unconstrained values,
        in the order of ``model.sampled.paths``; by default weights are drawn by Keras's
        initialisers, and other parameters keep their values.
    :param jit_compile: compile with XLA; by default for networks of up to 5000 numbers, whose steps
        are mostly overhead otherwise.
    :return: log posterior and log likelihood of every mode.
    :raises TypeError: for another model.
    :raises ValueError: for less than one restart, or if none ended at a finite density.
    """
    if not isinstance(model, TemperedBAE):
        raise TypeError(f"best_restart takes a TemperedBAE, got {type(model).__name__}.")
    if num_restarts < 1:
        raise ValueError(f"num_restarts must be at least 1, got {num_restarts}.")
    num_finalists = min(num_finalists, num_restarts)
    batch = prepare_data(model, data).gather(None)
    like = model.sampled.values()

    def densities(values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        # Not vectorised over one start: XLA compiles gradients of vectorised maps in every call.
        return model.bind(values).data_log_likelihood(batch), model.sampled.log_prior(values)

    if jit_compile is None:
        jit_compile = model.sampled.num_scalars <= _MAX_COMPILED

    def evaluate(vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(vector)
            loss = -tf.add_n(densities(functional.unflatten(vector, like)))
        return loss, tape.gradient(loss, vector)

    loss_and_gradient = compiled(evaluate, jit_compile=jit_compile)

    def objective(vector: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        return loss_and_gradient(tf.constant(vector))

    def climb(start: np.ndarray, iterations: int) -> Minimum:
        return lbfgs(
            objective, start, iterations, max_evaluations=2 * iterations, num_corrections=30
        )

    found = []
    number_of_fits = num_restarts + num_finalists
    with Progress("restarts", number_of_fits, unit="fits", shown=progress) as shown:
        starts = fresh_starts(
            draw or (lambda number: fresh_values(model)), range(seed, seed + num_restarts)
        )
        for _, start in starts:
            found.append(climb(vector_of(start), max_iterations))
            shown.update(1, "restarts", {"log_posterior": f"{-found[-1].loss:.5g}"})
        order = np.argsort([mode.loss for mode in found])
        for place in order[:num_finalists]:
            found[place] = climb(found[place].vector, _FINALIST_FACTOR * max_iterations)
            shown.update(1, "finalists", {"log_posterior": f"{-found[place].loss:.5g}"})
    likelihoods = [
        float(densities(functional.unflatten(tf.constant(mode.vector), like))[0]) for mode in found
    ]
    posterior = np.array([-mode.loss for mode in found])
    if not np.isfinite(posterior).any():
        raise ValueError(
            f"None of {num_restarts} restarts ended at a finite log posterior: does draw return "
            "weights at which the networks are finite?"
        )
    best = int(np.argmax(posterior))
    model.sampled.assign(functional.unflatten(tf.constant(found[best].vector), like))
    return Restarts(posterior, np.array(likelihoods), best)


def fresh_values(model: TemperedBAE) -> tuple[tf.Tensor, ...]:
    """Return the model's values, with all weights drawn anew by Keras's initialisers."""
    fresh: dict[int, tf.Tensor] = {}
    for network in (model.decoder, model.encoder):
        clone = keras.models.clone_model(network.model)
        for parameter, variable in zip(network.weights, clone.trainable_variables, strict=True):
            fresh[id(parameter)] = tf.identity(variable.value)
    given = zip(model.sampled.parameters, model.sampled.values(), strict=True)
    return tuple(fresh.get(id(parameter), value) for parameter, value in given)


@dataclasses.dataclass(frozen=True)
class ModeStart(Initializer):
    """Start of each chain of a :class:`~gpflow_bae.models.TemperedBAE` at a mode of its own.

    For ``sample_amortized(model, data, "ensemble", num_chains=8, warm_start=ModeStart())``: the
    chains are in different basins, so they are weighted by their predictions
    (:func:`gpflow_bae.diagnostics.stacking_weights`), and need not agree.
    """

    num_restarts: int = 1
    """Restarts for each chain, which starts at the best of them; see :func:`best_restart`."""
    max_iterations: int = 1000
    """Iterations of L-BFGS in each restart."""

    def __post_init__(self) -> None:
        check_fields(self, positive=("num_restarts", "max_iterations"))

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values, for records of a run."""
        return dataclasses.asdict(self) | {"kind": "mode"}

    def run(
        self,
        model: TemperedBAE,
        data: Observations,
        *,
        seed: int,
        jit_compile: bool = False,
        progress: bool = True,
        directory: RunDirectory | None = None,
    ) -> tuple[None, np.ndarray]:
        """Set the model's parameters to a mode.

        :param directory: not used, as restarts are short.
        :return: None for codes, and minus the log posterior of each restart.
        :raises TypeError: for another model.
        """
        if not isinstance(model, TemperedBAE):
            raise TypeError(f"ModeStart is for a TemperedBAE, got {type(model).__name__}.")
        found = best_restart(
            model,
            data,
            self.num_restarts,
            self.max_iterations,
            0,
            seed=seed * self.num_restarts,  # no two chains share a restart
            jit_compile=jit_compile or None,  # compile small networks in any case
            progress=progress,
        )
        return None, -found.log_posterior
