"""Codes that are the likelihood's parameters themselves."""

from __future__ import annotations

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..arguments import check_arguments

__all__ = ["Identity"]


class Identity(gpflow.Module):
    """No network: each output has a code channel, which is its likelihood's parameter.

    A linear decoder is this below a :class:`~gpflow_bae.latent_priors.LinearMixture`, whose mixing
    matrix does what the decoder would. Expectations over codes are then those of a Gaussian, which
    GPflow's likelihoods know in closed form or by quadrature, so that bounds need no draws.
    """

    @check_arguments(num_outputs=1)
    def __init__(self, num_outputs: int):
        """
        :param num_outputs: P, as many outputs as code channels.
        :raises ValueError: for fewer than one.
        """
        super().__init__(name=None)
        if num_outputs < 1:
            raise ValueError(f"num_outputs must be at least 1, got {num_outputs}.")
        self.latent_dim = self.output_dim = int(num_outputs)

    @check_shapes("latents: [batch..., N, P]", "return: [batch..., N, P]")
    def __call__(self, latents: TensorType) -> tf.Tensor:
        """The codes, in ``default_float()``."""
        return tf.cast(latents, gpflow.default_float())
