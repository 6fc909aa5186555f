"""Made ratings; the reader of the files is tested with its study."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from gpflow_bae.datasets import movielens
from gpflow_bae.datasets.movielens import GENRES


def test_made_ratings_look_like_those_of_movielens() -> None:
    ratings = movielens.make()
    assert (ratings.num_users, ratings.num_films) == pytest.approx((943, 1650), abs=40)
    assert len(ratings.values) == 100_000
    cells = ratings.users * ratings.num_films + ratings.films
    assert len(np.unique(cells)) == len(cells)
    shares = np.bincount(ratings.values.astype(int))[1:] / len(cells)
    np.testing.assert_allclose(shares, [0.06, 0.11, 0.27, 0.34, 0.22], atol=1e-3)
    with pytest.raises(ValueError, match="num_ratings is 60; .* half of the 10 x 10 cells"):
        movielens.make(10, 10, 60)


def test_films_of_some_genres(tmp_path: pathlib.Path) -> None:
    """Of three films one is Romance, one Sci-Fi and Romance, one Drama."""
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    (folder / "u.data").write_text("1\t10\t3\t0\n1\t20\t4\t0\n2\t30\t5\t0\n2\t20\t1\t0\n")
    kinds = {10: {"Romance"}, 20: {"Sci-Fi", "Romance"}, 30: {"Drama"}}
    lines = [
        "|".join([str(film), "Caf\xe9 (1990)", "", "", ""] + [str(int(g in own)) for g in GENRES])
        for film, own in kinds.items()
    ]
    (folder / "u.item").write_text("\n".join(lines), encoding="latin-1")
    found = movielens.load(tmp_path, ["Sci-Fi", "Romance"])
    np.testing.assert_array_equal(found.values, [3.0, 4.0, 1.0])
    np.testing.assert_array_equal(found.films, [0, 1, 1])
    np.testing.assert_array_equal(found.users, [0, 0, 1])
    assert (found.num_users, found.num_films) == (2, 2)
    np.testing.assert_array_equal(movielens.load(tmp_path, ["Drama"]).values, [5.0])
    assert len(movielens.load(tmp_path).values) == 4
    with pytest.raises(ValueError, match="genres has SciFi; expected some of unknown, Action"):
        movielens.load(tmp_path, ["SciFi"])
    (folder / "u.item").write_text("10|Film\n")
    with pytest.raises(ValueError, match="u.item has a line of 2 fields; expected 24"):
        movielens.load(tmp_path, ["Drama"])
