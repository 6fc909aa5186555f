"""Draws of missing cells: their joint distribution, and Rubin's rules."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gpflow_bae.impute import Imputer
from gpflow_bae.impute.model.rows import GaussianRows
from gpflow_bae.models import LinearCoregionalisation

COVARIANCE = np.array([[1.0, 0.8, 0.5], [0.8, 1.0, 0.7], [0.5, 0.7, 1.0]])


def test_cells_of_a_row_go_together_given_the_others() -> None:
    """Two missing cells given the third: the partial correlation, in closed form. Of 20,000 pairs
    its standard error is 0.007.
    """
    rows = GaussianRows(np.zeros(3), COVARIANCE)
    Z = np.tile([np.nan, np.nan, 1.0], (20_000, 1))
    noise = rows.draw_residuals(np.zeros((20_000, 0)), Z, np.random.default_rng(0))
    expected = (0.8 - 0.5 * 0.7) / np.sqrt((1 - 0.5**2) * (1 - 0.7**2))
    assert np.corrcoef(noise[:, :2].T)[0, 1] == pytest.approx(expected, abs=0.03)
    np.testing.assert_allclose(noise[:, :2].std(0), 1.0, rtol=0.03)
    assert (noise[:, 2] == 0.0).all()


def test_covariances_of_a_series_are_those_of_the_whole_gaussian() -> None:
    """By NumPy, from the joint covariance of all cells; the diagonal is that of predict."""
    import gpflow

    rng = np.random.default_rng(0)
    kernel = gpflow.kernels.Matern32(lengthscales=2.0)
    model = LinearCoregionalisation([kernel], rng.standard_normal((2, 2)), noise_variance=0.2)
    X = np.arange(6.0)[:, None]
    row, column = np.array([0, 1, 3, 4]), np.array([0, 1, 0, 1])
    at, of = np.array([2, 2, 5]), np.array([0, 1, 1])
    found = model.predict_covariance(X, row, column, at, of).numpy()
    whole = model.covariance(X, np.r_[row, at], np.r_[column, of]).numpy()
    K, k = whole[:4, :4], whole[:4, 4:]
    np.testing.assert_allclose(found, whole[4:, 4:] - k.T @ np.linalg.solve(K, k), rtol=1e-9)
    variance = model.predict(X, row, column, np.zeros(4), at, of)[1].numpy()
    np.testing.assert_allclose(np.diagonal(found), variance, rtol=1e-9)


def pooled_interval(tables: list[np.ndarray]) -> tuple[float, float]:
    """95 % interval of the mean of the first column, by Rubin's rules (Rubin 1987, section 3.1)."""
    means = np.array([table[:, 0].mean() for table in tables])
    within = np.mean([table[:, 0].var(ddof=1) / len(table) for table in tables])
    between, m = means.var(ddof=1), len(tables)
    total = within + (1 + 1 / m) * between
    freedom = (m - 1) * (1 + within / ((1 + 1 / m) * between)) ** 2
    half = stats.t.ppf(0.975, freedom) * np.sqrt(total)
    return means.mean() - half, means.mean() + half


def test_pooled_intervals_of_a_mean_hold_it() -> None:
    """Where the first column is missing by the second's values, means of what is there are wrong.

    Of 40 tables at 95 % fewer than 34 hold the truth with a probability of 0.01.
    """
    held, of_the_rest = 0, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        Y = rng.multivariate_normal(np.zeros(3), COVARIANCE, 60)
        Y[(Y[:, 1] > 0.0) & (rng.random(60) < 0.8), 0] = np.nan
        tables = (
            Imputer(method="gp", progress=False, settings={"calibration": 0.0})
            .fit(Y)
            .draws(8, seed=seed)
        )
        low, high = pooled_interval(tables)
        held += low <= 0.0 <= high
        there = Y[~np.isnan(Y[:, 0]), 0]
        of_the_rest += abs(there.mean()) < 2.0 * there.std(ddof=1) / np.sqrt(len(there))
    assert held >= 34 and of_the_rest < 20


def test_draws_are_tables_of_possible_values() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal(150)
    table = pd.DataFrame(
        {
            "x": hidden,
            "kind": pd.Categorical(np.where(hidden > 0.5, "c", np.where(hidden > -0.5, "b", "a"))),
            "open": pd.array(hidden + 0.3 * rng.standard_normal(150) > 0, dtype="boolean"),
            "visits": rng.poisson(np.exp(1.0 + 0.5 * hidden)).astype(float),
        }
    )
    holes = table.mask(rng.random(table.shape) < 0.2)
    imputer = Imputer(list(table), method="gp", progress=False).fit(holes)
    first, second = imputer.draws(2, seed=1)
    for drawn in (first, second):
        assert list(drawn.columns) == list(table) and not drawn.isna().any().any()
        assert (drawn.dtypes == holes.dtypes).all()
        assert (drawn["visits"] == drawn["visits"].round()).all() and drawn["visits"].min() >= 0
        assert ((drawn == holes) | holes.isna()).all().all()
    assert not first.equals(second) and first.equals(imputer.draws(1, seed=1)[0])
    with pytest.raises(ValueError, match="number is 0"):
        imputer.draws(0)


def test_neighbours_of_a_series_are_drawn_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a smooth series a gap's draws are smooth: steps are far below independent ones.

    A block of the series is conditioned once for all draws of a model.
    """
    t = np.arange(60.0)
    Y = np.stack([np.sin(t / 6.0), np.cos(t / 6.0)], axis=-1)
    Y += 0.02 * np.random.default_rng(0).standard_normal(Y.shape)
    Y[20:35] = np.nan
    imputer = Imputer(method="gp", progress=False, num_steps=10, settings={"num_fits": 1}).fit(
        t[:, None], Y
    )
    filled = imputer.impute()
    conditioned = []
    once = LinearCoregionalisation.predict_covariance
    monkeypatch.setattr(
        LinearCoregionalisation,
        "predict_covariance",
        lambda self, *cells: conditioned.append(0) or once(self, *cells),
    )
    drawn = np.stack(imputer.draws(30))
    assert len(conditioned) == 1
    off = (drawn - filled.filled)[:, 20:35, 0] / filled.sd[20:35, 0]
    steps = np.diff(off[:, 4:11], axis=1).std()
    assert steps < 0.8 * np.sqrt(2.0) * off[:, 4:11].std()
