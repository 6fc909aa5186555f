"""Requests that no client should send: an answer of finite numbers, or a refusal in words."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from gpflow_bae import serving
from tests.fuzz.answers import answered, assert_finite, cases
from tests.fuzz.strategies import arrays
from tests.serving import small_posteriors


@pytest.fixture(scope="module")
def served() -> serving.ServedModel:
    return serving.ServedModel(small_posteriors.sampled_sgp_bae(), num_draws=4)


SIGNATURES = st.sampled_from(["encode", "decode", "reconstruct", "generate", "impute", "", "fit"])
NAMES = st.sampled_from(["x", "y", "latents", "z"])


@hypothesis.given(SIGNATURES, st.dictionaries(NAMES, arrays(), max_size=2), st.integers())
@cases(60)
def test_any_request(
    served: serving.ServedModel, signature: str, rows: dict[str, Any], seed: int
) -> None:
    found = answered(lambda: served.answer(signature, seed, **rows))
    if found is not None:
        assert_finite(found)
