"""Banks of posterior samples, and the predictions that average over them."""

from .amortized import LatentSamples, Posterior, Prediction
from .tempered import TemperedPosterior

__all__ = ["LatentSamples", "Posterior", "Prediction", "TemperedPosterior"]
