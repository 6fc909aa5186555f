"""Inducing points of the latent GP: initial positions, and priors over them."""

from .initialisers import k_means
from .object_view import ObjectViewInducingPoints, object_view_points
from .priors import as_inducing_points, as_inducing_variables, bounded, uniform

__all__ = [
    "ObjectViewInducingPoints",
    "as_inducing_points",
    "as_inducing_variables",
    "bounded",
    "k_means",
    "object_view_points",
    "uniform",
]
