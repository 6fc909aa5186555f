"""Parameters of a module by path: which there are, what they hold, how others take their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType

from . import functional

__all__ = ["ParameterSet"]


class ParameterSet:
    """Some parameters of a module, each under its first path, in a fixed order.

    Values are tensors in unconstrained space, one for each parameter, as samplers hold them.
    """

    def __init__(self, module: tf.Module, keep: Callable[[Parameter], bool] = lambda _: True):
        """
        :param keep: which of the module's parameters are in the set; all by default.
        """
        found: dict[int, tuple[str, Parameter]] = {}
        for path, parameter in gpflow.utilities.parameter_dict(module).items():
            if keep(parameter):
                found.setdefault(id(parameter), (path, parameter))
        self._parameters: Mapping[str, Parameter] = dict(found.values())

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths as in ``gpflow.utilities.parameter_dict(module)``."""
        return tuple(self._parameters)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, in the order of :attr:`paths`."""
        return tuple(self._parameters.values())

    @property
    def variables(self) -> list[tf.Variable]:
        """Their unconstrained variables."""
        return [p.unconstrained_variable for p in self._parameters.values()]

    @property
    def num_scalars(self) -> int:
        """How many numbers they hold."""
        return int(sum(np.prod(v.shape) for v in self.variables))

    def values(self) -> tuple[tf.Tensor, ...]:
        """What they hold now."""
        return functional.unconstrained_values(self.parameters)

    def assign(self, values: Sequence[TensorType]) -> None:
        """Make them hold ``values``."""
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)

    def constrained(self, values: Sequence[TensorType]) -> dict[str, tf.Tensor]:
        """``values`` by path in constrained space, as :func:`functional_copy` takes them."""
        return dict(zip(self.paths, functional.constrain(self.parameters, values), strict=True))

    def log_prior(self, values: Sequence[TensorType], *, chain_ndims: int = 0) -> tf.Tensor:
        """Log prior density of ``values``, Jacobians included; see ``log_prior_density``."""
        return functional.log_prior_density(self.parameters, values, chain_ndims=chain_ndims)
