"""Data sets of the published experiments, one module each: generate or read, check, split."""

from . import files, mnist, moving_ball, rotated_mnist, tabular

__all__ = ["files", "mnist", "moving_ball", "rotated_mnist", "tabular"]
