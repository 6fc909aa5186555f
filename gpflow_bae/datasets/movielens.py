"""MovieLens 100K (Harper and Konstan, 2015): 943 users' ratings of 1682 films, as triplets.

The licence forbids shipping the data: put ``ml-100k/u.data`` of
https://grouplens.org/datasets/movielens/100k/ into the data folder, and ``ml-100k/u.item`` to
select genres.
"""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from .files import find_files

__all__ = ["GENRES", "Ratings", "load", "make", "split"]

_ORIGIN = "https://grouplens.org/datasets/movielens/100k/ (u.data and u.item of ml-100k.zip)"
# The last columns of u.item, in the order of u.genre.
GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime"),
    *("Documentary", "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery"),
    *("Romance", "Sci-Fi", "Thriller", "War", "Western"),
)


@dataclasses.dataclass(frozen=True)
class Ratings:
    """Ratings: ``users [K]`` and ``films [K]`` from 0, and ``values [K]``, stars 1 to 5."""

    users: np.ndarray
    films: np.ndarray
    values: np.ndarray
    num_users: int
    num_films: int

    def select(self, chosen: np.ndarray) -> "Ratings":
        """Return some of the triplets; numbers of users and films are kept."""
        return dataclasses.replace(
            self, users=self.users[chosen], films=self.films[chosen], values=self.values[chosen]
        )


def load(data_dir: str | os.PathLike[str], genres: Sequence[str] = ()) -> Ratings:
    """Read all ratings of ``ml-100k/u.data``: tab-separated user, film, stars, time stamp.

    :param genres: names in ``GENRES``; the ratings of films of any of them are read, with
        ``ml-100k/u.item``. All films if empty.
    :raises FileNotFoundError: If a file is missing.
    :raises ValueError: For an unknown genre, a line that is not four numbers, stars that are not 1
        to 5, or a line of ``u.item`` that is not 24 fields.
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
    if genres:
        table = table[np.isin(table[:, 1], _films_of(data_dir, genres))]
    users, films = (np.unique(table[:, i], return_inverse=True)[1] for i in (0, 1))
    values = table[:, 2].astype(np.float64)
    return Ratings(users, films, values, int(users.max()) + 1, int(films.max()) + 1)


def _films_of(data_dir: str | os.PathLike[str], genres: Sequence[str]) -> list[int]:
    """Read the numbers of films of any of some genres."""
    unknown = sorted(set(genres) - set(GENRES))
    if unknown:
        raise ValueError(f"genres has {', '.join(unknown)}; expected some of {', '.join(GENRES)}.")
    (path,) = find_files(data_dir, "ml-100k", ["u.item"], _ORIGIN)
    columns = [GENRES.index(genre) - len(GENRES) for genre in genres]
    films = []
    for line in path.read_text(encoding="latin-1").splitlines():
        fields = line.split("|")
        if len(fields) != 5 + len(GENRES):
            raise ValueError(
                f"{path} has a line of {len(fields)} fields; expected {5 + len(GENRES)} between "
                f"'|', the last {len(GENRES)} of them genres."
            )
        if any(fields[column] == "1" for column in columns):
            films.append(int(fields[0]))
    return films


def make(
    num_users: int = 943, num_films: int = 1682, num_ratings: int = 100_000, seed: int = 0
) -> Ratings:
    """Simulate ratings of the size of MovieLens 100K, to use without the files.

    A rating is the level, from 1 to 5, of the sum of a user's bias, a film's bias, a smooth
    function for each film of two latent features of the user, and noise, with standard deviations
    0.45, 0.6, 0.5 and 0.8. Thresholds give the proportions of MovieLens: 6, 11, 27, 34 and 21 per
    cent. Users and films differ in their numbers of ratings, and cells are missing at random.

    :param num_ratings: number of ratings, all of different cells.
    :raises ValueError: for more ratings than half of the cells.
    """
    if not 0 < num_ratings <= num_users * num_films // 2:
        raise ValueError(
            f"num_ratings is {num_ratings}; it must be positive and at most half of the "
            f"{num_users} x {num_films} cells."
        )
    rng = np.random.default_rng(seed)
    often = 0.9 * rng.standard_normal(num_users)[:, None] + 1.3 * rng.standard_normal(num_films)
    # Sampling without replacement: the largest log weights plus Gumbel noise.
    chances = (often + rng.gumbel(size=often.shape)).ravel()
    cells = np.sort(np.argpartition(-chances, num_ratings)[:num_ratings])
    users, films = cells // num_films, cells % num_films
    tastes = rng.standard_normal((num_users, 2))
    # Random features of a squared exponential kernel with lengthscale 1.
    waves, phases = rng.standard_normal((2, 100)), rng.uniform(0.0, 2 * np.pi, 100)
    features = np.sqrt(2 / 100) * np.cos(tastes @ waves + phases)
    liking = rng.standard_normal((num_films, 100))
    said = (
        0.45 * rng.standard_normal(num_users)[users]
        + 0.6 * rng.standard_normal(num_films)[films]
        + 0.5 * np.einsum("kf,kf->k", features[users], liking[films])
        + 0.8 * rng.standard_normal(len(cells))
    )
    edges = np.quantile(said, [0.06, 0.17, 0.44, 0.78])
    values = 1.0 + np.digitize(said, edges)
    # Renumbered, so that every user and film has a rating, as in the files.
    users, films = (np.unique(index, return_inverse=True)[1] for index in (users, films))
    return Ratings(users, films, values, int(users.max()) + 1, int(films.max()) + 1)


def split(
    ratings: Ratings, num_test_users: int, hidden_fraction: float, seed: int
) -> tuple[Ratings, Ratings, Ratings]:
    """Split into ratings of training users, and observed and hidden ratings of test users.

    Films that no training user has rated are dropped, and users are renumbered, test users from 0
    again. The paper's reconstruction error is that of the observed ratings of test users.

    :param num_test_users: number of users, drawn at random (100 in the GPLVF paper).
    :param hidden_fraction: fraction of each test user's ratings that is hidden; at least one is
        observed.
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
        # Test users with only films that no training user has rated are dropped.
        users = np.flatnonzero(tested == of_test)
        users = users[np.isin(users, ratings.users[kept])]
        number = np.full(ratings.num_users, -1)
        number[users] = np.arange(len(users))
        part = ratings.select(chosen)
        parts.append(
            Ratings(number[part.users], film_of[part.films], part.values, len(users), len(known))
        )
    return parts[0], parts[1], parts[2]
