"""Arguments are refused for what they are, in words, before anything is computed with them."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from gpflow_bae import inference, latent_priors, mcmc, models
from gpflow_bae.core.annotations import check_arguments, check_fields
from gpflow_bae.core.arguments import as_array, as_numbers
from gpflow_bae.core.scales import spread
from gpflow_bae.data import prepare_data
from gpflow_bae.data.memory import check_bytes
from tests.serving import small_posteriors


@check_arguments(count=1, widths=2)
def taken(
    count: int,
    rate: float | None = 1.0,
    kind: Literal["a", "b"] = "a",
    widths: tuple[int, ...] = (),
    flag: bool = False,
    kernel: gpflow.kernels.Kernel | None = None,
    array: tf.Tensor | float = 0.0,
    seed: int = 0,
    names: tuple[str, ...] | None = None,
) -> int:
    return count


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"count": 0}, ValueError, "count must be at least 1, got 0"),
        ({"count": 1.0}, TypeError, "count must be an integer of at least 1, got 1.0"),
        ({"count": True}, TypeError, "count must be an integer"),
        ({"count": 2**40}, ValueError, "count must be an integer from 1 to 2000000000"),
        ({"rate": np.nan}, ValueError, "rate must be finite, got nan"),
        ({"rate": "fast"}, TypeError, "rate must be a number or None, got 'fast'"),
        ({"kind": "c"}, ValueError, "kind must be one of 'a', 'b', got 'c'"),
        ({"widths": (1,)}, ValueError, "widths must be a sequence, each entry an integer"),
        ({"widths": "22"}, TypeError, "widths must be a sequence"),
        ({"flag": 1}, TypeError, "flag must be True or False, got 1"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"names": "ab"}, TypeError, "names must be a sequence, each entry a string, or None"),
        ({"kernel": 3}, TypeError, "kernel must be a gpflow Kernel or None, got 3"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        taken(**{"count": 1, **wrong})


def test_right_arguments() -> None:
    """NumPy's numbers and scalars are numbers, and what takes tensors takes everything."""
    assert taken(np.int64(3), np.float32(0.5), "b", [2, 3], np.True_, array="x") == 3  # type: ignore
    assert taken(1, np.array(0.5), kernel=gpflow.kernels.Matern12()) == 1  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        taken()  # type: ignore[call-arg]


def test_fields_of_settings() -> None:
    @dataclasses.dataclass
    class Settings:
        steps: int = 1

        def __post_init__(self) -> None:
            check_fields(self, steps=0)

    assert Settings(0).steps == 0
    with pytest.raises(ValueError, match="steps must be at least 0, got -1"):
        Settings(-1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["1.5"], "text"),
        (np.array([None, "1"], object), "it holds text"),
        ([1j], "complex"),
        (np.array(["2024"], "datetime64[s]"), "datetime64"),
        ([[1.0], [1.0, 2.0]], "rows of equal lengths"),
        ([np.ones(2), np.ones(3)], r"arrays of shapes \[\(2,\), \(3,\)\], .* as x\[:, None\] is"),
        ([1e300], r"holds 1e\+300, more than float32 can hold"),
    ],
)
def test_what_is_no_array_of_numbers(values: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        as_numbers(values, "Y", np.float32)


def test_what_is_masked_or_missing_is_nan() -> None:
    """NumPy's asarray drops a mask, and what was under it would be data."""
    masked = np.ma.masked_array([1, 2], mask=[True, False])
    np.testing.assert_array_equal(as_numbers(masked, "Y"), [np.nan, 2.0])
    frame = pd.DataFrame({"a": pd.array([None, 3], dtype="Int64")})
    np.testing.assert_array_equal(as_numbers(frame, "Y"), [[np.nan], [3.0]])
    Y = np.ma.masked_array(np.ones((4, 3)), mask=np.eye(4, 3) > 0)
    found = prepare_data(small_posteriors.variational(models.VAE).model, (None, Y))
    np.testing.assert_array_equal(found.mask[0], ~Y.mask)


def test_settings_that_are_no_numbers() -> None:
    with pytest.raises(ValueError, match="learning_rate must be finite, got inf"):
        inference.VariationalSettings(learning_rate=np.inf)
    with pytest.raises(TypeError, match="batch_size must be an integer or None, got 1.5"):
        inference.AmortizedSettings(batch_size=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="step_size must be a number, a scalar tensor"):
        mcmc.sghmc.build(step_size=np.array([0.1, 0.2]))
    with pytest.raises(ValueError, match="step_size must be positive and finite, got nan"):
        mcmc.sghmc.build(step_size=np.array(np.nan))
    with pytest.raises(TypeError, match="data must be a pair"):
        prepare_data(small_posteriors.sgp_bae(), np.ones((3, 3)))  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="code_noise_variance must be finite, got nan"):
        latent_priors.GP(gpflow.kernels.Matern12(), 2, np.nan)


def test_more_memory_than_there_is_is_said_before_starting() -> None:
    check_bytes(1e3, "This needs", "Take less.")
    with pytest.raises(ValueError, match="This needs at least 1000000000 GB, and .*Take less"):
        check_bytes(1e18, "This needs", "Take less.")
    model = small_posteriors.sgp_bae()
    settings = inference.AmortizedSettings(num_samples=10**9)
    data = small_posteriors.data()
    with pytest.raises(ValueError, match=r"1000000000 samples of 2 chain\(s\) need at least"):
        inference.sample_amortized(model, data, settings, num_chains=2, warm_start=None)
    posterior = small_posteriors.sampled_sgp_bae()
    with pytest.raises(ValueError, match="each of 5 posterior samples needs at least"):
        posterior.encode(np.ones((8, 3)), num_draws=10**9)


@pytest.mark.parametrize("constant", [48.85, 0.1, 1e12 + 0.1, -3.0, 0.0])
def test_spread_of_a_constant_is_one(constant):
    values = np.stack([np.full(40, constant), np.arange(40.0), np.full(40, np.nan)], -1)
    values[3, 1] = np.nan
    expected = [1.0, np.nanstd(values[:, 1]), 1.0]
    np.testing.assert_allclose(spread(values), expected, rtol=1e-15)


@pytest.mark.parametrize("unit", [1e-200, 1e-30, 1e30, 1e200])
def test_spread_of_what_has_no_squares(unit):
    """1e-200 squared is 0, and 1e200 squared is infinite: as scales they would be 0 and that."""
    values = np.array([[1.0, 2.0], [3.0, np.nan], [8.0, 5.0]])
    np.testing.assert_allclose(spread(unit * values), unit * np.nanstd(values, 0), rtol=1e-14)
    np.testing.assert_allclose(spread(unit * values, (0, 1)), unit * np.nanstd(values), rtol=1e-14)


def test_spread_of_what_nearly_is_constant():
    rounded = np.array([0.1 + 0.2, 0.3, 0.3])  # a unit in the last place apart
    assert spread(rounded) == 1.0
    apart = 48.85 + 1e-9 * np.arange(5)
    np.testing.assert_allclose(spread(apart), apart.std(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int64", "Int64", "uint8", "float32", "Float64", "boolean"])
def test_complete_columns_of_frames_keep_their_types(dtype: str) -> None:
    """Indices may be columns of a frame, and missing entries alone make numbers of them NaN."""
    column = pd.Series([1, 0, 1], dtype=dtype)
    found = as_array(column, "rows")
    assert found.dtype == np.dtype(dtype.lower().replace("boolean", "bool"))
    np.testing.assert_array_equal(found, [1, 0, 1])
    if dtype in ("Int64", "Float64"):
        holed = as_numbers(pd.Series([1, None, 1], dtype=dtype), "rows")
        np.testing.assert_array_equal(holed, [1.0, np.nan, 1.0])
