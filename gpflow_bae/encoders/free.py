"""A Gaussian with free parameters for each point of the training data, without amortisation."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from .gaussian import BaseGaussianEncoder

__all__ = ["FreeFormEncoder"]


class FreeFormEncoder(BaseGaussianEncoder):
    """A free mean and log standard deviation for each point (Ashman et al. 2020, "free-form").

    It does not depend on observations, so it has no codes of new data: it is
    for the variational models, with the whole data or minibatches of it, and their predictions
    given the training data. Its gap to an amortised encoder is the amortisation gap.
    """

    takes_indices = True

    @check_arguments(num_tasks=1, num_points=1, latent_dim=1, seed=0)
    def __init__(
        self,
        num_tasks: int,
        num_points: int,
        latent_dim: int,
        initial_mean: TensorType | None = None,
        initial_variance: float = 0.1,
        min_variance: float = 1e-6,
        max_variance: float = 1e3,
        seed: int = 0,
    ):
        """
        :param num_tasks, num_points: T and N of the training data; T = 1 for a single task.
        :param initial_mean: [T, N, L], for example principal components of the observations; by
            default small random numbers, because equal codes would be uninformative for the
            decoder.
        :param initial_variance: variance of each code before training.
        :param min_variance, max_variance: the variance is clipped to this range.
        :param seed: seed of the default ``initial_mean``.
        :raises ValueError: for sizes below 1, or an ``initial_mean`` of another shape.
        """
        super().__init__(name=None)
        shape = (num_tasks, num_points, latent_dim)
        for name, size in zip(("num_tasks", "num_points", "latent_dim"), shape, strict=True):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}.")
        if initial_mean is None:
            initial_mean = np.random.default_rng(seed).normal(0.0, 0.1, shape)
        initial_mean = as_numbers(initial_mean, "initial_mean", gpflow.default_float())
        if initial_mean.shape != shape:
            raise ValueError(
                f"initial_mean must have shape [T, N, L] = {shape}, got {initial_mean.shape}."
            )
        if not min_variance <= initial_variance <= max_variance:
            raise ValueError(
                f"initial_variance must lie between min_variance = {min_variance:g} and "
                f"max_variance = {max_variance:g}, got {initial_variance:g}."
            )
        self.latent_dim = int(latent_dim)
        self.min_variance = float(min_variance)
        self.max_variance = float(max_variance)
        # The first axis is that of items (tasks, or points of a single task): minibatches gather
        # along it, and their gradient then has the size of the minibatch.
        self._single_task = num_tasks == 1
        mean = initial_mean[0] if self._single_task else initial_mean
        self.mean = Parameter(mean)
        self.log_scale = Parameter(np.full(mean.shape, 0.5 * np.log(initial_variance)))

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        """Variables with a row for each item (the first axis)."""
        return self.mean.unconstrained_variable, self.log_scale.unconstrained_variable

    @check_shapes(
        "Y: [batch..., N, P]",
        "mask: [batch..., N, P]",
        "indices: [B]",
        "return[0]: [batch..., N, L]",
        "return[1]: [batch..., N, L]",
    )
    def __call__(
        self,
        Y: TensorType,
        mask: TensorType | None = None,
        indices: TensorType | None = None,
        **side: Any,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean and variance of the codes of the training data, in ``default_float()``.

        :param Y: only its shape is used.
        :param indices: indices of the tasks (points, if there is a single task) of ``Y``; None for
            all of them.
        :raises ValueError: if ``Y`` does not have the shape of these items.
        """
        mean, log_scale = _rows_of(self.mean, indices), _rows_of(self.log_scale, indices)
        if self._single_task:
            mean, log_scale = mean[None], log_scale[None]
        _check_training_rows(mean, Y, indices)
        return mean, self._clipped_variance(log_scale)


def _check_training_rows(mean: tf.Tensor, Y: TensorType, indices: TensorType | None) -> None:
    """Check that observations have the leading shape of the selected codes [T, N, L]."""
    expected, got = tuple(mean.shape[:-1]), tuple(tf.convert_to_tensor(Y).shape[:-1])
    if expected != got:
        what = "the training data" if indices is None else "this minibatch of the training data"
        raise ValueError(
            f"A FreeFormEncoder has codes for the training data only: Y must be {what}, with "
            f"[T, N] = {list(expected)}, got {list(got)}. Use another encoder "
            "(gpflow_bae.encoders.partial_encoder) for other data, in sampled models, and in a "
            "warm start from smoothest projections (num_initial_steps)."
        )


def _rows_of(values: Parameter | tf.Tensor, indices: TensorType | None) -> tf.Tensor:
    """Gather the rows of the items ``indices``; all if it is None."""
    if indices is None:
        return tf.convert_to_tensor(values)
    # Gathered from the variable, not from a tensor of it, rows have a sparse gradient. (If a
    # posterior sample replaces the parameter, it is a tensor.)
    if isinstance(values, Parameter):
        values = values.unconstrained_variable
    return tf.gather(values, indices)
