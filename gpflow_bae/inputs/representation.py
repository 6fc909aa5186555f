"""Objects that inputs name by an id, whose vectors a network makes of what is observed of them."""

from __future__ import annotations

import copy
from typing import Any, Literal, NamedTuple

import gpflow
import keras
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..arguments import check_arguments
from ..keras_module import KerasModule
from .base import InputModel
from .vectors import check_ids, split_ids

__all__ = ["RepresentationNetwork"]

_MOST_IDS = 10_000_000  # a vector is kept for each number up to the largest id


class _Context(NamedTuple):
    """Vectors of the objects that something is observed of."""

    vectors: tf.Tensor  # [K, W], by id
    known: tf.Tensor  # [K], False of ids without an observation


class RepresentationNetwork(InputModel):
    r"""Column ``column`` of X is an id; the object's vector takes its place, at the end.

    A network h makes a vector of each observation y of an object; pooled over all that are there,
    they are the object's,

    .. math:: o_{id} = \frac{1}{|n : id_n = id|} \sum_{n : id_n = id} h(y_n) ,

    or their sum, or a mean with weights :math:`softmax(a_n)`, of which the network returns
    :math:`a_n` beside the vector ("attention"). Whatever their order and number, so it knows
    objects that it was never fitted to as soon as one observation of them is there (Jazbec et al.
    2021, section 4.3, pool by the mean; Zaheer et al. 2017).

    A fit pools over the minibatch, so minibatches should hold several observations of an object;
    a prediction over what it is conditioned on (``given``). Inputs of objects without any
    observation there are refused.

    It is for variational models. A chain takes vectors as inputs that are known: fit the network
    first, and replace ids by :meth:`vectors`.
    """

    needs_observations = True

    @check_arguments(column=0)
    def __init__(
        self,
        network: keras.Model,
        pooling: Literal["mean", "sum", "attention"] = "mean",
        column: int = 0,
    ):
        """
        :param network: a built Keras model ``[rows, P] -> [rows, W]``, with W + 1 outputs for
            "attention". Missing outputs are zeros.
        :raises ValueError: for a network of one output with "attention".
        """
        super().__init__(name=None)
        self.network = KerasModule(network, argument="network")
        self.pooling, self.column = pooling, int(column)
        if pooling == "attention" and self.network.num_outputs < 2:
            raise ValueError(
                'network returns one number for each row, and with pooling="attention" the last '
                "one is a weight: give it W + 1 outputs."
            )
        self._context: _Context | None = None

    @property
    def vector_dim(self) -> int:
        """Width W of the vectors."""
        return self.network.num_outputs - (self.pooling == "attention")

    def prepare(self, X: np.ndarray, name: str = "X") -> np.ndarray:
        """The same, its ids checked."""
        X = np.asarray(X, gpflow.default_float())
        if np.isnan(X).any():
            raise ValueError(f"{name} holds NaN; its column {self.column} holds ids of objects.")
        check_ids(X, self.column, _MOST_IDS, name)
        return X

    def check_known(self, Xnew: Any, X: Any, name: str = "Xnew") -> None:
        """Refuse inputs of objects that nothing is observed of.

        :param X: inputs of what is observed.
        :raises ValueError: naming them.
        """
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
        """The same, with vectors of the objects that are observed here.

        :param X: prepared inputs [T or 1, N, D].
        :param Y: observations [T, N, P], zeros where missing.
        :param mask: [T, N, P], True where observed; a row without any says nothing.
        """
        outputs = tf.cast(self.network.apply_to_rows(Y), gpflow.default_float())
        seen = tf.ones(tf.shape(Y)[:-1], tf.bool) if mask is None else tf.reduce_any(mask, -1)
        ids, _ = split_ids(tf.convert_to_tensor(X), self.column)
        ids = tf.reshape(tf.broadcast_to(ids, tf.shape(seen)), [-1])
        outputs = tf.reshape(outputs, [-1, self.network.num_outputs])
        weights = tf.cast(tf.reshape(seen, [-1]), outputs.dtype)
        found = copy.copy(self)
        # Past TensorFlow's tracking of attributes, whose records a copy shares with what it is of.
        found.__dict__["_context"] = self._pooled(ids, outputs, weights)
        return found

    def _pooled(self, ids: tf.Tensor, outputs: tf.Tensor, weights: tf.Tensor) -> _Context:
        count = tf.reduce_max(ids) + 1
        if self.pooling == "attention":
            outputs, logits = outputs[:, :-1], outputs[:, -1]
            # Less the largest of each object, which changes no share.
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

    def vectors(self, X: TensorType, Y: TensorType, mask: TensorType | None = None) -> np.ndarray:
        """Vectors [K, W] of objects 0 to the largest id in X; NaN of those without observations.

        :param X, Y, mask: as in :meth:`seeing`, or without the axis of tasks.
        """
        X, Y = np.atleast_2d(X), tf.convert_to_tensor(Y, tf.float32)
        context = self.seeing(tf.constant(self.prepare(X)), Y, mask)._context
        assert context is not None
        return np.where(context.known.numpy()[:, None], context.vectors.numpy(), np.nan)

    @check_shapes("X: [batch..., N, .]", "return: [batch..., N, .]")
    def complete(self, X: TensorType) -> tf.Tensor:
        """Inputs [batch..., N, D - 1 + W].

        :raises ValueError: where no observations have been shown (:meth:`seeing`).
        """
        if self._context is None:
            raise ValueError(
                "A RepresentationNetwork makes vectors of objects from observations, and this "
                "computation has shown it none: predict given (X, Y), or use LearntVectors."
            )
        ids, others = split_ids(tf.convert_to_tensor(X), self.column)
        vectors = self._context.vectors
        # Unknown ids, which predictions refuse, are beyond the table inside compiled functions.
        inside = ids < tf.shape(vectors)[0]
        found = tf.gather(vectors, tf.where(inside, ids, tf.zeros_like(ids)))
        found = tf.where(inside[..., None], found, tf.zeros_like(found))
        return tf.concat([others, found], -1)
