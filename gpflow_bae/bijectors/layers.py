"""Layers of flows: elementwise maps whose parameters depend on other components."""

from __future__ import annotations

from typing import Any

import gpflow
import tensorflow as tf
from tensorflow_probability import bijectors as tfb

from .elementwise import ElementwiseMap

__all__ = ["AutoregressiveLayer", "CouplingLayer"]


class CouplingLayer(tfb.Bijector):
    """A layer that keeps some components and maps the others, given those that it keeps.

    Dinh et al. (2017), eqs. 7 and 8. Both directions take one pass of the network.
    """

    def __init__(
        self,
        network: gpflow.Module,
        num_kept: int,
        elementwise: ElementwiseMap,
        validate_args: bool = False,
        name: str = "coupling_layer",
    ):
        """
        :param network: from the first ``num_kept`` components [batch..., num_kept] to the
            parameters of the others, [batch..., (D - num_kept) * num_parameters].
        """
        parameters = dict(locals())
        self.network, self.num_kept, self.elementwise = network, num_kept, elementwise
        super().__init__(
            forward_min_event_ndims=1,
            parameters=parameters,
            validate_args=validate_args,
            name=name,
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
        return {}

    def _split(self, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the components that are kept, the others, and the others' parameters."""
        kept, others = values[..., : self.num_kept], values[..., self.num_kept :]
        found = self.network(kept)
        shape = tf.concat([tf.shape(others), [self.elementwise.num_parameters]], 0)
        return kept, others, tf.reshape(found, shape)

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        kept, others, parameters = self._split(x)
        return tf.concat([kept, self.elementwise.forward(others, parameters)[0]], -1)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        kept, others, parameters = self._split(y)
        return tf.concat([kept, self.elementwise.inverse(others, parameters)[0]], -1)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        _, others, parameters = self._split(x)
        return tf.reduce_sum(self.elementwise.forward(others, parameters)[1], -1)

    def _inverse_log_det_jacobian(self, y: tf.Tensor) -> tf.Tensor:
        _, others, parameters = self._split(y)
        return -tf.reduce_sum(self.elementwise.inverse(others, parameters)[1], -1)


class AutoregressiveLayer(tfb.Bijector):
    """A layer whose map of component d has parameters that depend on images of earlier components.

    Papamakarios et al. (2017), eqs. 4 and 5. Its inverse takes one pass of the network, and its
    forward direction as many as there are components.
    """

    def __init__(
        self,
        network: gpflow.Module,
        elementwise: ElementwiseMap,
        validate_args: bool = False,
        name: str = "autoregressive_layer",
    ):
        """
        :param network: an autoregressive network [batch..., D] to [batch..., D, num_parameters].
        """
        parameters = dict(locals())
        self.network, self.elementwise = network, elementwise
        super().__init__(
            forward_min_event_ndims=1,
            parameters=parameters,
            validate_args=validate_args,
            name=name,
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
        return {}

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        y = tf.zeros_like(x)
        for _ in range(int(x.shape[-1])):  # pass d makes the images of the first d components right
            y = self.elementwise.forward(x, self.network(y))[0]
        return y

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return self.elementwise.inverse(y, self.network(y))[0]

    def _inverse_log_det_jacobian(self, y: tf.Tensor) -> tf.Tensor:
        return -tf.reduce_sum(self.elementwise.inverse(y, self.network(y))[1], -1)
