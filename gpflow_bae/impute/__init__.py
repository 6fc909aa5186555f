"""Fill the holes of a table, with uncertainty, and see whether to trust it."""

from .imputer import Imputer
from .plans import Plan, build_model, make_plan, plan_for_table
from .user_table import Imputed, UserTable

__all__ = [
    "Imputed",
    "Imputer",
    "Plan",
    "UserTable",
    "build_model",
    "make_plan",
    "plan_for_table",
]
