"""Inference engines: amortised SG-MCMC, tempered MCMC and variational training."""

from .amortized import AmortizedRound, Chain, RoundStatistics
from .data import TrainingData, prepare_data
from .encoder_losses import encoder_loss
from .initial_codes import smoothest_projections
from .new_rows import latents_for_new
from .objectives import GECO, EvidenceLowerBound, Objective
from .prior_mean_start import PriorMeanStart
from .sampling import sample_amortized
from .settings import AmortizedSettings, VariationalSettings, amortized_preset
from .sparse_table import SparseTable
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
    "SparseTable",
    "TemperedBlocks",
    "TemperedChain",
    "TemperedSettings",
    "TemperedTrace",
    "TrainingData",
    "VariationalSettings",
    "WarmStart",
    "amortized_preset",
    "encoder_loss",
    "fit_variational",
    "latents_for_new",
    "prepare_data",
    "sample_amortized",
    "sample_tempered",
    "smoothest_projections",
    "variational_loss",
]
