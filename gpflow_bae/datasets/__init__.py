"""Data sets of the published experiments, one module each: generate or read, check, split."""

from . import files, moving_ball, tabular

__all__ = ["files", "moving_ball", "tabular"]
