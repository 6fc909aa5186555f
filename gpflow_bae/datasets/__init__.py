"""Data sets of the published experiments, one module each: generate or read, check, split."""

from . import (
    bouncing_ball,
    eeg,
    files,
    japan_weather,
    jura,
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
