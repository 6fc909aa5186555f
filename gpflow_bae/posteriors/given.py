"""Checks of the observations and inputs that a user passes to a posterior's predictions."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..core.arguments import as_numbers
from ..data import as_inputs, as_pair, mask_missing
from ..data.model_checks import check_inputs, check_support
from ..data.observations import check_same_points
from ..models import Autoencoder

__all__ = ["Data", "Given", "check_given", "check_new_inputs"]

Data: TypeAlias = tuple[tf.Tensor | None, tf.Tensor, tf.Tensor | None]
"""Inputs, observations with zeros where missing, and the mask (None if nothing is missing)."""
Given: TypeAlias = tuple[TensorType | None, TensorType] | None
"""Inputs and observations that a user conditions on; None for the data of the fit."""


def check_given(
    model: Autoencoder,
    training: Data,
    given: tuple[TensorType | None, TensorType],
    needs_inputs: bool = True,
) -> Data:
    """Check ``given`` and convert it to tensors.

    :param training: the data of the fit.
    :param given: inputs [T or 1, N, D] (or [N, D], or None) and observations [T, N, P] (or [N, P])
        with NaN where missing.
    :param needs_inputs: whether inputs are required, with as many points as the observations.
    :raises ValueError: for infinities, another width than in training, inputs that are missing or
        of another number of points, or an encoder that has codes of the training data only.
    """
    X, Y = as_pair(given, "given")
    Y = as_numbers(Y, "Y", np.float32)
    Y = Y[None] if Y.ndim == 2 else Y
    width = training[1].shape[-1]
    if Y.ndim != 3 or Y.shape[-1] != width:
        raise ValueError(
            f"Y must have shape [T, N, P] with P = {width} as in training, got {Y.shape}."
        )
    if X is None and needs_inputs and model.needs_inputs:
        raise ValueError(
            f"{model.latent_prior_name} is a prior over inputs: X is needed beside Y, got None."
        )
    X = None if X is None else as_inputs(X, training[0], inputs=model.inputs)
    if X is not None and needs_inputs:
        check_same_points(X.shape, Y.shape)
    if X is not None:
        check_inputs(model, X.numpy())
    values, seen = mask_missing(Y)
    check_support(model, values, seen)
    if model.encoder.takes_indices and not _is_training_data(training, values, seen):
        raise ValueError(
            f"{type(model.encoder).__name__} has codes for the training data only; leave "
            "given out, or pass the training data themselves."
        )
    mask = None if seen.all() else tf.constant(seen)
    return X, tf.constant(values), mask


def check_new_inputs(
    model: Autoencoder,
    Xnew: TensorType,
    like: tf.Tensor | None,
    given: Data,
) -> tf.Tensor:
    """Check and convert inputs [T or 1, N, D] to predict at.

    :param like: the training inputs.
    :param given: the conditioning data.
    :raises ValueError: for another width than in training, NaN, or another number of tasks.
    """
    Xnew = as_inputs(Xnew, like, "Xnew", model.inputs)
    check_inputs(model, Xnew.numpy(), "Xnew")
    num_tasks = int(given[1].shape[0])
    if model.inputs is not None:
        model.inputs.check_known(Xnew, given[0])
    if Xnew.shape[0] not in (1, num_tasks):
        raise ValueError(
            f"Xnew must have one task, or the {num_tasks} that are conditioned on, got "
            f"{Xnew.shape[0]}; inputs that all tasks share are [N, D]."
        )
    return Xnew


def _is_training_data(training: Data, values: np.ndarray, seen: np.ndarray) -> bool:
    """Whether observations and mask equal those of the fit."""
    _, train, mask = training
    same_holes = seen.all() if mask is None else np.array_equal(mask, seen)
    return bool(same_holes) and np.array_equal(train, values)
