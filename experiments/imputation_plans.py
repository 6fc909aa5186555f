"""Where :mod:`experiments.impute` finds the plans; it is to go with that command."""

from experiments.imputation.plans import Plan, build_model, default_plan

__all__ = ["Plan", "build_model", "default_plan"]
