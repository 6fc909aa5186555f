"""Data sets of the published experiments: one module for each generates or reads and splits it."""

from . import (
    bouncing_ball,
    eeg,
    files,
    japan_weather,
    jura,
    missbench,
    missing_mnist,
    mnist,
    movielens,
    moving_ball,
    oil_flow,
    rotated_mnist,
    sprites,
    tabular,
    tsi_bench,
)

__all__ = [
    "bouncing_ball",
    "eeg",
    "files",
    "japan_weather",
    "jura",
    "missbench",
    "missing_mnist",
    "mnist",
    "movielens",
    "moving_ball",
    "oil_flow",
    "rotated_mnist",
    "sprites",
    "tabular",
    "tsi_bench",
]
