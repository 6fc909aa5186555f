"""Redesigns do not change the default chains: small runs of every engine, stored once.

Settings and data are those of ``reference_cases``. A run is a few hundred float32 operations in a
fixed order; 1e-6 leaves room for another processor's rounding, and for nothing else: one wrong seed
moves every draw by its standard deviation. Accepted proposals of tempered chains amplify rounding
(another processor moved HMC's weights by 6e-5), so these have 1e-3, still far below a draw.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.inference.reference_cases import CASES, STORED


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_the_stored_one(name: str) -> None:
    found = CASES[name]()
    with np.load(STORED) as file:
        stored = {k.removeprefix(f"{name}/"): file[k] for k in file.files if k.startswith(name)}
    assert found.keys() == stored.keys()
    for key, value in stored.items():
        scale = max(1.0, float(np.max(np.abs(value)))) if value.dtype.kind == "f" else 1.0
        close = 1e-3 if name.startswith("tempered") else 1e-6
        np.testing.assert_allclose(found[key], value, rtol=close, atol=close * scale, err_msg=key)
