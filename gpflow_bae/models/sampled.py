"""The published sampled models, which differ in the prior over codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import gpflow
from gpflow.base import TensorType
from gpflow.functions import MeanFunction

from ..core.annotations import check_arguments
from ..latent_priors import GP, DeepSparseGP, SparseGP, StandardNormal
from ..latent_priors.deep_layers import InducingLike
from ..latent_priors.kernel_prior import KernelLike
from .autoencoder import LikelihoodLike, Network
from .bayesian import BayesianAutoencoder

__all__ = ["BAE", "DSGPBAE", "GPBAE", "SGPBAE"]


class SGPBAE(BayesianAutoencoder):
    """Fully Bayesian autoencoder with a sparse GP latent (Tran et al. 2023)."""

    @check_arguments()
    def __init__(
        self,
        kernel: KernelLike,
        inducing_variable: gpflow.inducing_variables.InducingPoints | TensorType,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
        code_noise_variance: float = 1e-3,
        inducing_outputs: Literal["integrated", "sampled"] = "integrated",
        whitened_codes: bool = False,
        mean_function: MeanFunction | None = None,
    ):
        """
        :param kernel: GPflow kernel over the inputs, or one per latent channel. Parameters
            without a prior get the paper's log-normal ones in a copy, :attr:`kernel`; yours is
            unchanged.
        :param inducing_variable: inducing inputs [M, D] or GPflow ``InducingPoints``.
        :param decoder: built Keras model ``[rows, L] -> [rows, P]``, whose weights get the default
            priors of :class:`~gpflow_bae.decoders.KerasDecoder`, or one with priors of your own.
        :param encoder: built Keras model ``[rows, 2 P] -> [rows, L]``, observations and noise
            concatenated, or one of :mod:`gpflow_bae.encoders`.
        :param likelihood: one of :mod:`gpflow_bae.likelihoods`, or a scalar GPflow likelihood. Its
            variance, scale, shape or sigma, if it has no prior, gets LogNormal(log(value), 1) in a
            copy.
        :param code_noise_variance: see :class:`~gpflow_bae.latent_priors.SparseGP`.
        :param inducing_outputs: "integrated" for many tasks, each with its own inducing outputs;
            "sampled" for minibatches of points of one long task.
        :param whitened_codes: see :class:`~gpflow_bae.models.BayesianAutoencoder`.
        :param mean_function: GPflow mean function of the codes; its trainable parameters need
            priors.
        """
        prior = SparseGP(
            kernel,
            inducing_variable,
            latent_dim,
            code_noise_variance,
            inducing_outputs,
            mean_function,
        )
        super().__init__(prior, decoder, encoder, likelihood, whitened_codes)


class DSGPBAE(BayesianAutoencoder):
    """Fully Bayesian autoencoder with a deep sparse GP latent (Tran et al. 2023)."""

    @check_arguments()
    def __init__(
        self,
        kernels: Sequence[KernelLike],
        inducing_variables: Sequence[InducingLike] | InducingLike,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
        hidden_dims: Sequence[int] | None = None,
        code_noise_variance: float = 1e-3,
        whitened_codes: bool = False,
        num_draws: int = 1,
        inducing_outputs: Literal["integrated", "sampled"] = "sampled",
    ):
        """Other arguments as in :class:`SGPBAE`.

        :param kernels, inducing_variables: one for each layer, as in
            :class:`~gpflow_bae.latent_priors.DeepSparseGP`, which describes what is sampled. A
            hidden kernel's variance is the scale, in squared units of the inputs, of its warping
            of them: GPflow's default of 1 is large for inputs in [0, 1]. It should not exceed the
            squared lengthscale of the layer above by much.
        :param hidden_dims: widths of the hidden layers; None for the width of the inputs.
        :param num_draws: draws of the hidden layers in each evaluation.
        :param inducing_outputs: of the last layer: "sampled" for minibatches of points of one long
            task, "integrated" for many tasks, which share the hidden layers.
        :raises ValueError: for widths of layers that do not match, or ``num_draws`` other than 1
            with ``whitened_codes``.
        """
        if whitened_codes and num_draws != 1:
            raise ValueError(
                f"whitened_codes take one draw of the prior, got num_draws={num_draws}."
            )
        prior = DeepSparseGP(
            kernels,
            inducing_variables,
            latent_dim,
            hidden_dims,
            code_noise_variance,
            num_draws,
            inducing_outputs=inducing_outputs,
        )
        super().__init__(prior, decoder, encoder, likelihood, whitened_codes)


class GPBAE(BayesianAutoencoder):
    """Bayesian autoencoder with an exact GP latent (Tran et al. 2023), at cost N^3 per task."""

    @check_arguments()
    def __init__(
        self,
        kernel: KernelLike,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
        code_noise_variance: float = 1e-3,
        mean_function: MeanFunction | None = None,
    ):
        """Arguments as in :class:`SGPBAE`."""
        prior = GP(kernel, latent_dim, code_noise_variance, mean_function)
        super().__init__(prior, decoder, encoder, likelihood)


class BAE(BayesianAutoencoder):
    """Bayesian autoencoder with i.i.d. standard normal codes (Tran et al. 2021, 2023)."""

    @check_arguments()
    def __init__(
        self,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
    ):
        """Arguments as in :class:`SGPBAE`; there is no kernel, and inputs are ignored."""
        super().__init__(StandardNormal(latent_dim), decoder, encoder, likelihood)
