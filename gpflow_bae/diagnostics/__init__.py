"""Conversion to ArviZ, convergence in function and weight space, stacking, and plots."""

from .convergence import (
    ConvergenceDiagnostics,
    effective_sample_size,
    function_space_diagnostics,
    rank_normalised_rhat,
    weight_space_diagnostics,
)
from .inference_data import to_inference_data
from .plots import rank_plot, trace_plot
from .stacking import stacking_weights

__all__ = [
    "ConvergenceDiagnostics",
    "effective_sample_size",
    "function_space_diagnostics",
    "rank_normalised_rhat",
    "rank_plot",
    "stacking_weights",
    "to_inference_data",
    "trace_plot",
    "weight_space_diagnostics",
]
