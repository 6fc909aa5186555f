"""Counts in tissue: spatial transcriptomics by Gaussian-process autoencoders.

Cells come as AnnData objects (the extra ``spatial`` brings anndata).
"""

from .plans import NetworkPlan, SpatialPlan
from .platforms import read_slide_seq, read_visium
from .predictions import SpatialPrediction
from .spatial_bae import SpatialBAE

__all__ = [
    "NetworkPlan",
    "SpatialBAE",
    "SpatialPlan",
    "SpatialPrediction",
    "read_slide_seq",
    "read_visium",
]
