"""Types and argument checks that the samplers share.

What holds for every sampler of this folder:

- A *position* is any ``tf.nest`` structure (a tensor, list, tuple, dict, NamedTuple) of floating
  tensors. Its leaves may differ in shape and dtype. Updates are elementwise, so any leaf may have
  leading chain dimensions; chains never interact.
- A *gradient* is the gradient of the **log** density (the way up), a structure like the position.
  With minibatches it is the unbiased estimate, N/B already applied; no sampler scales it again.
- ``temperature`` T: the target is density ** (1 / T). The posterior is T = 1; T = 0 has no noise.
- A *seed* is an integer tensor of shape [2], used once; see :mod:`gpflow_bae.mcmc.noise`.
- Settings are scalars, Python numbers or tensors (so that a schedule does not retrace); they are
  cast to each leaf's dtype. Only Python numbers are checked: a tensor's value is not known when a
  graph is built.
- ``State`` is a NamedTuple of structures, with the same shapes and dtypes before and after
  ``update``, as ``tf.while_loop`` and checkpoints want it.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["LogProbFn", "Position", "Scalar", "Seed", "cast_scalar", "is_number", "validate"]

Position: TypeAlias = Any
"""Any ``tf.nest`` structure of floating tensors."""

Scalar: TypeAlias = float | TensorType
"""A Python number or a scalar tensor."""

Seed: TypeAlias = TensorType
"""Two integers: a stateless seed."""

LogProbFn: TypeAlias = Callable[..., tf.Tensor]
"""Takes the parts of a position as arguments and returns the log density of each chain."""


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a setting is a Python number: not a tensor, a schedule, or a truth value."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def cast_scalar(value: Scalar, dtype: tf.DType) -> tf.Tensor:
    """A setting in a leaf's dtype (``tf.cast`` would round a Python float to float32 first)."""
    return tf.cast(value, dtype) if tf.is_tensor(value) else tf.convert_to_tensor(value, dtype)


def validate(
    *,
    step_size: Scalar | None = None,
    momentum_decay: Scalar | None = None,
    temperature: Scalar | None = None,
    noise_scale: Scalar | None = None,
    learning_rate: Scalar | None = None,
    inverse_temperature: Scalar | None = None,
    gradient_probability: Scalar | None = None,
) -> None:
    """Refuse settings for which a sampler has no meaning; tensors and None are let through.

    :raises ValueError: if ``step_size`` or ``noise_scale`` is not positive and finite,
        ``momentum_decay`` is not in (0, 1], ``gradient_probability`` not in [0, 1], or one of the
        others is negative or not finite.
    """
    if is_number(noise_scale) and not 0.0 < noise_scale < np.inf:
        raise ValueError(f"noise_scale must be positive and finite, got {noise_scale}.")
    for name, value in (
        ("learning_rate", learning_rate),
        ("inverse_temperature", inverse_temperature),
    ):
        if is_number(value) and not 0.0 <= value < np.inf:
            raise ValueError(f"{name} must be finite and not negative, got {value}.")
    if is_number(gradient_probability) and not 0.0 <= gradient_probability <= 1.0:
        raise ValueError(f"gradient_probability must be in [0, 1], got {gradient_probability}.")
    if is_number(step_size) and not 0.0 < step_size < np.inf:
        raise ValueError(f"step_size must be positive and finite, got {step_size}.")
    if is_number(momentum_decay) and not 0.0 < momentum_decay <= 1.0:
        raise ValueError(
            "momentum_decay, the fraction of its momentum that a chain loses per step, must be in "
            f"(0, 1], got {momentum_decay}. At 1 the sampler is Langevin dynamics (SGLD)."
        )
    if is_number(temperature) and not 0.0 <= temperature < np.inf:
        raise ValueError(
            f"temperature must be finite and not negative, got {temperature}. Use 1 for the "
            "posterior, 0 for descent without noise."
        )
