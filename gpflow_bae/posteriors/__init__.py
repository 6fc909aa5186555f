"""Banks of posterior samples, and the predictions that average over them."""

from .amortized import Posterior
from .predictions import LatentSamples, Prediction
from .tempered import TemperedPosterior

__all__ = ["LatentSamples", "Posterior", "Prediction", "TemperedPosterior"]
