r"""Samples of the parameters of models whose codes are integrated out in closed form.

The target is p(parameters) p(Y | parameters), by gradients of all data. Its parameters are few (the
kernels', mixing, noise) and go together. With ``coordinates="laplace"`` steps are made in
coordinates u, parameters = A u, in which the Laplace approximation at the start has unit
covariance, A A^T = (-Hessian)^-1. In those a splitting integrator, exact for a Gaussian
(:mod:`gpflow_bae.mcmc.integrators`), may take steps of nearly one standard deviation in all
directions, and a few of them are a new sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from ..mcmc import Target, targets
from ..mcmc.noise import standard_noise
from ..models import VariationalAutoencoder
from ..models.autoencoder import set_default_priors
from ..tracing import compiled
from .chain_checks import Takes
from .chain_sampling import ChainSampling
from .chain_state import Chain, Point, RoundStatistics
from .evidence import has_evidence
from .sampler_steps import sampler_steps

__all__ = ["EvidenceSampling", "LaplaceCoordinates"]

_MOST_PARAMETERS = 500  # whose Hessian is found by two gradients for each
_STEP = 1e-4  # of those differences, whose error is of order 1e-8, as is that of rounding
_LEAST_CURVATURE = 0.1  # along directions in which there is no mode at the start


class LaplaceCoordinates(NamedTuple):
    """All parameters together in coordinates: values = root u."""

    root: tf.Tensor  # [K, K], symmetric
    inverse: tf.Tensor  # [K, K]

    def to_natural(self, point: Point) -> Point:
        """Values of the model."""
        return _mapped(self.root, point)

    def from_natural(self, point: Point) -> Point:
        """The inverse of :meth:`to_natural`."""
        return _mapped(self.inverse, point)

    def gradient(self, natural: Point) -> Point:
        """The gradient by coordinates, given that by the values."""
        return _mapped(self.root, natural)


def _mapped(matrix: tf.Tensor, point: Point) -> Point:
    return Point(_split(tf.linalg.matvec(matrix, _joined(point.parameters)), point.parameters), ())


def _joined(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(v, [-1]) for v in values], 0)


def _split(vector: tf.Tensor, like: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
    parts = tf.split(vector, [int(np.prod(v.shape)) for v in like])
    return tuple(tf.reshape(p, v.shape) for p, v in zip(parts, like, strict=True))


class EvidenceSampling(ChainSampling):
    """Any sampler on p(parameters) p(Y | parameters), all data in every step.

    For :class:`~gpflow_bae.models.LinearSGPVAE`, and variational models like it without a network.
    Nothing is amortised and no codes are sampled: predictions find them exactly for each sample.
    """

    model: VariationalAutoencoder
    takes = Takes(coordinates=("laplace",))

    def __init__(self, model: VariationalAutoencoder, *arguments: Any, **options: Any):
        """Arguments as in :class:`~gpflow_bae.inference.chain_sampling.ChainSampling`.

        Kernel parameters without a prior get the default ones of
        :func:`~gpflow_bae.models.set_default_kernel_priors`, because they are sampled now, and
        inducing inputs a normal one of twice their spread.

        :raises ValueError: for minibatches, or too many parameters for a Hessian.
        """
        assert has_evidence(model)
        set_default_priors(model.latent_prior)
        super().__init__(model, *arguments, **options)
        if self.settings.batch_size not in (None, self.data.num_items):
            raise ValueError(
                f"{type(model).__name__} is sampled by its evidence, with all data in every step, "
                f"got batch_size={self.settings.batch_size} of {self.data.num_items}: leave it out."
            )
        count = self.sampled.num_scalars
        if self.settings.coordinates == "laplace" and count > _MOST_PARAMETERS:
            raise ValueError(
                f'coordinates="laplace" need the Hessian of all parameters, at most '
                f"{_MOST_PARAMETERS}, and {count} are sampled: hold the inducing inputs, with "
                "gpflow.set_trainable(model.latent_prior.inducing_variable, False), or set "
                'coordinates="none".'
            )
        self._batch = self.data.gather(None)
        self._gradient = compiled(self._log_density_gradient)

    def initial_chain(self, seed: tf.Tensor, latents: tf.Tensor | None = None) -> Chain:
        """At a draw of the Laplace approximation where the model is now, with its coordinates.

        Without coordinates, at the model's values themselves.
        """
        values = self.sampled.values()
        if self.settings.coordinates != "laplace":
            return Chain(self._sampler_state(Point(values, ())), (), self._initial_metric())
        metric = self._laplace(values)
        noise = standard_noise([self.sampled.num_scalars], seed, metric.root.dtype)
        drawn = _joined(values) + tf.linalg.matvec(metric.root, noise)
        return Chain(self._sampler_state(Point(_split(drawn, values), ())), (), metric)

    def _laplace(self, values: tuple[tf.Tensor, ...]) -> LaplaceCoordinates:
        """From central differences of the gradient."""
        start = _joined(values).numpy()
        rows = []
        for k in range(len(start)):
            found = []
            for sign in (1.0, -1.0):
                moved = start.copy()
                moved[k] += sign * _STEP
                gradient = self._gradient(Point(_split(tf.constant(moved), values), ()))
                found.append(_joined(gradient.parameters).numpy())
            rows.append((found[1] - found[0]) / (2.0 * _STEP))
        precision = np.stack(rows)
        curvatures, basis = np.linalg.eigh(0.5 * (precision + precision.T))
        scales = np.sqrt(np.maximum(curvatures, _LEAST_CURVATURE))
        root, inverse = ((basis * s) @ basis.T for s in (1.0 / scales, scales))
        dtype = gpflow.default_float()
        return LaplaceCoordinates(tf.constant(root, dtype), tf.constant(inverse, dtype))

    def _target_at_start(self) -> Target:
        return self._target()

    def _log_evidence(self, position: Point) -> tf.Tensor:
        return self.model.bind(position.parameters).batch_elbo(self._batch, tf.zeros([2], tf.int32))

    def _log_prior(self, position: Point) -> tf.Tensor:
        return self.sampled.log_prior(position.parameters)

    def _log_density_gradient(self, position: Point) -> Point:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(position)
            density = self._log_evidence(position) + self._log_prior(position)
        return tape.gradient(density, position)

    def _target(self) -> Target:
        return Target(
            lambda position, seed: self._log_density_gradient(position),
            targets.target(self._log_evidence, self._log_prior),
        )

    def _round(
        self, chain: Chain, seed: tf.Tensor, first: tf.Tensor, adapt: tf.Tensor, fed: Any = ()
    ) -> tuple[Chain, RoundStatistics]:
        target = self._target()
        state = sampler_steps(
            self.sampler,
            chain.sampler,
            lambda i: target,
            seed,
            first,
            adapt,
            self.settings.num_sampler_steps,
            chain.metric or None,
        )
        terms = self._log_prior(state.position), self._log_evidence(state.position)
        statistics = self.statistics(state, *terms, tf.zeros_like(terms[0]))
        return chain._replace(sampler=state), statistics
