"""The scikit-learn estimator, with tables that do not fit it."""

from __future__ import annotations

import functools
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

from gpflow_bae.estimators import TemperedAutoencoder
from tests.fuzz.answers import answered, assert_finite, cases
from tests.fuzz.strategies import SCALARS, mutated

ROWS = np.random.default_rng(0).standard_normal((6, 3))
BRIEF = {"num_samples": 8, "num_replicas": 2, "swap_interval": 2, "thinning": 2}


@functools.cache
def fitted() -> TemperedAutoencoder:
    return TemperedAutoencoder(latent_dim=1, encoder_units=(2,), settings=BRIEF).fit(ROWS)


@hypothesis.given(
    mutated(ROWS), st.sampled_from(["transform", "inverse_transform", "score", "reconstruct"])
)
@cases(20)
def test_rows(rows: Any, method: str) -> None:
    found = answered(lambda: getattr(fitted(), method)(rows))
    if found is not None:
        assert_finite(found)


@hypothesis.given(
    st.dictionaries(
        st.sampled_from(
            ["latent_dim", "encoder_units", "activation", "noise_variance", "settings", "codes"]
        ),
        SCALARS,
        min_size=1,
        max_size=2,
    ),
    mutated(ROWS),
)
@cases(10)
def test_wrong_settings(options: dict[str, Any], rows: Any) -> None:
    arguments = {"latent_dim": 1, "encoder_units": (2,), "settings": BRIEF, **options}
    answered(lambda: TemperedAutoencoder(**arguments).fit(rows))
