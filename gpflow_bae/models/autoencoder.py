"""Base class of all autoencoders: a latent prior, a decoder, a likelihood and a guide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import gpflow
import keras
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingPoints

from ..base import Batch
from ..core import functional
from ..core.arguments import kind_of
from ..core.parameter_set import ParameterSet
from ..data import CompressedRows
from ..data.observations import as_observations
from ..decoders import KerasDecoder
from ..encoders import Encoder, GaussianEncoder, RowCodes, StochasticEncoder
from ..encoders.base import Noise
from ..guides import ConditionalGuide, Guide
from ..inputs import InputModel
from ..latent_priors import LatentProcess
from ..likelihoods import MaskedLikelihood, masked
from .default_priors import inducing_layers

__all__ = [
    "Autoencoder",
    "LikelihoodLike",
    "Network",
    "as_decoder",
]


_INPUTS = 0x1AB  # folded into a seed for draws of inputs

Network: TypeAlias = keras.Model | tf.Module
LikelihoodLike: TypeAlias = gpflow.likelihoods.Likelihood | MaskedLikelihood
AutoencoderT = TypeVar("AutoencoderT", bound="Autoencoder")


def as_decoder(decoder: Network) -> Any:
    """Wrap a Keras model in a decoder with default priors; return a decoder unchanged."""
    if not isinstance(decoder, gpflow.Module):
        return KerasDecoder(decoder)
    if not hasattr(decoder, "latent_dim") or not hasattr(decoder, "output_dim"):
        raise TypeError(
            "decoder must be a built keras.Model or one of gpflow_bae.decoders, got "
            f"{kind_of(decoder)}."
        )
    return decoder


def with_mask(Y: TensorType, mask: TensorType | None) -> tuple[TensorType, TensorType | None]:
    """Return observations with zeros where missing, and their mask.

    Without a ``mask``, NaN and masked entries are missing. Symbolic tensors are returned as they
    are, with the given mask.
    """
    if mask is not None or isinstance(Y, CompressedRows):
        return Y, mask
    if tf.is_tensor(Y) and tf.get_static_value(Y) is None:
        return Y, mask
    return as_observations(Y)


def _check_encoder_family(guide: Guide, num_outputs: int) -> None:
    """Raise an error if a variational model gets a sampled model's encoder, or the reverse."""
    encoder = guide.encoder
    if isinstance(guide, ConditionalGuide) or getattr(encoder, "takes_mask", False):
        return
    if type(encoder) is GaussianEncoder and encoder.num_inputs == 2 * num_outputs:
        expected = f"that a variational model's maps [rows, P] to [rows, 2 L]: {num_outputs}"
    elif type(encoder) is StochasticEncoder and encoder.num_inputs == num_outputs:
        expected = (
            "that a sampled model's maps [rows, 2 P], observations and then noise, to [rows, L]:"
            f" {2 * num_outputs}"
        )
    else:
        return
    raise ValueError(
        f"encoder takes {encoder.num_inputs} inputs, and the decoder returns P = {num_outputs} "
        f"outputs. Expected is {expected} inputs."
    )


class Autoencoder(gpflow.Module):
    """An autoencoder: log p(parameters) + log p(latents | X) + log p(Y | latents), and a guide.

    It holds no inference algorithm. Its own parameters (decoder weights, kernel hyperparameters,
    inducing inputs, noise) have priors; the guide's have none and are optimised.
    """

    condition_dim = 0  # number of input features that the decoder takes beside the codes
    whitened_codes = False  # whether whitened residuals are sampled instead of the codes

    def __init__(
        self,
        latent_prior: LatentProcess,
        decoder: Network,
        likelihood: LikelihoodLike,
        guide: Guide,
    ):
        """
        :param decoder: built Keras model ``[rows, L] -> [rows, P]``, whose weights get the default
            priors of :class:`~gpflow_bae.decoders.KerasDecoder`, or one with priors of your own.
        :param likelihood: one of :mod:`gpflow_bae.likelihoods`, or a scalar GPflow likelihood.
        :param guide: how codes are inferred, one of :mod:`gpflow_bae.guides`.
        :raises ValueError: if guide, decoder and prior disagree about the number of channels, or
            decoder and likelihood about that of outputs.
        """
        super().__init__(name=None)
        decoder, latent_dim = as_decoder(decoder), latent_prior.latent_dim
        width = latent_dim + self.condition_dim
        if decoder.latent_dim != width:
            features = f", and {self.condition_dim} features" if self.condition_dim else ""
            raise ValueError(
                f"decoder takes {decoder.latent_dim} inputs per point, but the latent prior has "
                f"latent_dim = {latent_dim}{features}; give the decoder's Input shape ({width},)."
            )
        if guide.latent_dim != latent_dim:
            raise ValueError(
                f"encoder returns {guide.latent_dim} code channels, but the latent prior has "
                f"latent_dim = {latent_dim}; change the width of the encoder's last layer (2 L "
                "outputs of a variational model's, which are means and log standard deviations, "
                "and L of a sampled one's)."
            )
        _check_encoder_family(guide, decoder.output_dim)
        self.latent_prior = latent_prior
        self.decoder = decoder
        self.likelihood = masked(likelihood)
        self.likelihood.check_outputs(decoder.output_dim)
        self.guide = guide

    @property
    def encoder(self) -> Encoder:
        """The encoder of the guide."""
        return self.guide.encoder

    @property
    def latent_dim(self) -> int:
        """Number of code channels L."""
        return self.latent_prior.latent_dim

    @property
    def kernel(self) -> gpflow.kernels.Kernel | list[gpflow.kernels.Kernel]:
        """The kernel of the latent prior; a list if channels or layers have separate ones.

        :raises AttributeError: for a prior without kernels.
        """
        kernels = list(self.latent_prior.kernels)
        if not kernels:
            raise AttributeError(f"{self.latent_prior_name} has no kernel.")
        return kernels[0] if len(kernels) == 1 else kernels

    @property
    def inducing_variable(self) -> InducingPoints | list[InducingPoints]:
        """The inducing points of the latent prior; a list if layers or parts have separate ones.

        :raises AttributeError: for a prior without inducing points.
        """
        points = [layer.inducing_variable for layer in inducing_layers(self.latent_prior)]
        if not points:
            raise AttributeError(f"{self.latent_prior_name} has no inducing points.")
        return points[0] if len(points) == 1 else points

    def check_inputs(self, X: np.ndarray, name: str = "X") -> None:
        """Check that the latent prior can read inputs [..., D], with enough float precision.

        :param name: name of the inputs in error messages.
        :raises ValueError: naming the column.
        """
        self.latent_prior.check_inputs(X, name)

    @property
    def needs_inputs(self) -> bool:
        """Whether the prior over codes or the decoder depends on inputs X."""
        return self.latent_prior.needs_inputs or self.decoder_needs_inputs

    @property
    def decoder_needs_inputs(self) -> bool:
        """Whether the decoder takes inputs X beside the codes."""
        return bool(self.condition_dim) or getattr(self.decoder, "needs_inputs", False)

    @property
    def inputs(self) -> InputModel | None:
        """The model of unknown inputs of the latent prior; None if all inputs are known."""
        return self.latent_prior.inputs

    def prior_for(self, batch: Batch, seed: TensorType | None = None) -> LatentProcess:
        """Return the prior over codes, with unknown inputs completed from a batch.

        :param seed: seed for drawing inputs that have distributions; None uses their means.
        """
        prior = self.latent_prior
        if self.inputs is None:
            return prior
        if seed is not None:
            prior = prior.with_seed(tf.random.fold_in(seed, _INPUTS, alg="philox"))
        return prior.seeing(batch)

    @property
    def splits_over_points(self) -> bool:
        """Whether the points of a single task may be taken in minibatches."""
        return self.latent_prior.splits_over_points

    @property
    def latent_prior_name(self) -> str:
        """Name of the prior over codes in error messages."""
        return type(self.latent_prior).__name__

    @property
    def observation_likelihood(self) -> MaskedLikelihood:
        """The likelihood of observations given the decoder's output."""
        return self.likelihood

    def decode(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Decode ``latents`` to likelihood parameters [batch..., N, P].

        :param X: inputs, used only if the decoder takes them.
        """
        if getattr(self.decoder, "needs_inputs", False):
            return self.decoder(latents, X)
        return self.decoder(latents)

    def log_prob_of_draws(
        self, X: TensorType | None, latents: TensorType, Y: TensorType, mask: TensorType | None
    ) -> tf.Tensor:
        """Return log p(Y_n | latents_n) [draws, batch..., N] of each row and draw, in nats.

        :param latents: [draws, batch..., N, L].
        :param Y, mask: [batch..., N, P], as for the likelihood.
        """
        F = self.decode(X, latents)
        Y = tf.broadcast_to(Y, tf.shape(F))
        mask = None if mask is None else tf.broadcast_to(mask, tf.shape(F))
        log_prob = self.likelihood.masked_log_prob(F, Y, mask)
        return tf.cast(log_prob, gpflow.default_float())

    def log_prob_of_cells(
        self, X: TensorType | None, latents: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """Return log p(Y_np | latents_n) [draws, batch..., N, P] of each cell and draw, in nats.

        :param latents: [draws, batch..., N, L].
        :param Y: [batch..., N, P], finite also where missing.
        """
        F = self.decode(X, latents)
        cells = self.likelihood.log_prob_of_cells(F, tf.broadcast_to(Y, tf.shape(F)))
        return tf.cast(cells, gpflow.default_float())

    @property
    def sampled(self) -> ParameterSet:
        """Parameters with a posterior: all that are trainable and do not belong to the guide.

        A parameter that modules share appears once, under its first path.
        """
        amortized = self._guide_parameter_ids()
        return ParameterSet(self, lambda p: p.trainable and id(p) not in amortized)

    @property
    def amortized(self) -> ParameterSet:
        """The guide's trainable parameters, which are optimised."""
        amortized = self._guide_parameter_ids()
        return ParameterSet(self, lambda p: p.trainable and id(p) in amortized)

    def _guide_parameter_ids(self) -> set[int]:
        """Return ids of the guide's parameters, without those shared with the likelihood."""
        return {id(p) for p in self.guide.parameters} - {id(p) for p in self.likelihood.parameters}

    def bind(
        self: AutoencoderT,
        values: Sequence[TensorType],
        encoder_values: Sequence[TensorType] | None = None,
        seed: TensorType | None = None,
    ) -> AutoencoderT:
        """Return a copy of this model with other parameter values.

        :param values: unconstrained, in the order of ``self.sampled.paths``.
        :param encoder_values: unconstrained, in the order of ``self.amortized.paths``; None keeps
            the present ones.
        :param seed: seed of a latent prior that draws; None keeps its own.
        """
        replaced = self.sampled.constrained(values)
        if encoder_values is not None:
            replaced |= self.amortized.constrained(encoder_values)
        bound = functional.functional_copy(self, replaced)
        if seed is not None:
            bound.latent_prior = bound.latent_prior.with_seed(seed)
        return bound

    def pseudo_observations(
        self,
        X: TensorType | None,
        Y: TensorType,
        seed: TensorType,
        num_draws: int = 16,
        mask: TensorType | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the guide's Gaussian pseudo-observations of the codes given ``Y``.

        :param mask: True where ``Y`` is observed; None if nothing is missing.
        :return: mean and variance [batch..., N, L], for ``latent_prior.condition``.
        """
        batch = Batch(X, *with_mask(Y, mask))
        return self.guide.pseudo_observations(self.latent_prior, batch, seed, num_draws)

    def codes_of_rows(
        self, rows: Batch, noise: Noise, num_draws: int, prior_variance: tf.Tensor | None = None
    ) -> RowCodes:
        """Encode each row ``Y [rows, P]`` separately, for serving.

        :param prior_variance: variance of a code [L], for guides with ``uses_prior_variance``.
        """
        return self.guide.codes_of_rows(rows, noise, num_draws, prior_variance)
