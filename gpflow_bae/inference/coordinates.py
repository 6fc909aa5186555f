r"""Linear coordinates for a sampler's steps, from priors or from the Fisher information.

A sampler with unit mass moves every coordinate as far as the stiffest of them allows. Codes under a
smooth GP are stiff: across a video they may hardly differ from one frame to the next, by the code
noise, and yet move by a prior standard deviation together. Their prior covariance is known, so
steps are made in whitened coordinates, codes = F u with F F^T = K(X, X) + noise, and in weights
divided by their prior standard deviations; or, where the data say more of them than the prior does,
in the layerwise coordinates of :mod:`gpflow_bae.inference.fisher_metric`, which are fitted during
burn-in and stay what they are.

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
from .kronecker import Factor

__all__ = [
    "Coordinates",
    "check_coordinates",
    "code_factors",
    "prior_coordinates",
    "prior_factors",
    "target_in",
]

_MOST_NUMBERS = 50_000_000  # of all factors of codes


class Coordinates(NamedTuple):
    """A factor for each parameter, and codes = factors times coordinates."""

    parameters: tuple[Factor, ...]
    factors: Any  # [T, C, N, N] lower triangular, C = 1 or L; () where codes stay what they are

    def to_natural(self, point: Point) -> Point:
        """Values of the model."""
        pairs = zip(self.parameters, point.parameters, strict=True)
        parameters = tuple(factor.to_value(u) for factor, u in pairs)
        return Point(parameters, self._of_codes(point.codes, tf.linalg.matmul))

    def from_natural(self, point: Point) -> Point:
        """The inverse of :meth:`to_natural`."""
        pairs = zip(self.parameters, point.parameters, strict=True)
        parameters = tuple(factor.from_value(v) for factor, v in pairs)
        return Point(parameters, self._of_codes(point.codes, tf.linalg.triangular_solve))

    def gradient(self, natural: Point) -> Point:
        """The gradient by coordinates, given that by the model's values."""
        pairs = zip(self.parameters, natural.parameters, strict=True)
        parameters = tuple(factor.gradient(g) for factor, g in pairs)

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
    model: BayesianAutoencoder,
    data: Observations,
    kind: str,
    batch_size: int | None,
    owned: Sequence[str],
) -> None:
    """Refuse coordinates that steps would change, or that do not fit into memory.

    :param kind: ``"prior"`` or ``"fisher"``.
    :param owned: paths of the parameters that steps do not move.
    :raises ValueError: saying which, and what to set instead.
    """
    sampled = model.sampled
    prior = model.latent_prior
    # Else codes stay what they are, see code_factors.
    of_codes = bool(prior.kernels) and prior.whitened_inducing is None and not model.whitened_codes
    used = set()
    if kind == "prior":
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
            f'coordinates="{kind}" depend on {", ".join(moved[:3])}, which the sampler\'s steps '
            'change: let moves draw them, moves=("layer_variances", "code_scale", '
            '"prior_parameters") as far as the model allows them, or set coordinates="none".'
        )
    if data.X is None or not of_codes:
        return
    if data.axis == 1 and batch_size is not None:
        raise ValueError(
            f'coordinates="{kind}" mix the codes of all points of a task, of which minibatches of '
            f'batch_size={batch_size} see some: set batch_size=None, or coordinates="none".'
        )
    T, N = data.X.shape[:2]
    channels = len(prior.kernels)
    if T * channels * N * N > _MOST_NUMBERS:
        raise ValueError(
            f'coordinates="{kind}" factorise the covariance of the codes of each task, and {T} '
            f'tasks of {N} points are too many numbers for that: set coordinates="none".'
        )


def prior_factors(
    model: BayesianAutoencoder, parameters: Sequence[tf.Tensor]
) -> tuple[Factor, ...]:
    """Standard deviations of the parameters' priors.

    That is, of those with a normal prior on the real line; others stay as they are.

    :param parameters: unconstrained values, in the order of ``model.sampled.paths``.
    """
    values = model.sampled.constrained(parameters)
    path_of = {id(p): q for q, p in zip(values, model.sampled.parameters, strict=True)}
    factors = []
    for parameter, value in zip(model.sampled.parameters, parameters, strict=True):
        prior, transform = parameter.prior, parameter.transform
        if isinstance(prior, NormalGivenVariance):
            path = path_of.get(id(prior.parent))
            prior = prior.given(prior.parent if path is None else values[path])
        plain = transform is None or isinstance(transform, tfp.bijectors.Identity)
        is_normal = isinstance(prior, tfp.distributions.Normal) and plain
        factors.append(Factor(tf.cast(prior.scale if is_normal else 1.0, value.dtype)))
    return tuple(factors)


def code_factors(
    model: BayesianAutoencoder, parameters: Sequence[tf.Tensor], X: tf.Tensor | None
) -> Any:
    """Cholesky factors of the codes' prior covariance; () under a prior that gives them none.

    :param X: inputs of the tasks [T, N, D].
    """
    covariance = None
    if X is not None and not model.whitened_codes:
        covariance = model.bind(parameters).latent_prior.code_covariance(X)
    return () if covariance is None else cholesky(covariance, "the prior covariance of the codes")


def prior_coordinates(
    model: BayesianAutoencoder, parameters: Sequence[tf.Tensor], X: tf.Tensor | None
) -> Coordinates:
    """Coordinates in which the prior is about standard normal; arguments as above."""
    return Coordinates(prior_factors(model, parameters), code_factors(model, parameters, X))


def target_in(coordinates: Coordinates, target: Target) -> Target:
    """What a sampler of gradients may ask of these coordinates."""
    natural = target.gradient
    assert natural is not None

    def gradient(point: Point, seed: Any) -> Point:
        return coordinates.gradient(natural(coordinates.to_natural(point), seed))

    return Target(gradient)
