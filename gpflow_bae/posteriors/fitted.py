"""Fitted models without posterior samples, saved by their parameter values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import gpflow
import numpy as np

from .stored.archive import part_of, read_archive, write_archive
from .stored.bank import installed_versions
from .stored.parts import check_parts, parts_of, warn_of_unknown_parts

__all__ = ["FittedModel"]

FittedT = TypeVar("FittedT", bound="FittedModel")


class FittedModel:
    """A fitted model without sampled parameters, such as a :class:`~gpflow_bae.models.DeepSVIGP`.

    There is no bank: its file holds the value of every parameter, fixed ones included.
    """

    def __init__(self, model: Any):
        """
        :param model: any ``tf.Module`` with GPflow parameters.
        """
        self.model = model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all parameter values to one file, atomically; the model is not in it."""
        parameters = gpflow.utilities.parameter_dict(self.model)
        values = {f"parameters/{path}": np.asarray(p.numpy()) for path, p in parameters.items()}
        others = {f"posterior/{name}": v for name, v in self._arrays().items()}
        header = {
            "kind": type(self).__name__,
            "model": type(self.model).__name__,
            "versions": installed_versions(),
            "parts": self._parts_of(self.model),
        }
        write_archive(path, header, {**values, **others})

    @classmethod
    def load(cls: type[FittedT], path: str | os.PathLike[str], model: Any) -> FittedT:
        """Read a fitted model that :meth:`save` wrote.

        :param model: built as for the fit; its parameters get the values of the file.
        :raises FileNotFoundError: if there is no such file.
        :raises ValueError: for a file that is truncated, damaged, of another kind or version, or
            of a model of another type, with other parameters, or with other parts (a kernel, an
            activation, a frozen layer); it names the first difference.
        :warns UserWarning: for an old file without such parts, which cannot be compared.
        """
        header, arrays = read_archive(path)
        if header["kind"] != cls.__name__:
            raise ValueError(
                f"path {os.fspath(path)} holds a {header['kind']}, expected a {cls.__name__}; load "
                "it with that class."
            )
        if header["model"] != type(model).__name__:
            raise ValueError(
                f"model is of type {type(model).__name__}, but path {os.fspath(path)} holds a "
                f"fitted {header['model']}; build the model that was fitted."
            )
        if "parts" in header:
            check_parts(model, header["parts"], cls._parts_of(model))
        else:
            warn_of_unknown_parts(path, header)
        assign(model, part_of(arrays, "parameters/"))
        return cls._restored(model, part_of(arrays, "posterior/"))

    @staticmethod
    def _parts_of(model: Any) -> dict[str, str]:
        parameters = gpflow.utilities.parameter_dict(model).values()
        return parts_of(model, parameters, transforms=False)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that are saved in addition to the parameters."""
        return {}

    @classmethod
    def _restored(cls: type[FittedT], model: Any, arrays: dict[str, np.ndarray]) -> FittedT:
        """Return the fitted model from a model with assigned values and :meth:`_arrays`."""
        return cls(model)


def assign(model: Any, values: Mapping[str, np.ndarray]) -> None:
    """Assign constrained ``values`` to a model's parameters by path.

    :raises ValueError: if paths or shapes differ from those of the model.
    """
    parameters = gpflow.utilities.parameter_dict(model)
    advice = "Build the model with the settings that it was fitted with."
    differing = sorted(set(parameters) ^ set(values))
    if differing:
        where = "file" if differing[0] in values else "model"
        raise ValueError(f"{differing[0]} is in the {where} alone. {advice}")
    for path, parameter in parameters.items():
        if values[path].shape != tuple(parameter.shape):
            raise ValueError(
                f"model has {path} of shape {tuple(parameter.shape)}, the file of shape "
                f"{values[path].shape}. {advice}"
            )
    for path, parameter in parameters.items():
        parameter.assign(values[path])
