"""Data sets of the published experiments, one module each: generate or read, check, split."""

from . import (
    bouncing_ball,
    digests,
    eeg,
    files,
    japan_weather,
    jura,
    mnist,
    moving_ball,
    multi_output,
    rotated_mnist,
    tabular,
)

__all__ = [
    "bouncing_ball",
    "digests",
    "eeg",
    "files",
    "japan_weather",
    "jura",
    "mnist",
    "moving_ball",
    "multi_output",
    "rotated_mnist",
    "tabular",
]
