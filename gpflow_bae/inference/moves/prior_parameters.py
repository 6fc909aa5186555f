"""Kernel parameters, code noise and inducing inputs given the codes."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf

from ...base import Batch
from ...mcmc.noise import standard_noise
from ...mcmc.slice_sampling import slice_step
from ...models import BayesianAutoencoder
from ..loops import repeat
from .base import Move, Moved

__all__ = ["PriorParameters"]

_SWEEPS = 2
_DIRECTIONS = 4  # at most, of a parameter with several elements, in a sweep
_WIDTH = 0.5  # of the first interval, in unconstrained units


class PriorParameters(Move):
    """Slice sampling of what the prior over codes has, given the codes.

    Their conditional density has nothing of the decoder in it, so it costs next to a step of the
    chain next to nothing, and it needs no step size: a handful of scalars with scales of their own
    are a hundred times slower than the weights in steps that they share. A parameter of one element
    is updated by itself, one of several along random directions (hit and run). The sampler leaves
    these parameters alone.

    Inducing outputs that are sampled stay with the sampler, and are conditioned on.
    """

    name = "prior_parameters"

    def __init__(self, model: BayesianAutoencoder):
        super().__init__(model)
        prior = model.latent_prior
        if model.whitened_codes:
            raise self._refuse(
                "it samples whitened_codes, so its codes change with the prior's parameters."
            )
        if prior.draws:
            raise self._refuse(
                f"{model.latent_prior_name} estimates its density with fresh draws, and a slice "
                "needs its values."
            )
        kept = {id(p) for p in prior.parameters}
        if prior.whitened_inducing is not None:
            kept -= {id(prior.whitened_inducing)}
        self._numbers = [i for i, p in enumerate(self.sampled.parameters) if id(p) in kept]
        if not self._numbers:
            raise self._refuse(f"its {model.latent_prior_name} has no parameter that is sampled.")

    @property
    def owned(self) -> tuple[str, ...]:
        return tuple(self.sampled.paths[i] for i in self._numbers)

    def __call__(self, state: Moved, batch: Batch, seed: tf.Tensor) -> Moved:
        dtype = gpflow.default_float()
        values = [state.parameters[i] for i in self._numbers]
        sizes = [int(np.prod(v.shape)) for v in values]
        flat = tf.concat([tf.reshape(tf.cast(v, dtype), [-1]) for v in values], 0)
        which = tf.constant(self._blocks(sizes), dtype)  # [updates, scalars]

        def unpacked(flat: tf.Tensor) -> tuple[tf.Tensor, ...]:
            parameters = list(state.parameters)
            for i, piece in zip(self._numbers, tf.split(flat, sizes), strict=True):
                like = parameters[i]
                parameters[i] = tf.cast(tf.reshape(piece, like.shape), like.dtype)
            return tuple(parameters)

        def log_density(flat: tf.Tensor) -> tf.Tensor:
            parameters = unpacked(flat)
            found = self._log_prior_of(self._numbers, parameters)
            found += self._log_prior_of_codes(parameters, state.codes, batch.X)
            return tf.cast(found, tf.float64)

        def update(i: tf.Tensor, flat: tf.Tensor) -> tf.Tensor:
            seeds = tf.unstack(
                tf.random.split(tf.random.fold_in(seed, i, alg="philox"), 2, alg="philox")
            )
            block = which[i]
            direction = block * standard_noise(flat.shape, seeds[0], dtype)
            direction /= tf.norm(direction)
            t = slice_step(
                lambda t: log_density(flat + tf.cast(t, dtype) * direction), seeds[1], width=_WIDTH
            )
            return flat + tf.cast(t, dtype) * direction

        return state._replace(parameters=unpacked(repeat(which.shape[0], update, flat)))

    @staticmethod
    def _blocks(sizes: list[int]) -> np.ndarray:
        """Which scalars each update moves: zeros and ones [updates, scalars]."""
        rows, first = [], 0
        for size in sizes:
            row = np.zeros(sum(sizes))
            row[first : first + size] = 1.0
            rows += [row] * min(size, _DIRECTIONS)
            first += size
        return np.tile(np.stack(rows), (_SWEEPS, 1))
