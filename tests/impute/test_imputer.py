"""A user's table: what is read, what is refused, what is filled, and what is left alone."""

from __future__ import annotations

import pathlib

import numpy as np
import pandas as pd
import pytest

from experiments import impute_study as study
from experiments import impute_table
from gpflow_bae.data import MultiOutputTable

COLUMNS = {"outputs": ["a", "b"], "time": "day", "inputs": (), "task": "station"}


def table(num_days: int = 40, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two outputs that mix one smooth curve of time, for two stations; and the same with holes."""
    rng = np.random.default_rng(seed)
    frames = []
    for station in ("north", "south"):
        t = np.arange(num_days)
        curve = np.sin(t / 4.0 + rng.uniform(0, 6))
        frames.append(
            pd.DataFrame(
                {
                    "station": station,
                    "day": pd.date_range("2024-01-01", periods=num_days).strftime("%Y-%m-%d"),
                    "remark": "0010",
                    "a": 10.0 + 2.0 * curve + 0.1 * rng.standard_normal(num_days),
                    "b": -50.0 * curve + 2.0 * rng.standard_normal(num_days),
                }
            )
        )
    whole = pd.concat(frames, ignore_index=True).round(4)
    holes = whole.copy()
    for column in ("a", "b"):
        holes.loc[rng.choice(len(whole), len(whole) // 5, replace=False), column] = np.nan
    return whole, holes


def write(frame: pd.DataFrame, path: pathlib.Path, **options: object) -> pathlib.Path:
    frame.to_csv(path, index=False, **options)
    return path


def test_a_table_is_filled_and_the_rest_left_alone(tmp_path: pathlib.Path) -> None:
    """Every observed cell and every other column stand as in the file, character by character.

    The filled cells mix a curve that both outputs show, so their error must be near the noise (sd
    0.1 of a; three times that is allowed), far below the column's own spread of 1.4.
    """
    whole, holes = table()
    path = write(holes, tmp_path / "table.csv")
    user = impute_table.read_table(path, **COLUMNS)
    assert user.tasks == ("north", "south") and user.table.X.shape == (2, 40, 1)
    plan = study.make_plan("sgp_vae", user.table, latent_dim=1, epochs=600)
    saved = study.SavedFit.fit(plan, user, COLUMNS, seed=0)
    mean, variance = saved.predict(user)
    filled = impute_table.write_table(user, mean, variance, tmp_path / "filled.csv")
    raw = pd.read_csv(path, dtype=str, keep_default_na=False)
    again = pd.read_csv(tmp_path / "filled.csv", dtype=str, keep_default_na=False)
    for column in raw.columns:
        kept = raw[column] != ""
        assert (again[column][kept] == raw[column][kept]).all()
        assert (again[column] != "").all()
    hole = holes["a"].isna()
    error = (filled["a"].astype(float) - whole["a"])[hole]
    assert np.sqrt(np.mean(error**2)) < 0.3
    assert (filled["a_sd"].notna() == hole).all()
    assert (filled["a_lower"] < filled["a_upper"])[hole].all()
    inside = whole["a"].between(filled["a_lower"], filled["a_upper"])[hole]
    assert inside.mean() > 0.6  # 16 cells at 90 %: fewer than 10 has a probability of 1e-4

    # The posterior is kept, and knows stations that were not there.
    saved.write(tmp_path / "fit")
    read = study.SavedFit.read(tmp_path / "fit")
    same, _ = read.predict(user, new=True)
    # As new rows they have the same means, but for the draws of the codes: a fifth of a deviation.
    spread = holes[["a", "b"]].std().to_numpy()
    np.testing.assert_allclose(same / spread, mean / spread, atol=0.2)
    other_whole, other = table(seed=5)
    other["station"] = other_whole["station"] = "west-" + other["station"]
    new = impute_table.read_table(
        write(other, tmp_path / "new.csv"), **COLUMNS, scaling=read.scaling
    )
    new_mean, _ = read.predict(new, new=True)
    truth = other_whole[["a", "b"]].to_numpy().reshape(2, 40, 2)
    hidden = np.isnan(new.table.Y)
    error = (new_mean - truth)[hidden[..., 0], 0]
    assert np.sqrt(np.mean(error**2)) < 0.6
    assert len(study.draw(user, mean, variance, tmp_path / "filled.csv")) == 2


def test_check_lists_what_a_model_has_to_beat() -> None:
    rng = np.random.default_rng(0)
    t = np.linspace(-1.5, 1.5, 30)
    Y = np.stack([np.sin(3 * t), np.cos(3 * t)], -1)[None] + 0.1 * rng.standard_normal((1, 30, 2))
    data = MultiOutputTable(t[None, :, None], Y)
    plan = study.make_plan("sgp_vae", data, epochs=20)
    scores = study.check(plan, data, 0.2, seed=0)
    assert list(scores.index) == [
        "sgp_vae",
        "independent GPs",
        "linear interpolation",
        "column means",
    ]
    assert np.isfinite(scores.to_numpy()).all()
    assert scores.loc["independent GPs", "rmse"] < 0.5 * scores.loc["column means", "rmse"]


def test_parquet_keeps_its_types(tmp_path: pathlib.Path) -> None:
    """Numbers and dates come as such from the file, and the filled table goes back as such."""
    pytest.importorskip("pyarrow", reason="pandas reads Parquet with pyarrow")
    _, holes = table()
    holes["day"] = pd.to_datetime(holes["day"])
    holes.to_parquet(tmp_path / "t.parquet")
    user = impute_table.read_table(tmp_path / "t.parquet", **COLUMNS)
    missing = holes[["a", "b"]].isna().to_numpy()
    assert np.isnan(user.table.Y).sum() == missing.sum()
    days = user.table.X[0, :, 0] * user.input_scale[0] + user.input_centre[0]
    np.testing.assert_allclose(days, np.arange(40), atol=1e-9)
    shape = user.table.Y.shape
    out = tmp_path / "filled.parquet"
    impute_table.write_table(user, np.full(shape, 7.0), np.ones(shape), out)
    again = pd.read_parquet(out)
    assert again["day"].dtype == holes["day"].dtype and again["a"].dtype == float
    assert (again["a"][holes["a"].isna()] == 7.0).all()
    assert (again["a"] == holes["a"])[holes["a"].notna()].all()


def _broken(change: str, frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.astype({"a": object})
    if change == "text":
        frame.loc[3, "a"] = "cold"
    elif change == "infinite":
        frame.loc[3, "a"] = "inf"
    elif change == "twice":
        frame.loc[3, "day"] = frame.loc[2, "day"]
    elif change == "date":
        frame.loc[3, "day"] = "yesterday"
    return frame


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("text", r"Column 'a' holds 'cold' in row 4, which is no number"),
        ("infinite", r"Column 'a' is infinite in row 4"),
        ("twice", r"Rows 3 and 4 have the same task and the same day"),
        ("date", r"Time 'day' is 'yesterday' in row 4; expected numbers throughout, or dates"),
    ],
)
def test_bad_cells(change: str, message: str, tmp_path: pathlib.Path) -> None:
    path = write(_broken(change, table()[1]), tmp_path / "t.csv")
    with pytest.raises(ValueError, match=message):
        impute_table.read_table(path, **COLUMNS)


def test_bad_columns(tmp_path: pathlib.Path) -> None:
    _, holes = table()
    path = write(holes, tmp_path / "t.csv", sep=";")
    with pytest.raises(ValueError, match="separated by ';': pass --separator"):
        impute_table.read_table(path, **COLUMNS)
    path = write(holes, tmp_path / "u.csv")
    with pytest.raises(ValueError, match=r"no column \['c'\] in the table"):
        impute_table.read_table(path, **(COLUMNS | {"outputs": ["a", "c"]}))
    with pytest.raises(ValueError, match="what tells its rows apart"):
        impute_table.read_table(path, ["a"])
    with pytest.raises(ValueError, match="outputs is empty"):
        impute_table.read_table(path, **(COLUMNS | {"outputs": []}))


def test_an_output_never_observed(tmp_path: pathlib.Path) -> None:
    _, holes = table()
    holes["b"] = np.nan
    user = impute_table.read_table(write(holes, tmp_path / "t.csv"), **COLUMNS)
    plan = study.make_plan("sgp_vae", user.table, epochs=1)
    with pytest.raises(ValueError, match="'b' is never observed"):
        study.SavedFit.fit(plan, user, COLUMNS, seed=0)


def test_no_fit_in_a_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no fit\.json"):
        study.SavedFit.read(tmp_path)
