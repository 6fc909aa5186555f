"""A built Keras 3 model as a GPflow module: weights as Parameters, called statelessly.

A Keras 3 model inside a ``gpflow.Module`` hides its weights from ``trainable_variables`` and
``print_summary``. Here the model is only a template: its weights become ``gpflow.Parameter``s,
which can carry priors and be sampled, and it is called through ``stateless_call``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType

from .arguments import kind_of

__all__ = [
    "KerasModule",
    "WeightPrior",
    "check_keras_model",
    "inner_layers",
    "layers_with_weights",
]

# A function of the shape of a weight tensor that returns its prior in float32, broadcast over the
# tensor; or a list of such functions, one for each layer with weights.
WeightPrior = Callable[[tuple[int, ...]], Any] | Sequence[Callable[[tuple[int, ...]], Any]]


_HALF = (tf.bfloat16, tf.float16)
_WRAPPED = ("layer", "forward_layer", "backward_layer")  # of Keras's wrappers


class _Template:
    """Wrapper that hides the Keras model from tf.Module and shares it between copies."""

    def __init__(self, model: keras.Model):
        self.model = model

    def __deepcopy__(self, memo: dict[int, Any]) -> _Template:
        return self


def check_keras_model(model: Any, argument: str) -> keras.Model:
    """Check that ``model`` is a built Keras 3 model, and return it.

    :param argument: the caller's name for ``model``, used in errors.
    :raises TypeError: for a tf_keras (Keras 2) model, or for no Keras model at all.
    :raises ValueError: for a model that is not built, is subclassed without known shapes, or has
        trainable weights in half precision.
    """
    if isinstance(model, keras.Model):
        if not model.built or not model.weights:
            raise ValueError(
                f"{argument} is a keras.Model that is not built, so its weights do not exist yet; "
                "start it with keras.Input(shape=(...,)) or call model.build(input_shape) first."
            )
        if not getattr(model, "inputs", None):
            raise ValueError(
                f"{argument} is a subclassed keras.Model, which does not tell its input and output "
                "shapes; wrap it: inputs = keras.Input(shape=(...,)), then "
                "keras.Model(inputs, model(inputs))."
            )
        half = next((v for v in model.trainable_variables if tf.as_dtype(v.dtype) in _HALF), None)
        if half is not None:
            raise ValueError(
                f"{argument} keeps its weight {half.path} in {half.dtype}, in which most steps of "
                "an optimiser or a sampler are rounded away; for products in half precision and "
                'weights in float32 give its layers dtype="mixed_bfloat16".'
            )
        return model
    if any(c.__module__.split(".")[0] == "tf_keras" for c in type(model).__mro__):
        raise TypeError(
            f"{argument} is a tf_keras (Keras 2) model; gpflow_bae needs Keras 3: build the same "
            "layers with `import keras`."
        )
    raise TypeError(f"{argument} must be a built keras.Model (Keras 3), got {kind_of(model)}.")


def _size(shape: tuple[int | None, ...], what: str) -> int:
    sizes = [size for size in shape if size is not None]
    if len(sizes) < len(shape):
        raise ValueError(
            f"The network's {what} shape must be fixed except for the batch, got {shape}; give "
            "keras.Input every dimension."
        )
    return math.prod(sizes)


def inner_layers(layer: keras.Layer) -> Iterator[keras.Layer]:
    """Yield all layers of a network, including those in nested networks and wrappers."""
    wrapped = (getattr(layer, name, None) for name in _WRAPPED)
    for inner in (*getattr(layer, "layers", ()), *wrapped):
        if isinstance(inner, keras.Layer):
            yield inner
            yield from inner_layers(inner)


def _check_deterministic(model: keras.Model, argument: str) -> None:
    """Check for layers that act in training only: fits and chains run networks in inference mode.

    Layers without an effect (a rate of zero) and frozen batch normalisation are accepted.

    :raises ValueError: with the name of the first such layer.
    """
    for layer in inner_layers(model):
        kind = type(layer).__name__
        who = f"{argument} has the layer {layer.name} ({kind}), which"
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
            raise ValueError(
                f"{who} keeps averages over batches in training, and here nothing does: it would "
                "divide by those that it began with. Take keras.layers.LayerNormalization, or "
                "scale the data; of a network that was trained before, freeze it "
                "(layer.trainable = False)."
            )
        if _is_random(layer):
            raise ValueError(
                f"{who} draws random numbers in training alone, and here networks are functions of "
                "their weights: it would be left out without a word. Leave it out; what is not "
                "known of the weights is in their priors and samples."
            )


def _is_random(layer: keras.Layer) -> bool:
    """Return whether a Keras layer draws random numbers in training."""
    kinds = (
        keras.layers.Dropout,
        keras.layers.AlphaDropout,
        keras.layers.GaussianDropout,
        keras.layers.GaussianNoise,
    )
    if isinstance(layer, kinds):
        return bool(layer.stddev if isinstance(layer, keras.layers.GaussianNoise) else layer.rate)
    if not type(layer).__module__.startswith("keras."):
        return False
    if type(layer).__name__.startswith(("Rand", "AugMix", "CutMix", "MixUp")):
        return True
    recurrent = isinstance(layer, keras.layers.RNN | keras.layers.MultiHeadAttention)
    config = layer.get_config() if recurrent else {}
    return bool(config.get("dropout") or config.get("recurrent_dropout"))


def _initializers(layer: keras.Layer) -> dict[int, Any]:
    """Return the known initializers of a layer's weights, nested layers included, by id."""
    found: dict[int, Any] = {}
    for inner in getattr(layer, "layers", ()):
        found |= _initializers(inner)
    own = getattr(layer, "initializers", {})
    for variable in layer.weights:
        initializer = getattr(layer, f"{variable.name}_initializer", own.get(variable.name))
        if initializer is not None:
            found[id(variable)] = initializer
    return found


def _reseeded(initializer: Any, seed: list[int]) -> Any | None:
    """Return the initializer with another seed; None if it is not random, or has a fixed seed."""
    config = {} if initializer is None else initializer.get_config()
    if config.get("seed", 0) is not None:
        return None
    config["seed"] = int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)
    return type(initializer).from_config(config)


def layers_with_weights(layer: keras.Layer) -> Iterator[keras.Layer]:
    """Yield the innermost layers with trainable weights, in order."""
    inner = [found for part in getattr(layer, "layers", ()) for found in layers_with_weights(part)]
    if inner:
        yield from inner
    elif layer.trainable_variables:
        yield layer


def _priors(model: keras.Model, prior: WeightPrior | None, argument: str) -> list[Any]:
    """Return the prior of each trainable weight tensor, or None for each without priors."""
    variables = model.trainable_variables
    if prior is None:
        return [None] * len(variables)
    if callable(prior) and not isinstance(prior, keras.layers.Layer):
        return [prior(tuple(v.shape)) for v in variables]
    if not isinstance(prior, Sequence) or not all(map(callable, prior)):
        raise TypeError(
            f"weight_prior of {argument} must be a function of a weight tensor's shape, such as "
            "gpflow_bae.decoders.fan_in_prior(1.0) makes, or a list of them, one for each layer; "
            f"got {prior!r}."
        )
    layers = list(layers_with_weights(model))
    if len(prior) != len(layers):
        raise ValueError(
            f"weight_prior of {argument} is a list of {len(prior)}, and the network has "
            f"{len(layers)} layers with weights ({', '.join(layer.name for layer in layers)}): "
            "give one prior for each of them, in this order, or a single one for all."
        )
    of_layer = {
        id(v): own for layer, own in zip(layers, prior, strict=True) for v in layer.variables
    }
    return [of_layer[id(v)](tuple(v.shape)) for v in variables]


class KerasModule(gpflow.Module):
    """A Keras 3 network whose weights are each a ``gpflow.Parameter``."""

    def __init__(
        self, model: keras.Model, prior: WeightPrior | None = None, argument: str = "model"
    ):
        """
        :param model: a built Keras 3 model; it is never changed.
        :param prior: prior of each weight tensor, or one for each layer; None for a network that is
            only optimised.
        :param argument: the caller's name for ``model`` in errors.
        :raises TypeError: for priors that are not functions of a shape.
        :raises ValueError: if the number of priors is not that of layers with weights, and for
            layers that act in training only, such as dropout, noise and batch normalisation.
        """
        super().__init__(name=None)
        model = check_keras_model(model, argument)
        _check_deterministic(model, argument)
        self._template = _Template(model)
        self.weights = [
            Parameter(v.value, dtype=tf.as_dtype(v.dtype), prior=own)
            for v, own in zip(
                model.trainable_variables, _priors(model, prior, argument), strict=True
            )
        ]

    @property
    def model(self) -> keras.Model:
        """The template; its variables keep the values that it was built with."""
        return self._template.model

    @property
    def input_shape(self) -> tuple[int | None, ...]:
        """Shape of one input, without the batch dimension."""
        return tuple(self.model.input_shape[1:])

    @property
    def output_shape(self) -> tuple[int | None, ...]:
        """Shape of one output, without the batch dimension."""
        return tuple(self.model.output_shape[1:])

    @property
    def num_inputs(self) -> int:
        """Number of scalars in one input."""
        return _size(self.input_shape, "input")

    @property
    def num_outputs(self) -> int:
        """Number of scalars in one output."""
        return _size(self.output_shape, "output")

    @property
    def has_half_precision(self) -> bool:
        """Whether a layer computes in half precision; outputs then have about two digits."""
        return any(tf.as_dtype(layer.compute_dtype) in _HALF for layer in inner_layers(self.model))

    def apply(self, inputs: TensorType, training: bool = False) -> tf.Tensor:
        """Run the network on ``inputs [rows, *input_shape]`` with the module's weights.

        Inputs are cast to the network's type; data change precision nowhere else. Layers can
        compute in half precision (``dtype="mixed_bfloat16"`` in Keras); outputs are then cast to
        float32, so that densities are not summed in half precision.
        """
        inputs = tf.cast(inputs, self.model.inputs[0].dtype if self.model.inputs else tf.float32)
        weights = [tf.convert_to_tensor(w) for w in self.weights]
        fixed = [v.value for v in self.model.non_trainable_variables]
        outputs, _ = self.model.stateless_call(weights, fixed, inputs, training=training)
        return tf.cast(outputs, tf.float32) if outputs.dtype in _HALF else outputs

    def apply_to_rows(self, inputs: TensorType) -> tf.Tensor:
        """Run the network on each row of ``[..., features]``, and return ``[..., outputs]``.

        Rows are reshaped to the network's input shape (e.g. images), outputs are flattened.
        """
        inputs = tf.convert_to_tensor(inputs)
        lead = tf.shape(inputs)[:-1]
        outputs = self.apply(tf.reshape(inputs, [-1, *self.input_shape]))
        width = self.num_outputs
        result = tf.reshape(outputs, tf.concat([lead, [width]], 0))
        return tf.ensure_shape(result, inputs.shape[:-1].concatenate([width]))

    def redraw(self, seed: int) -> int:
        """Redraw from ``seed`` all weights that still have their random initial values.

        Keras seeds its initializers from Python's ``random``, so a script without seeds has other
        initial weights in every run. Weights that were trained, loaded or assigned stay unchanged,
        and so do those of initializers with a fixed seed.

        :return: the number of redrawn weight tensors.
        """
        drawn = 0
        initializers = _initializers(self.model)
        pairs = zip(self.weights, self.model.trainable_variables, strict=True)
        for number, (weight, variable) in enumerate(pairs):
            fresh = _reseeded(initializers.get(id(variable)), [seed, number])
            if fresh is None:
                continue
            before = initializers[id(variable)](variable.shape, variable.dtype)
            if np.array_equal(before, weight):
                weight.assign(fresh(variable.shape, variable.dtype))
                drawn += 1
        return drawn
