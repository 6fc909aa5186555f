"""The model of a user's table: a linear model of coregionalisation, stacked and calibrated.

:class:`~gpflow_bae.models.LinearCoregionalisation` is what a GP autoencoder with a linear decoder
and Gaussian noise is once its codes are integrated out: no encoder has to be fitted, and cells are
predicted from any pattern of observed ones. Tables add to it: periodic means shared by all rows
(``calendar``), a Gaussian of the cells of single rows (``rows``), and the weight of both models and
the scale of variances (``calibration``), from hidden gaps shaped like the table's own (``gaps``).
Where many tasks have the same rows, such as windows of a day, a joint distribution of all cells of
a task (``tasks``, ``task_fitting``) takes the place of the GPs, from whose covariance it starts.
"""

from .calendar import PERIODS, calendar_features, visible_periods
from .fitting import fit
from .plan import Plan
from .posterior import TablePosterior

__all__ = [
    "PERIODS",
    "Plan",
    "TablePosterior",
    "calendar_features",
    "fit",
    "visible_periods",
]
