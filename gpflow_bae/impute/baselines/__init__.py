"""What a model of a table has to beat: one module per method.

Each has ``fit_predict(table, seed=0, **settings)``, which sees the table's ``X`` and ``Y`` and
returns mean and variance [T, N, P] of what would be measured, noise included, for every row that
is no padding (NaN there), in the units of the outputs. :mod:`experiments.common.scores` compares
them with the truth.
"""

from . import gp_fitting, independent_gps, iterative_imputer, linear_interpolation, mean

__all__ = [
    "gp_fitting",
    "independent_gps",
    "iterative_imputer",
    "linear_interpolation",
    "mean",
]
