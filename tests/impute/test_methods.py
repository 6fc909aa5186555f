"""Simple methods, and which of all methods fills a column."""

from __future__ import annotations

import pathlib

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from experiments.baselines import iterative_imputer
from gpflow_bae.impute import Imputer, method_names
from gpflow_bae.impute.baselines import chain_fitting, methods
from gpflow_bae.impute.baselines.chains import Chain
from gpflow_bae.impute.baselines.linear_interpolation import Lines
from gpflow_bae.impute.model import PERIODS
from gpflow_bae.impute.model.calibration import Trial, calibrate
from gpflow_bae.impute.model.choice import Choice, GapErrors, compare
from gpflow_bae.impute.model.gaps import hide_gaps
from tests.impute.tables import make_table


def thresholds(rng: np.random.Generator, num_rows: int = 200) -> np.ndarray:
    """Two independent columns, and the sign of their product, which no line predicts."""
    u = rng.uniform(-1.0, 1.0, (num_rows, 2))
    sign = np.sign(u[:, :1] * u[:, 1:]) + 0.05 * rng.standard_normal((num_rows, 1))
    return np.concatenate([1.7 * u, sign], axis=1)[None]


def test_names_of_arguments_are_those_of_the_methods_and_periods() -> None:
    assert (method_names.GP, *methods.SIMPLE) == tuple(method_names.METHODS)
    assert method_names.PERIOD_NAMES == tuple(PERIODS)
    table = pd.DataFrame({"t": np.arange(9.0), "a": np.arange(9.0) ** 2})
    with pytest.raises(ValueError, match="method is 'best'; expected one of"):
        Imputer(["a"], time="t", method="best").fit(table)
    with pytest.raises(ValueError, match="periods is .'day'.; expected a list of"):
        Imputer(["a"], time="t", periods=["day"]).fit(table)
    with pytest.raises(ValueError, match="settings holds 'periods', which are an argument"):
        Imputer(["a"], time="t", settings={"periods": ()}).fit(table)
    with pytest.raises(ValueError, match="same hour of other days cannot fill this table"):
        Imputer(["a"], time="t", method="hour").fit(table)


def test_each_column_has_the_method_with_the_lowest_error() -> None:
    """Forty gaps of five cells; a difference that its own spread hides leaves the GPs."""
    rng = np.random.default_rng(0)

    def errors(*rmse: float) -> GapErrors:
        squares = np.square(np.array(rmse) * rng.standard_normal((40, 5, len(rmse)))).sum(1)
        return GapErrors(squares, np.full(squares.shape, 5.0))

    first, more = (
        {"gp": errors(0.3, 0.9, 0.5), "linear": errors(0.6, 0.3, 0.5), "mean": errors(1, 1, 1)}
        for _ in range(2)
    )
    found = Choice(("gp",) * 3, errors=first).with_more(more)
    assert found.methods[:2] == ("gp", "linear")
    assert len(found.errors["gp"].counts) == 80
    assert found.without({"linear"}).methods[1] == "gp"
    # Columns of one category have one method: what is best for one of them alone does not fill it.
    assert (
        Choice(("gp",) * 3, errors=first, together=[[0, 1], [2]]).with_more(more).methods[1] == "gp"
    )
    equal = dict(first, linear=first["gp"])
    assert Choice(("mean",) * 3).with_more(equal).methods == ("gp",) * 3
    assert Choice(("gp",), errors=equal).with_more(equal).methods == ("gp",)


def test_a_column_with_thresholds_is_for_trees_and_the_others_for_their_mean() -> None:
    Z = thresholds(np.random.default_rng(0))
    table = make_table(Z, np.zeros(Z.shape, bool))
    hidden = [hide_gaps(table, 0.2, seed) for seed in (0, 1)]
    found = compare(
        hidden, None, lambda: [np.ones(Z.shape)] * 2, Z, methods.Context(), lambda mean, _: mean
    )
    assert found.methods[2] == "trees" and found.setups["trees"].trees
    cells = found.errors["trees"]
    assert cells.squares[:, 2].sum() < 0.7 * found.errors["iterative"].squares[:, 2].sum()
    assert "hour" not in found.scales  # the table has no days
    of_means = compare(  # without chains nobody asks for the variances of rows, which take long
        hidden, None, lambda: pytest.fail(), Z, methods.Context(), lambda mean, _: mean, ["mean"]
    )
    assert of_means.methods == ("mean",) * 3


def test_chains_are_scikit_learns_and_come_back_from_arrays() -> None:
    """Rounds differ where many columns go together; missing cells begin at their mean, zero."""
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((1, 80, 2)) @ rng.standard_normal((2, 6))
    Z += 0.3 * rng.standard_normal(Z.shape)
    Z[rng.random(Z.shape) < 0.3] = np.nan
    Z = (Z - np.nanmean(Z, 1)) / np.nanstd(Z, 1)
    table = make_table(Z, np.zeros(Z.shape, bool))
    lines = chain_fitting.fit_chains(table, None, with_inputs=False)
    assert [chain.setup.rounds for chain in lines] == list(chain_fitting.ROUNDS)
    for chain in lines:
        expected = iterative_imputer.impute(Z[0], np.zeros((80, 0)), chain.setup.rounds)
        np.testing.assert_allclose(chain.predict(table, None)[0][0], expected, atol=1e-9)
    (forest,) = chain_fitting.fit_chains(
        table, None, with_inputs=True, trees=True, rounds=(1,), complete=True
    )
    for chain in (lines[1], forest):
        again = Chain.from_arrays(chain.to_arrays())
        np.testing.assert_array_equal(again.predict(table, None)[0], chain.predict(table, None)[0])


def test_a_forest_of_arrays_predicts_as_scikit_learn_does() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    model = ExtraTreesRegressor(n_estimators=5, random_state=0).fit(X, y)
    new = rng.standard_normal((40, 3))
    found = chain_fitting._read(model)(new)
    np.testing.assert_allclose(found, model.predict(new), rtol=1e-5, atol=1e-6)


def test_a_forest_grown_by_threads_is_that_of_one() -> None:
    """To the bit: threads that predict would add up the trees in an order of their own."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 3)), rng.standard_normal(200)
    found = [
        chain_fitting._OfSomeRows(
            ExtraTreesRegressor(n_estimators=50, random_state=0, n_jobs=jobs)
        ).fit(X, y)
        for jobs in (-1, None)
    ]
    assert found[0].estimator_.n_jobs is None
    np.testing.assert_array_equal(*(forest.predict(X) for forest in found))


def test_rounds_depend_on_the_size_of_the_table_and_not_on_the_clock() -> None:
    Z = np.random.default_rng(0).standard_normal((1, 60, 30))
    Z[np.random.default_rng(1).random(Z.shape) < 0.1] = np.nan
    table = make_table(Z, np.zeros(Z.shape, bool))
    for name in ("iterative", "trees"):
        assert methods.variants(name, table, methods.Context(), 0.0) == {}
    # 30 regressions of 1.1 ms each are a round, so each of two kinds has six in 0.2 of 0.4 s.
    found = methods.variants("iterative", table, methods.Context(), 0.4)
    assert [(setup.rounds, setup.with_inputs) for setup in found] == [
        (rounds, with_inputs) for with_inputs in (False, True) for rounds in (1, 3, 6)
    ]


def test_columns_that_were_complete_in_the_fit_are_filled_in_other_tables() -> None:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((1, 100, 1)) + 0.1 * rng.standard_normal((1, 100, 2))
    Z[0, :9, 0] = np.nan
    (chain,) = chain_fitting.fit_chains(
        make_table(Z, np.zeros(Z.shape, bool)), None, with_inputs=False, rounds=(1,), complete=True
    )
    other = np.array([[[1.5, np.nan], [np.nan, -1.0]]])
    found = chain.predict(make_table(other, np.zeros(other.shape, bool)), None)[0]
    np.testing.assert_allclose(found, [[[1.5, 1.5], [-1.0, -1.0]]], atol=0.2)


def test_each_column_is_filled_as_its_method_alone_fills_it() -> None:
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((120, 1)) + 0.3 * rng.standard_normal((120, 4))
    Y[rng.random(Y.shape) < 0.15] = np.nan
    imputer = Imputer(num_steps=2, settings={"num_fits": 1}, progress=False)
    user = imputer.read(np.arange(120.0)[:, None], Y)
    fit = imputer.fit(user)._fit_
    methods = ("gp", "iterative", "trees", "linear")
    for name in methods[1:]:
        fit = fit.with_simple(name, user, user.table)
    together = fit.predict(user, methods=methods)
    for p, name in enumerate(methods):
        alone = fit.predict(user, methods=(name,) * 4)
        for found, expected in zip(together, alone, strict=True):
            np.testing.assert_array_equal(found[..., p], expected[..., p])


def test_rounds_converge_to_the_regression_on_what_is_observed() -> None:
    """Also where a column is missing that was complete in the fit, beside one that was not."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((1, 400, 1)) + 0.5 * rng.standard_normal((1, 400, 3))
    Z = (Z - Z.mean(1)) / Z.std(1)
    of_third = np.mean(Z * Z[..., 2:], axis=1)[0]  # regressions on the third column
    Z[0, 0, 0] = np.nan
    (chain,) = chain_fitting.fit_chains(
        make_table(Z, np.zeros(Z.shape, bool)), None, with_inputs=False, rounds=(30,), complete=True
    )
    other = np.array([[[np.nan, np.nan, 2.0]]])
    found = chain.predict(make_table(other, np.zeros(other.shape, bool)), None)[0]
    np.testing.assert_allclose(found[0, 0], 2.0 * of_third, atol=0.02)


@pytest.mark.parametrize("method", ["gp", "iterative", "trees"])
def test_a_row_of_which_nothing_is_observed_is_as_uncertain_as_its_column(
    method: str, tmp_path: pathlib.Path
) -> None:
    """White noise and a multiple of it: one cell tells the other, and rows tell nothing."""
    rng = np.random.default_rng(0)
    level = rng.standard_normal(60)
    Y = np.stack([level, 3.0 * level], 1) + 0.01 * rng.standard_normal((60, 2))
    X = np.arange(60.0)[:, None]
    table = Y.copy()
    table[[10, 30, 50], 0] = np.nan
    options = {"num_steps": 5, "settings": {"num_fits": 1}, "progress": False}
    Imputer(method=method, **options).fit(X, table).save(tmp_path)
    imputer = Imputer.load(tmp_path)
    sd = imputer.impute(np.array([[70.0], [71.0]]), [[np.nan, np.nan], [np.nan, 3.0]]).sd
    spread = Y.std(0)
    assert (0.75 * spread < sd[0]).all() and (sd[0] < 1.35 * spread).all()
    assert sd[1, 0] < 0.3 * spread[0]


def test_the_same_hour_of_other_days_fills_a_day() -> None:
    """A cycle of 24 hours that rises by one a day is a line for each hour."""
    hours = np.arange(24.0 * 6)
    truth = (np.sin(2 * np.pi * hours / 24) + hours // 24)[None, :, None]
    hidden = np.zeros(truth.shape, bool)
    hidden[0, 48:72] = True
    table = make_table(truth, hidden, X=(hours[None, :, None] - hours.mean()) / 24)
    found = Lines.fit(table, day=1.0, step=1 / 24)
    np.testing.assert_allclose(found.predict(table)[0][hidden], truth[hidden], atol=1e-9)
    again = Lines.from_arrays(found.to_arrays())
    np.testing.assert_array_equal(again.predict(table), found.predict(table))


def test_weights_are_those_of_each_column() -> None:
    """The GPs have a fifth of the other's error in one column, and five times it in another."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((1, 200, 2))
    gaps = hide_gaps(make_table(truth, np.zeros(truth.shape, bool)), 0.3, 0)
    ones = np.ones(truth.shape)
    smooth = truth + rng.standard_normal(truth.shape) * [0.1, 0.5]
    of_rows = truth + rng.standard_normal(truth.shape) * [0.5, 0.1]
    weight, scales, _ = calibrate([Trial(gaps, (smooth, ones), (of_rows, ones))], truth, truth)
    assert weight[0] > 0.85 and weight[1] < 0.3 and scales.factors.shape == (2,)


def test_a_method_by_name_is_fitted_alone_saved_and_read(tmp_path: pathlib.Path) -> None:
    """A gap in a line is filled by the line, exactly; the intervals of a walk hold nine of ten."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.standard_normal(300))
    table = pd.DataFrame({"t": np.arange(300.0), "line": 3.0 + 2.0 * np.arange(300), "walk": walk})
    hole = np.zeros(300, bool)
    for first in range(10, 290, 15):
        hole[first : first + 4] = True
    holes = table.assign(line=table["line"].mask(hole), walk=table["walk"].mask(hole))
    options = {"time": "t", "method": "linear", "progress": False}
    imputer = Imputer(["line", "walk"], **options).fit(holes)
    filled = imputer.impute()
    np.testing.assert_allclose(filled["line"], table["line"], rtol=1e-9)
    held = table["walk"].between(filled["walk_lower"], filled["walk_upper"])[hole].mean()
    # 19 gaps of four dependent cells, some 40 independent ones: a standard error of 0.05.
    assert 0.75 < held
    assert imputer.posterior_ is None and set(imputer.methods_.values()) == {"linear interpolation"}
    imputer.save(tmp_path)
    again = Imputer.load(tmp_path)
    pd.testing.assert_frame_equal(again.impute(holes), filled)
    assert again.methods_ == imputer.methods_ and again.method == "linear"
    check = imputer.check(holes)
    assert check.methods[0] == "linear interpolation" and "coregionalised GPs" not in check.methods
    assert check.filled_by == imputer.methods_


@pytest.mark.parametrize("method", ["trees", "auto"])
def test_cells_beside_what_the_fit_never_missed_are_the_models(
    method: str, tmp_path: pathlib.Path
) -> None:
    """Intervals of trees, narrow in the fit, would hold half of them; after a reload too."""

    def rows(number: int, seed: int) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        kind, z = rng.choice([0.0, 3.0, -3.0], number), rng.standard_normal(number)
        y = 2.0 * kind - z + 0.3 * rng.standard_normal(number)
        w = z + 0.5 * rng.standard_normal(number)
        return pd.DataFrame({"x": kind + z, "y": y, "w": w, "at": np.abs(kind), "sign": kind > 0})

    table = rows(300, 0).astype({"sign": float})
    table.loc[np.random.default_rng(1).random(300) < 0.15, "x"] = np.nan
    names = list(table.columns)
    trees = Imputer(names, method=method, progress=False).fit(table)
    assert trees.methods_["x"] == "IterativeImputer with trees"
    whole = rows(400, 2).astype({"sign": float})
    known, strange = whole.assign(x=np.nan), whole.assign(x=np.nan, y=np.nan)
    found = trees.impute(strange)
    held = (found["x_lower"] <= whole["x"]) & (whole["x"] <= found["x_upper"])
    assert 0.8 < held.mean() and found["x_sd"].mean() > 1.2 * trees.impute(known)["x_sd"].mean()
    trees.save(tmp_path)
    pd.testing.assert_frame_equal(Imputer.load(tmp_path).impute(strange), found)
    chain = trees._fit_.simple["trees"]
    assert isinstance(chain, Chain) and chain.knows(trees.read(known).table).all()
    assert (~chain.knows(trees.read(strange).table)[0]).all(0)[:2].all()
