"""A sparse variational GP prior with free q(u) under a decoder, without an encoder."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType

from ..base import Batch, Snapshot, VariationalModel, VariationalTerms
from ..core import functional
from ..core.annotations import check_arguments
from ..data import as_inputs, as_pair, prepare_data
from ..data.model_checks import check_support
from ..data.observations import as_observations, check_has_rows, check_same_points
from ..kernels.reading import check_kernel_inputs
from ..likelihoods import DecoderLikelihood, MaskedLikelihood
from ..mcmc.noise import item_noise
from .autoencoder import LikelihoodLike, Network, as_decoder
from .gp_variational import SVGPVAE

__all__ = ["DeepSVIGP"]


class DeepSVIGP(gpflow.models.SVGP, VariationalModel):
    """``gpflow.models.SVGP`` whose likelihood is a decoder (Jazbec et al. 2021, appendix C.5).

    q(u) is free and whitened, with covariances [L, M, M] of L latent GPs that share a kernel; the
    codes of a point follow q(f) there, and expectations of the likelihood are means over draws of
    them. (The objective of appendix C.5 decodes the mean of q(f) and subtracts half its variance
    over the noise variance instead.) It is SVGP-VAE without amortisation of q(u) (their
    proposition B.2). All of GPflow's SVGP works: ``elbo((X, Y))``, ``predict_f``, ``predict_y``,
    natural gradients on ``(q_mu, q_sqrt)``.
    """

    needs_inputs = True
    latent_prior_name = "SVGP"

    @check_arguments(latent_dim=1, num_data=1, num_draws=1)
    def __init__(
        self,
        kernel: gpflow.kernels.Kernel,
        inducing_variable: gpflow.inducing_variables.InducingVariables | TensorType,
        decoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
        num_data: int,
        num_draws: int = 10,
    ):
        """
        :param kernel: GPflow kernel over the inputs, shared by the latent channels.
        :param inducing_variable: GPflow inducing variables, or an array [M, D].
        :param decoder: built Keras model ``[rows, L] -> [rows, P]``, or a decoder.
        :param likelihood: one of :mod:`gpflow_bae.likelihoods`, or a scalar GPflow likelihood.
        :param num_data: number of points N, for ``elbo`` of minibatches.
        :param num_draws: draws of the codes in Monte Carlo expectations of the likelihood.
        :raises ValueError: if the decoder does not take ``latent_dim`` codes.
        """
        decoder = as_decoder(decoder)
        if decoder.latent_dim != latent_dim:
            raise ValueError(
                f"decoder takes {decoder.latent_dim} inputs per point, but latent_dim is "
                f"{latent_dim}; give the decoder's Input shape ({latent_dim},)."
            )
        super().__init__(
            kernel,
            DecoderLikelihood(decoder, likelihood, num_draws),
            inducing_variable,
            num_latent_gps=latent_dim,
            num_data=num_data,
        )

    @classmethod
    @check_arguments(num_draws=1)
    def from_svgp_vae(
        cls, model: SVGPVAE, data: tuple[TensorType, TensorType], num_draws: int = 10
    ) -> DeepSVIGP:
        """Initialise from a fitted SVGP-VAE: the same bound at the start, with q(u) free.

        q(u) starts at the one that the encoder gives for all data; a decoder that starts together
        with a random q(u) has not learnt to use it. Kernel, inducing variable, decoder and
        likelihood are shared with ``model``, not copied.

        :param model: fitted, with one kernel for all channels and no mean function.
        :param data: its inputs X [N, D] and observations Y [N, P] of a single task, NaN if missing.
        :param num_draws: see :class:`DeepSVIGP`.
        :raises TypeError: if it is not an SVGP-VAE.
        :raises ValueError: for several tasks, a kernel for each channel, or a mean function.
        """
        if not isinstance(model, SVGPVAE):
            raise TypeError(
                f"model must be a gpflow_bae.models.SVGPVAE, got {type(model).__name__}: only its "
                "encoder has a q(u) of inducing outputs to start from."
            )
        prior = model.latent_prior
        if len(prior.kernels) > 1 or prior.mean_function is not None:
            raise ValueError(
                "model must have one kernel for all latent channels and no mean function, as "
                f"DeepSVIGP has; it has {len(prior.kernels)} kernels and mean_function="
                f"{type(prior.mean_function).__name__}."
            )
        observations = prepare_data(model, data)
        if observations.axis == 0:
            raise ValueError(
                f"data has {observations.num_items} tasks, each with a q(u) of its own: give one "
                "task, X [N, D] and Y [N, P]."
            )
        batch = observations.gather(None)
        q = prior.inducing_posterior(batch.X, *model.encode(batch.X, batch.Y, batch.mask))
        deep = cls(
            prior.kernels[0],
            prior.inducing_variable,
            model.decoder,
            model.likelihood,
            prior.latent_dim,
            num_data=observations.num_points,
            num_draws=num_draws,
        )
        # GPflow takes a Cholesky factor of the covariance; q holds one of the precision.
        eye = tf.eye(prior.num_inducing, batch_shape=[prior.latent_dim], dtype=q.mean.dtype)
        deep.q_mu.assign(tf.transpose(q.mean[0]))
        deep.q_sqrt.assign(tf.linalg.cholesky(tf.linalg.cholesky_solve(q.factor[0], eye)))
        return deep

    @property
    def decoder(self) -> tf.Module:
        """The decoder, which is part of the likelihood."""
        return self.likelihood.decoder

    @property
    def observation_likelihood(self) -> MaskedLikelihood:
        """The likelihood of observations given the decoder's output."""
        return self.likelihood.observation

    def log_prior_density(self) -> tf.Tensor:
        """Return the log prior density of all parameters with a prior, as in :meth:`training_loss`.

        In unconstrained space, Jacobians included. Summed in ``default_float()``, because network
        weights are float32.
        """
        parameters = self.prior_parameters
        values = functional.unconstrained_values(parameters)
        return functional.log_prior_density(parameters, values)

    @property
    def prior_parameters(self) -> tuple[Parameter, ...]:
        """Trainable parameters that have a prior; q(u) has none."""
        return tuple(p for p in self.trainable_parameters if p.prior is not None)

    @property
    def latent_prior_variables(self) -> tuple[tf.Variable, ...]:
        """Trainable variables of kernel and inducing inputs."""
        return (*self.kernel.trainable_variables, *self.inducing_variable.trainable_variables)

    @property
    def natural_parameters(self) -> list[tuple[Parameter, Parameter]]:
        """``(q_mu, q_sqrt)`` of q(u), for :class:`gpflow.optimizers.NaturalGradient`."""
        return [(self.q_mu, self.q_sqrt)]

    def check_inputs(self, X: np.ndarray, name: str = "X") -> None:
        """Check that the kernel can read inputs [..., D], with enough float precision."""
        check_kernel_inputs([self.kernel], X, name)

    def elbo(self, data: tuple[TensorType, TensorType]) -> tf.Tensor:
        """Return GPflow's evidence lower bound of ``(X, Y)``, with Y NaN or masked if missing."""
        return super().elbo(self._as_gpflow_data(data))

    def predict_log_density(
        self,
        data: tuple[TensorType, TensorType],
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Return the log density of the observed entries of each row of ``(Xnew, Ynew)``."""
        data = self._as_gpflow_data(data, "Xnew", "Ynew")
        return super().predict_log_density(data, full_cov, full_output_cov)

    def _as_gpflow_data(
        self, data: tuple[TensorType, TensorType], name: str = "X", of_y: str = "Y"
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return checked tensors of points in ``default_float()``; missing entries are NaN."""
        X, Y = as_pair(data)
        X = as_inputs(X, name=name)[0]
        Y, seen = as_observations(Y, of_y, gpflow.default_float())
        width = self.decoder.output_dim
        if Y.shape.rank != 2 or Y.shape[-1] not in (None, width):
            raise ValueError(
                f"{of_y} must have shape [N, P] with P = {width}, the width of the decoder, got "
                f"{tuple(Y.shape)}."
            )
        check_has_rows(Y.shape, of_y)
        check_same_points((1, *X.shape), (1, *Y.shape))
        known = tf.get_static_value(X)
        if known is not None:
            self.check_inputs(known, name)
        known = tf.get_static_value(Y)
        if known is not None:
            mask = None if seen is None else tf.get_static_value(seen)
            check_support(self, known, mask, of_y)
        return X, Y if seen is None else tf.where(seen, Y, tf.constant(np.nan, Y.dtype))

    def terms(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> VariationalTerms:
        """Return the terms of the bound for points of a single task, with one draw of the codes."""
        mean, variance = self.predict_f(tf.convert_to_tensor(batch.X)[0])
        noise = item_noise(tf.shape(mean), seed, mean.dtype)
        F = self.decoder((mean + tf.sqrt(variance) * noise)[None])
        observation = self.likelihood.observation
        observed = tf.reduce_sum(observation.masked_log_prob(F, batch.Y, batch.mask))
        divergence = self.prior_kl() / batch.point_scale
        return VariationalTerms(tf.cast(observed, mean.dtype), divergence, F)
