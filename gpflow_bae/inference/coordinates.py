r"""Linear coordinates for a sampler's steps, from the priors.

A sampler with unit mass moves every coordinate as far as the stiffest of them allows. Codes under a
smooth GP are stiff: across a video they may hardly differ from one frame to the next, by the code
noise, and yet move by a prior standard deviation together. Their prior covariance is known, so
steps are made in whitened coordinates, codes = F u with F F^T = K(X, X) + noise, and in weights
divided by their prior standard deviations.

The map is linear, and depends on nothing that the steps change: kernel parameters, code noise,
inducing inputs and variances of layers are drawn by moves between rounds
(:mod:`gpflow_bae.inference.moves`). Given those the density in the new coordinates is the old one
times a constant, and momenta are standard normal in them whatever they are. So a round leaves the
posterior invariant, and the next round has the map of the new values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from .. import functional
from ..data import Observations
from ..decoders import NormalGivenVariance
from ..linalg import cholesky
from ..mcmc import Target
from ..models import BayesianAutoencoder
from .chain_state import Point

__all__ = ["Coordinates", "check_coordinates", "prior_coordinates", "target_in"]

_MOST_NUMBERS = 50_000_000  # of all factors of codes


class Coordinates(NamedTuple):
    """position = coordinates times scales, codes = factors times coordinates."""

    scales: tuple[tf.Tensor, ...]  # of the parameters, broadcast over each
    factors: Any  # [T, C, N, N] lower triangular, C = 1 or L; () where codes stay what they are

    def to_natural(self, point: Point) -> Point:
        """Values of the model."""
        parameters = tuple(s * v for s, v in zip(self.scales, point.parameters, strict=True))
        return Point(parameters, self._of_codes(point.codes, tf.linalg.matmul))

    def from_natural(self, point: Point) -> Point:
        """The inverse of :meth:`to_natural`."""
        parameters = tuple(v / s for s, v in zip(self.scales, point.parameters, strict=True))
        return Point(parameters, self._of_codes(point.codes, tf.linalg.triangular_solve))

    def gradient(self, natural: Point) -> Point:
        """The gradient by coordinates, given that by the model's values."""
        parameters = tuple(s * g for s, g in zip(self.scales, natural.parameters, strict=True))

        def transposed(factor: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
            return tf.linalg.matmul(factor, codes, transpose_a=True)

        return Point(parameters, self._of_codes(natural.codes, transposed))

    def _of_codes(self, codes: tf.Tensor, function: Callable[..., tf.Tensor]) -> tf.Tensor:
        if isinstance(self.factors, tuple):
            return codes
        by_channel = tf.linalg.matrix_transpose(codes)[..., None]  # [T, L, N, 1]
        if self.factors.shape[-3] == 1:  # one product for all channels
            return function(self.factors[..., 0, :, :], codes)
        return tf.linalg.matrix_transpose(function(self.factors, by_channel)[..., 0])


def check_coordinates(
    model: BayesianAutoencoder, data: Observations, batch_size: int | None, owned: Sequence[str]
) -> None:
    """Refuse :func:`prior_coordinates` that steps would change, or that do not fit into memory.

    :param owned: paths of the parameters that steps do not move.
    :raises ValueError: saying which, and what to set instead.
    """
    sampled = model.sampled
    prior = model.latent_prior
    # Else codes stay what they are, see prior_coordinates.
    of_codes = bool(prior.kernels) and prior.whitened_inducing is None and not model.whitened_codes
    used = {id(p) for p in functional.prior_parents(sampled.parameters)}
    if of_codes:
        used |= {id(p) for p in prior.parameters}
    moved = [
        path
        for path, p in zip(sampled.paths, sampled.parameters, strict=True)
        if id(p) in used and path not in owned
    ]
    if moved:
        raise ValueError(
            f'coordinates="prior" depend on {", ".join(moved[:3])}, which the sampler\'s steps '
            'change: let moves draw them, moves=("layer_variances", "code_scale", '
            '"prior_parameters") as far as the model allows them, or set coordinates="none".'
        )
    if data.X is None or not of_codes:
        return
    if data.axis == 1 and batch_size is not None:
        raise ValueError(
            'coordinates="prior" mix the codes of all points of a task, of which minibatches of '
            f'batch_size={batch_size} see some: set batch_size=None, or coordinates="none".'
        )
    T, N = data.X.shape[:2]
    channels = len(prior.kernels)
    if T * channels * N * N > _MOST_NUMBERS:
        raise ValueError(
            f'coordinates="prior" factorise the covariance of the codes of each task, and {T} tasks'
            f' of {N} points are too many numbers for that: set coordinates="none".'
        )


def prior_coordinates(
    model: BayesianAutoencoder, parameters: Sequence[tf.Tensor], X: tf.Tensor | None
) -> Coordinates:
    """Coordinates in which the prior is about standard normal.

    Parameters with a normal prior on the real line are divided by its standard deviation; others
    stay as they are, and so do codes under a prior without a covariance of their own.

    :param parameters: unconstrained values, in the order of ``model.sampled.paths``.
    :param X: inputs of the tasks [T, N, D].
    """
    values = model.sampled.constrained(parameters)
    path_of = {id(p): q for q, p in zip(values, model.sampled.parameters, strict=True)}
    scales = []
    for parameter, value in zip(model.sampled.parameters, parameters, strict=True):
        prior, transform = parameter.prior, parameter.transform
        if isinstance(prior, NormalGivenVariance):
            path = path_of.get(id(prior.parent))
            prior = prior.given(prior.parent if path is None else values[path])
        plain = transform is None or isinstance(transform, tfp.bijectors.Identity)
        is_normal = isinstance(prior, tfp.distributions.Normal) and plain
        scales.append(tf.cast(prior.scale if is_normal else 1.0, value.dtype))
    covariance = None
    if X is not None and not model.whitened_codes:
        covariance = model.bind(parameters).latent_prior.code_covariance(X)
    if covariance is None:
        return Coordinates(tuple(scales), ())
    return Coordinates(tuple(scales), cholesky(covariance, "the prior covariance of the codes"))


def target_in(coordinates: Coordinates, target: Target) -> Target:
    """What a sampler of gradients may ask of these coordinates."""
    natural = target.gradient
    assert natural is not None

    def gradient(point: Point, seed: Any) -> Point:
        return coordinates.gradient(natural(coordinates.to_natural(point), seed))

    return Target(gradient)
