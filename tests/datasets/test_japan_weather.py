"""Japanese weather: small files in the formats of GHCN-Daily, and the weeks made of them."""

from __future__ import annotations

import datetime
import gzip
import pathlib

import numpy as np
import pytest

from gpflow_bae.datasets import japan_weather

PLACES = {"JA000047401": (45.417, 141.683, 11.0), "JA000047412": (43.067, 141.333, 26.0)}
Values = dict[tuple[str, datetime.date, str], tuple[int, str]]


def station_line(identifier: str, latitude: float, longitude: float, elevation: float) -> str:
    # Columns of readme.txt, section IV: 1-11, 13-20, 22-30, 32-37, 42-71.
    return (
        f"{identifier:11s} {latitude:8.4f} {longitude:9.4f} {elevation:6.1f}    {'WAKKANAI':30s}\n"
    )


def dly(values: Values, strip: bool = False) -> str:
    """Lines of a .dly file: months with any value, -9999 on all other days."""
    months = sorted({(station, d.year, d.month, element) for station, d, element in values})
    lines = []
    for station, year, month, element in months:
        line = f"{station:11s}{year:4d}{month:02d}{element:4s}"
        for day in range(1, 32):
            value, flag = -9999, " "
            try:
                key = (station, datetime.date(year, month, day), element)
                value, flag = values.get(key, (value, flag))
            except ValueError:
                pass  # the month is shorter
            line += f"{value:5d} {flag}S"
        lines.append(line.rstrip("S ") if strip else line)
    return "".join(line + "\n" for line in lines)


def csv(values: Values) -> str:
    return "".join(
        f"{station},{day:%Y%m%d},{element},{value},,{flag.strip()},S,0800\n"
        for (station, day, element), (value, flag) in values.items()
    )


def some_values(station: str, num_days: int, seed: int = 0) -> Values:
    """Random readings of most elements from 1980 on, one in ten missing, a few flagged."""
    rng = np.random.default_rng(seed)
    values: Values = {}
    for offset in range(num_days):
        day = datetime.date(1980, 1, 1) + datetime.timedelta(days=offset)
        for element in ("TMAX", "TMIN", "TAVG", "PRCP", "SNWD", "TOBS"):
            flag = "I" if rng.random() < 0.05 else " "
            if rng.random() < 0.9:
                values[station, day, element] = (int(rng.integers(-200, 300)), flag)
    return values


def write(folder: pathlib.Path, files: dict[str, str], places: dict | None = None) -> None:
    (folder / "japan_weather").mkdir(exist_ok=True)
    lines = [station_line(i, *place) for i, place in (places or PLACES).items()]
    for name, text in {"ghcnd-stations.txt": "".join(lines), **files}.items():
        path = folder / "japan_weather" / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def test_weeks_hold_what_the_files_say(tmp_path: pathlib.Path) -> None:
    first, second = PLACES
    values = some_values(first, 731) | some_values(second, 731, seed=1)
    ours = {station: {k: v for k, v in values.items() if k[0] == station} for station in PLACES}
    write(tmp_path, {f"{first}.dly": dly(ours[first]), f"{second}.csv": csv(ours[second])})
    weather = japan_weather.load(tmp_path)
    table = weather.table

    # 731 days are 104 weeks and 3 days, as the 105 tasks of the paper.
    assert table.X.shape == (105, 14, 4) and table.Y.shape == (105, 14, 5)
    assert table.lengths.tolist() == [14] * 104 + [6]
    assert table.output_names == ("TMAX", "TMIN", "TAVG", "PRCP", "SNWD")
    assert [station.identifier for station in weather.stations] == [first, second]
    known = 0
    for task, row in np.argwhere(table.rows):
        day = weather.first_days[task].astype(object) + datetime.timedelta(days=int(row) // 2)
        station = weather.stations[row % 2]
        np.testing.assert_array_equal(table.X[task, row], [row // 2, *PLACES[station.identifier]])
        for column, output in enumerate(table.output_names):
            value, flag = values.get((station.identifier, day, output), (-9999, " "))
            if value == -9999 or flag != " ":
                assert np.isnan(table.truth[task, row, column])
                continue
            known += 1
            # Tenths of degrees and millimetres, but whole millimetres of snow.
            expected = value if output == "SNWD" else value / 10
            assert table.truth[task, row, column] == expected
            is_test = output == "TAVG" and 1 <= row // 2 <= 5
            assert table.test_mask[task, row, column] == is_test
            assert np.isnan(table.Y[task, row, column]) == is_test
    # 2 stations, 731 days, 5 outputs, kept with 0.9 * 0.95: so the test has seen some.
    assert abs(known / 7310 - 0.855) < 0.02


def test_formats_agree(tmp_path: pathlib.Path) -> None:
    station = next(iter(PLACES))
    values = some_values(station, 40)
    header = "ID,DATE,ELEMENT,DATA_VALUE,M_FLAG,Q_FLAG,S_FLAG,OBS_TIME\n"
    tables = []
    for number, (name, text) in enumerate(
        {
            "a.dly": dly(values),
            "b.dly": dly(values, strip=True),
            "c.csv": csv(values),
            "d.csv": header + csv(values),
            "e.csv.gz": csv(values),
        }.items()
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, {"JA" + name: text})
        tables.append(japan_weather.load(folder).table)
    for table in tables[1:]:
        np.testing.assert_array_equal(table.truth, tables[0].truth)


def test_years_split_the_weeks(tmp_path: pathlib.Path) -> None:
    station = next(iter(PLACES))
    write(tmp_path, {f"{station}.dly": dly(some_values(station, 731))})
    weather = japan_weather.load(tmp_path)
    # 366 days of 1980 begin 53 weeks, the last on 30 December; the other 52 begin in 1981.
    assert weather.of_year(1980).num_tasks == 53 and weather.of_year(1981).num_tasks == 52
    np.testing.assert_array_equal(weather.of_year(1981).Y, weather.table.Y[53:])
    with pytest.raises(ValueError, match="year is 1990; the weeks begin between 1980-01-01"):
        weather.of_year(1990)


def test_only_reporting_stations_of_the_country(tmp_path: pathlib.Path) -> None:
    first, second = PLACES
    other = {(second, datetime.date(1975, 1, 1), "TMAX"): (5, " ")}
    foreign = {("KS000047108", datetime.date(1980, 1, 1), "TMAX"): (5, " ")}
    files = {
        f"{first}.dly": dly(some_values(first, 20)),
        f"{second}.dly": dly(other),
        "KS000047108.dly": dly(foreign),
    }
    write(tmp_path, files)
    weather = japan_weather.load(tmp_path)
    assert [station.identifier for station in weather.stations] == [first]
    assert weather.stations[0].name == "WAKKANAI"


def test_a_station_without_elevation_is_left_out(tmp_path: pathlib.Path) -> None:
    first, second = PLACES
    values = some_values(first, 10) | some_values(second, 10, seed=1)
    write(tmp_path, {"JA.csv": csv(values)}, PLACES | {second: (43.067, 141.333, -999.9)})
    with pytest.warns(UserWarning, match=f"without elevation are left out: {second}"):
        weather = japan_weather.load(tmp_path)
    assert [station.identifier for station in weather.stations] == [first]


def test_missing_files_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"ghcnd-stations.txt not found.*data_dir"):
        japan_weather.load(tmp_path)
    write(tmp_path, {})
    with pytest.raises(FileNotFoundError, match=r"no station file JA\*.dly.*ncei.noaa.gov"):
        japan_weather.load(tmp_path)


STATION = "JA000047401"
DAY = datetime.date(1980, 1, 1)
GOOD = {(STATION, DAY, "TMAX"): (31, " ")}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"JA1.dly": "a web page\n"}, "line 1, begins 'a web page'; expected identifier"),
        ({"JA1.dly": dly(GOOD)[:40] + "\n"}, "line 1, begins"),
        (
            {
                "JA1.dly": dly({(STATION, datetime.date(1980, 2, 1), "TMAX"): (1, " ")})[:-9]
                + "    1  S\n"
            },
            "no value on days that the month does not have",
        ),
        ({"JA1.csv": "STATION,DATE,LATITUDE,LONGITUDE,ELEVATION,NAME,PRCP\n"}, "by_station"),
        (
            {"JA1.csv": f"{STATION},19800101,TMAX,warm,,,S,\n"},
            "line 1, is .*expected the by-station",
        ),
        ({"JA1.csv": f"{STATION},19801301,TMAX,1,,,S,\n"}, "line 1, is"),
        ({"JA1.dly": dly(GOOD), "JA1.csv": csv(GOOD)}, "TMAX of JA000047401 on 1980-01-01"),
        ({"JA1.csv": csv({("JA999999999", DAY, "TMAX"): (1, " ")})}, "no entry for .*JA999999999"),
        ({"JA1.csv": csv({(STATION, DAY, "TMAX"): (1, "D")})}, "reported anything"),
    ],
)
def test_what_is_not_the_format_is_named(
    tmp_path: pathlib.Path, files: dict[str, str], message: str
) -> None:
    write(tmp_path, files)
    with pytest.raises(ValueError, match=message):
        japan_weather.load(tmp_path)


def test_other_errors_are_named(tmp_path: pathlib.Path) -> None:
    first, second = PLACES
    values = some_values(first, 3) | some_values(second, 3)
    write(tmp_path, {"JA.csv": csv(values)}, PLACES | {second: PLACES[first]})
    with pytest.raises(ValueError, match=f"{first} and {second} have the same position"):
        japan_weather.load(tmp_path)
    with pytest.raises(ValueError, match="last_day is 1979-01-01, before first_day"):
        japan_weather.load(tmp_path, last_day="1979-01-01")
    write(tmp_path, {"ghcnd-stations.txt": "not a station list at all, really\n"})
    with pytest.raises(ValueError, match="line 1, is 'not a station"):
        japan_weather.load(tmp_path)
    (tmp_path / "japan_weather" / "JA.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(ValueError, match="cannot be uncompressed"):
        japan_weather.load(tmp_path)
