r"""Linear coordinates for a sampler's steps, from priors or from the Fisher information.

A sampler with unit mass moves every coordinate as far as the stiffest of them allows. Codes under a
smooth GP are stiff: across a video they may hardly differ from one frame to the next, by the code
noise, and yet move by a prior standard deviation together. Their prior covariance is known, so
steps are made in whitened coordinates, codes = F u with F F^T = K(X, X) + noise, and in weights
divided by their prior standard deviations; or, where the data say more of them than the prior does,
in the coordinates of :mod:`gpflow_bae.inference.fisher_metric`, which add to the precision of the
prior the information of the data, as it was during burn-in.

The map is linear, and depends on nothing that the steps change: kernel parameters, code noise,
inducing inputs and variances of layers are drawn by moves between rounds
(:mod:`gpflow_bae.inference.moves`). Given those the density in the new coordinates is the old one
times a constant, and momenta are standard normal in them whatever they are. So a round leaves the
posterior invariant, and the next round has the map of the new values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from ..data import Observations
from ..mcmc import Target
from ..mcmc.targets import Evaluation
from ..models import BayesianAutoencoder
from .chain_state import Point
from .code_coordinates import CodeCoordinates, code_coordinates
from .kronecker import Factor

__all__ = [
    "Coordinates",
    "Metric",
    "check_coordinates",
    "coordinates_of",
    "has_code_coordinates",
    "of_items",
    "prior_factors",
    "target_in",
]

_MOST_NUMBERS = 50_000_000  # of all factors of codes


class Coordinates(NamedTuple):
    """Maps of parameters, one by one, and of codes."""

    parameters: tuple[Factor, ...]
    codes: CodeCoordinates | None  # None where codes stay what they are

    def to_natural(self, point: Point) -> Point:
        """Values of the model."""
        pairs = zip(self.parameters, point.parameters, strict=True)
        parameters = tuple(factor.to_value(u) for factor, u in pairs)
        codes = point.codes if self.codes is None else self.codes.to_value(point.codes)
        return Point(parameters, codes)

    def from_natural(self, point: Point) -> Point:
        """The inverse of :meth:`to_natural`."""
        pairs = zip(self.parameters, point.parameters, strict=True)
        parameters = tuple(factor.from_value(v) for factor, v in pairs)
        codes = point.codes if self.codes is None else self.codes.from_value(point.codes)
        return Point(parameters, codes)

    def gradient(self, natural: Point) -> Point:
        """The gradient by coordinates, given that by the model's values."""
        pairs = zip(self.parameters, natural.parameters, strict=True)
        parameters = tuple(factor.gradient(g) for factor, g in pairs)
        codes = natural.codes if self.codes is None else self.codes.gradient(natural.codes)
        return Point(parameters, codes)


class Metric(NamedTuple):
    """What is fitted to a chain, and part of its state."""

    parameters: tuple[Factor, ...]
    information: Any = ()  # on each code [T, N, L, L]; () where codes stay what they are
    squares: tuple[tf.Tensor, ...] = ()  # of draws of it along the bases, while they are averaged


def of_items(metric: Any, indices: tf.Tensor | None) -> Any:
    """A :class:`Metric` of some tasks alone, or of all for None; () stays what it is."""
    if indices is None or not metric or not tf.is_tensor(metric.information):
        return metric
    return metric._replace(information=tf.gather(metric.information, indices))


def has_code_coordinates(model: BayesianAutoencoder, data: Observations) -> bool:
    """Whether codes have a prior covariance to be whitened by."""
    prior = model.latent_prior
    covariance = bool(prior.kernels) and prior.whitened_inducing is None
    return covariance and not model.whitened_codes and data.X is not None


def check_coordinates(
    model: BayesianAutoencoder,
    data: Observations,
    kind: str,
    batch_size: int | None,
    owned: Sequence[str],
) -> None:
    """Refuse coordinates that steps would change, or that do not fit into memory.

    :param kind: all but ``"none"``.
    :param owned: paths of the parameters that steps do not move.
    :raises ValueError: saying which, and what to set instead.
    """
    sampled = model.sampled
    prior = model.latent_prior
    of_codes = has_code_coordinates(model, data)
    used = {id(p) for p in prior.parameters} if of_codes else set()
    moved = [
        path
        for path, p in zip(sampled.paths, sampled.parameters, strict=True)
        if id(p) in used and path not in owned
    ]
    if moved:
        raise ValueError(
            f'coordinates="{kind}" depend on {", ".join(moved[:3])}, which the sampler\'s steps '
            'change: let moves draw them, moves=("code_scale", "prior_parameters") '
            'as far as the model allows them, or set coordinates="none".'
        )
    if not of_codes:
        return
    if data.axis == 1 and batch_size is not None:
        raise ValueError(
            f'coordinates="{kind}" mix the codes of all points of a task, of which minibatches of '
            f'batch_size={batch_size} see some: set batch_size=None, or coordinates="none".'
        )
    T, N = data.Y.shape[:2]
    channels = prior.latent_dim**2 if kind == "fisher" else len(prior.kernels)
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
    factors = []
    for parameter, value in zip(model.sampled.parameters, parameters, strict=True):
        prior, transform = parameter.prior, parameter.transform
        plain = transform is None or isinstance(transform, tfp.bijectors.Identity)
        is_normal = isinstance(prior, tfp.distributions.Normal) and plain
        factors.append(Factor(tf.cast(prior.scale if is_normal else 1.0, value.dtype)))
    return tuple(factors)


def coordinates_of(
    model: BayesianAutoencoder,
    parameters: Sequence[tf.Tensor],
    X: tf.Tensor | None,
    metric: Any = (),
) -> Coordinates:
    """Coordinates in which the prior is about standard normal, or the posterior given a metric.

    :param parameters: unconstrained values, in the order of ``model.sampled.paths``.
    :param X: inputs of the tasks [T, N, D].
    :param metric: a :class:`Metric`; () for the prior alone.
    """
    if not metric:
        return Coordinates(prior_factors(model, parameters), code_coordinates(model, parameters, X))
    codes = code_coordinates(model, parameters, X, metric.information)
    return Coordinates(metric.parameters, codes)


def target_in(coordinates: Coordinates, target: Target) -> Target:
    """What a sampler may ask of these coordinates; densities lack a constant of a round."""
    natural, density = target.gradient, target.evaluate
    assert natural is not None

    def gradient(point: Point, seed: Any) -> Point:
        return coordinates.gradient(natural(coordinates.to_natural(point), seed))

    if density is None:
        return Target(gradient)

    def evaluate(point: Point) -> Evaluation:
        found = density(coordinates.to_natural(point))
        return found._replace(
            tempered_gradient=coordinates.gradient(found.tempered_gradient),
            untempered_gradient=coordinates.gradient(found.untempered_gradient),
        )

    return Target(gradient, evaluate)
