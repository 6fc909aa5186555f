"""What encoders are given beside the observations: which of them are there, and whose they are."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["append_mask", "side_inputs"]


def side_inputs(
    encoder: Any, mask: TensorType | None, indices: TensorType | None = None
) -> dict[str, Any]:
    """The keyword arguments that ``encoder`` wants in a call beside the observations.

    An encoder says so itself, with the attributes ``takes_mask`` and ``takes_indices``. One that
    has neither is called with observations (and a seed) alone.

    :param mask: [batch..., N, P], True where observed; None where nothing is missing.
    :param indices: which items of the training data these are, as in
        :class:`~gpflow_bae.base.Batch`; None for all of them.
    """
    wanted: dict[str, Any] = {}
    if getattr(encoder, "takes_mask", False):
        wanted["mask"] = mask
    if getattr(encoder, "takes_indices", False):
        wanted["indices"] = indices
    return wanted


def append_mask(Y: TensorType, mask: TensorType | None, num_outputs: int) -> tf.Tensor:
    """``[Y, mask as 0/1]``, [batch..., N, 2 P]: what the network of a mask-taking encoder sees.

    :param num_outputs: P as the network has it.
    :raises ValueError: if ``Y`` has another number of columns.
    """
    Y = tf.convert_to_tensor(Y)
    if Y.shape[-1] != num_outputs:
        raise ValueError(
            f"Y has P = {Y.shape[-1]} columns, but the encoder's network takes observations and "
            f"mask of {num_outputs} outputs."
        )
    seen = tf.ones_like(Y) if mask is None else tf.cast(mask, Y.dtype)
    return tf.concat([Y, seen], axis=-1)
