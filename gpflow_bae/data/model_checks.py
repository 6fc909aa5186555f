"""What a model's parts refuse of data: asked of models of any kind, with those parts or without."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["SPLITTING_ADVICE", "check_inputs", "check_support"]

SPLITTING_ADVICE = (
    "take a model that splits over points, such as SVGPVAE, a sampled one with "
    'inducing_outputs="sampled", or one with latent_priors.NearestNeighbourGP'
)


def check_inputs(model: Any, X: np.ndarray, name: str = "X") -> None:
    """Refuse inputs [..., D] that a model's kernels cannot read, or not with their digits.

    :param name: what the error calls them.
    :raises ValueError: naming the column.
    """
    check = getattr(model, "check_inputs", None)
    if check is not None:
        check(X, name)


def check_support(
    model: Any, Y: np.ndarray, mask: np.ndarray | None = None, name: str = "Y"
) -> None:
    """Refuse observations [..., P] that a model's likelihood has no density of.

    :param mask: True where observed; None for all but NaN.
    :param name: what the error calls them.
    :raises ValueError: naming the first.
    """
    check = getattr(getattr(model, "observation_likelihood", None), "check_support", None)
    if check is not None:
        check(Y, mask, name)
