"""Banks of posterior samples, and the predictions that average over them."""

from .amortized import Posterior
from .gplvm import GPLVMPosterior
from .predictions import LatentSamples, Prediction
from .tempered import TemperedPosterior

__all__ = ["GPLVMPosterior", "LatentSamples", "Posterior", "Prediction", "TemperedPosterior"]
