"""Small dense networks of ``gpflow.Parameter`` s, for flows."""

from __future__ import annotations

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType

__all__ = ["AutoregressiveNetwork", "DenseNetwork"]


class DenseNetwork(gpflow.Module):
    """A multilayer perceptron with tanh units, whose initial output is near zero."""

    def __init__(
        self,
        input_dim: int,
        hidden_widths: Sequence[int],
        output_dim: int,
        rng: np.random.Generator,
        output_scale: float = 0.01,
        masks: Sequence[np.ndarray] | None = None,
    ):
        """
        :param output_scale: standard deviation of the last layer's weights times the root of its
            number of inputs; small, so that a flow starts near the identity.
        :param masks: 0/1 arrays [inputs, outputs], one per layer, that multiply the weights.
        """
        super().__init__()
        widths = [input_dim, *hidden_widths, output_dim]
        self.weights, self.biases, self._masks = [], [], []
        float_type = gpflow.default_float()
        for i, (fan_in, fan_out) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
            scale = output_scale if i == len(widths) - 2 else 1.0
            values = scale / np.sqrt(max(fan_in, 1)) * rng.standard_normal((fan_in, fan_out))
            mask = None if masks is None else masks[i]
            self._masks.append(mask)
            self.weights.append(Parameter(values, dtype=float_type))
            self.biases.append(Parameter(np.zeros(fan_out), dtype=float_type))

    def __call__(self, x: TensorType) -> tf.Tensor:
        """Map [batch..., input_dim] to [batch..., output_dim]."""
        x = tf.convert_to_tensor(x)
        for i, (weight, bias, mask) in enumerate(
            zip(self.weights, self.biases, self._masks, strict=True)
        ):
            matrix = tf.convert_to_tensor(weight)
            if mask is not None:
                matrix *= mask
            x = tf.linalg.matmul(x, matrix) if x.shape.rank > 1 else (x[None] @ matrix)[0]
            x += bias
            if i < len(self.weights) - 1:
                x = tf.tanh(x)
        return x


class AutoregressiveNetwork(gpflow.Module):
    """A masked autoencoder (MADE): outputs for component d depend on earlier components only.

    Germain et al. (2015). It replaces ``tfb.AutoregressiveNetwork``, which is a tf_keras layer.
    """

    def __init__(
        self,
        event_dim: int,
        params: int,
        hidden_widths: Sequence[int],
        rng: np.random.Generator,
    ):
        """
        :param params: number of outputs per component.
        """
        super().__init__()
        self.event_dim, self.params = event_dim, params
        degrees = [np.arange(1, event_dim + 1)]
        for width in hidden_widths:
            # With one component hidden units have no inputs, and outputs are biases.
            degrees.append(np.arange(width) % max(event_dim - 1, 1) + (event_dim > 1))
        masks = [
            (after[None, :] >= before[:, None]).astype(gpflow.default_float())
            for before, after in zip(degrees[:-1], degrees[1:], strict=True)
        ]
        out_degrees = np.repeat(degrees[0], params)
        masks.append((out_degrees[None, :] > degrees[-1][:, None]).astype(gpflow.default_float()))
        self.network = DenseNetwork(event_dim, hidden_widths, event_dim * params, rng, masks=masks)

    def __call__(self, x: TensorType) -> tf.Tensor:
        """Map [batch..., D] to [batch..., D, params]."""
        values = self.network(x)
        return tf.reshape(values, [*tf.unstack(tf.shape(values)[:-1]), self.event_dim, self.params])
