"""Inducing points of the latent GP: initial positions, and priors over them."""

from .initialisers import k_means
from .priors import as_inducing_points, uniform

__all__ = ["as_inducing_points", "k_means", "uniform"]
