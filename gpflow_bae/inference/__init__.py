"""Inference engines: amortised SG-MCMC, tempered MCMC and variational training."""

from .amortized import AmortizedSampling
from .bound_sampling import BoundSampling
from .chain_sampling import ChainSampling
from .chain_state import Chain, Point, RoundStatistics
from .coregionalisation_fit import BlockFit, fit_coregionalisation
from .encoder_losses import encoder_loss
from .fit import fit
from .fit_check import share_explained
from .input_relocation import relocate_inputs
from .new_rows import latents_for_new
from .objectives import GECO, EvidenceLowerBound, Objective
from .relocation import relocate_codes
from .run import Algorithm, Run, run
from .sampling import sample_amortized, sampling_algorithm
from .seeding import seed_networks
from .settings import AmortizedSettings, VariationalSettings, amortized_preset
from .starts import (
    ModeStart,
    PriorMeanStart,
    Restarts,
    WarmStart,
    best_restart,
    default_start,
    smoothest_projections,
)
from .temperature_check import block_temperatures, blocks_off_temperature
from .tempered import TemperedChain, TemperedSampling, TemperedTrace
from .tempered_sampling import sample_tempered
from .tempered_settings import METHODS as TEMPERED_METHODS
from .tempered_settings import TemperedSettings
from .variational import fit_variational
from .variational_fit import VariationalFit
from .weight_sampling import WeightSampling

__all__ = [
    "GECO",
    "TEMPERED_METHODS",
    "Algorithm",
    "AmortizedSampling",
    "AmortizedSettings",
    "BlockFit",
    "BoundSampling",
    "Chain",
    "ChainSampling",
    "EvidenceLowerBound",
    "ModeStart",
    "Objective",
    "Point",
    "PriorMeanStart",
    "Restarts",
    "RoundStatistics",
    "Run",
    "TemperedChain",
    "TemperedSampling",
    "TemperedSettings",
    "TemperedTrace",
    "VariationalFit",
    "VariationalSettings",
    "WarmStart",
    "WeightSampling",
    "amortized_preset",
    "best_restart",
    "block_temperatures",
    "blocks_off_temperature",
    "default_start",
    "encoder_loss",
    "fit",
    "fit_coregionalisation",
    "fit_variational",
    "latents_for_new",
    "relocate_codes",
    "relocate_inputs",
    "run",
    "sample_amortized",
    "sample_tempered",
    "sampling_algorithm",
    "seed_networks",
    "share_explained",
    "smoothest_projections",
]
