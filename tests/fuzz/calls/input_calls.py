"""Right arguments, as in ``calls``, of what completes unknown inputs."""

from __future__ import annotations

import numpy as np

from gpflow_bae import inputs as unknown
from tests.fuzz.calls.calls import Call, inputs, kernel, network
from tests.serving.small_posteriors import P


def holes() -> np.ndarray:
    """Inputs of which some entries are missing."""
    X = inputs()
    X[1] = np.nan
    return X


INPUTS: dict[str, Call] = {
    "MissingInputs": (
        unknown.MissingInputs,
        lambda: {
            "X": holes(),
            "periods": {0: 6.0},
            "priors": None,
            "flows": None,
            "q": "point",
            "initial_scale": 0.3,
            "seed": 0,
        },
    ),
    "LearntVectors": (
        unknown.LearntVectors,
        lambda: {
            "vectors": np.ones((4, 2)),
            "column": 0,
            "prior": None,
            "q": "gaussian",
            "initial_scale": 0.3,
            "flow": None,
        },
    ),
    "RepresentationNetwork": (
        unknown.RepresentationNetwork,
        lambda: {"network": network(P, 3), "pooling": "attention", "column": 0},
    ),
    "UniformOnCircle": (unknown.UniformOnCircle, lambda: {"period": 2.0}),
    "CompletedInputs": (
        unknown.CompletedInputs,
        lambda: {"kernel": kernel(), "inputs": unknown.MissingInputs(holes())},
    ),
}
