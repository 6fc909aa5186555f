"""The model of a user's table: a linear model of coregionalisation, stacked and calibrated.

:class:`~gpflow_bae.models.LinearCoregionalisation` is what a GP autoencoder with a linear decoder
and Gaussian noise is once its codes are integrated out: no encoder has to be taught, and cells that
are observed in any pattern tell of those that are not. Here is what a table adds: ``calendar`` is
what all rows share, ``rows`` what the cells of a row tell of each other, ``gaps`` are holes shaped
like the table's own, and ``calibration`` weighs and widens by how well those were filled.
"""

from .calendar import PERIODS, calendar_features, visible_periods
from .fitting import fit
from .plan import Plan, plan_of_table
from .posterior import TablePosterior

__all__ = [
    "PERIODS",
    "Plan",
    "TablePosterior",
    "calendar_features",
    "fit",
    "plan_of_table",
    "visible_periods",
]
