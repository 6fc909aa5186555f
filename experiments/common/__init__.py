"""What every driver shares: command-line flags and the result format."""

from . import flags, provenance, results, runs

__all__ = ["flags", "provenance", "results", "runs"]
