"""Priors over latent codes given inputs; they do not depend on observations."""

from .base import GaussianLatentPrior, LatentProcess
from .deep_gp import DeepSparseGP
from .gp import GP
from .inducing import InducingLatentPrior, InducingPosterior
from .markov_gp import MarkovGP
from .nearest_neighbour_gp import NearestNeighbourGP
from .product import ProductPrior, ProductProcess
from .sparse_gp import SparseGP
from .standard import StandardNormal
from .titsias_gp import TitsiasGP

__all__ = [
    "GP",
    "DeepSparseGP",
    "GaussianLatentPrior",
    "InducingLatentPrior",
    "InducingPosterior",
    "LatentProcess",
    "MarkovGP",
    "NearestNeighbourGP",
    "ProductPrior",
    "ProductProcess",
    "SparseGP",
    "StandardNormal",
    "TitsiasGP",
]
