"""How well each method of the imputer fills a table whose gaps are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from .imputation_tables import RealGaps

__all__ = ["forest_scores", "method_scores"]

_LEVELS = (np.arange(50) + 0.5) / 50  # of the quantiles that make the CRPS


def method_scores(imputer: Any, case: RealGaps) -> dict[str, dict[str, float]]:
    """Scores of what is filled in (``auto``), and of each method for all columns.

    ``crps`` is the continuous ranked probability score, of fifty quantiles, and ``rmse`` the root
    mean squared error of hidden cells, both in standard deviations of the columns' observed cells
    and averaged over columns; ``coverage_90`` the share of hidden cells in 90 % intervals.

    :param imputer: a fitted :class:`gpflow_bae.impute.Imputer` that compared the methods.
    """
    from gpflow_bae.impute.method_names import AUTO, GP

    fit, user = imputer._fit_, imputer.table_
    outputs = case.arguments["outputs"]
    truth = np.full(user.table.Y.shape, np.nan)
    real = user.rows >= 0
    truth[real] = case.truth[outputs].to_numpy(float)[user.rows[real]]
    hidden = np.isnan(user.table.Y) & ~np.isnan(truth)
    found = {AUTO: _scores(fit, fit.predict(user, where=hidden), truth, hidden)}
    names = [GP] if fit.posterior is not None else []
    for name in [*names, *fit.choice.scales]:
        whole = fit if name == GP else fit.with_simple(name, user, user.table)
        moments = whole.predict(user, where=hidden, methods=(name,) * len(outputs))
        found[name] = _scores(whole, moments, truth, hidden)
    return found


def _scores(
    fit: Any, moments: tuple[np.ndarray, np.ndarray], truth: np.ndarray, hidden: np.ndarray
) -> dict[str, float]:
    scale, kinds = fit.standardiser, fit.columns.kinds
    mean, variance = (
        np.where(hidden, m, fill) for m, fill in zip(moments, (0.0, 1.0), strict=True)
    )
    low, high = np.array([kind.range for kind in kinds]).T
    crps = np.zeros(truth.shape)
    for level in _LEVELS:
        above = truth - np.clip(scale.inverse_quantile(mean, variance, level), low, high)
        crps += 2.0 * np.maximum(level * above, (level - 1.0) * above) / len(_LEVELS)
    cells = [
        *scale.inverse_moments(mean, variance),
        *(scale.inverse_quantile(mean, variance, end) for end in (0.05, 0.95)),
    ]
    settled = [kind.settle(*(c[..., p] for c in cells)) for p, kind in enumerate(kinds)]
    filled, _, lower, upper = (np.stack(part, -1) for part in zip(*settled, strict=True))
    inside = (lower <= truth) & (truth <= upper)
    units = np.nanstd(np.where(hidden, np.nan, truth), axis=(0, 1))
    return {
        "crps": _by_column(crps / units, hidden),
        "rmse": _by_column(np.square((filled - truth) / units), hidden, np.sqrt),
        "coverage_90": float(inside[hidden].mean()),
    }


def _by_column(values: np.ndarray, hidden: np.ndarray, change: Any = float) -> float:
    """The mean over columns of a function of their mean."""
    of = [
        change(v[h].mean())
        for v, h in zip(_columns(values), _columns(hidden), strict=True)
        if h.any()
    ]
    return float(np.mean(of))


def _columns(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, values.shape[-1]).T


def forest_scores(case: RealGaps, seed: int = 0) -> dict[str, float]:
    """Scores of scikit-learn's IterativeImputer with forests, as :func:`method_scores` has them.

    A hundred extremely randomised trees and five rounds; time, with the sines and cosines of day,
    week and year, places and the number of the task are further columns. It has no intervals: the
    ``crps`` is the mean absolute error.
    """
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    outputs = case.arguments["outputs"]
    shown = case.frame[outputs].to_numpy(float)
    truth = case.truth[outputs].to_numpy(float)
    unit = np.nanstd(shown, axis=0)
    forest = ExtraTreesRegressor(100, random_state=seed)
    imputer = IterativeImputer(forest, max_iter=5, random_state=seed)
    columns = np.column_stack([shown / unit, *_features(case.frame, case.arguments)])
    filled = imputer.fit_transform(columns)[:, : len(outputs)] * unit
    missed = (filled - truth) / unit
    hidden = np.isnan(shown) & ~np.isnan(truth)
    return {
        "crps": _by_column(np.abs(missed), hidden),
        "rmse": _by_column(np.square(missed), hidden, np.sqrt),
    }


def _features(frame: pd.DataFrame, roles: Mapping[str, Any]) -> list[np.ndarray]:
    """Columns [rows] for time, places and task."""
    found = [frame[name].to_numpy(float) for name in roles.get("inputs", ())]
    if "task" in roles:
        found.append(pd.factorize(frame[roles["task"]])[0].astype(float))
    if "time" not in roles:
        return found
    time = frame[roles["time"]]
    if pd.api.types.is_numeric_dtype(time):
        return [*found, time.to_numpy(float)]
    time = pd.to_datetime(time)
    found.append((time - time.min()).dt.total_seconds().to_numpy() / 86400.0)
    hour = (time.dt.hour + time.dt.minute / 60.0).to_numpy()
    for value, period in ((hour, 24), (time.dt.dayofweek, 7), (time.dt.dayofyear, 365.25)):
        if np.ptp(value) > 0:
            angle = 2.0 * np.pi * np.asarray(value) / period
            found += [np.sin(angle), np.cos(angle)]
    return found
