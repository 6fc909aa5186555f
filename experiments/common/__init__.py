"""What every study shares: the driver, its flags, and the result format."""

from . import driver, flags, pages, plans, provenance, results

__all__ = ["driver", "flags", "pages", "plans", "provenance", "results"]
