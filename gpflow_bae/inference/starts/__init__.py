"""Initialisation of chains: variational fits, modes, and the initial codes of these."""

from .default_start import default_start
from .initial_codes import smoothest_projections
from .initializer import Initializer
from .posterior_mode import AdamStart
from .prior_mean_start import PriorMeanStart
from .restarts import ModeStart, Restarts, best_restart, fresh_starts, restart_seed
from .warm_start import WarmStart

__all__ = [
    "AdamStart",
    "Initializer",
    "ModeStart",
    "PriorMeanStart",
    "Restarts",
    "WarmStart",
    "best_restart",
    "default_start",
    "fresh_starts",
    "restart_seed",
    "smoothest_projections",
]
