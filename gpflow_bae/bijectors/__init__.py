"""TFP bijectors with tractable Jacobians: normalising flows for latent posteriors."""

from .flows import (
    NEAR_IDENTITY,
    check_flow,
    inverse_autoregressive_flow,
    neural_spline_flow,
    planar_flow,
    radial_flow,
    real_nvp_flow,
)
from .networks import AutoregressiveNetwork, DenseNetwork
from .planar import Planar
from .radial import Radial

__all__ = [
    "NEAR_IDENTITY",
    "AutoregressiveNetwork",
    "DenseNetwork",
    "Planar",
    "Radial",
    "check_flow",
    "inverse_autoregressive_flow",
    "neural_spline_flow",
    "planar_flow",
    "radial_flow",
    "real_nvp_flow",
]
