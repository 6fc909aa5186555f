"""Slice sampling of a handful of parameters, given everything else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf

from ...base import Batch
from ...mcmc.calibrated.slice_sampling import slice_step
from ...mcmc.noise import standard_noise
from ..loops import repeat
from .base import Move, Moved

__all__ = ["SlicedParameters"]

_SWEEPS = 2
_DIRECTIONS = 4  # at most, of a parameter with several elements, in a sweep
_WIDTH = 0.5  # of the first interval, in unconstrained units


class SlicedParameters(Move):
    """Updates of some parameters that need no step size, and that the sampler leaves alone.

    A handful of scalars with scales of their own are either unstable or a hundred times slower than
    the weights in steps that they share. A parameter of one element is updated by itself, one of
    several along random directions (hit and run). A subclass says which parameters they are
    (``_numbers``), and what they are weighed by.
    """

    _numbers: list[int]  # places in model.sampled

    @property
    def owned(self) -> tuple[str, ...]:
        return tuple(self.sampled.paths[i] for i in self._numbers)

    @abstractmethod
    def _log_likelihood(
        self, state: Moved, batch: Batch
    ) -> Callable[[tuple[tf.Tensor, ...]], tf.Tensor]:
        """What the parameters are weighed by beside their prior, as a function of all parameters.

        It is called before the first update, for what stays the same in all of them.
        """

    def __call__(self, state: Moved, batch: Batch, seed: tf.Tensor) -> Moved:
        dtype = gpflow.default_float()
        values = [state.parameters[i] for i in self._numbers]
        sizes = [int(np.prod(v.shape)) for v in values]
        flat = tf.concat([tf.reshape(tf.cast(v, dtype), [-1]) for v in values], 0)
        which = tf.constant(_blocks(sizes), dtype)  # [updates, scalars]
        log_likelihood = self._log_likelihood(state, batch)

        def unpacked(flat: tf.Tensor) -> tuple[tf.Tensor, ...]:
            parameters = list(state.parameters)
            for i, piece in zip(self._numbers, tf.split(flat, sizes), strict=True):
                like = parameters[i]
                parameters[i] = tf.cast(tf.reshape(piece, like.shape), like.dtype)
            return tuple(parameters)

        def log_density(flat: tf.Tensor) -> tf.Tensor:
            parameters = unpacked(flat)
            found = self._log_prior_of(self._numbers, parameters) + log_likelihood(parameters)
            return tf.cast(found, tf.float64)

        def update(i: tf.Tensor, flat: tf.Tensor) -> tf.Tensor:
            seeds = tf.unstack(
                tf.random.split(tf.random.fold_in(seed, i, alg="philox"), 2, alg="philox")
            )
            direction = which[i] * standard_noise(flat.shape, seeds[0], dtype)
            direction /= tf.norm(direction)
            t = slice_step(
                lambda t: log_density(flat + tf.cast(t, dtype) * direction), seeds[1], width=_WIDTH
            )
            return flat + tf.cast(t, dtype) * direction

        return state._replace(parameters=unpacked(repeat(which.shape[0], update, flat)))


def _blocks(sizes: list[int]) -> np.ndarray:
    """Which scalars each update moves: zeros and ones [updates, scalars]."""
    rows, first = [], 0
    for size in sizes:
        row = np.zeros(sum(sizes))
        row[first : first + size] = 1.0
        rows += [row] * min(size, _DIRECTIONS)
        first += size
    return np.tile(np.stack(rows), (_SWEEPS, 1))
