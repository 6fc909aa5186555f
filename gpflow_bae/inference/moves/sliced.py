"""Slice sampling of a few parameters, given everything else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf

from ...base import Batch
from ...mcmc.calibrated.slice_sampling import slice_step
from ...mcmc.noise import fold_in, split, standard_noise
from ..loops import repeat
from .base import Move, Moved

__all__ = ["SlicedParameters"]

_SWEEPS = 2
_DIRECTIONS = 4  # largest number in a sweep for a parameter with several elements
_WIDTH = 0.5  # width of the first interval, in unconstrained units


class SlicedParameters(Move):
    """Slice sampling of some parameters, without a step size; the sampler does not update them.

    With a step size shared with the weights, a few scalars of different scales are either unstable
    or a hundred times slower. A parameter of one element is updated by itself, one of several
    elements along random directions (hit and run). Subclasses define the parameters
    (``_numbers``) and their log likelihood.
    """

    _numbers: list[int]  # indices in model.sampled

    @property
    def owned(self) -> tuple[str, ...]:
        return tuple(self.sampled.paths[i] for i in self._numbers)

    @abstractmethod
    def _log_likelihood(
        self, state: Moved, batch: Batch
    ) -> Callable[[tuple[tf.Tensor, ...]], tf.Tensor]:
        """Return a function of all parameters: their log density without their prior.

        Called once before the first update, to compute what is constant in all updates.
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
            seeds = tf.unstack(split(fold_in(seed, i), 2))
            direction = which[i] * standard_noise(flat.shape, seeds[0], dtype)
            direction /= tf.norm(direction)
            t = slice_step(
                lambda t: log_density(flat + tf.cast(t, dtype) * direction), seeds[1], width=_WIDTH
            )
            return flat + tf.cast(t, dtype) * direction

        return state._replace(parameters=unpacked(repeat(which.shape[0], update, flat)))


def _blocks(sizes: list[int]) -> np.ndarray:
    """Return which scalars each update changes, as zeros and ones [updates, scalars]."""
    rows, first = [], 0
    for size in sizes:
        row = np.zeros(sum(sizes))
        row[first : first + size] = 1.0
        rows += [row] * min(size, _DIRECTIONS)
        first += size
    return np.tile(np.stack(rows), (_SWEEPS, 1))
