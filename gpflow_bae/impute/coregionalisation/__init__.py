"""A linear model of coregionalisation of a table's columns, exact in blocks of its rows.

It is what a GP autoencoder with a linear decoder and Gaussian noise is once its codes are
integrated out: no encoder has to be taught, and cells that are observed in any pattern tell of
those that are not. ``model`` has the equations, ``blocks`` what each block of rows sees,
``calendar`` what all rows share, ``fitting`` hyperparameters and calibration, ``posterior`` what is
kept.
"""

from .calendar import PERIODS, calendar_features, visible_periods
from .fitting import fit
from .model import LinearCoregionalisation
from .plan import CoregionalisationPlan, plan_of_table
from .posterior import CoregionalisationPosterior

__all__ = [
    "PERIODS",
    "CoregionalisationPlan",
    "CoregionalisationPosterior",
    "LinearCoregionalisation",
    "calendar_features",
    "fit",
    "plan_of_table",
    "visible_periods",
]
