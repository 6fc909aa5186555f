"""Checks of data by the kernels and the likelihood of a model, if it has them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["SPLITTING_ADVICE", "check_inputs", "check_support"]

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


def check_support(
    model: Any, Y: np.ndarray, mask: np.ndarray | None = None, name: str = "Y"
) -> None:
    """Check that observations [..., P] are in the support of a model's likelihood.

    :param mask: True where observed; None for all but NaN.
    :param name: name of the observations in error messages.
    :raises ValueError: naming the first that is not.
    """
    check = getattr(getattr(model, "observation_likelihood", None), "check_support", None)
    if check is not None:
        check(Y, mask, name)
