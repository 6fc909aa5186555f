"""Types and argument checks that the samplers share.

Conventions of all samplers:

- A *position* is any ``tf.nest`` structure (a tensor, list, tuple, dict, NamedTuple) of floating
  tensors. Its leaves may differ in shape and dtype. Updates are elementwise, so any leaf may have
  leading chain dimensions; chains never interact.
- A *gradient* is the gradient of the **log** density (uphill), a structure like the position.
  With minibatches it is the unbiased estimate, N/B already applied; no sampler scales it again.
- ``temperature`` T: the target is density ** (1 / T). The posterior is T = 1; T = 0 has no noise.
- A *seed* is an integer tensor of shape [2], used once; *noise* is ``"gaussian"`` or
  ``"binomial"``: see :mod:`gpflow_bae.mcmc.noise`.
- Settings are scalars, Python numbers or tensors (so that a schedule does not retrace); they are
  cast to each leaf's dtype. Only Python numbers are checked: a tensor's value is not known when a
  graph is built.
- ``State`` is a NamedTuple of structures, with the same shapes and dtypes before and after
  ``update``, as ``tf.while_loop`` and checkpoints require.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

__all__ = [
    "RANGES",
    "LogProbFn",
    "Position",
    "Scalar",
    "Seed",
    "cast_scalar",
    "is_number",
    "validate",
]

Position: TypeAlias = Any
"""Any ``tf.nest`` structure of floating tensors."""

Scalar: TypeAlias = float | TensorType
"""A Python number or a scalar tensor."""

Seed: TypeAlias = TensorType
"""A stateless seed of two integers."""

LogProbFn: TypeAlias = Callable[..., tf.Tensor]
"""A function of the parts of a position that returns the log density of each chain."""


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a setting is a Python number, not a tensor, a schedule, or a Boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def cast_scalar(value: Scalar, dtype: tf.DType) -> tf.Tensor:
    """Cast a setting to a leaf's dtype (``tf.cast`` rounds Python floats to float32 first)."""
    return tf.cast(value, dtype) if tf.is_tensor(value) else tf.convert_to_tensor(value, dtype)


_Range: TypeAlias = tuple[Callable[[float], bool], str]

_POSITIVE: _Range = (lambda v: 0.0 < v < np.inf, " must be positive and finite, got {}.")
_NOT_NEGATIVE: _Range = (lambda v: 0.0 <= v < np.inf, " must be finite and not negative, got {}.")
_DECAY: _Range = (lambda v: 0.0 <= v < 1.0, " must be in [0, 1), got {}.")
_ANY_FINITE: _Range = (np.isfinite, " must be finite, got {}.")  # of settings of users' samplers

RANGES: dict[str, _Range] = {
    "step_size": _POSITIVE,
    "noise_scale": _POSITIVE,
    "width": _POSITIVE,
    "learning_rate": _NOT_NEGATIVE,
    "inverse_temperature": _NOT_NEGATIVE,
    "jitter": _NOT_NEGATIVE,
    "epsilon": _NOT_NEGATIVE,
    "beta_1": _DECAY,
    "beta_2": _DECAY,
    "gradient_probability": (lambda v: 0.0 <= v <= 1.0, " must be in [0, 1], got {}."),
    "momentum_decay": (
        lambda v: 0.0 < v <= 1.0,
        ", the fraction of its momentum that a chain loses per step, must be in (0, 1], got {}. "
        "At 1 the sampler is Langevin dynamics (SGLD).",
    ),
    "temperature": (
        _NOT_NEGATIVE[0],
        " must be finite and not negative, got {}. Use 1 for the posterior, 0 for descent without "
        "noise.",
    ),
}
"""The valid range of each setting, and the error message after its name."""


def validate(**settings: Any) -> None:
    """Check that settings are in their ranges, by name.

    Only Python numbers are checked.

    :raises ValueError: if one is out of its range.
    """
    for name, value in settings.items():
        is_valid, message = RANGES.get(name, _ANY_FINITE)
        if is_number(value) and not is_valid(value):
            raise ValueError(f"{name}{message.format(value)}")
