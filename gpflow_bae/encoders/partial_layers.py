"""Keras layers of the partial inference networks: P networks, and sums over observed outputs.

The networks of all outputs are one batched product per layer, with shape ``[P, rows, units]``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

__all__ = [
    "ObservedValues",
    "ProductOfFactors",
    "SumOfOutputNetworks",
    "SumOfPoints",
    "output_network_size",
]

register = keras.saving.register_keras_serializable(package="gpflow_bae")

MIN_PRECISION = 1e-6
MAX_LOG_SCALE = 10.0


def _uniform(fan_in: int, fan_out: int) -> keras.initializers.Initializer:
    """Return Glorot's initializer; Keras would treat the axis of outputs as a receptive field."""
    limit = math.sqrt(6.0 / (fan_in + fan_out))
    return keras.initializers.RandomUniform(-limit, limit)


def activation_of(name: str) -> Any:
    """Return Keras's activation function of that name.

    :raises ValueError: if there is none.
    """
    try:
        return keras.activations.get(name)
    except ValueError as error:
        raise ValueError(
            f'activation must be a name that Keras knows, such as "relu" or "tanh", got {name!r}.'
        ) from error


def output_network_size(hidden: Sequence[int], width: int) -> int:
    """Return the number of parameters of one output's network, from y_p to ``width`` units."""
    widths = [1, *hidden, width]
    return sum((a + 1) * b for a, b in zip(widths[:-1], widths[1:], strict=True))


@register
class ObservedValues(keras.layers.Layer):
    """Split of ``[y, mask, noise] [rows, 2 P + E]``: values (zeros where missing), mask, noise."""

    def __init__(self, num_outputs: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_outputs = num_outputs

    def call(self, inputs: Any) -> list[Any]:
        values = inputs[:, : self.num_outputs]
        mask = inputs[:, self.num_outputs : 2 * self.num_outputs]
        # Missing values may be infinite, so they are replaced, not multiplied by zero.
        values = ops.where(mask > 0.5, values, ops.zeros_like(values))
        return [values, mask, inputs[:, 2 * self.num_outputs :]]

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"num_outputs": self.num_outputs}


class _Networks(keras.layers.Layer):
    """Base class of layers that consist of networks with hidden layers."""

    def __init__(self, hidden: Sequence[int], units: int, activation: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.initializers: dict[str, Any] = {}  # by the weight's name, for KerasModule.redraw
        self.hidden, self.units = tuple(hidden), units
        self.activation = activation_of(activation)

    def _weight(self, name: str, shape: tuple[int, ...], initializer: Any) -> keras.Variable:
        self.initializers[name] = keras.initializers.get(initializer)
        return self.add_weight(name=name, shape=shape, initializer=self.initializers[name])

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "hidden": list(self.hidden),
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
        }


class _OutputNetworks(_Networks):
    """Networks of y_p for each output p, up to the last hidden layer."""

    def build(self, input_shape: Any) -> None:
        self.num_outputs = input_shape[0][-1]
        self.kernels, self.biases = [], []
        width = 1
        for i, units in enumerate(self.hidden):
            # Kinks start at zero, as published. With first biases all over y's range a model with
            # a nonlinear decoder learns a single task by heart, and fills its holes badly.
            self.kernels.append(self._outputs_weight(f"kernel_{i}", (width, units)))
            self.biases.append(self._outputs_weight(f"bias_{i}", (1, units), "zeros"))
            width = units
        self.last_width = width

    def _outputs_weight(
        self, name: str, shape: tuple[int, int], initializer: Any | None = None
    ) -> keras.Variable:
        initializer = _uniform(*shape) if initializer is None else initializer
        return self._weight(name, (self.num_outputs, *shape), initializer)

    def _last_hidden(self, values: Any) -> Any:
        """Map values [rows, P] to hidden units [P, rows, width]."""
        h = ops.transpose(values)[..., None]
        for kernel, bias in zip(self.kernels, self.biases, strict=True):
            h = self.activation(ops.matmul(h, kernel) + bias)
        return h


@register
class SumOfOutputNetworks(_OutputNetworks):
    """The sum of network_p(y_p) over observed p: ``[values, mask]`` to [rows, units]."""

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        # The sum is one dense layer whose inputs are the units of all networks.
        spread = _uniform(self.num_outputs * self.last_width, self.units)
        self.kernel = self._outputs_weight("kernel", (self.last_width, self.units), spread)
        self.bias = self._outputs_weight("bias", (1, self.units), "zeros")

    def call(self, inputs: Any) -> Any:
        values, mask = inputs
        h = self._last_hidden(values) * ops.transpose(mask)[..., None]
        return ops.einsum("pni,pio->no", h, self.kernel) + ops.matmul(mask, self.bias[:, 0])


@register
class ProductOfFactors(_OutputNetworks):
    """The product of Gaussian factors of ``units`` code channels over the observed outputs.

    It maps ``[values, mask]`` to means and log standard deviations [rows, 2 units].
    """

    def __init__(
        self,
        hidden: Sequence[int],
        units: int,
        activation: str,
        initial_variance: float = 0.1,
        **kwargs: Any,
    ):
        super().__init__(hidden, units, activation, **kwargs)
        self.initial_variance = float(initial_variance)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        shape = (self.last_width, self.units)
        log_scale = 0.5 * math.log(self.num_outputs * self.initial_variance)
        constant = keras.initializers.Constant(log_scale)
        self.mean_kernel = self._outputs_weight("mean_kernel", shape)
        self.mean_bias = self._outputs_weight("mean_bias", (1, self.units), "zeros")
        self.scale_kernel = self._outputs_weight("scale_kernel", shape, "zeros")
        self.scale_bias = self._outputs_weight("scale_bias", (1, self.units), constant)

    def call(self, inputs: Any) -> Any:
        values, mask = inputs
        h = self._last_hidden(values)
        mean = ops.matmul(h, self.mean_kernel) + self.mean_bias  # [P, rows, units]
        log_scale = ops.matmul(h, self.scale_kernel) + self.scale_bias
        log_scale = ops.clip(log_scale, -MAX_LOG_SCALE, MAX_LOG_SCALE)
        precision = ops.exp(-2.0 * log_scale) * ops.transpose(mask)[..., None]
        total = ops.maximum(ops.sum(precision, axis=0), MIN_PRECISION)
        return ops.concatenate(
            [ops.sum(precision * mean, axis=0) / total, -0.5 * ops.log(total)], axis=-1
        )

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"initial_variance": self.initial_variance}


@register
class SumOfPoints(_Networks):
    """The sum of network(p, y_p) over observed p: ``[values, mask]`` to [rows, units].

    :param one_hot: whether p is a one-hot vector (the default, which files without this setting
        mean), or the number 0, 1, ..., P - 1.
    """

    def __init__(
        self,
        hidden: Sequence[int],
        units: int,
        activation: str,
        one_hot: bool = True,
        **kwargs: Any,
    ):
        super().__init__(hidden, units, activation, **kwargs)
        self.one_hot = bool(one_hot)

    def build(self, input_shape: Any) -> None:
        num_outputs = input_shape[0][-1]
        widths = [*self.hidden, self.units]
        # Of these P rows a one-hot p selects one, so the fan-in is 2 with the value.
        limit = math.sqrt(6.0 / (2 + widths[0])) if self.hidden else 1.0 / num_outputs
        near_one = keras.initializers.RandomUniform(-limit, limit)
        if self.one_hot:
            shape = (num_outputs, widths[0])
            self.index_kernel = self._weight("index_kernel", shape, near_one)
        else:  # p times its weight is as large as y_p times its own
            limit /= num_outputs
            small = keras.initializers.RandomUniform(-limit, limit)
            self.index_kernel = self._weight("index_kernel", (widths[0],), small)
        self.value_kernel = self._weight("value_kernel", (widths[0],), near_one)
        if not self.one_hot:  # rows of a one-hot p are biases already
            self.first_bias = self._weight("first_bias", (widths[0],), "zeros")
        self.kernels, self.biases = [], []
        for i, (a, b) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
            last = i == len(widths) - 2
            # All points share the network, so their sum is up to P times one of them.
            limit = math.sqrt(6.0 / (a + b)) / (num_outputs if last else 1)
            uniform = keras.initializers.RandomUniform(-limit, limit)
            self.kernels.append(self._weight(f"kernel_{i}", (a, b), uniform))
            self.biases.append(self._weight(f"bias_{i}", (b,), "zeros"))

    def call(self, inputs: Any) -> Any:
        values, mask = inputs
        index = self.index_kernel
        if not self.one_hot:
            numbers = ops.arange(values.shape[-1], dtype=values.dtype)[:, None]
            index = self.first_bias + numbers * index
        h = index + values[..., None] * self.value_kernel  # [rows, P, units]
        if not self.hidden:
            return ops.einsum("np,npo->no", mask, h)
        h = self.activation(h)
        for kernel, bias in zip(self.kernels[:-1], self.biases[:-1], strict=True):
            h = self.activation(ops.matmul(h, kernel) + bias)
        # The last layer is linear, so it can be applied after the sum.
        observed = ops.sum(mask, axis=-1, keepdims=True)
        total = ops.einsum("np,npi->ni", mask, h)
        return ops.matmul(total, self.kernels[-1]) + observed * self.biases[-1]

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"one_hot": self.one_hot}
