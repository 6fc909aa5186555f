"""Checks of data by the kernels and the likelihood of a model, if it has them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["SPLITTING_ADVICE", "check_inputs", "check_items", "check_support"]

SPLITTING_ADVICE = (
    "take a model that splits over points, such as SVGPVAE, a sampled one with "
    'inducing_outputs="sampled", or one with latent_priors.NearestNeighbourGP'
)


def check_inputs(model: Any, X: np.ndarray, name: str = "X") -> None:
    """Check that a model's kernels can read inputs [..., D], with enough float precision.

    :param name: name of the inputs in error messages.
    :raises ValueError: naming the column.
    """
    check = getattr(model, "check_inputs", None)
    if check is not None:
        check(X, name)


def check_items(model: Any, number: int) -> None:
    """Check that a model with free codes has those of as many items as the data have.

    Minibatches would gather codes of others, which on a GPU are zeros without an error.

    :param number: number of tasks in the data, or of points of a single task.
    :raises ValueError: if not, with both numbers.
    """
    for variable in getattr(getattr(model, "guide", None), "row_variables", ()):
        if variable.shape[0] != number:
            raise ValueError(
                f"The model has codes of {variable.shape[0]} items, and the data have {number} "
                "(tasks, or points of a single task): build its FreeFormEncoder for these data."
            )


def check_support(
    model: Any,
    Y: np.ndarray,
    mask: np.ndarray | None = None,
    name: str = "Y",
    columns: np.ndarray | None = None,
) -> None:
    """Check that observations [..., P] are in the support of a model's likelihood.

    :param mask: True where observed; None for all but NaN.
    :param name: name of the observations in error messages.
    :param columns: columns [K] of observations that are single cells [K].
    :raises ValueError: naming the first that is not.
    """
    check = getattr(getattr(model, "observation_likelihood", None), "check_support", None)
    if check is not None:
        check(Y, mask, name, columns)
