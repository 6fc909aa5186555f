"""Conversion to ArviZ, convergence in function and weight space, and stacking."""

from .convergence import (
    ConvergenceDiagnostics,
    effective_sample_size,
    function_space_diagnostics,
    rank_normalised_rhat,
    weight_space_diagnostics,
)
from .inference_data import to_inference_data
from .stacking import stacking_weights

__all__ = [
    "ConvergenceDiagnostics",
    "effective_sample_size",
    "function_space_diagnostics",
    "rank_normalised_rhat",
    "stacking_weights",
    "to_inference_data",
    "weight_space_diagnostics",
]
