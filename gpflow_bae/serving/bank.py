"""Posterior samples as variables of an exported graph, and the model at any sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from ..core import functional
from ..posteriors import Bank

__all__ = ["STORAGE_TYPES", "Hidden", "SampleBank", "evenly_spaced"]

STORAGE_TYPES = ("float16", "bfloat16", "float32", "float64")


def evenly_spaced(available: int, wanted: int | None) -> list[int]:
    """Return indices of ``wanted`` evenly spaced samples of ``available`` ones.

    :param wanted: number of samples; None for all of them.
    :raises ValueError: unless ``wanted`` lies between 1 and ``available``.
    """
    if wanted is None:
        return list(range(available))
    if not 1 <= wanted <= available:
        raise ValueError(
            f"num_samples must lie between 1 and the {available} samples of the posterior, got "
            f"{wanted}."
        )
    return [(i * available) // wanted for i in range(wanted)]


class SampleBank(tf.Module):
    """Posterior samples [S, ...] of a model as rows of variables.

    Parameters that are equal in all samples are stored once, so the size on disk is that of the
    samples. A request gathers the samples it needs, one at a time.
    """

    def __init__(
        self,
        model: gpflow.Module,
        bank: Bank,
        samples: Sequence[int],
        dtype: str = "float32",
        constants: Mapping[str, np.ndarray] | None = None,
        *,
        with_encoder: bool = True,
    ):
        """
        :param bank: samples of ``model``.
        :param samples: indices of the samples to store, of all chains one after another.
        :param dtype: one of :data:`STORAGE_TYPES`. Network weights are stored in it, and cast to
            their own type in computations. Parameters of a Gaussian process have at least float32,
            because rounding inducing inputs and lengthscales further would change the kernel.
        :param constants: further arrays [S, ...] of each sample by name, stored in their own type.
        :param with_encoder: whether the encoder's weights are stored, if the bank has any.
        :raises ValueError: for another ``dtype``, or samples that are not finite.
        """
        super().__init__()
        if dtype not in STORAGE_TYPES:
            raise ValueError(f"dtype must be one of {STORAGE_TYPES}, got {dtype!r}.")
        self._model = Hidden(model)
        self.dtype = dtype
        chosen = bank.as_one_chain(samples)
        self.num_samples = chosen.num_samples
        self._takes_encoder = with_encoder and bool(bank.encoder)
        arrays = {**chosen.parameters, **(chosen.encoder if self._takes_encoder else {})}
        # One variable per storage type. One per parameter would add arguments to every function
        # and loop of the graph, which take more space than small networks do.
        groups: dict[str, list[tf.Tensor]] = {}
        places = []
        for path, (array,) in arrays.items():
            stored = _stored(array, dtype, path)
            group = groups.setdefault(stored.dtype.name, [])
            places.append(_Place(stored.dtype.name, len(group), array.shape[1:], array.dtype.name))
            group.append(tf.reshape(stored, [self.num_samples, -1]))
        self._places = tuple(places)
        self._sizes = Hidden({k: [int(v.shape[1]) for v in group] for k, group in groups.items()})
        self.stored = {
            kind: tf.Variable(tf.concat(group, 1), trainable=False, name=f"samples_{kind}")
            for kind, group in groups.items()
        }
        self.constants = {
            name: tf.Variable(value, trainable=False, name=name)
            for name, value in (constants or {}).items()
        }
        # Parameters that are equal in all samples become constants of the graph.
        parameters_of = gpflow.utilities.parameter_dict(model)
        sampled = {id(parameters_of[path]) for path in arrays}
        amortized = model.amortized.paths
        self._fixed = Hidden(
            {
                path: parameter.numpy()
                for path, parameter in parameters_of.items()
                if id(parameter) not in sampled and (with_encoder or path not in amortized)
            }
        )
        # Frozen layers and moving averages are Keras variables, which the graph captures.
        self.network_state = [
            variable.value
            for network in (model.decoder, model.encoder)
            for variable in getattr(getattr(network, "model", None), "non_trainable_variables", [])
        ]

    @property
    def model(self) -> Any:
        """The model of the samples, with its present values."""
        return self._model.held

    @property
    def num_parameters(self) -> int:
        """Number of scalars of a sample."""
        return sum(sum(sizes) for sizes in self._sizes.held.values())

    def bind(self, index: tf.Tensor, without: Sequence[str] = ()) -> Any:
        """Return the model at sample ``index``, a scalar that may be symbolic.

        :param without: path prefixes of unused parts of the model, such as ".guide": their
            parameters are not replaced, and stay out of the graph.
        """
        return functional.functional_copy(self.model, self.values(index, without))

    def values(self, index: tf.Tensor, without: Sequence[str] = ()) -> dict[str, tf.Tensor]:
        """Return constrained parameters at sample ``index`` by path; arguments as in bind."""
        pieces = {
            kind: tf.split(tf.gather(variable, index), self._sizes.held[kind])
            for kind, variable in self.stored.items()
        }
        skipped = tuple(without)
        replaced = {k: v for k, v in self._fixed.held.items() if not k.startswith(skipped)}
        encoder = self.model.amortized.paths if self._takes_encoder else ()
        parameters = gpflow.utilities.parameter_dict(self.model)
        for place, path in zip(self._places, [*self.model.sampled.paths, *encoder], strict=True):
            if path.startswith(skipped):
                continue
            value = tf.cast(
                tf.reshape(pieces[place.kind][place.position], place.shape), place.dtype
            )
            (replaced[path],) = functional.constrain([parameters[path]], [value])
        return replaced

    def constant(self, name: str, index: tf.Tensor) -> tf.Tensor:
        """Return a constant at sample ``index``, in ``default_float()``."""
        variable = self.constants[name]
        value = tf.ensure_shape(tf.gather(variable, index), variable.shape[1:])
        return tf.cast(value, gpflow.default_float())


class Hidden:
    """Wrapper that hides an object from ``tf.Module``, so that it is not saved."""

    def __init__(self, held: Any):
        self.held = held


class _Place(NamedTuple):
    """Location of a parameter in the stored variables, and its shape and type in the model."""

    kind: str  # storage type, the key of the variable
    position: int  # index among the parameters in that variable's row
    shape: tuple[int, ...]
    dtype: str


def _stored(array: np.ndarray, dtype: str, path: str) -> tf.Tensor:
    if not np.isfinite(array).all():
        raise ValueError(
            f"Posterior samples of {path} are not finite; export a posterior that did not diverge."
        )
    wanted = tf.as_dtype(dtype)
    if array.dtype == np.float64 and wanted.size < 4:
        wanted = tf.float32
    elif wanted.size > array.dtype.itemsize:
        wanted = tf.as_dtype(array.dtype)  # a wider type would only take space
    stored = tf.cast(tf.constant(array), wanted)
    if not bool(tf.reduce_all(tf.math.is_finite(stored))):
        raise ValueError(
            f"Samples of {path} exceed the range of dtype={dtype!r}; use 'bfloat16' or 'float32'."
        )
    return stored
