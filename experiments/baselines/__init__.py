"""What the missing-data experiments compare with: one module per method.

Each has ``fit_predict(table, seed=0, **settings)``, which sees the table's ``X`` and ``Y`` and
returns mean and variance [T, N, P] of what would be measured, noise included, for every row that
is no padding (NaN there), in the units of the outputs. :mod:`scores` compares them with the truth.
"""

from . import gp_fitting, gpar, independent_gps, linear_interpolation, mean, scores

__all__ = ["gp_fitting", "gpar", "independent_gps", "linear_interpolation", "mean", "scores"]
