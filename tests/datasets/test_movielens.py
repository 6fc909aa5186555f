"""Made ratings; the reader of the files is tested with its study."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_bae.datasets import movielens


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
