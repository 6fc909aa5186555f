"""An encoder without a network: observations as they are, with the noise of their likelihood."""

from __future__ import annotations

from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from .gaussian import BaseGaussianEncoder

__all__ = ["LikelihoodEncoder"]


class LikelihoodEncoder(BaseGaussianEncoder):
    """The Gaussian likelihood of a code that is observed itself: mean y, and the noise variance.

    For :class:`~gpflow_bae.decoders.Identity` decoders. It shares the noise variance with the
    likelihood, so the guide's posterior of the codes is the exact one, the bound is the evidence,
    and nothing has to be amortised. A missing output tells nothing of its channel.
    """

    takes_mask = True
    min_variance = 0.0
    max_variance = 1e10
    """Of a missing output: it changes a posterior by one part in 1e10 for a prior variance of 1."""

    def __init__(self, noise_variance: Parameter, num_outputs: int):
        """
        :param noise_variance: the likelihood's own, such as ``likelihood.variance``: a scalar, or
            one for each output [P].
        :param num_outputs: P.
        :raises ValueError: for another shape.
        """
        super().__init__(name=None)
        shape = tuple(noise_variance.shape)
        if shape not in ((), (1,), (num_outputs,)):
            raise ValueError(
                f"noise_variance must be a scalar, or have shape [P] = [{num_outputs}], got shape "
                f"{list(shape)}."
            )
        self.latent_dim = int(num_outputs)
        self.noise_variance = noise_variance

    @check_shapes(
        "Y: [batch..., N, P]",
        "mask: [batch..., N, P]",
        "return[0]: [batch..., N, P]",
        "return[1]: [batch..., N, P]",
    )
    def __call__(
        self, Y: TensorType, mask: TensorType | None = None, **side: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of each channel, in ``default_float()``.

        :param mask: True where observed; None where nothing is missing.
        """
        mean = tf.cast(Y, gpflow.default_float())
        variance = tf.broadcast_to(tf.convert_to_tensor(self.noise_variance), tf.shape(mean))
        if mask is None:
            return mean, variance
        return (
            tf.where(mask, mean, tf.zeros_like(mean)),
            tf.where(mask, variance, tf.cast(self.max_variance, variance.dtype)),
        )
