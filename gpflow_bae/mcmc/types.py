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


def _positive(value: float) -> bool:
    return 0.0 < value < np.inf


def _not_negative(value: float) -> bool:
    return 0.0 <= value < np.inf


def _decay(value: float) -> bool:
    return 0.0 <= value < 1.0


# The valid range of each setting, and the error message.
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "step_size": (_positive, "must be positive and finite, got {}."),
    "noise_scale": (_positive, "must be positive and finite, got {}."),
    "width": (_positive, "must be positive and finite, got {}."),
    "learning_rate": (_not_negative, "must be finite and not negative, got {}."),
    "inverse_temperature": (_not_negative, "must be finite and not negative, got {}."),
    "jitter": (_not_negative, "must be finite and not negative, got {}."),
    "epsilon": (_not_negative, "must be finite and not negative, got {}."),
    "beta_1": (_decay, "must be in [0, 1), got {}."),
    "beta_2": (_decay, "must be in [0, 1), got {}."),
    "gradient_probability": (lambda value: 0.0 <= value <= 1.0, "must be in [0, 1], got {}."),
    "momentum_decay": (
        lambda value: 0.0 < value <= 1.0,
        ", the fraction of its momentum that a chain loses per step, must be in (0, 1], got {}. "
        "At 1 the sampler is Langevin dynamics (SGLD).",
    ),
    "temperature": (
        _not_negative,
        "must be finite and not negative, got {}. Use 1 for the posterior, 0 for descent without "
        "noise.",
    ),
}


# For settings of users' samplers.
_ANY_FINITE: tuple[Callable[[float], bool], str] = (np.isfinite, "must be finite, got {}.")


def validate(**settings: Any) -> None:
    """Check that settings are in their ranges, by name.

    Only Python numbers are checked.

    :raises ValueError: if one is out of its range.
    """
    for name, value in settings.items():
        is_valid, message = RANGES.get(name, _ANY_FINITE)
        if is_number(value) and not is_valid(value):
            space = "" if message.startswith(",") else " "
            raise ValueError(f"{name}{space}{message.format(value)}")
