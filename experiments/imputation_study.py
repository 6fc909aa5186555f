"""Where :mod:`experiments.impute` finds fits and predictions; it is to go with that command."""

from experiments.imputation.study import fit, predict, run

__all__ = ["fit", "predict", "run"]
