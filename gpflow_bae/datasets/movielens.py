"""MovieLens 100K (Harper and Konstan, 2015): 943 users' ratings of 1682 films, as triplets.

The licence forbids shipping the data: put ``ml-100k/u.data`` of
https://grouplens.org/datasets/movielens/100k/ into the data folder.
"""

import dataclasses
import os

import numpy as np

from .files import find_files

__all__ = ["Ratings", "load", "split"]

_ORIGIN = "https://grouplens.org/datasets/movielens/100k/ (u.data of ml-100k.zip)"


@dataclasses.dataclass(frozen=True)
class Ratings:
    """Triplets: ``users [K]`` and ``films [K]`` count from 0, ``values [K]`` are stars 1 to 5."""

    users: np.ndarray
    films: np.ndarray
    values: np.ndarray
    num_users: int
    num_films: int

    def select(self, chosen: np.ndarray) -> "Ratings":
        """Some of the triplets, of the same users and films."""
        return dataclasses.replace(
            self, users=self.users[chosen], films=self.films[chosen], values=self.values[chosen]
        )


def load(data_dir: str | os.PathLike[str]) -> Ratings:
    """All ratings of ``ml-100k/u.data``: tab-separated user, film, stars, time stamp.

    :raises FileNotFoundError: If the file is missing.
    :raises ValueError: If a line is not four numbers, or stars are not 1 to 5.
    """
    (path,) = find_files(data_dir, "ml-100k", ["u.data"], _ORIGIN)
    try:
        table = np.loadtxt(path, dtype=np.int64, ndmin=2)
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be read ({error}); each line must be user, film, stars and time "
            "stamp, integers between tabs."
        ) from error
    if table.shape[1] != 4 or not ((table[:, 2] >= 1) & (table[:, 2] <= 5)).all():
        raise ValueError(
            f"{path} has {table.shape[1]} columns and stars from {table[:, 2].min()} to "
            f"{table[:, 2].max()}; expected 4 columns and 1 to 5 stars."
        )
    users, films = (np.unique(table[:, i], return_inverse=True)[1] for i in (0, 1))
    values = table[:, 2].astype(np.float64)
    return Ratings(users, films, values, int(users.max()) + 1, int(films.max()) + 1)


def split(
    ratings: Ratings, num_test_users: int, hidden_fraction: float, seed: int
) -> tuple[Ratings, Ratings, Ratings]:
    """Training users; what is seen of test users; what is hidden of them.

    Films that no training user has rated leave all three, and users are numbered anew, the test
    users from 0 again. The paper's reconstruction error is that on what is seen.

    :param num_test_users: drawn at random (100 in the GPLVF paper).
    :param hidden_fraction: share of each test user's ratings that is hidden, at least one seen.
    :raises ValueError: If the numbers leave no training user.
    """
    if not 0 < num_test_users < ratings.num_users:
        raise ValueError(
            f"num_test_users is {num_test_users}; it must leave some of the {ratings.num_users} "
            "users to train on."
        )
    if not 0.0 <= hidden_fraction < 1.0:
        raise ValueError(f"hidden_fraction is {hidden_fraction}; it must lie in [0, 1).")
    rng = np.random.default_rng(seed)
    tested = np.zeros(ratings.num_users, dtype=bool)
    tested[rng.permutation(ratings.num_users)[:num_test_users]] = True
    in_test = tested[ratings.users]
    known = np.unique(ratings.films[~in_test])
    film_of = np.full(ratings.num_films, -1)
    film_of[known] = np.arange(len(known))
    kept = film_of[ratings.films] >= 0
    hidden = np.zeros(len(kept), dtype=bool)
    for user in np.flatnonzero(tested):
        own = np.flatnonzero(kept & (ratings.users == user))
        count = min(round(hidden_fraction * len(own)), max(len(own) - 1, 0))
        hidden[rng.permutation(own)[:count]] = True
    parts = []
    for of_test, chosen in (
        (False, kept & ~in_test),
        (True, kept & in_test & ~hidden),
        (True, kept & in_test & hidden),
    ):
        # Test users whose films nobody else has rated are gone.
        users = np.flatnonzero(tested == of_test)
        users = users[np.isin(users, ratings.users[kept])]
        number = np.full(ratings.num_users, -1)
        number[users] = np.arange(len(users))
        part = ratings.select(chosen)
        parts.append(
            Ratings(number[part.users], film_of[part.films], part.values, len(users), len(known))
        )
    return parts[0], parts[1], parts[2]
