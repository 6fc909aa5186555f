"""The guide of sampled models, whose encoder need not have a density."""

from __future__ import annotations

import tensorflow as tf
from gpflow.base import TensorType

from ..base import Batch
from ..encoders import RowCodes
from ..encoders.base import Noise
from ..latent_priors.base import LatentProcess
from .base import Guide, uninformative_where_empty

__all__ = ["ImplicitGuide"]


class ImplicitGuide(Guide):
    """An encoder that draws from p(latent | y), fitted to a chain's codes (Tran et al. 2023)."""

    uses_prior_variance = False

    def pseudo_observations(
        self, prior: LatentProcess, batch: Batch, seed: TensorType, num_draws: int = 16
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return pseudo-observations [batch..., N, L] from the moments of the encoder's draws.

        p(latent_n | y_n) contains the prior's marginal once; it is divided out in natural
        parameters, so that ``prior.condition`` can multiply by the joint prior. If the draws are as
        wide as the prior, y_n is uninformative. So is a point without any observation, such as the
        padding of a task that is shorter than others, whatever the encoder draws there.
        """
        seeds = tf.unstack(tf.random.split(seed, num_draws, alg="philox"))
        side = self.encoder.side_inputs(batch.mask)
        draws = tf.stack([self.encoder.sample(batch.Y, s, **side) for s in seeds])
        mean, variance = tf.nn.moments(draws, axes=[0])
        if num_draws == 1:
            return uninformative_where_empty(mean, tf.zeros_like(mean), batch.mask)
        variance *= num_draws / (num_draws - 1)
        # The variance is 1 / (1/v - 1/k), kept finite where the encoder is wider than the prior.
        shrinkage = tf.maximum(1.0 - variance / prior.marginal_variance(batch.X), 1e-3)
        centre = prior.mean(batch.X)
        mean = centre + (mean - centre) / shrinkage
        return uninformative_where_empty(mean, variance / shrinkage, batch.mask)

    def codes_of_rows(
        self, rows: Batch, noise: Noise, num_draws: int, prior_variance: tf.Tensor | None = None
    ) -> RowCodes:
        """Return codes of independent rows ``Y [rows, P]``."""
        return self.encoder.codes_of_rows(rows.Y, rows.mask, noise, num_draws)
