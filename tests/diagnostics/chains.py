"""Chains that the tests of this folder share."""

import numpy as np

C, S = 4, 500


def independent(*event: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((C, S, *event))
