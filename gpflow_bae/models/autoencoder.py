"""The composition that every sampled model is: prior, decoder, likelihood, encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from .. import functional
from ..base import Batch
from ..encoders import side_inputs
from ..latent_priors.base import LOG_2PI, GaussianLatentPrior
from ..likelihoods import MaskedLikelihood, masked

__all__ = [
    "BayesianAutoencoder",
    "State",
    "set_default_kernel_priors",
    "uninformative_where_empty",
]

tfd = tfp.distributions

# A pseudo-observation of this variance changes a posterior by one part in 1e10 for a prior variance
# of 1, and costs no digits in float64 (its log is added and subtracted again in the bound).
UNINFORMATIVE_VARIANCE = 1e10


class State(NamedTuple):
    """A point of the joint posterior."""

    parameters: tuple[tf.Tensor, ...]  # unconstrained, in the order of model.sampled_parameters
    latents: tf.Tensor  # [T, N, L]; their whitened residuals where the model samples those


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


@check_shapes(
    "mean: [batch..., N, L]",
    "variance: [batch..., N, L]",
    "mask: [batch..., N, P]",
    "return[0]: [batch..., N, L]",
    "return[1]: [batch..., N, L]",
)
def uninformative_where_empty(
    mean: TensorType, variance: TensorType, mask: TensorType | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pseudo-observations that say nothing where nothing is observed: mean 0 and a huge variance.

    :param mask: True where observed; None where nothing is missing.
    """
    if mask is None:
        return mean, variance
    seen = tf.reduce_any(tf.cast(mask, tf.bool), axis=-1, keepdims=True)
    huge = tf.cast(UNINFORMATIVE_VARIANCE, variance.dtype)
    return tf.where(seen, mean, tf.zeros_like(mean)), tf.where(seen, variance, huge)


class BayesianAutoencoder(gpflow.Module):
    """log p(parameters) + log p(latents | X) + log p(Y | latents), for an engine to explore.

    The model owns no algorithm. Everything with a prior is sampled (decoder weights, kernel
    hyperparameters, inducing inputs, noise); the encoder has no prior and is optimised.

    Missing observations drop out of the likelihood. The code of a point without any (padding of a
    short task) is sampled all the same, from the prior given the other codes, and so is integrated
    out: it changes no posterior, but costs its share of the work.
    """

    condition_dim = 0  # features of the inputs that the decoder sees beside the codes

    def __init__(
        self,
        latent_prior: GaussianLatentPrior,
        decoder: tf.Module,
        encoder: tf.Module,
        likelihood: gpflow.likelihoods.Likelihood | MaskedLikelihood,
        whitened_codes: bool = False,
    ):
        """
        :param whitened_codes: sample the standard normal residuals of the codes given the inducing
            outputs instead of the codes. The posterior is the same; where the code noise is small
            codes and inducing outputs are tied to each other, and only this way do they move. For
            a :class:`~gpflow_bae.latent_priors.SparseGP` with sampled inducing outputs, or a
            :class:`~gpflow_bae.latent_priors.DeepSparseGP`, whose target it changes.
        :raises ValueError: if encoder, decoder and prior disagree about the number of channels.
        """
        super().__init__(name=None)
        latent_dim = latent_prior.latent_dim
        width = latent_dim + self.condition_dim
        if decoder.latent_dim != width:
            features = f", and {self.condition_dim} features" if self.condition_dim else ""
            raise ValueError(
                f"decoder takes {decoder.latent_dim} inputs per point, but the latent prior has "
                f"latent_dim = {latent_dim}{features}; give the decoder's Input shape ({width},)."
            )
        if encoder.latent_dim != latent_dim:
            raise ValueError(
                f"encoder returns {encoder.latent_dim} code channels, but the latent prior has "
                f"latent_dim = {latent_dim}; change the width of the encoder's last layer."
            )
        for kernel in getattr(latent_prior, "kernels", ()):
            set_default_kernel_priors(kernel)
        if whitened_codes and getattr(latent_prior, "whitened_inducing", None) is None:
            raise ValueError(
                "whitened_codes needs a SparseGP latent prior with "
                'inducing_outputs="sampled", or a DeepSparseGP; set it to False.'
            )
        self.whitened_codes = bool(whitened_codes)
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
    def splits_over_points(self) -> bool:
        """Whether the points of a single task may be taken in minibatches."""
        return self.latent_prior.splits_over_points

    @property
    def latent_prior_name(self) -> str:
        """What errors call the prior over codes."""
        return type(self.latent_prior).__name__

    @property
    def observation_likelihood(self) -> MaskedLikelihood:
        """The likelihood of observations given what the decoder returns."""
        return self.likelihood

    def decode(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Likelihood parameters [batch..., N, P] at ``latents``; ``X`` matters to subclasses."""
        return self.decoder(latents)

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
        self,
        values: Sequence[TensorType],
        encoder_values: Sequence[TensorType] | None = None,
        seed: TensorType | None = None,
    ) -> BayesianAutoencoder:
        """This model at other (unconstrained) ``values``, and maybe with another encoder.

        :param seed: of the draws of a prior over codes that makes some; None for its own.
        """
        constrained = functional.constrain(self.sampled_parameters, values)
        replaced = dict(zip(self.sampled_paths, constrained, strict=True))
        if encoder_values is not None:
            replaced |= dict(zip(self.encoder_paths, encoder_values, strict=True))
        bound = functional.functional_copy(self, replaced)
        if seed is not None:
            bound.latent_prior = bound.latent_prior.with_seed(seed)
        return bound

    def assign(self, values: Sequence[TensorType]) -> None:
        """Set the sampled parameters to unconstrained ``values``."""
        for parameter, value in zip(self.sampled_parameters, values, strict=True):
            parameter.unconstrained_variable.assign(value)

    def pseudo_observations(
        self,
        X: TensorType | None,
        Y: TensorType,
        seed: TensorType,
        num_draws: int = 16,
        mask: TensorType | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What the encoder says of the codes ``Y`` alone: Gaussian pseudo-observations.

        The encoder draws from p(latent_n | y_n), which has the prior's marginal in it once; it is
        divided out in natural parameters, so that :meth:`LatentPrior.condition` can put the whole
        prior in. Where the draws are as wide as the prior, y_n says nothing.

        :param mask: True where ``Y`` is observed; None where nothing is missing. An encoder that
            does not take it is heard as it is, also at points without any observation.
        :return: mean and variance [batch..., N, L].
        """
        seeds = tf.unstack(tf.random.split(seed, num_draws, alg="philox"))
        side = side_inputs(self.encoder, mask)
        draws = tf.stack([self.encoder.sample(Y, s, **side) for s in seeds])
        mean, variance = tf.nn.moments(draws, axes=[0])
        empty = side.get("mask")
        if num_draws == 1:
            return uninformative_where_empty(mean, tf.zeros_like(mean), empty)
        variance *= num_draws / (num_draws - 1)
        prior = self.latent_prior.marginal_variance(X)
        # 1 / (1/v - 1/k), kept finite where the encoder is wider than the prior.
        shrinkage = tf.maximum(1.0 - variance / prior, 1e-3)
        return uninformative_where_empty(mean / shrinkage, variance / shrinkage, empty)

    def colour(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Codes [batch..., N, L] of what is sampled in their place; itself unless whitened."""
        if not self.whitened_codes:
            return latents
        mean, variance = self.latent_prior.given_inducing_outputs(X)
        return mean + tf.sqrt(variance) * latents

    def whiten(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """The inverse of :meth:`colour`."""
        if not self.whitened_codes:
            return latents
        mean, variance = self.latent_prior.given_inducing_outputs(X)
        return (latents - mean) / tf.sqrt(variance)

    def log_prior(self, state: State) -> tf.Tensor:
        """Log prior of the sampled parameters in unconstrained space, Jacobians included."""
        return functional.log_prior_density(self.sampled_parameters, state.parameters)

    def log_likelihood(self, state: State, batch: Batch) -> tf.Tensor:
        """log p(latents | X) + log p(Y | latents), summed over the batch and not rescaled.

        The engine scales it by N/B, in one place.
        """
        bound = self.bind(state.parameters, seed=batch.seed)
        if self.whitened_codes:
            latents = bound.colour(batch.X, state.latents)
            latent = tf.reduce_sum(-0.5 * (LOG_2PI + tf.square(state.latents)))
        else:
            latents = state.latents
            latent = tf.reduce_sum(bound.latent_prior.log_prob(batch.X, latents))
        F = bound.decode(batch.X, latents)
        observed = tf.reduce_sum(bound.likelihood.masked_log_prob(F, batch.Y, batch.mask))
        return latent + tf.cast(observed, latent.dtype)
