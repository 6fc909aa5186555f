"""Autoencoders whose codes and parameters are sampled jointly."""

from __future__ import annotations

from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from gpflow.base import TensorType

from ..base import Batch, Conditionals
from ..core.annotations import check_arguments
from ..core.arguments import kind_of
from ..encoders import StochasticEncoder
from ..guides import ImplicitGuide
from ..inducing_variables import bounded
from ..latent_priors import GaussianLatentPrior
from ..latent_priors.base import LOG_2PI
from .autoencoder import Autoencoder, LikelihoodLike, Network
from .default_priors import (
    check_priors,
    inducing_layers,
    set_default_kernel_priors,
    set_default_likelihood_priors,
)

__all__ = ["BayesianAutoencoder", "State"]

_METHODS_OF_BOUNDS = {
    "elbo",
    "encode",
    "log_posterior_density",
    "log_prior_density",
    "maximum_log_likelihood_objective",
    "posterior",
    "predict_f",
    "predict_f_samples",
    "predict_log_density",
    "predict_y",
    "training_loss",
    "training_loss_closure",
}


class State(NamedTuple):
    """A point of the joint posterior."""

    parameters: tuple[tf.Tensor, ...]  # unconstrained, in the order of model.sampled.paths
    latents: tf.Tensor  # [T, N, L]; whitened residuals of the codes with whitened_codes


class BayesianAutoencoder(Autoencoder):
    """Joint density log p(parameters) + log p(latents | X) + log p(Y | latents) for samplers.

    Everything with a prior is sampled (decoder weights, kernel hyperparameters, inducing inputs,
    noise); the encoder has no prior and is optimised. Inducing points without a prior get the
    :func:`~gpflow_bae.inducing_variables.uniform` one; id columns are never sampled.

    Missing observations drop out of the likelihood. The code of a point without observations
    (padding of a short task) is still sampled, from the prior given the other codes, and so is
    integrated out: it does not change the posterior, but costs its share of the computation.
    """

    @check_arguments()
    def __init__(
        self,
        latent_prior: GaussianLatentPrior,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        whitened_codes: bool = False,
    ):
        """Other arguments as in :class:`Autoencoder`.

        :param encoder: one of :mod:`gpflow_bae.encoders`, or a built Keras model
            ``[rows, 2 P] -> [rows, L]``, observations and noise concatenated.
        :param whitened_codes: sample the standard normal residuals of the codes given the inducing
            outputs instead of the codes. The posterior is the same; with small code noise, which
            couples codes and inducing outputs strongly, chains only mix this way. Needs a
            :class:`~gpflow_bae.latent_priors.SparseGP` with sampled inducing outputs, or such a
            :class:`~gpflow_bae.latent_priors.DeepSparseGP`, whose target it changes.
        :raises TypeError: for a latent prior without a density of codes.
        :raises ValueError: for inputs from a pooling network or with Gaussian posteriors, which a
            chain cannot sample; ``whitened_codes`` without sampled inducing outputs; and a sampled
            parameter without a prior or a default one.
        """
        if not isinstance(latent_prior, GaussianLatentPrior):
            raise TypeError(
                "Codes are sampled under a density, so latent_prior must be a GaussianLatentPrior "
                f"such as GP or SparseGP, got {kind_of(latent_prior)}."
            )
        if latent_prior.inputs is not None and latent_prior.inputs.needs_observations:
            raise ValueError(
                "A RepresentationNetwork is for variational models: fit one, and give the chain "
                "its vectors as inputs that are known (network.vectors(X, Y)), or LearntVectors."
            )
        if latent_prior.inputs is not None and latent_prior.inputs.draws:
            raise ValueError(
                'Unknown inputs with q="gaussian" are for variational models; a chain samples them '
                'itself: give them q="point".'
            )
        if whitened_codes and latent_prior.whitened_inducing is None:
            raise ValueError(
                "whitened_codes needs a SparseGP or DeepSparseGP latent prior with "
                'inducing_outputs="sampled"; set it to False.'
            )
        latent_prior = _with_kernel_priors(latent_prior)
        for layer in inducing_layers(latent_prior):
            layer.inducing_variable = bounded(layer.inducing_variable, layer.id_columns)
        if not isinstance(encoder, gpflow.Module):
            encoder = StochasticEncoder(encoder)
        likelihood = _with_likelihood_priors(likelihood)
        super().__init__(latent_prior, decoder, likelihood, ImplicitGuide(encoder))
        self.whitened_codes = bool(whitened_codes)
        check_priors(self)

    def __getattr__(self, name: str) -> Any:
        """Raise an error that names the replacement of GPflow methods that need a bound."""
        if name in _METHODS_OF_BOUNDS:
            raise AttributeError(
                f"{type(self).__name__} has no {name}: its codes are sampled, and it has no bound "
                "to train. Sample it, posterior = gpflow_bae.inference.fit(model, (X, Y)), and ask "
                "that: posterior.predict(Xnew), posterior.predict_log_density((Xnew, Ynew))."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def from_whitened(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Return codes [batch..., N, L] of whitened residuals; ``latents`` if not whitened."""
        if not self.whitened_codes:
            return latents
        mean, variance = self.latent_prior.given_inducing_outputs(X)
        return mean + tf.sqrt(variance) * latents

    def to_whitened(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Invert :meth:`from_whitened`."""
        if not self.whitened_codes:
            return latents
        mean, variance = self.latent_prior.given_inducing_outputs(X)
        return (latents - mean) / tf.sqrt(variance)

    @property
    def splits_over_points(self) -> bool:
        """Whether the points of a single task may be taken in minibatches.

        Also true for priors by neighbours, with the neighbours' codes in ``Batch.near``.
        """
        prior = self.latent_prior
        return prior.splits_over_points or prior.by_neighbours is not None

    def log_prior(self, state: State) -> tf.Tensor:
        """Return the log prior of the sampled parameters in unconstrained space, with Jacobians."""
        return self.sampled.log_prior(state.parameters)

    def log_likelihood(
        self, state: State, batch: Batch, seed: TensorType | None = None
    ) -> tf.Tensor:
        """Return log p(latents | X) + log p(Y | latents), summed over the batch and not rescaled.

        The engine scales it by N/B.

        For a batch with ``Conditionals`` the value sums the conditionals of the batch's points.
        Conditionals of other points given the batch's codes add to the gradient with respect to
        codes, but neither to the value nor to the gradient with respect to parameters.

        :param seed: seed of a latent prior that draws; None keeps its own.
        """
        bound = self.bind(state.parameters, seed=seed)
        latents = bound.from_whitened(batch.X, state.latents)
        if self.whitened_codes:
            latent = tf.reduce_sum(-0.5 * (LOG_2PI + tf.square(state.latents)))
        elif isinstance(batch.near, Conditionals):
            latent = self._log_conditionals(state, bound, batch.near)
        else:
            latent = tf.reduce_sum(bound.latent_prior.log_prob(batch.X, latents))
        F = bound.decode(batch.X, latents)
        observed = tf.reduce_sum(bound.likelihood.masked_log_prob(F, batch.Y, batch.mask))
        return latent + tf.cast(observed, latent.dtype)

    def _log_conditionals(
        self, state: State, bound: BayesianAutoencoder, near: Conditionals
    ) -> tf.Tensor:
        """Return log p(codes of a batch | neighbours), with gradients of other conditionals."""
        # Gradients of the children's conditionals reach the codes but not the parameters, whose
        # gradient is estimated by N/B times that of the batch.
        still = self.bind(tuple(tf.stop_gradient(v) for v in state.parameters))
        moved, held = bound.latent_prior.by_neighbours, still.latent_prior.by_neighbours
        assert moved is not None and held is not None
        number = tf.shape(state.latents)[1]
        inside = (near.places >= 0)[..., None]
        moving = tf.gather(state.latents, tf.maximum(near.places, 0), axis=1)
        codes = tf.where(inside, moving, near.codes)
        own = moved.log_conditionals(near.X[:, :number], codes[:, :number], near.present[:number])
        others = held.log_conditionals(near.X[:, number:], codes[:, number:], near.present[number:])
        children = tf.reduce_sum(near.weights[number:] * others)
        return tf.reduce_sum(own) + children - tf.stop_gradient(children)


def _with_kernel_priors(prior: GaussianLatentPrior) -> GaussianLatentPrior:
    """Return the prior, or a copy with default priors on kernel parameters that lack one."""
    parameters = [p for kernel in prior.kernels for p in kernel.trainable_parameters]
    if all(p.prior is not None for p in parameters):
        return prior
    prior = gpflow.utilities.deepcopy(prior)
    for kernel in prior.kernels:
        set_default_kernel_priors(kernel)
    return prior


def _with_likelihood_priors(likelihood: LikelihoodLike) -> LikelihoodLike:
    """Return the likelihood, or a copy with default priors on parameters that lack one."""
    if all(p.prior is not None for p in likelihood.trainable_parameters):
        return likelihood
    likelihood = gpflow.utilities.deepcopy(likelihood)
    set_default_likelihood_priors(likelihood)
    return likelihood
