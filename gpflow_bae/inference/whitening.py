r"""Coordinates in which a posterior near its mode is roughly a standard normal.

A sampler with isotropic noise moves as slowly as its stiffest direction allows. Sampling
coordinates u with values = start + L u instead, where L L^T is about the posterior's covariance, is
the same as preconditioning the sampler with it; the Jacobian is constant, and drops out.

The covariance is (F + prior precision)^-1 with the Fisher information F: with data drawn from the
model itself, the gradient of the log likelihood has F as its covariance (the information identity),
so F is the mean of outer products of such gradients.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf

from .. import functional
from ..data import Observations
from ..mcmc.noise import split, standard_noise
from ..models import TemperedBAE
from ..tracing import compiled
from .kronecker import Factor, basis_sizes, fisher_factors, prior_precision

__all__ = ["KINDS", "Whitening", "fit"]

KINDS = ("none", "kronecker", "dense")

Values = tuple[tf.Tensor, ...]

_LARGEST_DENSE = 5000


@dataclasses.dataclass(frozen=True)
class Whitening:
    """values = start + L u; see :func:`fit` for the kinds."""

    kind: str
    start: Values  # [R, ...] by parameter
    factors: tuple[tf.Tensor, ...]

    @property
    def tensors(self) -> list[tf.Tensor]:
        """All that a checkpoint must hold."""
        return [*self.start, *self.factors]

    @classmethod
    def of_tensors(cls, kind: str, tensors: Sequence[tf.Tensor], num_leaves: int) -> Whitening:
        """What :attr:`tensors` came from, of which the first ``num_leaves`` are the start."""
        return cls(kind, tuple(tensors[:num_leaves]), tuple(tensors[num_leaves:]))

    def centre(self) -> Values:
        """The coordinates of ``start``: zeros. Dense factors mix leaves, so all have one type."""
        dtype = self.factors[0].dtype if self.kind == "dense" else None
        return tuple(tf.zeros_like(v, dtype) for v in self.start)

    def values(self, position: Sequence[tf.Tensor]) -> Values:
        """Unconstrained values [R, ...] at coordinates ``position``, tensors alike."""
        if self.kind == "none":
            moved = position
        elif self.kind == "dense":
            flat = tf.concat([tf.reshape(u, [tf.shape(u)[0], -1]) for u in position], 1)
            flat = tf.linalg.matmul(flat, self.factors[0], transpose_b=True)
            sizes = [int(np.prod(u.shape[1:])) for u in position]
            pieces = tf.split(flat, sizes, axis=1)
            moved = [tf.reshape(x, tf.shape(u)) for x, u in zip(pieces, position, strict=True)]
        else:
            moved = [f.to_value(u) for f, u in zip(self._by_parameter(), position, strict=True)]
        return tuple(v + tf.cast(x, v.dtype) for v, x in zip(self.start, moved, strict=True))

    def _by_parameter(self) -> list[Factor]:
        """Of Kronecker coordinates: a scale, and the bases of what is a matrix without chains."""
        found, tensors = [], list(self.factors)
        while tensors:
            scale = tensors.pop(0)
            bases = tf.nest.map_structure(lambda _: tensors.pop(0), basis_sizes(scale.shape))
            found.append(Factor(scale, *bases))
        return found


def fit(
    model: TemperedBAE,
    data: Observations,
    start: Values,
    kind: str,
    num_draws: int,
    damping: float = 0.0,
    *,
    seed: int,
) -> Whitening:
    """Coordinates around ``start``, whitened at the first replica's.

    ``"dense"`` takes all correlations into account, for up to a few thousand scalars.
    ``"kronecker"`` takes each parameter by itself (:mod:`gpflow_bae.inference.kronecker`).

    :param start: unconstrained values [R, ...] of the replicas.
    :param num_draws: of simulated data; ``"dense"`` wants a few for each scalar.
    :param damping: added to the precision, so that no direction is scaled to more than
        damping^-1/2: along directions that the data say little of, the posterior of a network is
        wide but far from straight.
    :raises ValueError: for ``"dense"`` with too many scalars.
    """
    if kind == "none":
        return Whitening(kind, start, ())
    if kind == "dense" and model.sampled.num_scalars > _LARGEST_DENSE:
        raise ValueError(
            f'whitening="dense" stores a square matrix for {model.sampled.num_scalars} scalars; '
            f'above {_LARGEST_DENSE} take "kronecker".'
        )
    first = tuple(v[0] for v in start)
    draw = _score(model, data, first)
    precision = tuple(p + damping for p in prior_precision(model.sampled, first))
    seeds = split(tf.constant([seed, 0xF15], tf.int32), num_draws)
    if kind == "dense":
        scores = np.stack([functional.flatten(draw(s)).numpy() for s in tf.unstack(seeds)])
        fisher = scores.T @ scores / num_draws
        total = fisher + np.diag(functional.flatten(precision).numpy())
        inverse = np.linalg.inv(np.linalg.cholesky(total))
        return Whitening(kind, start, (tf.constant(inverse.T),))  # L L^T = total^-1
    factors = fisher_factors(draw, seeds, precision)
    return Whitening(kind, start, tuple(tf.nest.flatten(factors)))


def _score(
    model: TemperedBAE, data: Observations, values: Values
) -> tf.types.experimental.PolymorphicFunction:
    """seed -> gradient of the log likelihood of data that the model draws at ``values``."""
    batch = data.gather(None)

    @compiled
    def draw(seed: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            bound = model.bind(values)
            F = bound.reconstruct(batch.Y)
            noise = standard_noise(tf.shape(F), seed, F.dtype)
            simulated = tf.stop_gradient(F + tf.sqrt(bound.likelihood.moments(F)[1]) * noise)
            rows = bound.likelihood.masked_log_prob(F, simulated, batch.mask)
            log_likelihood = tf.reduce_sum(tf.cast(rows, gpflow.default_float()))
        return tape.gradient(log_likelihood, values)

    return draw
