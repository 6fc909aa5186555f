"""What the posterior of a point's code is: Gaussian, a Gaussian through a flow, or a point.

Each takes its base from an encoder: a :class:`~gpflow_bae.encoders.FreeFormEncoder` gives every
point a Gaussian of its own, any other Gaussian encoder (a network, a partial inference network)
amortises, which for a GPLVM is a back constraint (Lawrence and Quinonero-Candela 2006).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from tensorflow_probability import bijectors as tfb

from ..base import Batch
from ..bijectors import NEAR_IDENTITY, DenseNetwork, Planar, check_flow
from ..latent_priors.base import LOG_2PI, GaussianLatentPrior
from ..mcmc.noise import standard_noise
from .free import FreeFormEncoder
from .gaussian import BaseGaussianEncoder
from .inputs import append_mask, side_inputs

__all__ = [
    "AmortizedPlanarPosterior",
    "CodeDraws",
    "FlowPosterior",
    "GaussianPosterior",
    "PointEstimate",
    "PointPosterior",
]


class CodeDraws(NamedTuple):
    """Reparameterised draws of the codes of one batch, and what they cost."""

    latents: tf.Tensor  # [S, N, L]
    divergence: tf.Tensor  # [], KL[q || prior] of these points in nats; an estimate for flows


class PointPosterior(gpflow.Module, ABC):
    """q(x_n) for each point of a single task, given an encoder that makes its Gaussian base."""

    def __init__(self, encoder: BaseGaussianEncoder):
        """
        :raises TypeError: if the encoder is not Gaussian.
        """
        super().__init__()
        if not isinstance(encoder, BaseGaussianEncoder):
            raise TypeError(
                "encoder must be Gaussian (FreeFormEncoder, GaussianEncoder, partial_encoder), "
                f"got {type(encoder).__name__}."
            )
        self.encoder = encoder
        self.latent_dim = encoder.latent_dim

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that belong to single points, first axis N; () where all is amortised."""
        return tuple(getattr(self.encoder, "row_variables", ()))

    @property
    def is_amortized(self) -> bool:
        """Whether it knows codes of points that it was not fitted to."""
        return not getattr(self.encoder, "takes_indices", False)

    def base_moments(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance [1, N, L] of the Gaussian base."""
        return self.encoder(batch.Y, **side_inputs(self.encoder, batch.mask, batch.indices))

    @abstractmethod
    def draw(
        self, batch: Batch, prior: GaussianLatentPrior, num_draws: int, seed: TensorType
    ) -> CodeDraws:
        """Draws of the codes of a batch of a single task; equal seeds give equal draws."""

    def _noise(self, mean: tf.Tensor, num_draws: int, seed: TensorType) -> tf.Tensor:
        shape = tf.concat([[num_draws], tf.shape(mean)[1:]], 0)
        return standard_noise(shape, seed, mean.dtype)


class GaussianPosterior(PointPosterior):
    """q(x_n) = N(mean_n, diag(variance_n)); its KL to a Gaussian prior has a closed form."""

    def draw(
        self, batch: Batch, prior: GaussianLatentPrior, num_draws: int, seed: TensorType
    ) -> CodeDraws:
        mean, variance = self.base_moments(batch)
        latents = mean + tf.sqrt(variance) * self._noise(mean, num_draws, seed)
        entropy = 0.5 * tf.reduce_sum(tf.math.log(variance) + 1.0 + LOG_2PI)
        expected = tf.reduce_sum(prior.expected_log_prob(batch.X, mean, variance))
        return CodeDraws(latents, -entropy - expected)


class PointEstimate(PointPosterior):
    """MAP codes: the base's mean, with -log p(x) in the place of a divergence.

    The base's variance has no effect and is never trained; bounds of it do not compare with those
    of the others, because the entropy of a point is minus infinity and is left out.
    """

    def __init__(self, encoder: BaseGaussianEncoder):
        """The log scales of a free-form encoder become untrainable; a network's get no gradient."""
        super().__init__(encoder)
        if isinstance(encoder, FreeFormEncoder):
            gpflow.set_trainable(encoder.log_scale, False)

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        return tuple(v for v in super().row_variables if v.trainable)

    def draw(
        self, batch: Batch, prior: GaussianLatentPrior, num_draws: int, seed: TensorType
    ) -> CodeDraws:
        mean, _ = self.base_moments(batch)
        return CodeDraws(mean, -tf.reduce_sum(prior.log_prob(batch.X, mean)))


class FlowPosterior(PointPosterior):
    r""":math:`x_n = g(x_n^0)`, x_n^0 ~ N(mean_n, diag(variance_n)), with one flow g for all points.

    .. math:: KL[q || p] = E[\log q_0(x^0) - \log |\det g'(x^0)| - \log p(g(x^0))]

    (Lalchand et al., eq. 8 with the flow's own density; the KL of the base would not be a bound).
    """

    def __init__(self, encoder: BaseGaussianEncoder, flow: Any):
        """
        :param flow: a ``tfp.bijectors.Bijector`` R^L -> R^L, see :mod:`gpflow_bae.bijectors`.
        :raises TypeError, ValueError: as :func:`gpflow_bae.bijectors.check_flow` says.
        """
        super().__init__(encoder)
        check_flow(flow, self.latent_dim)
        self.flow = flow

    def _flow_of(self, batch: Batch) -> Any:
        return self.flow

    def draw(
        self, batch: Batch, prior: GaussianLatentPrior, num_draws: int, seed: TensorType
    ) -> CodeDraws:
        mean, variance = self.base_moments(batch)
        noise = self._noise(mean, num_draws, seed)
        base = mean + tf.sqrt(variance) * noise
        flow = self._flow_of(batch)
        latents = flow.forward(base)
        log_det = flow.forward_log_det_jacobian(base, event_ndims=1)  # [S, N]
        # The Gaussian's entropy is known; only the flow and the prior are estimated.
        entropy = 0.5 * tf.reduce_sum(tf.math.log(variance) + 1.0 + LOG_2PI)
        log_prior = tf.reduce_sum(prior.log_prob(batch.X, latents[:, None]))
        estimate = tf.reduce_sum(log_det) + log_prior
        return CodeDraws(latents, -entropy - estimate / tf.cast(num_draws, estimate.dtype))


class AmortizedPlanarPosterior(FlowPosterior):
    """Planar maps whose parameters a network makes from each (partly observed) point.

    The network sees observations, with zeros where missing, and the mask; the base should come
    from a partial inference network (:func:`gpflow_bae.encoders.partial_encoder`).
    """

    def __init__(
        self,
        encoder: BaseGaussianEncoder,
        num_outputs: int,
        num_layers: int = 8,
        hidden_widths: tuple[int, ...] = (32,),
        seed: int = 0,
    ):
        """
        :param num_outputs: P, of the observations.
        :param num_layers: planar maps one after another.
        """
        PointPosterior.__init__(self, encoder)
        self.num_outputs, self.num_layers = int(num_outputs), int(num_layers)
        rng = np.random.default_rng(seed)
        L = self.latent_dim
        self.network = DenseNetwork(2 * num_outputs, hidden_widths, num_layers * (2 * L + 1), rng)
        # The same start as a shared flow's: directions of their own, and hardly any push.
        start = [
            np.r_[NEAR_IDENTITY * rng.standard_normal(L), rng.standard_normal(L), 0.0]
            for _ in range(num_layers)
        ]
        self.network.biases[-1].assign(np.concatenate(start))

    @check_shapes("batch.Y: [1, N, P]")
    def _flow_of(self, batch: Batch) -> Any:
        Y, mask = batch.Y[0], None
        if batch.mask is not None:
            mask = batch.mask[0]
            Y = tf.where(mask, Y, tf.zeros_like(Y))
        inputs = append_mask(Y, mask, self.num_outputs)
        values = self.network(tf.cast(inputs, gpflow.default_float()))
        L = self.latent_dim
        layers = []
        for values_k in tf.split(values, self.num_layers, -1):
            u, w, b = tf.split(values_k, [L, L, 1], -1)
            layers.append(Planar(u, w, b[..., 0]))
        return tfb.Chain(layers[::-1])
