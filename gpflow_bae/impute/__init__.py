"""Fill the missing cells of a table, with uncertainty, and check the result on hidden cells."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .check.result import CheckResult
from .reading.problems import TableError
from .reading.table_format import TableFormat

if TYPE_CHECKING:
    from .imputer import Imputer
    from .model import Plan
    from .reading.grid import insert_rows
    from .reading.user_table import Imputed, UserTable
    from .transformer import TableTransformer

__all__ = [
    "CheckResult",
    "Imputed",
    "Imputer",
    "Plan",
    "TableError",
    "TableFormat",
    "TableTransformer",
    "UserTable",
    "insert_rows",
]

# Modules that need TensorFlow are imported on first use, so that a command can report what is wrong
# with a table without waiting for them.
_MODULES = {
    "Imputed": "reading.user_table",
    "Imputer": "imputer",
    "Plan": "model",
    "TableTransformer": "transformer",
    "UserTable": "reading.user_table",
    "insert_rows": "reading.grid",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
