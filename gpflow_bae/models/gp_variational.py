"""Variational autoencoders with a Gaussian-process latent: a choice of prior each."""

from __future__ import annotations

import gpflow
from gpflow.base import TensorType

from ..latent_priors import GP, SparseGP, TitsiasGP
from ..latent_priors.base import KernelLike
from .variational import LikelihoodLike, MeanFieldAutoencoder, Network, VariationalAutoencoder

__all__ = ["GPPVAE", "GPVAE", "SVGPVAE"]


class GPVAE(VariationalAutoencoder):
    """GP-VAE with the exact posterior of the encoder's pseudo-observations (Pearce 2019)."""

    def __init__(
        self,
        kernel: KernelLike,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
    ):
        """
        :param kernel: GPflow kernel over the inputs, or one for each latent channel.
        :param decoder: built Keras model ``[rows, L] -> [rows, P]``, or a decoder.
        :param encoder: built Keras model ``[rows, P] -> [rows, 2 L]`` (means, and logarithms of
            standard deviations), or a :class:`~gpflow_bae.encoders.GaussianEncoder`.
        :param likelihood: one of :mod:`gpflow_bae.likelihoods`, or a scalar GPflow likelihood.
        """
        prior = GP(kernel, latent_dim, code_noise_variance=None)
        super().__init__(prior, decoder, encoder, likelihood)


class SVGPVAE(VariationalAutoencoder):
    """Sparse GP-VAE (Jazbec et al. 2021): minibatches of points, or of whole tasks.

    The bound of a minibatch is eq. 10 with the posterior of the inducing outputs of eq. 9; of all
    points of a task together it is Titsias's (appendix B.4), which the published code calls
    ``SVGPVAE_Titsias``.
    """

    def __init__(
        self,
        kernel: KernelLike,
        inducing_variable: gpflow.inducing_variables.InducingPoints | TensorType,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
    ):
        """Arguments as in :class:`GPVAE`, and ``inducing_variable`` as in GPflow (or [M, D])."""
        prior = TitsiasGP(kernel, inducing_variable, latent_dim)
        super().__init__(prior, decoder, encoder, likelihood)


class GPPVAE(MeanFieldAutoencoder):
    """GP prior VAE (Casale et al. 2018): mean-field codes under a low-rank GP prior."""

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
        super().__init__(prior, decoder, encoder, likelihood)
