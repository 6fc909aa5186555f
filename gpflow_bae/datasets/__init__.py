"""Data sets of the published experiments, one module each: generate or read, check, split."""

from . import moving_ball

__all__ = ["moving_ball"]
