"""Published baselines of the missing-data experiments beside those of gpflow_bae.impute."""

from . import gpar

__all__ = ["gpar"]
