"""Descriptions of the unsampled parts of a model: classes, configurations and fixed values."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter

from ...core.arguments import warn_caller
from ...core.files import digest
from ...core.keras_module import KerasModule, inner_layers

__all__ = ["call_text", "check_parts", "parts_of", "warn_of_unknown_parts"]

_DIGITS = 9  # significant digits that are compared; later ones may differ between machines
_FEW = 8  # arrays up to this size are stored as text, larger ones as a digest
# Attributes of tf.Module's bookkeeping, and others that do not affect predictions.
_IGNORED = ("_name", "_scope_name", "_obj_reference_counts_dict", "num_data", "seed")
_TRAINING_SETTINGS = (
    "initializer",
    "regularizer",
    "constraint",
    "seed",
    "trainable",
    "quantization_config",
)
# Entries of Keras configurations that are names, or layers, which are described separately.
_NAMES = ("name", "module", "registered_name", "layers", "input_layers", "output_layers")


def parts_of(
    model: tf.Module, held: Collection[Parameter], *, transforms: bool = True
) -> dict[str, str]:
    """Describe a model apart from ``held`` values: text by path, in a fixed order.

    :param held: parameters whose values are stored elsewhere; values of others are included.
    :param transforms: whether those are stored unconstrained, so that transforms are included.
    """
    found: dict[str, str] = {}
    _Describer(found, {id(p) for p in held}, transforms)("", model)
    return found


def check_parts(model: tf.Module, saved: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Compare the parts of a model with those that were saved.

    :raises ValueError: naming the first difference.
    """
    for path in (*saved, *now):
        if saved.get(path) != now.get(path):
            raise ValueError(
                f"model has {now.get(path, 'nothing')} at {path or type(model).__name__}, and the "
                f"samples are of one with {saved.get(path, 'nothing')}. Samples do not hold classes"
                ", settings, frozen or adapted layers and fixed parameters: build the model with "
                "those that it was sampled with."
            )


def warn_of_unknown_parts(path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
    """Warn that a file has no parts, so that they cannot be compared."""
    version = header.get("versions", {}).get("gpflow_bae", "unknown")
    warn_caller(
        f"path {os.fspath(path)} was written (by gpflow_bae {version}) before files kept what of a "
        "model is not sampled, so it cannot be compared: kernels, networks, frozen layers and "
        "fixed parameters must be those that it was sampled with. Save it again to have them "
        "compared."
    )


class _Describer:
    """Recursion over a model that describes its modules and attributes."""

    def __init__(self, found: dict[str, str], held: set[int], transforms: bool):
        self._found, self._held, self._transforms = found, held, transforms
        self._paths: dict[int, str] = {}  # paths of visited modules

    def __call__(self, path: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._parameter(path, value)
        elif isinstance(value, tfp.distributions.Distribution):
            return  # priors of parameters do not affect predictions
        elif isinstance(value, tfp.bijectors.Bijector):
            self._found[path] = _transform(value)
        elif isinstance(value, tf.Module):
            self._module(path, value)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self(f"{path}[{key!r}]", item)
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                self(f"{path}[{i}]", item)
        elif not isinstance(value, tf.Variable):
            self._found[path] = _text(value)

    def _parameter(self, path: str, parameter: Parameter) -> None:
        if id(parameter) not in self._held:
            self._found[path] = _text(parameter.numpy())
        elif self._transforms:
            self._found[path] = f"a parameter by {_transform(parameter.transform)}"

    def _module(self, path: str, module: tf.Module) -> None:
        if id(module) in self._paths:
            self._found[path] = f"what is at {self._paths[id(module)] or 'the model'}"
            return
        self._paths[id(module)] = path
        self._found[path] = type(module).__name__
        if isinstance(module, KerasModule):
            self._network(path, module.model)
        for name, value in sorted(vars(module).items()):
            if not name.startswith("_self_") and name not in _IGNORED:
                self(f"{path}.{name}", value)

    def _network(self, path: str, network: keras.Model) -> None:
        layers = list(inner_layers(network))
        # Functions of tensors are operations without a layer, and have numbered names too.
        inside = [
            (f"{path}{'' if i < 0 else f'.layers[{i}]'}", _configuration(found).get("layers", ()))
            for i, found in enumerate((network, *layers), -1)
        ]
        names = {
            item.get("name"): f"operations[{i}]"
            for _, items in inside
            for i, item in enumerate(items)
        }
        names |= {layer.name: f"layers[{i}]" for i, layer in enumerate(layers)}
        for i, layer in enumerate(layers):
            own = f"{path}.layers[{i}]"
            self._found[own] = type(layer).__name__
            for key, item in sorted(_configuration(layer).items()):
                if not key.endswith(_TRAINING_SETTINGS) and key not in _NAMES:
                    self._found[f"{own}.{key}"] = _plain_text(item, names)
        for own, items in inside:
            for i, item in enumerate(items):
                if item.get("inbound_nodes"):
                    text = _plain_text(item["inbound_nodes"], names)
                    self._found[f"{own}.inputs_of_layers[{i}]"] = text
        for i, variable in enumerate(network.non_trainable_weights):
            self._found[f"{path}.frozen[{i}] ({variable.name})"] = _text(np.asarray(variable))


def _configuration(layer: keras.Layer) -> dict[str, Any]:
    """Return the configuration of a layer; an empty one if it has no ``get_config``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of lambdas, which cannot be serialised
        try:
            return layer.get_config()
        except NotImplementedError:
            return {}


def _plain_text(value: Any, names: Mapping[str, str]) -> str:
    """Convert part of a Keras configuration to text, with layer names replaced by positions."""

    def plain(item: Any) -> Any:
        if isinstance(item, Mapping):
            if item.get("class_name") == "__lambda__":
                return "a lambda"
            kept = {k: v for k, v in item.items() if k not in _NAMES[1:3] and k != "seed"}
            return {k: plain(v) for k, v in kept.items()}
        if isinstance(item, list | tuple):
            return [plain(v) for v in item]
        if isinstance(item, str):
            return names.get(item, item)
        return item if isinstance(item, int | float | None) else _text(item)

    return json.dumps(plain(value), sort_keys=True)


def call_text(value: Any) -> str:
    """Describe a distribution or a bijector by its class, and its arguments if it has TFP's record.

    GPflow takes any object with a ``log_prob`` as a prior.
    """
    kinds = (tfp.bijectors.Bijector, tfp.distributions.Distribution)

    def text(value: Any) -> str:
        if isinstance(value, kinds):
            return call_text(value)
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(text, value))}]"
        return _text(value)

    ignored = (
        *("name", "parameters", "validate_args", "validate_event_size", "allow_nan_stats"),
        "experimental_use_kahan_sum",
    )
    given = getattr(value, "parameters", {}).items()
    arguments = [f"{k}={text(v)}" for k, v in given if k not in ignored and v is not None]
    return f"{type(value).__name__}({', '.join(arguments)})"


def _transform(transform: Any) -> str:
    return "no transform" if transform is None else call_text(transform)


def _text(value: Any) -> str:
    """Convert a value to text: plain values, rounded arrays, and the class of other objects."""
    if value is None or isinstance(value, bool | str | int | slice):
        return repr(value)
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, tf.DType):
        return value.name
    if not isinstance(value, float | np.generic | np.ndarray | tf.Tensor | keras.Variable):
        return type(value).__name__
    array = np.asarray(value)
    if array.dtype.kind == "f":
        array = _rounded(array.astype(np.float64))
    if array.size <= _FEW:
        return repr(array.tolist())
    return f"{array.dtype} {list(array.shape)} with digest {digest(array)[:16]}"


def _rounded(array: np.ndarray) -> np.ndarray:
    """Round to ``_DIGITS`` significant digits."""
    finite = np.isfinite(array) & (array != 0.0)
    size = np.where(finite, np.abs(array), 1.0)
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(size)))
    usual = finite & np.isfinite(scale)  # excludes subnormal numbers
    return np.where(usual, np.round(np.where(usual, array, 0.0) * scale) / scale, array)
