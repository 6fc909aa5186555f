"""Variational autoencoders with Gaussian process priors over the codes."""

from __future__ import annotations

import gpflow
from gpflow.base import TensorType
from gpflow.functions import MeanFunction

from ..core.annotations import check_arguments
from ..guides import MeanFieldGuide, SubsetGuide
from ..latent_priors import GP, SparseGP, TitsiasGP
from ..latent_priors.kernel_prior import KernelLike
from .autoencoder import LikelihoodLike, Network
from .variational import VariationalAutoencoder, as_gaussian_encoder

__all__ = ["GPPVAE", "GPVAE", "SGPVAE", "SVGPVAE"]


class GPVAE(VariationalAutoencoder):
    """GP-VAE with the exact GP posterior given the encoder's pseudo-observations (Pearce 2019)."""

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
        :param mean_function: GPflow mean function of the codes.
        """
        prior = GP(kernel, latent_dim, None, mean_function)
        super().__init__(prior, decoder, encoder, likelihood, num_data)


class SVGPVAE(VariationalAutoencoder):
    """Sparse GP-VAE (Jazbec et al. 2021): minibatches of points, or of whole tasks.

    The bound of a minibatch is eq. 10 with the posterior of the inducing outputs in eq. 9. For all
    points of a task together it is Titsias's bound (appendix B.4), ``SVGPVAE_Titsias`` in the
    published code.
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

    Each task has a structured posterior over its own inducing outputs (eqs. 2 and 3), the
    prior times the approximate likelihoods that the encoder emits for each point,

    .. math:: q(u) \propto p(u) \prod_n N(\mu_n | k(x_n, Z) K_{ZZ}^{-1} u, s_n^2),

    and :math:`q(f) = \int p(f | u) q(u) du`, with the bound
    :math:`\sum_n E_q[\log p(y_n | f_n)] - KL[q(u) \| p(u)]`. This q(u) is Titsias's optimal one
    for the pseudo-observations :math:`(\mu_n, s_n^2)`, on which
    :class:`~gpflow_bae.latent_priors.TitsiasGP` conditions. His collapsed bound is
    :math:`\sum_n E_q[\log N(\mu_n | f_n, s_n^2)] - KL[q(u) \| p(u)]`, and the bound of
    :class:`VariationalAutoencoder` subtracts those expectations again, so it equals theirs. For
    whole tasks it also equals that of :class:`SVGPVAE`; the new parts are the encoders for missing
    data (:func:`~gpflow_bae.encoders.partial_encoder`).

    Arguments are those of :class:`SVGPVAE`; ``encoder`` is any Gaussian encoder, such as a partial
    inference network (``partial_encoder("factornet", P, L)``) or a
    :class:`~gpflow_bae.encoders.FreeFormEncoder`, or a Keras model, which gets zeros where data
    are missing.

    Tasks of unequal lengths are lists of arrays, which are padded with points without observations;
    these change neither posterior nor bound. Minibatches contain whole tasks, or points of a single
    task by the biased estimate of eq. 42 with ``encoder=SubsetGuide(encoder)``.
    """

    @property
    def splits_over_points(self) -> bool:
        """Whether minibatches may be of points; q(u) of a task is computed from all it is given."""
        return isinstance(self.guide, SubsetGuide)


class GPPVAE(VariationalAutoencoder):
    """GP prior VAE (Casale et al. 2018): mean-field codes under a low-rank GP prior.

    Predictions at new inputs are given the means of the codes, as in eq. 10 of the paper. At inputs
    of the data they are of the codes' posterior, with its variances.
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
        code_noise_variance: float = 1e-1,
    ):
        """Arguments as in :class:`GPVAE`.

        :param inducing_variable: points whose features span the kernel, e.g. every view with a
            basis of object vectors. The covariance of the codes is then exact, low rank plus
            noise, at cost N M^2.
        :param code_noise_variance: alpha in the paper, the variance of code noise around the GP.
        """
        prior = SparseGP(kernel, inducing_variable, latent_dim, code_noise_variance)
        guide = MeanFieldGuide(as_gaussian_encoder(encoder))
        super().__init__(prior, decoder, guide, likelihood)
