"""Guides with non-Gaussian codes: normalising flows of a Gaussian base, and point estimates.

With a :class:`~gpflow_bae.encoders.FreeFormEncoder` every point has a free Gaussian base; any
other Gaussian encoder amortises it, which for a GPLVM is a back constraint (Lawrence and
Quinonero-Candela 2006).
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from tensorflow_probability import bijectors as tfb

from ..base import Batch, Snapshot
from ..bijectors import NEAR_IDENTITY, DenseNetwork, Planar, check_flow
from ..core.annotations import check_arguments
from ..encoders import BaseGaussianEncoder, FreeFormEncoder
from ..encoders.base import append_mask
from ..latent_priors.base import LOG_2PI, GaussianLatentPrior
from ..mcmc.noise import item_noise
from .base import BoundGuide, CodeDraws

__all__ = ["AmortizedPlanarGuide", "FlowGuide", "PointEstimate"]


class PointEstimate(BoundGuide):
    """MAP codes: the base's mean, with -log p(x) in the place of a divergence.

    The base's variance has no effect and is not trained. Bounds are not comparable with those of
    other guides, because the entropy of a point, minus infinity, is left out.
    """

    def __init__(self, encoder: BaseGaussianEncoder):
        """Make the log scales of a free-form encoder untrainable; a network's get no gradient."""
        super().__init__(encoder)
        if isinstance(encoder, FreeFormEncoder):
            gpflow.set_trainable(encoder.log_scale, False)

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        return tuple(v for v in super().row_variables if v.trainable)

    def draw(
        self,
        prior: GaussianLatentPrior,
        batch: Batch,
        num_draws: int,
        seed: TensorType,
        snapshot: Snapshot | None = None,
    ) -> CodeDraws:
        mean, _ = self.moments(batch)
        return CodeDraws(mean[None], -tf.reduce_sum(prior.log_prob(batch.X, mean)))


class FlowGuide(BoundGuide):
    r"""A normalising flow of Gaussian codes, with one flow g for all points.

    Codes are :math:`x_n = g(x_n^0)` with x_n^0 ~ N(mean_n, diag(variance_n)), and

    .. math:: KL[q || p] = E[\log q_0(x^0) - \log |\det g'(x^0)| - \log p(g(x^0))]

    with the density of the warped codes (Lalchand et al. 2021, eq. 4) in the divergence of their
    eq. 3; that of the Gaussian codes before the flow would not give a bound.
    """

    def __init__(self, encoder: BaseGaussianEncoder, flow: Any):
        """
        :param flow: a ``tfp.bijectors.Bijector`` R^L -> R^L, see :mod:`gpflow_bae.bijectors`.
        :raises TypeError, ValueError: as :func:`gpflow_bae.bijectors.check_flow`.
        """
        super().__init__(encoder)
        check_flow(flow, self.latent_dim)
        self.flow = flow

    def flow_of(self, batch: Batch) -> Any:
        """Return the flow for the codes of a batch."""
        return self.flow

    def draw(
        self,
        prior: GaussianLatentPrior,
        batch: Batch,
        num_draws: int,
        seed: TensorType,
        snapshot: Snapshot | None = None,
    ) -> CodeDraws:
        mean, variance = self.moments(batch)
        noise = item_noise(tf.concat([[num_draws], tf.shape(mean)], 0), seed, mean.dtype)
        base = mean + tf.sqrt(variance) * noise
        flow = self.flow_of(batch)
        latents = flow.forward(base)
        log_det = flow.forward_log_det_jacobian(base, event_ndims=1)  # [S, T, N]
        # The Gaussian's entropy is exact; only the flow's and prior's terms are estimated.
        entropy = 0.5 * tf.reduce_sum(tf.math.log(variance) + 1.0 + LOG_2PI)
        estimate = tf.reduce_sum(log_det) + tf.reduce_sum(prior.log_prob(batch.X, latents))
        return CodeDraws(latents, -entropy - estimate / tf.cast(num_draws, estimate.dtype))


class AmortizedPlanarGuide(FlowGuide):
    """A flow of planar maps whose parameters are a network's outputs at each observed point.

    The network takes observations, with zeros where missing, and the mask; the base should come
    from a partial inference network (:func:`gpflow_bae.encoders.partial_encoder`).
    """

    @check_arguments(num_outputs=1, num_layers=1, hidden_widths=1, seed=0)
    def __init__(
        self,
        encoder: BaseGaussianEncoder,
        num_outputs: int,
        num_layers: int = 8,
        hidden_widths: tuple[int, ...] = (32,),
        seed: int = 0,
    ):
        """
        :param num_outputs: number of outputs P.
        :param num_layers: number of planar maps in the composition.
        """
        BoundGuide.__init__(self, encoder)
        self.num_outputs, self.num_layers = int(num_outputs), int(num_layers)
        rng = np.random.default_rng(seed)
        L = self.latent_dim
        self.network = DenseNetwork(2 * num_outputs, hidden_widths, num_layers * (2 * L + 1), rng)
        # Initialised like a shared flow: random directions, and nearly the identity.
        start = [
            np.r_[NEAR_IDENTITY * rng.standard_normal(L), rng.standard_normal(L), 0.0]
            for _ in range(num_layers)
        ]
        self.network.biases[-1].assign(np.concatenate(start))

    @check_shapes("batch.Y: [1, N, P]")
    def flow_of(self, batch: Batch) -> Any:
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
