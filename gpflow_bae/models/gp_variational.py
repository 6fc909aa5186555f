"""Variational autoencoders with a Gaussian-process latent: a choice of prior each."""

from __future__ import annotations

from typing import Literal

import gpflow
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.functions import MeanFunction

from ..arguments import check_arguments, kind_of
from ..base import Batch, Snapshot
from ..decoders import Identity
from ..encoders import LikelihoodEncoder
from ..guides import MeanFieldGuide
from ..latent_priors import GP, LinearMixture, SparseGP, TitsiasGP
from ..latent_priors.base import LOG_2PI
from ..latent_priors.kernel_prior import KernelLike
from ..likelihoods import Gaussian
from .autoencoder import LikelihoodLike, Network
from .variational import VariationalAutoencoder, as_gaussian_encoder, input_divergence

__all__ = ["GPPVAE", "GPVAE", "SGPVAE", "SVGPVAE", "LinearSGPVAE"]


class GPVAE(VariationalAutoencoder):
    """GP-VAE with the exact posterior of the encoder's pseudo-observations (Pearce 2019)."""

    @check_arguments()
    def __init__(
        self,
        kernel: KernelLike,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
        num_data: int | None = None,
        mean_function: MeanFunction | None = None,
    ):
        """
        :param kernel: GPflow kernel over the inputs, or one for each latent channel.
        :param decoder: built Keras model ``[rows, L] -> [rows, P]``, or a decoder.
        :param encoder: built Keras model ``[rows, P] -> [rows, 2 L]`` (means, and logarithms of
            standard deviations), or a :class:`~gpflow_bae.encoders.GaussianEncoder`.
        :param likelihood: one of :mod:`gpflow_bae.likelihoods`, or a scalar GPflow likelihood.
        :param num_data: see :class:`VariationalAutoencoder`.
        :param mean_function: of the codes; a GPflow mean function.
        """
        prior = GP(kernel, latent_dim, None, mean_function)
        super().__init__(prior, decoder, encoder, likelihood, num_data)


class SVGPVAE(VariationalAutoencoder):
    """Sparse GP-VAE (Jazbec et al. 2021): minibatches of points, or of whole tasks.

    The bound of a minibatch is eq. 10 with the posterior of the inducing outputs of eq. 9; of all
    points of a task together it is Titsias's (appendix B.4), which the published code calls
    ``SVGPVAE_Titsias``.
    """

    @check_arguments()
    def __init__(
        self,
        kernel: KernelLike,
        inducing_variable: gpflow.inducing_variables.InducingPoints | TensorType,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
        num_data: int | None = None,
        mean_function: MeanFunction | None = None,
    ):
        """Arguments as in :class:`GPVAE`, and ``inducing_variable`` as in GPflow (or [M, D])."""
        prior = TitsiasGP(kernel, inducing_variable, latent_dim, mean_function)
        super().__init__(prior, decoder, encoder, likelihood, num_data)


class SGPVAE(SVGPVAE):
    r"""Sparse GP-VAE for partly observed tasks of any length (Ashman et al. 2020).

    Each task has a structured posterior of its own inducing outputs (their eq. 4), the prior times
    the approximate likelihoods that the encoder emits for each point,

    .. math:: q(u) \propto p(u) \prod_n N(\mu_n | k(x_n, Z) K_{ZZ}^{-1} u, s_n^2),

    and :math:`q(f) = \int p(f | u) q(u) du`, with the bound
    :math:`\sum_n E_q[\log p(y_n | f_n)] - KL[q(u) \| p(u)]`. That q(u) is Titsias's optimal one
    for pseudo-observations :math:`(\mu_n, s_n^2)`, which is what
    :class:`~gpflow_bae.latent_priors.TitsiasGP` conditions on; and as his collapsed evidence is
    :math:`\sum_n E_q[\log N(\mu_n | f_n, s_n^2)] - KL[q(u) \| p(u)]`, the bound of
    :class:`VariationalAutoencoder`, in which those expectations are taken off again, is theirs. Of
    whole tasks it is :class:`SVGPVAE`'s as well; the new parts are the encoders for missing data
    (:func:`~gpflow_bae.encoders.partial_encoder`).

    Arguments are those of :class:`SVGPVAE`; ``encoder`` is any Gaussian encoder, such as a partial
    inference network (``partial_encoder("factornet", P, L)``) or a
    :class:`~gpflow_bae.encoders.FreeFormEncoder`, or a Keras model, which then sees zeros where
    data are missing.

    Tasks of unequal length are padded: repeat an input of the task, and make the outputs NaN. A
    point without any observation changes neither posterior nor bound. Minibatches are of tasks.
    """

    @property
    def splits_over_points(self) -> bool:
        """False: q(u) of a task is that given all of its points, never an estimate of it."""
        return False


class LinearSGPVAE(VariationalAutoencoder):
    """Sparse GP-VAE with a linear decoder, its codes integrated out: no encoder, and no draws.

    Each output is a mixture of a few GPs, and rows have noise that outputs share at that row alone:
    a linear model of coregionalisation (Alvarez et al. 2012) with the FITC approximation, exact
    where the inducing points are the inputs. What is observed of a row, in any pattern, tells of
    all functions at once (:class:`~gpflow_bae.latent_priors.LinearMixture`), so the bound is the
    evidence of the observed cells, and L-BFGS fits it in seconds.

    Codes are the outputs without their noise: ``predict_f`` is of them, one channel for each.
    """

    @check_arguments()
    def __init__(
        self,
        kernel: KernelLike,
        inducing_variable: gpflow.inducing_variables.InducingPoints | TensorType,
        mixing: TensorType,
        likelihood: Gaussian,
        nugget: Literal["full", "diagonal"] = "full",
        nugget_variance: float = 0.1,
        mean_function: MeanFunction | None = None,
    ):
        """
        :param kernel: one GPflow kernel for all functions, or one for each. Fix their variances:
            the mixing has them.
        :param mixing: weights at the start [P, F], of F functions in each of P outputs; small
            random numbers will do, equal columns will not.
        :param likelihood: Gaussian, with one noise variance or one for each output.
        :param nugget, nugget_variance: of the noise that outputs share; see
            :class:`~gpflow_bae.latent_priors.LinearMixture`.
        :param mean_function: of the outputs; a GPflow mean function.
        :raises TypeError: for another likelihood.
        """
        if not isinstance(likelihood, Gaussian):
            raise TypeError(
                "likelihood must be a gpflow_bae.likelihoods.Gaussian, whose noise is integrated "
                f"with the codes, got {kind_of(likelihood)}."
            )
        prior = LinearMixture(
            kernel, inducing_variable, mixing, nugget, nugget_variance, mean_function
        )
        encoder = LikelihoodEncoder(likelihood.variance, prior.latent_dim)
        super().__init__(prior, Identity(prior.latent_dim), encoder, likelihood)

    def batch_elbo(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> tf.Tensor:
        """Log evidence of the observed cells, in nats, without the posterior of the codes.

        The prior's evidence of pseudo-observations has a factor N(0 | 0, s^2) for each hole, s^2
        the huge variance that says nothing of it, which is taken off.
        """
        mean, variance = self.guide.encode(batch)
        prior = self.prior_for(batch, seed)
        evidence = tf.reduce_sum(prior.condition(batch.X, mean, variance).log_marginal)
        evidence -= input_divergence(prior, batch)
        if batch.mask is None:
            return evidence
        factors = -0.5 * (LOG_2PI + tf.math.log(variance))
        holes = tf.logical_not(tf.cast(batch.mask, tf.bool))
        return evidence - tf.reduce_sum(tf.where(holes, factors, tf.zeros_like(factors)))


class GPPVAE(VariationalAutoencoder):
    """GP prior VAE (Casale et al. 2018): mean-field codes under a low-rank GP prior."""

    @check_arguments()
    def __init__(
        self,
        kernel: KernelLike,
        inducing_variable: gpflow.inducing_variables.InducingPoints | TensorType,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
        code_noise_variance: float = 1e-1,
    ):
        """Arguments as in :class:`GPVAE`.

        :param inducing_variable: points whose features span the kernel, e.g. every view with a
            basis of object vectors; the covariance of the codes is then exact, of low rank plus
            noise, and costs N M^2.
        :param code_noise_variance: alpha of the paper, the codes' noise around the GP.
        """
        prior = SparseGP(kernel, inducing_variable, latent_dim, code_noise_variance)
        guide = MeanFieldGuide(as_gaussian_encoder(encoder))
        super().__init__(prior, decoder, guide, likelihood)
