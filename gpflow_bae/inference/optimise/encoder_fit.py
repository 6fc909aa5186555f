"""Encoder training in a chain, whose state includes the weights and Adam's moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf

from ...base import Batch
from ...core import functional
from ...core.parameter_set import ParameterSet
from ...mcmc.noise import fold_in, split
from ..loops import repeat
from ..settings import EncoderSettings
from ..sharding.replicas import ALONE, Replicas, Share
from . import adam
from .encoder_losses import count_seen, draw_seen_rows, encoder_loss, weights_of_seen

__all__ = ["EncoderFit", "EncoderState"]


class EncoderState(NamedTuple):
    """Encoder weights in the order of the parameters' paths, and Adam's state."""

    weights: tuple[tf.Tensor, ...]
    adam: adam.AdamState


class EncoderFit:
    """Adam steps for an encoder as a pure function of its weights."""

    def __init__(
        self, encoder: gpflow.Module, settings: EncoderSettings, replicas: Replicas = ALONE
    ):
        self.encoder, self.settings, self.replicas = encoder, settings, replicas
        self.parameters = ParameterSet(encoder, lambda p: p.trainable)

    def initial_state(self) -> EncoderState:
        """Return the encoder's current weights and Adam's initial state."""
        weights = self.parameters.values()
        return EncoderState(weights, adam.init(weights))

    def at(self, weights: Sequence[tf.Tensor]) -> Any:
        """Return the encoder with other weights."""
        return functional.functional_copy(self.encoder, self.parameters.constrained(weights))

    def apply(self, state: EncoderState, gradients: Sequence[tf.Tensor | None]) -> EncoderState:
        """Take one Adam step along given gradients."""
        rate = self.settings.learning_rate
        return EncoderState(*adam.update(state.weights, gradients, state.adam, rate))

    def fit(
        self,
        state: EncoderState,
        batch: Batch,
        latents: tf.Tensor,
        start_seed: tf.Tensor | None,
        seed: tf.Tensor,
    ) -> tuple[EncoderState, tf.Tensor]:
        """Take ``settings.num_steps`` steps on pairs of observations and sampled codes.

        :param start_seed: seed of the encoder's draws that initialised the codes; None if they were
            initialised otherwise.
        :return: the new state, and the mean loss of the steps.
        """
        settings = self.settings
        Y = tf.reshape(batch.Y, [-1, batch.Y.shape[-1]])
        mask = None if batch.mask is None else tf.reshape(batch.mask, tf.shape(Y))
        codes = tf.reshape(latents, [-1, latents.shape[-1]])
        size = settings.batch_size
        whole = size is None or size >= Y.shape[0]
        counts = None if whole else count_seen(mask)
        # The paper's squared error uses the same noise as the draw that initialised the codes.
        paired = settings.loss == "mse" and whole and start_seed is not None
        if settings.num_steps == 0:
            return state, tf.zeros([], codes.dtype)

        def body(
            i: tf.Tensor, carried: tuple[EncoderState, tf.Tensor]
        ) -> tuple[EncoderState, tf.Tensor]:
            state, total = carried
            seeds = tf.unstack(split(fold_in(seed, i)))
            if size is None or whole:  # flat rows have the same noise as tasks
                inputs, targets, seen = Y, codes, mask
                own_seed = start_seed if paired else seeds[1]
            else:
                rows = draw_seen_rows(size, Y.shape[0], counts, seeds[0])
                inputs, targets, own_seed = tf.gather(Y, rows), tf.gather(codes, rows), seeds[1]
                seen = None if mask is None else tf.gather(mask, rows)
            of_rows = weights_of_seen(seen)

            def loss(weights: Any, share: Share) -> tf.Tensor:
                data = (inputs, targets, seen, of_rows)
                rows, own_targets, own_seen, own_weights = (share.cut(v) for v in data)
                encoder, kind = self.at(weights), settings.loss
                with share.noise(-2):
                    value = encoder_loss(
                        encoder, rows, own_targets, own_seed, kind, own_seen, own_weights
                    )
                return value if share.weight == 1.0 else share.weight * value

            value, gradients = self.replicas.value_and_gradient(
                loss, state.weights, inputs.shape[0]
            )
            return self.apply(state, gradients), total + value

        start = (state, tf.zeros([], codes.dtype))
        state, total = repeat(settings.num_steps, body, start)
        return state, total / settings.num_steps
