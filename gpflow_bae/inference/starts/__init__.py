"""Where chains start: at variational fits, at modes, and from which codes those begin."""

from .default_start import default_start
from .initial_codes import smoothest_projections
from .posterior_mode import initial_values
from .prior_mean_start import PriorMeanStart
from .restarts import ModeStart, Restarts, best_restart
from .warm_start import WarmStart

__all__ = [
    "ModeStart",
    "PriorMeanStart",
    "Restarts",
    "WarmStart",
    "best_restart",
    "default_start",
    "initial_values",
    "smoothest_projections",
]
