"""Inference engines: amortised SG-MCMC, tempered MCMC and variational training."""

from .chain_state import Chain, Point, RoundStatistics
from .checks.fit_check import share_explained
from .checks.temperature_check import block_temperatures, blocks_off_temperature
from .engines.amortized import AmortizedSampling
from .engines.bound_sampling import BoundSampling
from .engines.chain_sampling import ChainSampling
from .engines.tempered import TemperedChain, TemperedSampling, TemperedTrace
from .engines.weight_sampling import WeightSampling
from .fit import fit
from .new_rows import latents_for_new
from .optimise.coregionalisation_fit import BlockFit, fit_coregionalisation
from .optimise.encoder_losses import encoder_loss
from .optimise.input_relocation import relocate_inputs
from .optimise.objectives import GECO, EvidenceLowerBound, Objective
from .optimise.relocation import relocate_codes
from .optimise.variational_fit import VariationalFit
from .preconditioning import Whitening
from .presets import amortized_preset
from .runs.run import Algorithm, Run, run
from .sampling import sample_amortized, sampling_algorithm
from .seeding import seed_networks
from .settings import AmortizedSettings, EncoderSettings, VariationalSettings
from .starts.default_start import default_start
from .starts.initial_codes import smoothest_projections
from .starts.initializer import Initializer
from .starts.posterior_mode import AdamStart
from .starts.prior_mean_start import PriorMeanStart
from .starts.restarts import ModeStart, Restarts, best_restart
from .starts.warm_start import WarmStart
from .tempered_sampling import sample_tempered
from .tempered_settings import Proposal, TemperedSettings
from .variational import fit_variational

__all__ = [
    "GECO",
    "AdamStart",
    "Algorithm",
    "AmortizedSampling",
    "AmortizedSettings",
    "BlockFit",
    "BoundSampling",
    "Chain",
    "ChainSampling",
    "EncoderSettings",
    "EvidenceLowerBound",
    "Initializer",
    "ModeStart",
    "Objective",
    "Point",
    "PriorMeanStart",
    "Proposal",
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
    "Whitening",
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
