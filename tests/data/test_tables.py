"""Tables with missing cells: what is refused, what is standardised, what validation may hide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpflow_bae.core.output_transforms import Identity, Log, Logit
from gpflow_bae.data import MultiOutputTable, Standardiser, hold_out, pad_tasks

NAN = np.nan


def make_table(**changes: Any) -> MultiOutputTable:
    """Two tasks of six rows, two outputs, one test cell; task 1 has four rows only."""
    X = np.tile(np.arange(6.0)[:, None], (2, 1, 1))
    truth = np.arange(24.0).reshape(2, 6, 2)
    truth[1, 4:] = NAN
    mask = np.zeros(truth.shape, bool)
    mask[0, 2, 1] = True
    arguments: dict[str, Any] = {
        "X": X,
        "Y": np.where(mask, NAN, truth),
        "truth": truth,
        "test_mask": mask,
        "output_names": ("a", "b"),
        "lengths": np.array([6, 4]),
    }
    return MultiOutputTable(**(arguments | changes))


def test_a_table_tells_what_is_seen_and_what_is_scored() -> None:
    table = make_table()
    assert np.count_nonzero(table.observed) == 12 - 1 + 8
    assert table.rows.tolist() == [[True] * 6, [True] * 4 + [False] * 2]
    assert np.argwhere(~np.isnan(table.test_truth)).tolist() == [[0, 2, 1]]
    assert table.test_truth[0, 2, 1] == 5.0
    second = table.select([1])
    assert second.num_tasks == 1 and second.lengths.tolist() == [4]
    np.testing.assert_array_equal(second.Y, table.Y[1:])
    np.testing.assert_array_equal(table.select([False, True]).Y, second.Y)
    with pytest.raises(ValueError, match="read-only"):
        table.Y[0, 0, 0] = 1.0


def test_plain_arrays_make_a_table() -> None:
    table = MultiOutputTable(np.arange(3.0)[None, :, None], np.ones((1, 3, 2)))
    assert table.output_names == ("y0", "y1") and table.input_names == ("x0",)
    assert not table.test_mask.any() and table.rows.all()


def test_rows_and_columns_may_be_empty() -> None:
    Y = np.ones((1, 6, 2))
    Y[0, 3], Y[..., 1] = NAN, NAN
    table = MultiOutputTable(np.arange(6.0)[None, :, None], Y)
    assert np.count_nonzero(table.observed) == 5


def with_cell(name: str, index: tuple[int, ...], value: float) -> dict[str, np.ndarray]:
    array = np.array(getattr(make_table(), name))
    array[index] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.zeros((2, 5, 1))}, r"X has shape \(2, 5, 1\).*expected X \[T, N, D\]"),
        ({"truth": np.zeros((1, 6, 2))}, r"truth has shape \(1, 6, 2\)"),
        ({"test_mask": np.zeros((2, 6, 2))}, "test_mask has the type float64"),
        ({"output_names": ("a",)}, "output_names is .* expected 2 different names"),
        ({"output_names": ("a", "a")}, "expected 2 different names"),
        ({"lengths": np.array([6, 7])}, r"lengths is \[6, 7\]; expected 2 integers from 1 to 6"),
        ({"lengths": np.array([6, 3])}, "Y has an output in task 1, row 3"),
        (with_cell("X", (0, 1, 0), NAN), "X is NaN or infinite in task 0, row 1, column 0"),
        (with_cell("X", (0, 4, 0), 1.0), r"Task 0 has the input \[1.0\] in rows 1 and 4"),
        (with_cell("Y", (1, 0, 1), np.inf), "Y is infinite in task 1, row 0, output 'b'"),
        (with_cell("truth", (0, 0, 0), -1.0), "disagree in task 0, row 0, output 'a': 0 and -1"),
        (with_cell("truth", (0, 2, 1), NAN), r"1 outputs that nobody knows \(truth is NaN\)"),
        (with_cell("Y", (0, 2, 1), 5.0), "1 outputs that the model sees"),
    ],
)
def test_what_makes_no_table_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_table(**changes)


def test_padding_may_repeat_an_input() -> None:
    X = np.array(make_table().X)
    X[1, 4:] = X[1, 3]
    assert make_table(X=X).rows[1].sum() == 4


def test_padded_tasks_keep_their_rows() -> None:
    short, long = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]])
    inputs, lengths = pad_tasks([short, long], is_input=True)
    outputs, _ = pad_tasks([short, long], is_input=False)
    assert lengths.tolist() == [1, 2]
    np.testing.assert_array_equal(inputs, [[[1, 2], [1, 2]], [[3, 4], [5, 6]]])
    np.testing.assert_array_equal(outputs, [[[1, 2], [NAN, NAN]], [[3, 4], [5, 6]]])
    for wrong in ([], [short, np.zeros((0, 2))], [short, np.zeros((2, 3))]):
        with pytest.raises(ValueError, match="arrays have the shapes"):
            pad_tasks(wrong, is_input=True)


def test_standardised_outputs_have_mean_0_and_variance_1() -> None:
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((3, 50, 2)) * [2.0, 100.0] + [5.0, -300.0]
    Y[rng.random(Y.shape) < 0.3] = NAN
    scale = Standardiser.fit(Y)
    standard = scale.transform(Y)
    # Exact up to rounding: 1e-12 of numbers of order 1.
    np.testing.assert_allclose(np.nanmean(standard, (0, 1)), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.nanvar(standard, (0, 1)), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(np.isnan(standard), np.isnan(Y))
    again, variance = scale.inverse_moments(standard, np.zeros_like(standard))
    np.testing.assert_allclose(again, Y, rtol=1e-12)
    np.testing.assert_array_equal(variance, 0.0)
    with pytest.raises(ValueError, match="Y has 1 outputs; this standardiser was fitted to 2"):
        scale.transform(Y[..., :1])
    # The variance of a variable whose standardised variance is 4.
    draws = scale.inverse_moments(2.0 * standard, standard)[0]
    four = np.full(2, 4.0)
    np.testing.assert_allclose(
        scale.inverse_moments(four, four)[1], np.nanvar(draws, (0, 1)), rtol=1e-12
    )


def test_tasks_of_unequal_lengths_share_one_scale() -> None:
    rng = np.random.default_rng(5)
    tasks = [rng.standard_normal((n, 2)) * [2.0, 9.0] + 5.0 for n in (7, 4)]
    tasks[0][2, 1] = NAN
    scale, of_all = Standardiser.fit(tasks), Standardiser.fit(np.concatenate(tasks))
    np.testing.assert_allclose([scale.mean, scale.std], [of_all.mean, of_all.std], rtol=1e-12)
    for found, task in zip(scale.transform(tasks), tasks, strict=True):
        np.testing.assert_array_equal(found, scale.transform(task))


def test_log_outputs_come_back_as_lognormal_moments() -> None:
    rng = np.random.default_rng(1)
    Y = np.exp(0.7 * rng.standard_normal((200, 1)) + 1.5)
    scale = Standardiser.fit(Y, ("cadmium",), log_outputs=True)
    again, _ = scale.inverse_moments(scale.transform(Y), np.zeros_like(Y))
    np.testing.assert_allclose(again, Y, rtol=1e-12)
    # Against moments of draws: 4e5 of them put the mean within 0.2 % and, the tail being heavy,
    # the variance within 3 % (four of their standard errors).
    draws = 0.4 + 0.5 * rng.standard_normal((400_000, 1))
    direct, _ = scale.inverse_moments(draws, np.zeros_like(draws))
    mean, variance = scale.inverse_moments(np.array([0.4]), np.array([0.25]))
    np.testing.assert_allclose(mean, direct.mean(0), rtol=2e-3)
    np.testing.assert_allclose(variance, direct.var(0), rtol=3e-2)
    with pytest.raises(ValueError, match=r"log_outputs needs positive outputs; \['cadmium'\]"):
        Standardiser.fit(Y - 1.5, ("cadmium",), log_outputs=True)


def test_the_log_jacobian_is_the_slope_of_the_transform() -> None:
    """By central differences, for each kind of transform; what is missing has none."""
    transforms = (Identity(), Log(), Log(0.5), Logit(0.0, 9.0))
    rng = np.random.default_rng(3)
    Y = rng.uniform(1.0, 8.0, (40, 4))
    scale = Standardiser.fit(Y, transforms=transforms)
    Y[0] = NAN
    slope = (scale.transform(Y + 1e-5) - scale.transform(Y - 1e-5)) / 2e-5
    np.testing.assert_allclose(scale.log_jacobian(Y), np.log(slope), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([NAN, NAN, NAN], "Output 'b' is never observed"),
        ([NAN, 2.0, 2.0], "Output 'b' is constant"),
        ([0.3, 0.1 + 0.2, 0.3], "Output 'b' is constant"),
        ([1e-200, 2e-200, 3e-200], "Output 'b' has a deviation below 1e-150 or above 1e"),
        ([1e200, 2e200, 3e200], "Output 'b' has a deviation below 1e-150 or above 1e"),
        ([np.inf, 2.0, 3.0], "Output 'b' holds infinities"),
    ],
)
def test_what_has_no_scale_is_named(column: list[float], message: str) -> None:
    Y = np.stack([[1.0, 2.0, 3.0], column], axis=-1)
    with pytest.raises(ValueError, match=message):
        Standardiser.fit(Y, ("a", "b"))


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_logarithms_need_units_in_which_variances_are_numbers_too(unit: float) -> None:
    """The logarithms have a scale, and the variances of predictions would be 0 or infinite."""
    Y = unit * np.exp(np.random.default_rng(0).standard_normal((20, 1)))
    with pytest.raises(ValueError, match="'b' has a deviation below 1e-150 or above 1e"):
        Standardiser.fit(Y, ("b",), log_outputs=True)


def test_validation_never_sees_a_test_cell() -> None:
    table = make_table()
    held = hold_out(table, 0.3, seed=1)
    # 10 and 9 observed cells: 3 of each are hidden.
    assert held.test_mask.sum((0, 1)).tolist() == [3, 3]
    assert not (held.test_mask & table.test_mask).any()
    assert (held.test_mask <= table.observed).all()
    assert np.isnan(held.truth[table.test_mask]).all()
    np.testing.assert_array_equal(held.Y, np.where(held.test_mask, NAN, table.Y))
    np.testing.assert_array_equal(held.test_truth[held.test_mask], table.Y[held.test_mask])
    again = hold_out(table, 0.3, seed=1)
    np.testing.assert_array_equal(again.test_mask, held.test_mask)
    assert not np.array_equal(hold_out(table, 0.3, seed=2).test_mask, held.test_mask)


def test_validation_hides_runs_of_rows_of_the_named_outputs() -> None:
    table = MultiOutputTable(np.arange(100.0)[None, :, None], np.arange(200.0).reshape(1, 100, 2))
    held = hold_out(table, 0.2, seed=0, outputs=["y1"], block=10)
    assert not held.test_mask[..., 0].any()
    hidden = held.test_mask[0, :, 1]
    assert hidden.sum() == 20
    # 20 cells in runs of 10, which may touch or be cut by each other or the end, and a last one.
    starts = np.flatnonzero(np.diff(np.concatenate([[0], hidden.astype(int)])) == 1)
    assert len(starts) <= 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fraction": 0.0}, "fraction is 0.0"),
        ({"fraction": 1.0}, "fraction is 1.0"),
        ({"fraction": 0.97}, "Output 'a' is observed 10 times.*none would be left"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"block": 0}, "block is 0"),
        ({"outputs": ["c"]}, r"outputs names \['c'\]"),
    ],
)
def test_validation_says_what_is_wrong(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hold_out(make_table(), **({"fraction": 0.3, "seed": 0} | arguments))
