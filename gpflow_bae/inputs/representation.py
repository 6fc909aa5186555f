"""Vectors of objects whose ids are in the inputs, computed by a network from observations."""

from __future__ import annotations

import copy
from typing import Any, Literal, NamedTuple

import gpflow
import keras
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.keras_module import KerasModule
from .base import InputModel
from .vectors import checked_ids, split_ids

__all__ = ["RepresentationNetwork"]

_MAX_IDS = 10_000_000  # there is a vector for each integer up to the largest id


class _Context(NamedTuple):
    """Vectors of observed objects."""

    vectors: tf.Tensor  # [K, W], by id; means if they have distributions
    known: tf.Tensor  # [K], False for ids without an observation
    scale: tf.Tensor | None = None  # [K, W], standard deviations if they have distributions


class RepresentationNetwork(InputModel):
    r"""A model of inputs that replaces a column of ids by vectors pooled from observations.

    A network h maps each observation y of an object to a vector, and their mean over the object's
    observations is its vector,

    .. math:: o_{id} = \frac{1}{|n : id_n = id|} \sum_{n : id_n = id} h(y_n) ,

    or their sum, or a mean with weights :math:`softmax(a_n)`, the network's additional output
    ("attention"). Pooling takes any order and number of observations, so new objects have a
    vector as soon as one observation is given (Jazbec et al. 2021, appendix A.3, use the sum;
    Zaheer et al. 2017).

    With "gaussian" a vector has a distribution, whose variance decreases with the number of
    observations: the prior is standard normal, and each observation has the mean :math:`h(y_n)`
    and the precisions :math:`r_n = \mathrm{softplus}(s_n)`, both outputs of the network (Volpp et
    al. 2021),

    .. math:: o_{id} \sim N\Big(\frac{\sum_n r_n h(y_n)}{1 + \sum_n r_n},
        \frac{1}{1 + \sum_n r_n}\Big) .

    Fits and posteriors draw vectors from it, and bounds include its divergence from the prior.

    A fit pools over the minibatch, so minibatches should hold several observations of an object;
    a prediction pools over its ``given`` data. Inputs of objects without any observation there
    raise an error, or have the prior ("gaussian").

    It is for variational models. For a chain, fit the network first, and replace ids by
    :meth:`vectors`.
    """

    needs_observations = True

    @check_arguments(column=0)
    def __init__(
        self,
        network: keras.Model,
        pooling: Literal["mean", "sum", "attention", "gaussian"] = "mean",
        column: int = 0,
    ):
        """
        :param network: a built Keras model ``[rows, P] -> [rows, W]``, with W + 1 outputs for
            "attention" and 2 W, vectors first, for "gaussian". Missing observations are zeros.
        :param column: the column of ids in X.
        :raises ValueError: for a network of one output with "attention", and of an odd number with
            "gaussian".
        """
        super().__init__(name=None)
        self.network = KerasModule(network, argument="network")
        self.pooling, self.column = pooling, int(column)
        number = self.network.num_outputs
        if pooling == "attention" and number < 2:
            raise ValueError(
                'network returns one number for each row, and with pooling="attention" the last '
                "one is a weight: give it W + 1 outputs."
            )
        if pooling == "gaussian" and number % 2:
            raise ValueError(
                f'network returns {number} numbers for each row, and with pooling="gaussian" the '
                "second half of them are precisions of the first: give it 2 W outputs."
            )
        self._context: _Context | None = None

    @property
    def vector_dim(self) -> int:
        """Width W of the vectors."""
        if self.pooling == "gaussian":
            return self.network.num_outputs // 2
        return self.network.num_outputs - (self.pooling == "attention")

    @property
    def draws(self) -> bool:
        """Whether vectors have distributions, which is so with "gaussian"."""
        return self.pooling == "gaussian"

    def prepare(self, X: np.ndarray, name: str = "X") -> np.ndarray:
        """Return ``X`` after a check of its ids."""
        return checked_ids(X, self.column, _MAX_IDS, name)

    def check_known(self, Xnew: Any, X: Any, name: str = "Xnew") -> None:
        """Check that all objects of inputs have an observation, unless they have a prior.

        :param X: inputs of the observations.
        :raises ValueError: if not, with the objects' ids.
        """
        if self.draws:
            return
        asked, there = (np.unique(np.asarray(v)[..., self.column]) for v in (Xnew, X))
        unknown = np.setdiff1d(asked, there)
        if len(unknown):
            named = ", ".join(f"{i:g}" for i in unknown[:10]) + (
                ", ..." if len(unknown) > 10 else ""
            )
            raise ValueError(
                f"{name} holds {len(unknown)} objects ({named}) of which nothing is observed in "
                "what is conditioned on, so they have no vectors: pass given=(X, Y) with at least "
                "one observation of each."
            )

    def seeing(
        self, X: TensorType, Y: TensorType, mask: TensorType | None
    ) -> RepresentationNetwork:
        """Return this model with the vectors of the objects that are observed here.

        :param X: prepared inputs [T or 1, N, D].
        :param Y: observations [T, N, P], zeros where missing.
        :param mask: [T, N, P], True where observed; rows without any are ignored.
        """
        outputs = tf.cast(self.network.apply_to_rows(Y), gpflow.default_float())
        seen = tf.ones(tf.shape(Y)[:-1], tf.bool) if mask is None else tf.reduce_any(mask, -1)
        ids, _ = split_ids(tf.convert_to_tensor(X), self.column)
        ids = tf.reshape(tf.broadcast_to(ids, tf.shape(seen)), [-1])
        outputs = tf.reshape(outputs, [-1, self.network.num_outputs])
        weights = tf.cast(tf.reshape(seen, [-1]), outputs.dtype)
        found = copy.copy(self)
        # This bypasses TensorFlow's attribute tracking, whose records the copy shares.
        found.__dict__["_context"] = self._pooled(ids, outputs, weights)
        return found

    def _pooled(self, ids: tf.Tensor, outputs: tf.Tensor, weights: tf.Tensor) -> _Context:
        count = tf.reduce_max(ids) + 1
        if self.pooling == "gaussian":
            return self._product(ids, outputs, weights, count)
        if self.pooling == "attention":
            outputs, logits = outputs[:, :-1], outputs[:, -1]
            # Subtracting the maximum of each object does not change its softmax.
            logits -= tf.stop_gradient(
                tf.gather(tf.math.unsorted_segment_max(logits, ids, count), ids)
            )
            weights *= tf.exp(logits)
        total = tf.math.unsorted_segment_sum(weights, ids, count)
        summed = tf.math.unsorted_segment_sum(weights[:, None] * outputs, ids, count)
        known = total > 0.0
        if self.pooling != "sum":
            summed /= tf.where(known, total, tf.ones_like(total))[:, None]
        return _Context(tf.ensure_shape(summed, [None, self.vector_dim]), known)

    def _product(
        self, ids: tf.Tensor, outputs: tf.Tensor, weights: tf.Tensor, count: tf.Tensor
    ) -> _Context:
        """Return the normalised product of the prior and the Gaussians of all observations."""
        means, precisions = tf.split(outputs, 2, axis=-1)
        precisions = weights[:, None] * tf.math.softplus(precisions)
        total = 1.0 + tf.math.unsorted_segment_sum(precisions, ids, count)
        summed = tf.math.unsorted_segment_sum(precisions * means, ids, count)
        known = tf.math.unsorted_segment_sum(weights, ids, count) > 0.0
        mean, scale = (
            tf.ensure_shape(v, [None, self.vector_dim])
            for v in (summed / total, tf.math.rsqrt(total))
        )
        return _Context(mean, known, scale)

    def vectors(self, X: TensorType, Y: TensorType, mask: TensorType | None = None) -> np.ndarray:
        """Return vectors [K, W] of objects 0 to the largest id in X, NaN without observations.

        Vectors with distributions are given by their means.

        :param X, Y, mask: as in :meth:`seeing`, or without the axis of tasks.
        """
        return self.vector_moments(X, Y, mask)[0]

    def vector_moments(
        self, X: TensorType, Y: TensorType, mask: TensorType | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return :meth:`vectors`, and their standard deviations [K, W] (0 without distributions).

        :param X, Y, mask: as in :meth:`vectors`.
        """
        X, Y = np.atleast_2d(X), tf.convert_to_tensor(Y, tf.float32)
        context = self.seeing(tf.constant(self.prepare(X)), Y, mask)._context
        assert context is not None
        scale = tf.zeros_like(context.vectors) if context.scale is None else context.scale
        known = context.known.numpy()[:, None]
        found = (np.where(known, v.numpy(), np.nan) for v in (context.vectors, scale))
        return next(found), next(found)

    @check_shapes("X: [batch..., N, .]", "return: [batch..., N, .]")
    def complete(self, X: TensorType) -> tf.Tensor:
        """Replace ids by vectors: [batch..., N, D - 1 + W].

        :raises ValueError: if no observations have been given (:meth:`seeing`).
        """
        if self._context is None:
            raise ValueError(
                "A RepresentationNetwork makes vectors of objects from observations, and this "
                "computation has shown it none: predict given (X, Y), or use LearntVectors."
            )
        ids, others = split_ids(tf.convert_to_tensor(X), self.column)
        mean, _, scale = self._context
        # In compiled functions ids may exceed the table. They have the prior; without a prior
        # predictions raise an error before.
        found = _rows(mean, ids, 0.0)
        if scale is not None and self._seed is not None:
            # Noise by id, so that all inputs of an object have the same draw, in every call.
            number = tf.reduce_max(ids) + 1
            noise = tf.random.stateless_normal(
                [number, self.vector_dim], self._seed, dtype=mean.dtype
            )
            found += _rows(scale, ids, 1.0) * tf.gather(noise, ids)
        return tf.concat([others, found], -1)

    def known(self, X: np.ndarray) -> np.ndarray:
        vectors = np.full((*X.shape[:-1], self.vector_dim), np.nan)
        return np.concatenate([np.delete(X, self.column, -1), vectors], -1)

    def divergence(self, X: TensorType, point_scale: TensorType, scale: TensorType) -> tf.Tensor:
        """Return KL[q || prior] of the vectors of a batch's objects, in nats: [].

        An object's observations in a batch are treated as a separate object with its own vector. A
        bound of minibatches is therefore one of such groups (as in neural processes), and that of
        the whole data if each minibatch holds all observations of its objects.
        """
        if self._context is None or self._context.scale is None:
            return super().divergence(X, point_scale, scale)
        mean, variance = self._context.vectors, tf.square(self._context.scale)
        # The terms of objects without observations are 0.
        return 0.5 * tf.reduce_sum(variance + tf.square(mean) - 1.0 - tf.math.log(variance))


def _rows(table: tf.Tensor, ids: tf.Tensor, default: float) -> tf.Tensor:
    """Gather rows [..., W] of a table [K, W]; ``default`` for ids beyond it."""
    inside = ids < tf.shape(table)[0]
    found = tf.gather(table, tf.where(inside, ids, tf.zeros_like(ids)))
    return tf.where(inside[..., None], found, tf.cast(default, table.dtype))
