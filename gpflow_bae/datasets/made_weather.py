"""A made archive in the formats of GHCN-Daily, of the size that Ashman et al. (2020) read.

For whoever has not NOAA's files: :func:`write_archive` writes 156 stations and two years of daily
weather, which :mod:`gpflow_bae.datasets.japan_weather` reads as it reads theirs.
"""

from __future__ import annotations

import datetime
import os
import pathlib

import numpy as np

from ..arguments import check_arguments

__all__ = ["write_archive"]

_NUM_WAVES = 200


@check_arguments(num_stations=1, num_years=1)
def write_archive(
    folder: str | os.PathLike[str],
    num_stations: int = 156,
    first_year: int = 1980,
    num_years: int = 2,
    seed: int = 0,
) -> pathlib.Path:
    """Write ``ghcnd-stations.txt`` and a ``.dly`` file for each station into a new folder.

    The mean temperature falls by 6.5 degrees Celsius for each kilometre of elevation and 0.9 for
    each degree of latitude, has a season, and fronts that last some days and reach some hundred
    kilometres; extremes follow it, rain comes with fronts, snow lies where it is cold. A tenth of
    the readings is missing, as are all mean temperatures of a fifth of the stations, and one in two
    hundred is flagged.

    :param folder: where a folder ``japan_weather`` is made.
    :return: that folder.
    :raises FileExistsError: if it is there already.
    """
    target = pathlib.Path(folder) / "japan_weather"
    target.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    start = datetime.date(first_year, 1, 1)
    num_days = (datetime.date(first_year + num_years, 1, 1) - start).days
    days = [start + datetime.timedelta(days=d) for d in range(num_days)]
    latitude = rng.uniform(31.0, 45.0, num_stations)
    longitude = 130.0 + 0.85 * (latitude - 31.0) + rng.uniform(-1.0, 1.0, num_stations)
    elevation = np.round(rng.gamma(1.0, 150.0, num_stations), 1)
    outputs = _weather(rng, latitude, longitude, elevation, num_days)
    without_mean = rng.random(num_stations) < 0.2
    lines = []
    for k in range(num_stations):
        identifier = f"JAM{k:08d}"
        lines.append(
            f"{identifier:11s} {latitude[k]:8.4f} {longitude[k]:9.4f} {elevation[k]:6.1f}    "
            f"{f'MADE {k}':30s}\n"
        )
        text = ""
        for output, values in outputs.items():
            if output == "TAVG" and without_mean[k]:
                continue
            seen, flagged = rng.random(num_days) >= 0.1, rng.random(num_days) < 0.005
            text += _lines(identifier, output, days, values[:, k], seen, flagged)
        (target / f"{identifier}.dly").write_text(text, encoding="ascii")
    (target / "ghcnd-stations.txt").write_text("".join(lines), encoding="utf-8")
    return target


def _weather(
    rng: np.random.Generator,
    latitude: np.ndarray,
    longitude: np.ndarray,
    elevation: np.ndarray,
    num_days: int,
) -> dict[str, np.ndarray]:
    """Integers [days, stations] in the files' units: tenths, and whole millimetres of snow."""
    day = np.arange(num_days)[:, None]
    # A smooth field of place and day: random waves of a squared exponential kernel with
    # lengthscales of 4 degrees and 2.5 days.
    waves = rng.standard_normal((3, _NUM_WAVES)) / np.array([[4.0], [4.0], [2.5]])
    phases = rng.uniform(0.0, 2.0 * np.pi, _NUM_WAVES)
    place = latitude[:, None] * waves[0] + longitude[:, None] * waves[1] + phases
    front = np.sqrt(2.0 / _NUM_WAVES) * sum(
        np.cos(place[:, w] + day * waves[2, w]) for w in range(_NUM_WAVES)
    )
    season = 11.0 * np.cos(2.0 * np.pi * (day - 210) / 365.25)
    level = 16.0 - 0.9 * (latitude - 36.0) - 6.5e-3 * elevation
    mean = level + season + 3.0 * front + 0.5 * rng.standard_normal(front.shape)
    half_range = np.clip(4.5 - 1.5 * front + 0.8 * rng.standard_normal(front.shape), 0.5, None)
    rain = 12.0 * np.clip(front - 0.6 + 0.4 * rng.standard_normal(front.shape), 0.0, None) ** 1.5
    snow = 40.0 * np.clip(-mean, 0.0, None)
    tenths = {
        "TMAX": mean + half_range,
        "TMIN": mean - half_range,
        "TAVG": mean,
        "PRCP": rain,
    }
    found = {name: np.round(10.0 * values) for name, values in tenths.items()}
    return {k: v.astype(int) for k, v in (found | {"SNWD": np.round(snow)}).items()}


def _lines(
    identifier: str,
    output: str,
    days: list[datetime.date],
    values: np.ndarray,
    seen: np.ndarray,
    flagged: np.ndarray,
) -> str:
    """A line for each month: 31 values of five digits, each with three flags."""
    months: dict[tuple[int, int], list[str]] = {}
    for day, value, is_seen, is_flagged in zip(days, values, seen, flagged, strict=True):
        fields = months.setdefault((day.year, day.month), ["-9999   "] * 31)
        if is_seen:
            fields[day.day - 1] = f"{value:5d} {'I' if is_flagged else ' '}M"
    return "".join(
        f"{identifier:11s}{year:4d}{month:02d}{output:4s}{''.join(fields)}\n"
        for (year, month), fields in months.items()
    )
