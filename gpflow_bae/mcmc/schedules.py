r"""Schedules: step sizes over a run, temperatures over replicas.

References:

- Zhang, Li, Zhang, Chen, Wilson (2020). Cyclical stochastic gradient MCMC for Bayesian deep
  learning. ICLR.
- Earl, Deem (2005). Parallel tempering: theory, applications, and new perspectives. Physical
  Chemistry Chemical Physics 7.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.arguments import as_numbers, check_integer
from gpflow_bae.mcmc.algorithm import check_setting
from gpflow_bae.mcmc.types import Scalar, cast_scalar, is_number, validate

__all__ = [
    "Cycle",
    "Cyclical",
    "check_ladder",
    "cyclical",
    "geometric_ladder",
]


class Cycle(NamedTuple):
    """Where a cyclical schedule stands: scalar tensors."""

    step_size: tf.Tensor  # float64
    temperature: tf.Tensor  # float64; 0 in the exploration stage
    sampling: tf.Tensor  # bool; whether this step's position is a draw


class Cyclical(NamedTuple):
    """Schedules of cosine cycles, made by :func:`cyclical`: functions of the steps taken."""

    cycle_length: int
    initial_step_size: Scalar
    exploration_fraction: float = 0.8
    sampling_temperature: Scalar = 1.0

    def at(self, step: int | TensorType) -> Cycle:
        """Where the schedules stand after ``step`` steps; an integer tensor does not retrace."""
        in_cycle = tf.math.floormod(tf.convert_to_tensor(step), self.cycle_length)
        fraction = tf.cast(in_cycle, tf.float64) / self.cycle_length
        # (1 + cos x) / 2, without cancellation where it is small.
        shape = tf.cos(math.pi / 2 * fraction) ** 2
        sampling = fraction >= self.exploration_fraction
        temperature = cast_scalar(self.sampling_temperature, tf.float64)
        return Cycle(
            step_size=cast_scalar(self.initial_step_size, tf.float64) * shape,
            temperature=tf.where(sampling, temperature, tf.zeros([], tf.float64)),
            sampling=sampling,
        )

    def step_size(self, step: int | TensorType) -> tf.Tensor:
        """SGLD's e, a float64 scalar."""
        return self.at(step).step_size

    def temperature(self, step: int | TensorType) -> tf.Tensor:
        """0 in the exploration stage, a float64 scalar."""
        return self.at(step).temperature


def cyclical(
    cycle_length: int,
    initial_step_size: Scalar,
    exploration_fraction: float = 0.8,
    temperature: Scalar = 1.0,
) -> Cyclical:
    r"""Cosine cycles: large steps without noise find a mode, small ones sample it.

    With r = (step mod cycle_length) / cycle_length (Zhang et al. 2020, eq. 1)::

        step_size = initial_step_size (1 + cos(pi r)) / 2

    The first ``exploration_fraction`` of a cycle is its exploration stage, at temperature 0; the
    rest is its sampling stage (their algorithm 1), whose positions are the draws: those at steps
    where ``at(step).sampling``. The step size is never 0. Weights of modes are not those of the
    density: each cycle's mode is as likely as the exploration stage makes it.

    The step size is SGLD's e. SGHMC's h is sqrt(e / 2) at momentum decay 1: give the square of the
    initial h, and to ``sghmc.build`` the schedule ``lambda step: tf.sqrt(c.step_size(step))``.

    >>> from gpflow_bae.mcmc import sgld
    >>> c = cyclical(1000, 0.01)
    >>> sampler = sgld.build(step_size=c.step_size, temperature=c.temperature)
    >>> [(round(float(c.step_size(step)), 6), float(c.temperature(step))) for step in (0, 500, 900)]
    [(0.01, 0.0), (0.005, 0.0), (0.000245, 1.0)]

    :param cycle_length: steps in a cycle, at least 2.
    :param initial_step_size: the largest step size, at the beginning of a cycle.
    :param exploration_fraction: in [0, 1); 0 samples all the time.
    :param temperature: of the sampling stage.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """
    check_setting("initial_step_size", initial_step_size)
    check_setting("temperature", temperature)
    validate(step_size=initial_step_size, temperature=temperature)
    if not isinstance(cycle_length, numbers.Integral) or cycle_length < 2:
        raise ValueError(
            f"cycle_length must be a whole number of steps, at least 2, got {cycle_length!r}."
        )
    if not is_number(exploration_fraction) or not 0.0 <= exploration_fraction < 1.0:
        raise ValueError(
            "exploration_fraction must be in [0, 1), so that some steps of each cycle sample, got "
            f"{exploration_fraction}."
        )
    return Cyclical(cycle_length, initial_step_size, exploration_fraction, temperature)


def geometric_ladder(num_replicas: int, max_temperature: float) -> np.ndarray:
    """Temperatures of parallel tempering in a constant ratio: [num_replicas], from 1 upwards.

    A constant ratio gives neighbours equal swap rates where the heat capacity is constant, as it is
    for a Gaussian (Earl and Deem 2005, section 2.2).

    :param num_replicas: at least 2.
    :param max_temperature: above 1.
    :raises ValueError: if either is out of its range.
    """
    if not isinstance(num_replicas, numbers.Integral) or num_replicas < 2:
        raise ValueError(
            f"num_replicas must be a whole number, at least 2, got {num_replicas!r}: one replica "
            "has nobody to swap with."
        )
    if not is_number(max_temperature) or not 1.0 < max_temperature < np.inf:
        raise ValueError(f"max_temperature must be finite and above 1, got {max_temperature}.")
    check_integer("num_replicas", num_replicas, 2)
    temperatures = float(max_temperature) ** (np.arange(num_replicas) / (num_replicas - 1))
    return check_ladder(temperatures)


def check_ladder(temperatures: Sequence[float] | np.ndarray) -> np.ndarray:
    """The ladder as float64, [R]: at least two temperatures that begin at 1 and increase.

    :raises ValueError: if it is anything else.
    """
    ladder = as_numbers(temperatures, "temperatures")
    if ladder.ndim != 1 or ladder.size < 2:
        raise ValueError(
            "temperatures must be a list of at least two, one per replica, got "
            f"{ladder.tolist()!r}. With one temperature there is nothing to exchange."
        )
    if not np.all(np.isfinite(ladder)):
        raise ValueError(f"temperatures must be finite, got {ladder.tolist()}.")
    if ladder[0] != 1.0:
        raise ValueError(
            f"The first temperature must be 1, the target itself, got {ladder.tolist()}."
        )
    if np.any(np.diff(ladder) <= 0):
        raise ValueError(
            f"temperatures must be strictly increasing, coldest first, got {ladder.tolist()}."
        )
    return ladder
