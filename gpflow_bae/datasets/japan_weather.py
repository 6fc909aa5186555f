"""Daily weather of Japanese stations from NOAA's GHCN-Daily, with one task per week.

Ashman et al. (2020), "Sparse Gaussian process variational autoencoders": 156 stations in 1980 and
1981, 105 weeks of up to 7 * 156 station-days; the mean temperature of the middle five days of each
week is predicted from its first and last day and the other outputs. Their table is not published;
this module reads NOAA's station files, of every Japanese station that reported in these years.
Values with a quality flag are dropped.
"""

import csv
import datetime
import gzip
import os
import pathlib
import warnings
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

from ..data import MultiOutputTable, pad_tasks
from .files import find_files

__all__ = ["JapanWeather", "Reading", "Station", "load", "read_csv", "read_dly", "read_stations"]

_ORIGIN = (
    "https://www.ncei.noaa.gov/pub/data/ghcn/daily (ghcnd-stations.txt, and for each Japanese "
    "station all/JA*.dly or by_station/JA*.csv.gz)"
)
_FOLDER, _STATIONS = "japan_weather", "ghcnd-stations.txt"
_SUFFIXES = (".dly", ".csv", ".csv.gz")
# Outputs, and divisors of the files' numbers, which are tenths of degrees Celsius and of
# millimetres, but whole millimetres for snow depth.
_UNITS = {"TMAX": 10.0, "TMIN": 10.0, "TAVG": 10.0, "PRCP": 10.0, "SNWD": 1.0}
_MISSING, _MISSING_ELEVATION = -9999, -999.9
_CSV_HEADER = ["ID", "DATE", "ELEMENT"]
_INPUTS = ("day", "latitude", "longitude", "elevation")
_DAYS, _TEST_DAYS, _TEST_OUTPUT = 7, (1, 2, 3, 4, 5), "TAVG"


class Station(NamedTuple):
    """A station and its position: degrees north, degrees east, metres above sea level."""

    identifier: str
    latitude: float
    longitude: float
    elevation: float
    name: str


class Reading(NamedTuple):
    """A value of one output of one station on one day, in degrees Celsius or millimetres."""

    identifier: str
    date: datetime.date
    output: str
    value: float


class JapanWeather(NamedTuple):
    """A table of weeks, with the stations of its rows and the days of its tasks.

    - table: inputs day of the week (0 to 6), latitude and longitude in degrees, elevation in
      metres; outputs TMAX, TMIN, TAVG in degrees Celsius, PRCP and SNWD in millimetres. Rows are
      ordered by day, then by station; a station-day without reports is a row without outputs.
    - stations: stations of the rows of each day, in their order.
    - first_days [T]: first days of the weeks, datetime64[D].
    """

    table: MultiOutputTable
    stations: tuple[Station, ...]
    first_days: np.ndarray

    def of_year(self, year: int) -> MultiOutputTable:
        """Return the weeks that begin in ``year``; published are training on 1980, test on 1981.

        :raises ValueError: If there are none.
        """
        chosen = self.first_days.astype("datetime64[Y]") == np.datetime64(str(year), "Y")
        if not chosen.any():
            raise ValueError(
                f"year is {year}; the weeks begin between {self.first_days[0]} and "
                f"{self.first_days[-1]}."
            )
        return self.table.select(chosen)


@check_shapes("return.table.X: [T, N, 4]", "return.table.Y: [T, N, 5]", "return.first_days: [T]")
def load(
    data_dir: str | os.PathLike[str],
    first_day: str = "1980-01-01",
    last_day: str = "1981-12-31",
    country: str = "JA",
) -> JapanWeather:
    """Read weeks of all stations of a country that reported anything between two days.

    Weeks are counted from ``first_day``; the last one may be shorter, and is padded.

    :param data_dir: Folder that holds ``japan_weather`` with ``ghcnd-stations.txt`` and a file per
        station: ``.dly``, or by-station ``.csv`` or ``.csv.gz``.
    :param first_day: First day of the first week, as YYYY-MM-DD.
    :param last_day: Last day to read.
    :param country: Prefix of the stations' identifiers.
    :raises FileNotFoundError: If files are missing.
    :raises ValueError: If a file is not in its format, a reading occurs twice, a station has no
        entry in ``ghcnd-stations.txt``, stations share a position, or nothing was reported.
    """
    first, last = (datetime.date.fromisoformat(day) for day in (first_day, last_day))
    num_days = (last - first).days + 1
    if num_days < 1:
        raise ValueError(f"last_day is {last_day}, before first_day, {first_day}.")
    (stations_path,) = find_files(data_dir, _FOLDER, [_STATIONS], _ORIGIN)
    paths = sorted(
        path
        for path in stations_path.parent.iterdir()
        if path.name.startswith(country) and path.name.endswith(_SUFFIXES)
    )
    if not paths:
        raise FileNotFoundError(
            f"The data set {_FOLDER!r} is not complete: no station file {country}*.dly, "
            f"{country}*.csv or {country}*.csv.gz in {stations_path.parent}. Put the files of "
            f"{_ORIGIN} there."
        )
    days: dict[str, np.ndarray] = {}
    for path in paths:
        for reading in read_dly(path) if path.suffix == ".dly" else read_csv(path):
            day = (reading.date - first).days
            if not 0 <= day < num_days:
                continue
            values = days.setdefault(reading.identifier, np.full((num_days, len(_UNITS)), np.nan))
            column = list(_UNITS).index(reading.output)
            if not np.isnan(values[day, column]):
                raise ValueError(
                    f"{path} gives {reading.output} of {reading.identifier} on {reading.date}, "
                    "which was read before. Keep one file per station (.dly or .csv, not both)."
                )
            values[day, column] = reading.value
    stations = _locate(list(days), stations_path)
    if not stations:
        raise ValueError(
            f"No station in {stations_path.parent} with a known elevation reported anything "
            f"between {first_day} and {last_day}. Fetch whole station files, or change the days."
        )
    values = np.stack([days[station.identifier] for station in stations], axis=1)
    return _weeks(values, stations, np.datetime64(first_day, "D"))


def read_stations(path: str | os.PathLike[str]) -> dict[str, Station]:
    """Read the stations of a ``ghcnd-stations.txt`` by identifier; an unknown elevation is NaN.

    :raises ValueError: If a line is not in the format.
    """
    stations = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                latitude, longitude = float(line[12:20]), float(line[21:30])
                elevation = float(line[31:37])
            except ValueError as error:
                raise ValueError(
                    f"{path}, line {number}, is {line.rstrip()!r}; expected identifier, latitude, "
                    "longitude and elevation in columns 1-11, 13-20, 22-30 and 32-37."
                ) from error
            elevation = np.nan if elevation == _MISSING_ELEVATION else elevation
            name = line[41:71].strip()
            stations[line[:11]] = Station(line[:11], latitude, longitude, elevation, name)
    return stations


def read_dly(path: str | os.PathLike[str]) -> Iterator[Reading]:
    """Yield the readings of a fixed-width ``.dly`` file: a line per station, month and element.

    Other elements than this module's outputs, missing and flagged values are skipped.

    :raises ValueError: If a line is not in the format.
    """
    with open(path, encoding="ascii") as file:
        for number, line in enumerate(file, start=1):
            line = line.rstrip("\n\r")
            output = line[17:21]
            if output not in _UNITS:
                if line.strip() and (len(line) < 21 or not line[11:17].isdigit()):
                    raise _bad_dly(path, number, line)
                continue
            try:
                year, month = int(line[11:15]), int(line[15:17])
                # Trailing blanks may have been stripped with the flags of the last day.
                fields = line[21:].ljust(8 * 31)
                for day in range(31):
                    value, flag = int(fields[8 * day : 8 * day + 5]), fields[8 * day + 6]
                    if value != _MISSING and not flag.strip():
                        date = datetime.date(year, month, day + 1)
                        yield Reading(line[:11], date, output, value / _UNITS[output])
            except ValueError as error:
                raise _bad_dly(path, number, line) from error


def read_csv(path: str | os.PathLike[str]) -> Iterator[Reading]:
    """Yield readings of a by-station ``.csv`` or ``.csv.gz``: a line per station, day and element.

    Lines are identifier, YYYYMMDD, element, value, measurement flag, quality flag, source flag,
    time; a header is skipped. Missing and flagged values are dropped.

    :raises ValueError: If a line is not in the format.
    """
    path = pathlib.Path(path)
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="ascii", newline="") as file:
            for number, row in enumerate(csv.reader(file), start=1):
                if number == 1 and row[:3] == _CSV_HEADER:
                    continue
                if len(row) < 6 or not row[1].isdigit():
                    raise _bad_csv(path, number, row)
                identifier, date, output, text, _, flag = row[:6]
                if output not in _UNITS or flag.strip():
                    continue
                try:
                    value = int(text)
                    day = datetime.datetime.strptime(date, "%Y%m%d").date()
                except ValueError as error:
                    raise _bad_csv(path, number, row) from error
                if value != _MISSING:
                    yield Reading(identifier, day, output, value / _UNITS[output])
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be uncompressed ({error}); it must be a whole gzip file. Fetch it "
            "again."
        ) from error


def _bad_dly(path: str | os.PathLike[str], number: int, line: str) -> ValueError:
    return ValueError(
        f"{path}, line {number}, begins {line[:40]!r}; expected identifier (11 characters), year "
        "(4), month (2), element (4) and 31 times value (5) with three flags, and no value on days "
        "that the month does not have. Fetch it again."
    )


def _bad_csv(path: pathlib.Path, number: int, row: list[str]) -> ValueError:
    return ValueError(
        f"{path}, line {number}, is {row[:8]}; expected the by-station format: identifier, "
        "YYYYMMDD, element, value, three flags and time. (Files with a column per element have "
        "another format: use those of the folder by_station.)"
    )


def _locate(identifiers: list[str], path: pathlib.Path) -> tuple[Station, ...]:
    """Return the stations with a known elevation, in the order of their identifiers."""
    known = read_stations(path)
    unknown = sorted(set(identifiers) - set(known))
    if unknown:
        raise ValueError(f"{path} has no entry for {unknown}. Fetch it again.")
    stations = [known[identifier] for identifier in sorted(identifiers)]
    nowhere = [station.identifier for station in stations if np.isnan(station.elevation)]
    if nowhere:
        warnings.warn(
            f"Stations without elevation are left out: {', '.join(nowhere)}.", stacklevel=3
        )
    stations = [station for station in stations if not np.isnan(station.elevation)]
    places: dict[tuple[float, float, float], str] = {}
    for station in stations:
        other = places.setdefault(station[1:4], station.identifier)
        if other != station.identifier:
            raise ValueError(
                f"Stations {other} and {station.identifier} have the same position "
                f"{station[1:4]}, so no input tells them apart. Remove the file of one."
            )
    return tuple(stations)


def _weeks(
    values: np.ndarray, stations: tuple[Station, ...], first_day: np.datetime64
) -> JapanWeather:
    """Split ``values [days, stations, outputs]`` into weeks."""
    places = np.array([station[1:4] for station in stations])
    inputs, outputs, masks = [], [], []
    for start in range(0, len(values), _DAYS):
        week = values[start : start + _DAYS]
        day = np.repeat(np.arange(len(week), dtype=np.float64), len(stations))
        inputs.append(np.column_stack([day, np.tile(places, (len(week), 1))]))
        outputs.append(week.reshape(-1, len(_UNITS)))
        is_test = np.zeros(outputs[-1].shape)
        is_test[np.isin(day, _TEST_DAYS), list(_UNITS).index(_TEST_OUTPUT)] = 1.0
        masks.append(is_test)
    X, lengths = pad_tasks(inputs, is_input=True)
    truth, _ = pad_tasks(outputs, is_input=False)
    mask = (pad_tasks(masks, is_input=False)[0] == 1.0) & ~np.isnan(truth)
    table = MultiOutputTable(
        X=X, Y=truth, output_names=tuple(_UNITS), input_names=_INPUTS, lengths=lengths
    )
    return JapanWeather(table.hide(mask), stations, first_day + _DAYS * np.arange(len(X)))
