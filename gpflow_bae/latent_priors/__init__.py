"""Priors over codes given inputs; they never see observations."""

from .base import GaussianLatentPrior
from .gp import GP
from .sparse_gp import SparseGP
from .standard import StandardNormal

__all__ = ["GP", "GaussianLatentPrior", "SparseGP", "StandardNormal"]
