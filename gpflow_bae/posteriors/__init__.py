"""Banks of posterior samples, and predictions that average over them."""

from .amortized import Posterior
from .completed_inputs import completed_inputs
from .coregionalisation import CoregionalisationPosterior
from .fitted import FittedModel
from .gplvm import GPLVMPosterior
from .input_intervals import InputIntervals, input_intervals
from .predictions import LatentSamples, Prediction
from .stored.bank import Bank
from .tempered import TemperedPosterior

__all__ = [
    "Bank",
    "CoregionalisationPosterior",
    "FittedModel",
    "GPLVMPosterior",
    "InputIntervals",
    "LatentSamples",
    "Posterior",
    "Prediction",
    "TemperedPosterior",
    "completed_inputs",
    "input_intervals",
]
