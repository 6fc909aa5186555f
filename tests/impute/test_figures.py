"""Figures and names of their files, for columns and series of any name."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.dates import ConciseDateFormatter

from gpflow_bae.impute.reading import frames
from gpflow_bae.impute.reading.user_table import CellPredictions, UserTable
from gpflow_bae.impute.report import figures
from tests.impute.tables import stations


def test_names_of_files_are_different_and_have_no_path() -> None:
    names = ["Natrium (mmol/l)", "../a", "a", "A", "$x_1$", "Größe µ", "???", "///", "x" * 200]
    found = figures.file_names(names)
    assert list(found.values()) == [
        "Natrium_mmol_l",
        "a",
        "a_2",
        "A_3",  # some file systems know no capitals
        "x_1",
        "Größe_µ",
        "column",
        "column_2",
        "x" * 60,
    ]
    clash = figures.file_names(["a_2", "a", "A"])
    assert len({name.casefold() for name in clash.values()}) == 3


def predicted(user: UserTable) -> CellPredictions:
    mean = np.full(user.table.Y.shape, 10.0)
    return CellPredictions(mean, np.full(mean.shape, 4.0), mean - 3.0, mean + 3.0)


def zoned(num_days: int) -> UserTable:
    holes = stations(num_days)[1]
    days = pd.to_datetime(holes["day"]).dt.tz_localize("Europe/Berlin")
    holes = holes.assign(day=days, a=holes["a"].where(holes.index % 9 > 3))
    names = holes["station"].replace({"north": r"Süd $\alpha", "south": "北"})
    renamed = holes.assign(station=names).rename(columns={"a": "Preis $x_1$", "b": "b_2^"})
    return frames.read_frame(renamed, ["Preis $x_1$", "b_2^"], "day", (), "station")


@pytest.mark.parametrize("num_days", [6, 40, 900])
def test_dates_do_not_overlap_and_names_are_no_formulas(num_days: int) -> None:
    user = zoned(num_days)
    drawn = figures.draw(user, predicted(user))
    assert list(drawn) == ["Preis $x_1$", "b_2^"]
    figure = drawn["Preis $x_1$"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of letters that the font lacks, too
        assert figures.to_png(figure).startswith(b"\x89PNG")
    for axis in figure.axes:
        assert isinstance(axis.xaxis.get_major_formatter(), ConciseDateFormatter)
        labels = [label for label in axis.get_xticklabels() if label.get_text()]
        boxes = [label.get_window_extent() for label in labels]
        assert len(boxes) > 1
        assert all(a.x1 <= b.x0 for a, b in zip(boxes, boxes[1:], strict=False))
        assert axis.get_ylabel() == r"Preis \$x_1\$"


def test_intervals_are_drawn_where_cells_are_missing() -> None:
    """A band for each gap, over its rows alone, between the ends of the interval."""
    user = zoned(40)
    figure = figures.draw(user, predicted(user))["Preis $x_1$"]
    hole = ~user.table.observed[0, :, 0]
    gaps = np.count_nonzero(np.diff(np.concatenate([[0], hole])) == 1)
    axis = figure.axes[0]
    assert len(axis.collections) == gaps
    for shape in axis.collections:
        heights = shape.get_paths()[0].vertices[:, 1]
        assert heights.min() == 7.0 and heights.max() == 13.0
    observed, filled = axis.lines[:2]
    assert len(filled.get_xdata()) == np.count_nonzero(hole)
    assert np.count_nonzero(np.isfinite(observed.get_ydata())) == 40 - np.count_nonzero(hole)


def test_places_make_a_map() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0.0, 5.0, (30, 3)), columns=["lat", "lon", "lead"])
    frame.loc[:4, "lead"] = np.nan
    user = frames.read_frame(frame, ["lead"], None, ["lat", "lon"])
    figure = figures.draw(user, predicted(user), as_map=True)["lead"]
    observed, filled = figure.axes[0].collections
    places = frame[["lat", "lon"]].to_numpy()
    np.testing.assert_allclose(filled.get_offsets(), places[:5], atol=1e-12)
    np.testing.assert_allclose(observed.get_offsets(), places[5:], atol=1e-12)
    assert figures.to_png(figure).startswith(b"\x89PNG")
