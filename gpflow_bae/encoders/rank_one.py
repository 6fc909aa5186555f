"""An encoder whose factors tell of one direction of a code each, however many are observed."""

from __future__ import annotations

from typing import Any, NoReturn

import gpflow
import keras
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..arguments import check_arguments
from ..keras_module import KerasModule
from .base import Encoder, append_mask

__all__ = ["RankOneEncoder"]


class RankOneEncoder(KerasModule, Encoder):
    r"""For each observed output p a Gaussian factor of the code along one direction a_p,

    .. math:: \prod_{p\ observed} N(t_p(y_p) | a_p^T latent, s_p^2(y_p)),

    of which one output has the precision :math:`a_p a_p^T / s_p^2`, a matrix of rank one, and all
    together that of the rank of what is observed. The factors of a FactorNet (Ashman et al. 2020,
    eq. 6) have a diagonal precision, which cannot say that one output tells of one direction, and
    of no other. Linear decoders with Gaussian noise have such factors exactly: a_p is row p of the
    weights, t_p is y_p less its bias, and s_p^2 the noise.

    Codes have no density of their own given a row, unless it tells of all directions: the prior
    must join (:class:`~gpflow_bae.guides.RankOneGuide`), and must take projections
    (:class:`~gpflow_bae.latent_priors.LinearMixture`).
    """

    takes_mask = True
    unobserved_variance = 1e10
    """Of a factor whose output is missing: it changes a posterior by one part in 1e10."""

    @check_arguments(latent_dim=1)
    def __init__(
        self,
        model: keras.Model,
        latent_dim: int,
        min_variance: float = 1e-6,
        max_variance: float = 1e3,
    ):
        """
        :param model: maps ``[rows, 2 P]``, observations and mask, to ``[rows, 2 P + P L]``: means,
            log standard deviations, and directions, as
            :func:`~gpflow_bae.encoders.rank_one_factor_net` makes them.
        :param latent_dim: L.
        :param min_variance, max_variance: the variances s^2 are clipped to this range.
        :raises ValueError: for a network of other widths.
        """
        super().__init__(model, prior=None, argument="encoder")
        count = self.num_inputs // 2
        if self.num_inputs % 2 or self.num_outputs != count * (2 + latent_dim):
            raise ValueError(
                "A RankOneEncoder's network takes observations and mask, 2 P numbers, and returns "
                f"P (2 + L) of them with latent_dim L = {latent_dim}; it takes {self.num_inputs} "
                f"and returns {self.num_outputs}. rank_one_factor_net(P, L) makes such networks."
            )
        self.latent_dim = int(latent_dim)
        self.min_variance, self.max_variance = float(min_variance), float(max_variance)

    @check_shapes(
        "Y: [batch..., N, P]",
        "mask: [batch..., N, P]",
        "return[0]: [batch..., N, P]",
        "return[1]: [batch..., N, P]",
        "return[2]: [batch..., N, P, L]",
    )
    def __call__(
        self, Y: TensorType, mask: TensorType | None = None, **side: Any
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Means and variances of the factors, and their directions, in ``default_float()``.

        :param mask: True where observed; None where nothing is missing.
        """
        count = self.num_inputs // 2
        outputs = self.apply_to_rows(append_mask(Y, mask, count))
        outputs = tf.cast(outputs, gpflow.default_float())
        mean, log_scale, directions = tf.split(outputs, [count, count, -1], axis=-1)
        bounds = 0.5 * np.log([self.min_variance, self.max_variance])
        variance = tf.exp(2.0 * tf.clip_by_value(log_scale, *bounds))
        shape = tf.concat([tf.shape(mean), [self.latent_dim]], 0)
        directions = tf.reshape(directions, shape)
        if mask is not None:
            seen = tf.cast(mask, tf.bool)
            mean = tf.where(seen, mean, tf.zeros_like(mean))
            variance = tf.where(seen, variance, tf.cast(self.unobserved_variance, variance.dtype))
        return mean, variance, directions

    def sample(self, Y: TensorType, seed: TensorType, **side: Any) -> NoReturn:
        """Refused: see the class.

        :raises NotImplementedError: always.
        """
        raise NotImplementedError(
            "The factors of a RankOneEncoder are no distribution of codes before a prior joins "
            "them: take predict_latent or reconstruct of a posterior, which put the prior in."
        )
