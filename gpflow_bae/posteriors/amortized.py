"""A bank of posterior samples, and the predictions that average over it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from .. import diagnostics, functional
from ..encoders import side_inputs
from ..mcmc.noise import standard_noise
from ..models import BayesianAutoencoder
from .given import as_inputs, check_given
from .predictions import LatentSamples, Prediction

__all__ = ["Posterior"]


class Posterior:
    """Posterior samples of decoder, prior and encoder: each sample is consistent in itself.

    Latent moments average over samples of one chain; code space has symmetries (rotations, for
    channels that share a kernel), so chains are compared through predictions, not through codes.
    """

    def __init__(
        self,
        model: BayesianAutoencoder,
        parameters: Sequence[np.ndarray],
        encoder: Sequence[np.ndarray],
        X: TensorType | None,
        Y: TensorType,
        latents: np.ndarray | None = None,
        temperature: float = 1.0,
        history: np.ndarray | None = None,
        seconds: Mapping[str, float] | None = None,
        warm_start_losses: np.ndarray | None = None,
        mask: TensorType | None = None,
    ):
        """
        :param parameters: unconstrained values [S, ...] in the order of ``model.sampled_paths``.
        :param encoder: encoder weights [S, ...] in the order of ``model.encoder_paths``.
        :param X, Y: training data, inputs [T or 1, N, D] and observations [T, N, P] with zeros
            where missing; predictions condition on them unless told otherwise.
        :param latents: the codes that were sampled with the parameters [S, T, N, L]; None for a
            variational model, whose codes come from the encoder.
        :param history: log prior, log likelihood and encoder loss of each round [rounds, 3].
        :param mask: [T, N, P], where ``Y`` is observed; None where nothing is missing.
        """
        self.model = model
        self.parameters, self.encoder = list(parameters), list(encoder)
        self.X, self.Y, self.mask, self.latents = X, Y, mask, latents
        self.temperature, self.history = temperature, history
        self.seconds = dict(seconds or {})
        self.warm_start_losses = warm_start_losses
        self._latent = tf.function(self._latent_given_pseudo, autograph=False)
        self._from_codes = tf.function(self._latent_given_codes, autograph=False)
        self._decode = tf.function(self._decode_draws, autograph=False)
        self._draw = tf.function(self._encoder_draw, autograph=False)

    @classmethod
    def from_samples(
        cls,
        model: BayesianAutoencoder,
        data: Any,
        samples: Sequence[Mapping[str, np.ndarray]],
        **kwargs: Any,
    ) -> Posterior:
        """From the sampler's records, one mapping of arrays for each sample."""

        def stack(prefix: str, count: int) -> list[np.ndarray]:
            return [np.stack([s[f"{prefix}_{i}"] for s in samples]) for i in range(count)]

        return cls(
            model,
            stack("parameter", len(model.sampled_paths)),
            stack("encoder", len(model.encoder_paths)),
            data.X,
            data.Y,
            latents=(
                np.stack([s["latents"] for s in samples]) if "latents" in samples[0] else None
            ),
            mask=data.mask,
            **kwargs,
        )

    @classmethod
    def from_point(
        cls,
        model: BayesianAutoencoder,
        data: Any,
        draws: Sequence[np.ndarray] | None = None,
        **kwargs: Any,
    ) -> Posterior:
        """A bank of one: the model as it stands, for example after variational training.

        :param draws: unconstrained parameters [S, ...] drawn from an approximate posterior, in the
            order of ``model.sampled_paths``, instead; the encoder is one for all.
        """
        if draws is None:
            values = functional.unconstrained_values(model.sampled_parameters)
            draws = [v.numpy()[None] for v in values]
        count = len(draws[0])
        encoder = [np.repeat(v.numpy()[None], count, 0) for v in model.encoder_variables]
        return cls(model, draws, encoder, data.X, data.Y, mask=data.mask, **kwargs)

    @property
    def num_samples(self) -> int:
        """Number of posterior samples S."""
        return len(self.encoder[0])

    def select(self, samples: Sequence[int] | slice) -> Posterior:
        """The posterior of some of the samples, by their numbers; without the run's history."""
        chosen = copy.copy(self)
        chosen.parameters = [v[samples] for v in self.parameters]
        chosen.encoder = [v[samples] for v in self.encoder]
        chosen.latents = None if self.latents is None else self.latents[samples]
        chosen.history = None
        return chosen

    def hyperparameters(self, include_decoder: bool = False) -> dict[str, np.ndarray]:
        """Constrained samples [S, ...] by parameter path; network weights only when asked."""
        result = {}
        parameters = self.model.sampled_parameters
        for path, parameter, values in zip(
            self.model.sampled_paths, parameters, self.parameters, strict=True
        ):
            if include_decoder or not path.startswith(".decoder"):
                (constrained,) = functional.constrain([parameter], [tf.constant(values)])
                result[path] = constrained.numpy()
        return result

    def latent_samples(
        self,
        Xnew: TensorType | None = None,
        given: tuple[TensorType | None, TensorType] | None = None,
        *,
        num_draws: int = 16,
        seed: int = 0,
    ) -> LatentSamples:
        """The latent function at ``Xnew``, for each posterior sample apart.

        The prior is conditioned on codes. Those of the training data were sampled with the
        parameters and are taken as they are. Of other data there are only the encoder's draws,
        which make Gaussian pseudo-observations of the codes; docs/inference.md has what that costs.

        :param Xnew: inputs [T or 1, N, D] (or [N, D]); None for the codes of ``given`` themselves.
        :param given: ``(X, Y)`` to encode and condition on, Y with NaN where missing; None for the
            training data, without the encoder where their codes are known.
        :param num_draws: draws of a stochastic encoder for each point.
        :param seed: of those draws.
        """
        X, Y, mask = self._given(given)
        Xnew = None if Xnew is None else as_inputs(Xnew)
        means, variances = [], []
        for s in range(self.num_samples):
            if given is None and self.latents is not None:
                mean = tf.constant(self.latents[s], gpflow.default_float())
                variance = tf.zeros_like(mean)
                if Xnew is not None:
                    draw_seed = tf.constant([seed + 2, s], tf.int32)
                    mean, variance = self._from_codes(self._sample(s)[0], mean, X, Xnew, draw_seed)
            else:
                draw_seed = tf.constant([seed, s], tf.int32)
                mean, variance = self._latent(
                    *self._sample(s), X, Y, mask, Xnew, draw_seed, num_draws=num_draws
                )
            means.append(mean.numpy())
            variances.append(variance.numpy())
        return LatentSamples(np.stack(means), np.stack(variances))

    def predict_latent(
        self,
        Xnew: TensorType | None = None,
        given: tuple[TensorType | None, TensorType] | None = None,
        *,
        num_draws: int = 16,
        seed: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent function, [T, N, L].

        Arguments as in :meth:`latent_samples`.
        """
        return self.latent_samples(Xnew, given, num_draws=num_draws, seed=seed).moments()

    def predict(
        self,
        Xnew: TensorType | None = None,
        given: tuple[TensorType | None, TensorType] | None = None,
        *,
        num_draws: int = 16,
        num_codes: int = 4,
        seed: int = 0,
    ) -> Prediction:
        """Predicted observations: decoder noise and spread over samples and codes, apart.

        The code of a new input is the latent function there (:meth:`predict_latent`) plus code
        noise, as in the model's joint density.

        :param num_codes: draws of the codes from each sample's conditional.
        """
        latents = self.latent_samples(Xnew, given, num_draws=num_draws, seed=seed)
        X = self._given(given)[0] if Xnew is None else as_inputs(Xnew)
        sums: list[np.ndarray] = []
        for s in range(self.num_samples):
            moments = self._decode(
                *self._sample(s),
                X,
                latents.mean[s],
                latents.variance[s],
                tf.constant([seed + 1, s], tf.int32),
                num_codes=num_codes,
                add_code_noise=Xnew is not None,
            )
            arrays = [m.numpy() for m in moments]
            sums = arrays if not sums else [a + b for a, b in zip(sums, arrays, strict=True)]
        mean, mean_square, noise = (total / self.num_samples for total in sums)
        return Prediction(mean, noise, np.maximum(mean_square - np.square(mean), 0.0))

    def predict_y(
        self,
        Xnew: TensorType | None = None,
        given: tuple[TensorType | None, TensorType] | None = None,
        **kwargs: Any,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predictive mean and variance of the observations, [T, N, P]; see :meth:`predict`."""
        prediction = self.predict(Xnew, given, **kwargs)
        return prediction.mean, prediction.variance

    def reconstruct(self, Y: TensorType, X: TensorType | None = None, **kwargs: Any) -> Prediction:
        """Encode ``Y`` (NaN where missing), condition the prior on it, and decode."""
        return self.predict(None, (X, Y), **kwargs)

    def impute(
        self, Y: TensorType, X: TensorType | None = None, **kwargs: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """``Y`` with its NaN filled by predictive means, and standard deviations (0 elsewhere)."""
        prediction = self.reconstruct(Y, X, **kwargs)
        observed = np.asarray(Y).reshape(prediction.mean.shape)
        missing = np.isnan(observed)
        filled = np.where(missing, prediction.mean, observed)
        scale = np.where(missing, np.sqrt(prediction.variance), 0.0)
        return filled.reshape(np.shape(Y)), scale.reshape(np.shape(Y))

    def encode(self, Y: TensorType, *, num_draws: int = 16, seed: int = 0) -> np.ndarray:
        """Codes drawn by the encoders alone, without the prior: [S, num_draws, T, N, L]."""
        _, Y, mask = self._given((self.X, Y), check_inputs=False)
        seeds = [tf.constant([seed, s], tf.int32) for s in range(self.num_samples)]
        draws = [
            self._draw(*self._sample(s), Y, mask, draw_seed, num_draws=num_draws)
            for s, draw_seed in enumerate(seeds)
        ]
        return np.stack([d.numpy() for d in draws])

    def to_inference_data(self, include_decoder: bool = False) -> Any:
        """ArviZ ``InferenceData``; see :func:`gpflow_bae.diagnostics.to_inference_data`."""
        return diagnostics.to_inference_data(
            self.hyperparameters(include_decoder), self.history, self.temperature
        )

    def _sample(self, s: int) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        return (
            [tf.constant(values[s]) for values in self.parameters],
            [tf.constant(values[s]) for values in self.encoder],
        )

    def _given(
        self, given: tuple[TensorType | None, TensorType] | None, check_inputs: bool = True
    ) -> tuple[tf.Tensor | None, tf.Tensor, tf.Tensor | None]:
        """Inputs, observations with zeros where missing, and the mask (None where none are)."""
        training = self.X, tf.convert_to_tensor(self.Y), self.mask
        if given is None:
            return training
        return check_given(self.model, training, given, check_inputs)

    @check_shapes("return[0]: [batch..., N, L]", "return[1]: [batch..., N, L]")
    def _latent_given_pseudo(
        self,
        values: list[tf.Tensor],
        encoder_values: list[tf.Tensor],
        X: tf.Tensor | None,
        Y: tf.Tensor,
        mask: tf.Tensor | None,
        Xnew: tf.Tensor | None,
        seed: tf.Tensor,
        num_draws: int,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        prior_seed = tf.random.fold_in(seed, 0x9D, alg="philox")
        model = self.model.bind(values, encoder_values, prior_seed)
        mean, variance = model.pseudo_observations(X, Y, seed, num_draws, mask)
        if Xnew is None:
            q = model.latent_prior.condition(X, mean, variance)
            return q.mean, q.variance
        return model.latent_prior.predict(Xnew, X, mean, variance)

    def _latent_given_codes(
        self,
        values: list[tf.Tensor],
        codes: tf.Tensor,
        X: tf.Tensor | None,
        Xnew: tf.Tensor,
        seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        prior = self.model.bind(values, seed=seed).latent_prior
        return prior.predict(Xnew, X, codes, tf.zeros_like(codes))

    def _decode_draws(
        self,
        values: list[tf.Tensor],
        encoder_values: list[tf.Tensor],
        X: tf.Tensor | None,
        mean: tf.Tensor,
        variance: tf.Tensor,
        seed: tf.Tensor,
        num_codes: int,
        add_code_noise: bool,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Moments of y over draws of the codes: mean, mean square of means, noise variance."""
        model = self.model.bind(values, encoder_values)
        if add_code_noise:
            variance += model.latent_prior.code_noise
        total = square = noise_total = tf.zeros([], gpflow.default_float())
        for draw_seed in tf.unstack(tf.random.split(seed, num_codes, alg="philox")):
            noise = standard_noise(tf.shape(mean), draw_seed, mean.dtype)
            F = model.decode(X, mean + tf.sqrt(variance) * noise)
            moments = model.likelihood.moments(F)
            y_mean, y_noise = (tf.cast(m, gpflow.default_float()) for m in moments)
            total, square = total + y_mean, square + tf.square(y_mean)
            noise_total += y_noise
        return total / num_codes, square / num_codes, noise_total / num_codes

    def _encoder_draw(
        self,
        values: list[tf.Tensor],
        encoder_values: list[tf.Tensor],
        Y: tf.Tensor,
        mask: tf.Tensor | None,
        seed: tf.Tensor,
        num_draws: int,
    ) -> tf.Tensor:
        model = self.model.bind(values, encoder_values)
        seeds = tf.unstack(tf.random.split(seed, num_draws, alg="philox"))
        side = side_inputs(model.encoder, mask)
        return tf.stack([model.encoder.sample(Y, s, **side) for s in seeds])
