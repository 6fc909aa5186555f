"""The composition that every sampled model is: prior, decoder, likelihood, encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType

from .. import functional
from ..base import Batch
from ..latent_priors.base import GaussianLatentPrior, KernelLatentPrior
from ..likelihoods import MaskedLikelihood, masked

__all__ = ["BayesianAutoencoder", "State", "set_default_kernel_priors"]

tfd = tfp.distributions


class State(NamedTuple):
    """A point of the joint posterior."""

    parameters: tuple[tf.Tensor, ...]  # unconstrained, in the order of model.sampled_parameters
    latents: tf.Tensor  # [T, N, L]


def set_default_kernel_priors(
    kernel: gpflow.kernels.Kernel, lengthscale: float = 1.0, variance: float = 0.05
) -> None:
    """Give a kernel's parameters the log-normal priors of Tran et al. (2023), where they have none.

    Lengthscales get LogNormal(log lengthscale, 1), variances LogNormal(log variance, 1). Existing
    priors, and parameters that are not trainable, stay as they are.

    :raises ValueError: for a trainable parameter of any other name without a prior.
    """
    medians = {"lengthscales": lengthscale, "variance": variance}
    for path, parameter in gpflow.utilities.parameter_dict(kernel).items():
        if parameter.prior is not None or not parameter.trainable:
            continue
        name = path.rsplit(".", 1)[-1]
        if name not in medians:
            raise ValueError(
                f"The kernel's parameter {path} is sampled but has no prior, and there is no "
                f"default for {name!r}: set its prior to a tfp distribution, or fix it with "
                "gpflow.set_trainable(parameter, False)."
            )
        location = gpflow.utilities.to_default_float(np.log(medians[name]))
        parameter.prior = tfd.LogNormal(location, gpflow.utilities.to_default_float(1.0))


class BayesianAutoencoder(gpflow.Module):
    """log p(parameters) + log p(latents | X) + log p(Y | latents), for an engine to explore.

    The model owns no algorithm. Everything with a prior is sampled (decoder weights, kernel
    hyperparameters, inducing inputs, noise); the encoder has no prior and is optimised.
    """

    def __init__(
        self,
        latent_prior: GaussianLatentPrior,
        decoder: tf.Module,
        encoder: tf.Module,
        likelihood: gpflow.likelihoods.Likelihood | MaskedLikelihood,
    ):
        """
        :raises ValueError: if encoder, decoder and prior disagree about the number of channels.
        """
        super().__init__(name=None)
        latent_dim = latent_prior.latent_dim
        if decoder.latent_dim != latent_dim:
            raise ValueError(
                f"decoder takes {decoder.latent_dim} inputs per point, but the latent prior has "
                f"latent_dim = {latent_dim}; give the decoder's Input shape ({latent_dim},)."
            )
        if encoder.latent_dim != latent_dim:
            raise ValueError(
                f"encoder returns {encoder.latent_dim} code channels, but the latent prior has "
                f"latent_dim = {latent_dim}; change the width of the encoder's last layer."
            )
        if isinstance(latent_prior, KernelLatentPrior):
            for kernel in latent_prior.kernels:
                set_default_kernel_priors(kernel)
        self.latent_prior = latent_prior
        self.decoder = decoder
        self.likelihood = masked(likelihood)
        self.encoder = encoder

    @property
    def latent_dim(self) -> int:
        """Number of code channels L."""
        return self.latent_prior.latent_dim

    @property
    def needs_inputs(self) -> bool:
        """Whether the prior over codes is one given inputs X."""
        return self.latent_prior.needs_inputs

    @property
    def sampled_paths(self) -> tuple[str, ...]:
        """Paths of the parameters that are sampled: trainable, and not the encoder's.

        A parameter that modules share is sampled once, under its first path.
        """
        first_paths: dict[int, str] = {}
        for path, parameter in gpflow.utilities.parameter_dict(self).items():
            if parameter.trainable and not path.startswith(".encoder"):
                first_paths.setdefault(id(parameter), path)
        return tuple(first_paths.values())

    @property
    def sampled_parameters(self) -> tuple[Parameter, ...]:
        """The parameters that are sampled, in the order of :attr:`sampled_paths`."""
        parameters = gpflow.utilities.parameter_dict(self)
        return tuple(parameters[path] for path in self.sampled_paths)

    @property
    def encoder_paths(self) -> tuple[str, ...]:
        """Paths of the encoder's parameters, which are optimised."""
        parameters = gpflow.utilities.parameter_dict(self)
        return tuple(path for path in parameters if path.startswith(".encoder"))

    @property
    def encoder_variables(self) -> list[tf.Variable]:
        """The encoder's trainable variables, in the order of :attr:`encoder_paths`."""
        parameters = gpflow.utilities.parameter_dict(self)
        return [parameters[path].unconstrained_variable for path in self.encoder_paths]

    @property
    def num_sampled(self) -> int:
        """How many scalars are sampled, codes not counted."""
        return int(sum(np.prod(p.unconstrained_variable.shape) for p in self.sampled_parameters))

    def bind(
        self, values: Sequence[TensorType], encoder_values: Sequence[TensorType] | None = None
    ) -> BayesianAutoencoder:
        """This model at other (unconstrained) ``values``, and maybe with another encoder."""
        constrained = functional.constrain(self.sampled_parameters, values)
        replaced = dict(zip(self.sampled_paths, constrained, strict=True))
        if encoder_values is not None:
            replaced |= dict(zip(self.encoder_paths, encoder_values, strict=True))
        return functional.functional_copy(self, replaced)

    def assign(self, values: Sequence[TensorType]) -> None:
        """Set the sampled parameters to unconstrained ``values``."""
        for parameter, value in zip(self.sampled_parameters, values, strict=True):
            parameter.unconstrained_variable.assign(value)

    def pseudo_observations(
        self, X: TensorType | None, Y: TensorType, seed: TensorType, num_draws: int = 16
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What the encoder says of the codes ``Y`` alone: Gaussian pseudo-observations.

        The encoder draws from p(latent_n | y_n), which has the prior's marginal in it once; it is
        divided out in natural parameters, so that :meth:`LatentPrior.condition` can put the whole
        prior in. Where the draws are as wide as the prior, y_n says nothing.

        :return: mean and variance [batch..., N, L].
        """
        seeds = tf.unstack(tf.random.split(seed, num_draws, alg="philox"))
        draws = tf.stack([self.encoder.sample(Y, s) for s in seeds])
        mean, variance = tf.nn.moments(draws, axes=[0])
        if num_draws == 1:
            return mean, tf.zeros_like(mean)
        variance *= num_draws / (num_draws - 1)
        prior = self.latent_prior.marginal_variance(X)
        # 1 / (1/v - 1/k), kept finite where the encoder is wider than the prior.
        shrinkage = tf.maximum(1.0 - variance / prior, 1e-3)
        return mean / shrinkage, variance / shrinkage

    def log_prior(self, state: State) -> tf.Tensor:
        """Log prior of the sampled parameters in unconstrained space, Jacobians included."""
        return functional.log_prior_density(self.sampled_parameters, state.parameters)

    def log_likelihood(self, state: State, batch: Batch) -> tf.Tensor:
        """log p(latents | X) + log p(Y | latents), summed over the batch and not rescaled.

        The engine scales it by N/B, in one place.
        """
        bound = self.bind(state.parameters)
        latent = tf.reduce_sum(bound.latent_prior.log_prob(batch.X, state.latents))
        F = bound.decoder(state.latents)
        observed = tf.reduce_sum(bound.likelihood.masked_log_prob(F, batch.Y, batch.mask))
        return latent + tf.cast(observed, latent.dtype)
