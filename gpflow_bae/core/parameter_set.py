"""A set of parameters of a module by path: their values, replacements and log prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType

from . import functional

__all__ = ["ParameterSet"]


class ParameterSet:
    """Some parameters of a module, each with its first path, in a fixed order.

    Values are tensors in unconstrained space, one for each parameter, as samplers use them.
    """

    def __init__(self, module: tf.Module, keep: Callable[[Parameter], bool] = lambda _: True):
        """
        :param keep: predicate that selects parameters of the module; all by default.
        """
        found: dict[int, tuple[str, Parameter]] = {}
        for path, parameter in gpflow.utilities.parameter_dict(module).items():
            if keep(parameter):
                found.setdefault(id(parameter), (path, parameter))
        self._parameters: Mapping[str, Parameter] = dict(found.values())

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the parameters, as in ``gpflow.utilities.parameter_dict(module)``."""
        return tuple(self._parameters)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, in the order of :attr:`paths`."""
        return tuple(self._parameters.values())

    @property
    def variables(self) -> list[tf.Variable]:
        """The unconstrained variables, in the order of :attr:`paths`."""
        return [p.unconstrained_variable for p in self._parameters.values()]

    @property
    def num_scalars(self) -> int:
        """Number of scalars in all parameters."""
        return int(sum(np.prod(v.shape) for v in self.variables))

    def describe(self) -> list[str]:
        """Return path and shape of each parameter as text, for records of a run."""
        return [f"{path}{tuple(p.shape)}" for path, p in self._parameters.items()]

    def values(self) -> tuple[tf.Tensor, ...]:
        """Return the current unconstrained values."""
        return functional.unconstrained_values(self.parameters)

    def assign(self, values: Sequence[TensorType]) -> None:
        """Assign unconstrained ``values`` to the parameters."""
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)

    def constrained(self, values: Sequence[TensorType]) -> dict[str, tf.Tensor]:
        """Return constrained values by path, the argument of :func:`functional_copy`."""
        return dict(zip(self.paths, functional.constrain(self.parameters, values), strict=True))

    def log_prior(self, values: Sequence[TensorType], *, chain_ndims: int = 0) -> tf.Tensor:
        """Return the log prior density of ``values``; see :func:`functional.log_prior_density`."""
        return functional.log_prior_density(self.parameters, values, chain_ndims=chain_ndims)
