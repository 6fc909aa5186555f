"""Inference engines: amortised SG-MCMC, tempered MCMC and variational training."""

from .amortized import AmortizedRound, Chain, RoundStatistics
from .encoder_losses import encoder_loss
from .initial_codes import smoothest_projections
from .new_rows import latents_for_new
from .objectives import GECO, EvidenceLowerBound, Objective
from .prior_mean_start import PriorMeanStart
from .sampling import sample_amortized
from .settings import AmortizedSettings, VariationalSettings, amortized_preset
from .tempered import TemperedBlocks, TemperedChain, TemperedTrace
from .tempered_sampling import sample_tempered
from .tempered_settings import METHODS as TEMPERED_METHODS
from .tempered_settings import TemperedSettings
from .variational import fit_variational, variational_loss
from .warm_start import WarmStart

__all__ = [
    "GECO",
    "TEMPERED_METHODS",
    "AmortizedRound",
    "AmortizedSettings",
    "Chain",
    "EvidenceLowerBound",
    "Objective",
    "PriorMeanStart",
    "RoundStatistics",
    "TemperedBlocks",
    "TemperedChain",
    "TemperedSettings",
    "TemperedTrace",
    "VariationalSettings",
    "WarmStart",
    "amortized_preset",
    "encoder_loss",
    "fit_variational",
    "latents_for_new",
    "sample_amortized",
    "sample_tempered",
    "smoothest_projections",
    "variational_loss",
]
