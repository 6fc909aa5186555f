"""Rotations of code channels that share a prior, which the likelihood does not see."""

from __future__ import annotations

import itertools

import gpflow
import numpy as np
import tensorflow as tf

from ...base import Batch
from ...keras_module import KerasModule
from ...mcmc.noise import uniform
from ...mcmc.slice_sampling import slice_step
from ...models import BayesianAutoencoder
from ..loops import repeat
from .base import Move, Moved, number_of
from .code_scale import last_layer

__all__ = ["CodeRotation"]

_TRIED = 0.7  # the angle by which invariance is checked


class CodeRotation(Move):
    r"""Codes times R^T, the decoder's first layer R times what it was, for rotations R of the
    channels: the data are as likely as before, and so are codes whose channels share a kernel.

    Rotations are of planes of two channels, drawn at random, L - 1 of them. The angle is drawn by
    slice sampling from the joint density along the circle, whose Haar measure is uniform (Liu and
    Sabatti 2000): all angles alike under one normal prior of all of the layer's weights, and as
    their priors have it under others. By gradients a chain goes round slowly, if at all, and two
    chains agree on no channel until they have.

    A stochastic encoder's last layer goes along, so that it still returns codes of the chain.
    """

    name = "code_rotation"

    def __init__(self, model: BayesianAutoencoder):
        super().__init__(model)
        prior, L = model.latent_prior, model.latent_dim
        self._check_codes()
        if L < 2:
            raise self._refuse("its codes have one channel.")
        if len(prior.kernels) > 1 or prior.draws or prior.whitened_inducing is not None:
            raise self._refuse(
                f"channels of its {model.latent_prior_name} have kernels of their own, or inducing "
                "outputs that are sampled."
            )
        decoder, place = model.decoder, number_of(self.sampled.parameters)
        first = decoder.weights[0] if isinstance(decoder, KerasModule) else None
        if first is None or id(first) not in place:
            raise self._refuse("its decoder has no first layer that is sampled.")
        self._first = place[id(first)]
        self._last = last_layer(model)
        self._planes = tf.constant(list(itertools.combinations(range(L), 2)))
        self._check_symmetry()

    def _check_symmetry(self) -> None:
        """Refuse a decoder whose first layer is not linear in the codes."""
        rng = np.random.default_rng(0)
        codes = gpflow.utilities.to_default_float(rng.standard_normal((5, self.model.latent_dim)))
        values = self.sampled.values()
        plane, angle = self._planes[0], tf.constant(_TRIED, tf.float64)
        moved = self._rotated_layer(values, plane, angle)
        F = self.model.bind(values).decoder(codes)
        G = self.model.bind(moved).decoder(self._rotated(codes, plane, angle))
        self._check_outputs(
            self.model.decoder,
            F,
            G,
            "its decoder does not begin with a dense layer, so no weights can make up for rotated "
            "codes.",
        )

    def _rotation(self, plane: tf.Tensor, angle: tf.Tensor) -> tf.Tensor:
        """R [L, L], float64."""
        cos, sin = tf.cos(angle), tf.sin(angle)
        i, j = plane[0], plane[1]
        where = tf.stack([tf.stack(pair) for pair in ((i, i), (j, j), (i, j), (j, i))])
        values = tf.stack([cos, cos, -sin, sin])
        return tf.tensor_scatter_nd_update(
            tf.eye(self.model.latent_dim, dtype=tf.float64), where, values
        )

    def _rotated(self, rows: tf.Tensor, plane: tf.Tensor, angle: tf.Tensor) -> tf.Tensor:
        """``rows [..., L]`` times R^T."""
        R = tf.cast(self._rotation(plane, angle), rows.dtype)
        return tf.linalg.matvec(R, rows)

    def _rotated_layer(
        self, parameters: tuple[tf.Tensor, ...], plane: tf.Tensor, angle: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """The parameters with R W for the first layer's W [L, units]."""
        moved = list(parameters)
        R = tf.cast(self._rotation(plane, angle), moved[self._first].dtype)
        moved[self._first] = tf.matmul(R, moved[self._first])
        return tuple(moved)

    def __call__(self, state: Moved, batch: Batch, seed: tf.Tensor) -> Moved:
        def body(i: tf.Tensor, state: Moved) -> Moved:
            own, of_plane = tf.unstack(
                tf.random.split(tf.random.fold_in(seed, i, alg="philox"), alg="philox")
            )
            number = uniform([1], of_plane)[0] * tf.cast(len(self._planes), tf.float64)
            return self._in_plane(state, batch, self._planes[tf.cast(number, tf.int32)], own)

        return repeat(self.model.latent_dim - 1, body, state)

    def _in_plane(self, state: Moved, batch: Batch, plane: tf.Tensor, seed: tf.Tensor) -> Moved:
        def log_density(angle: tf.Tensor) -> tf.Tensor:
            parameters = self._rotated_layer(state.parameters, plane, angle)
            found = tf.cast(self._log_prior_of([self._first], parameters), tf.float64)
            codes = self._rotated(state.codes, plane, angle)
            return found + tf.cast(self._log_prior_of_codes(parameters, codes, batch.X), tf.float64)

        # An interval of a whole turn has every angle once.
        angle = slice_step(log_density, seed, width=2.0 * np.pi, max_expansions=0)
        encoder = list(state.encoder)
        for i in self._last:
            encoder[i] = self._rotated(encoder[i], plane, angle)
        parameters = self._rotated_layer(state.parameters, plane, angle)
        codes = self._rotated(state.codes, plane, angle)
        return Moved(parameters, tf.ensure_shape(codes, state.codes.shape), tuple(encoder))
