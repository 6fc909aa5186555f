r"""Affine maps of a network's weights, fitted once around the initial values of replicas.

Sampling u with values = start + A u, where A A^T is about the posterior's covariance, is equivalent
to preconditioning the sampler with A A^T; the Jacobian is constant and cancels. The covariance is
(F + prior precision)^-1 with the Fisher information F (:mod:`.information`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import tensorflow as tf

from ...core.annotations import check_fields
from ...core.tracing import compiled
from ...data import Observations
from ...mcmc.noise import split
from ...models import TemperedBAE
from ..chain_state import Point
from .information import FisherInformation
from .kronecker import fisher_maps, identity_map
from .linear_map import KroneckerMap

__all__ = ["AffineMap", "Whitening", "affine_map", "unfitted_map"]

Values = tuple[tf.Tensor, ...]

_LARGEST_DENSE = 5000
_LEAST_PRECISION = 1e-8  # lower limit of prior precisions


@dataclasses.dataclass(frozen=True)
class Whitening:
    """Settings of the affine map of a network's weights that is fitted at the initial values."""

    kind: Literal["none", "kronecker", "dense"] = "none"
    """``"dense"`` takes all correlations into account, for up to a few thousand scalars.
    ``"kronecker"`` preconditions each parameter separately (:mod:`.kronecker`)."""
    num_draws: int = 200
    """Number of gradient draws that estimate the Fisher information; ``"dense"`` needs a few for
    each scalar."""
    damping: float = 0.0
    """Added to the precision, so that no direction is scaled by more than damping^-1/2: along
    directions of little information, the posterior of a network is wide but strongly curved."""

    def __post_init__(self) -> None:
        check_fields(self, num_draws=1, damping=0.0)


class AffineMap(NamedTuple):
    """Affine map values = start + A u, with an A for each parameter, one joint A, or none."""

    start: Values  # [R, ...] by parameter
    maps: tuple[KroneckerMap, ...] = ()

    @property
    def is_dense(self) -> bool:
        """Whether one map applies to all parameters together."""
        return bool(self.maps) and self.maps[0].scale.shape != self.start[0].shape[1:]

    def centre(self) -> Values:
        """Return the coordinates u = 0 of ``start``, of one dtype if the map is dense."""
        dtype = self.maps[0].scale.dtype if self.is_dense else None
        return tuple(tf.zeros_like(v, dtype) for v in self.start)

    def forward(self, position: Sequence[tf.Tensor]) -> Values:
        """Return unconstrained values [R, ...] at coordinates ``position`` of the same shapes."""
        moved = list(position)
        if self.is_dense:
            flat = tf.concat([tf.reshape(u, [tf.shape(u)[0], -1]) for u in moved], 1)
            sizes = [int(np.prod(u.shape[1:])) for u in moved]
            pieces = tf.split(self.maps[0].forward(flat), sizes, axis=1)
            moved = [tf.reshape(x, tf.shape(u)) for x, u in zip(pieces, moved, strict=True)]
        elif self.maps:
            moved = [m.forward(u) for m, u in zip(self.maps, moved, strict=True)]
        return tuple(v + tf.cast(x, v.dtype) for v, x in zip(self.start, moved, strict=True))


def unfitted_map(kind: str, start: Values) -> AffineMap:
    """Return an identity map around ``start``, of the structure of a fitted map.

    :param start: unconstrained values [R, ...] of the replicas.
    :raises ValueError: for ``"dense"`` with too many scalars.
    """
    if kind == "none":
        return AffineMap(start)
    if kind == "kronecker":
        return AffineMap(start, tuple(identity_map(v[0]) for v in start))
    size = sum(int(np.prod(v.shape[1:])) for v in start)
    if size > _LARGEST_DENSE:
        raise ValueError(
            f'Whitening("dense") stores a square matrix for {size} scalars; above {_LARGEST_DENSE} '
            'take "kronecker".'
        )
    ones = tf.ones([size], tf.float64)
    return AffineMap(start, (KroneckerMap(ones, (tf.linalg.diag(ones),)),))


def affine_map(
    model: TemperedBAE, data: Observations, start: Values, whitening: Whitening, *, seed: int
) -> AffineMap:
    """Return a map around ``start``, fitted at the first replica's values.

    :param start: unconstrained values [R, ...] of the replicas.
    :raises ValueError: for ``"dense"`` with too many scalars.
    """
    found = unfitted_map(whitening.kind, start)
    if whitening.kind == "none":
        return found
    fisher = FisherInformation(model, data)
    position = Point(tuple(v[0] for v in start), ())
    precision = tuple(p + whitening.damping for p in fisher.precision(position, _LEAST_PRECISION))
    seeds = split(tf.constant([seed, 0xF15], tf.int32), whitening.num_draws)
    draw = compiled(lambda seed: fisher.draw(position, seed))
    if whitening.kind == "kronecker":
        return found._replace(maps=fisher_maps(draw, seeds, precision))
    scores = np.stack([_flat(draw(s)) for s in tf.unstack(seeds)])
    total = scores.T @ scores / whitening.num_draws + np.diag(_flat(precision))
    eigenvalues, basis = np.linalg.eigh(total)
    dense = KroneckerMap(tf.constant(eigenvalues**-0.5), (tf.constant(basis),))
    return found._replace(maps=(dense,))


def _flat(values: Sequence[tf.Tensor]) -> np.ndarray:
    return np.concatenate([np.ravel(v).astype(float) for v in values])
