"""A joint distribution of all cells of a task, for tables of many tasks with the same inputs.

Windows of a day, or visits at fixed weeks, share more than the kernels of the GPs say: a mean at
each row, covariances that depend on the hour and not on distances alone, and tasks that are calmer
or wilder as a whole.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from check_shapes import check_shapes
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from ...data import MultiOutputTable

__all__ = ["StudentTasks", "at_places", "common_rows", "places_of_rows"]

_LEAST_TASKS = 40
_MOST_WORK = 2e10  # sum over tasks of n^2 times the number of observed cells, in a round of EM
_PSEUDO_TASKS = 1.0  # with mean zero
_DIGITS = 6  # of scaled inputs, by which rows of two tasks are the same
_DEGREES = np.array([2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0, 30.0, 50.0, 100.0, 1e3, 1e6])


@dataclasses.dataclass(frozen=True)
class StudentTasks:
    """A multivariate t distribution of the n = N P cells of a task.

    It is a Gaussian whose covariance has a factor of each task's own, so that a task's observed
    cells say how certain the others are. Given these, means are those of the Gaussian.

    * inputs [N, D]: of the rows of every task.
    * mean [n], covariance [n, n]: of the Gaussian, noise included; cells in the order of rows.
    * degrees: degrees of freedom of the factor; a million or more is a Gaussian.
    """

    inputs: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    degrees: float

    @check_shapes("Z: [T, N, P]")
    def refit(self, Z: np.ndarray, prior: np.ndarray, strength: float, rounds: int) -> StudentTasks:
        """Improve the parameters by EM (Liu and Rubin 1995), with a prior of the covariance.

        The prior is inverse Wishart around ``prior`` times a factor that is fitted, too. Its
        ``strength`` counts as that many tasks: as it grows the covariance keeps the prior's shape.

        :param Z: outputs of tasks; NaN where missing.
        :param prior: covariance [n, n].
        :param rounds: of EM.
        """
        values = Z.reshape(len(Z), -1)
        mean, covariance, degrees = self.mean, self.covariance, self.degrees
        for _ in range(rounds):
            filled, left = np.empty_like(values), np.zeros_like(covariance)
            distance, count = np.zeros(len(Z)), np.zeros(len(Z))
            for t, z in enumerate(values):
                shown = ~np.isnan(z)
                filled[t], explained, distance[t] = _condition(mean, covariance, z, shown)
                count[t] = np.count_nonzero(shown)
                hidden = np.ix_(~shown, ~shown)
                left[hidden] += covariance[hidden] - explained.T @ explained
            weight = (degrees + count) / (degrees + distance)
            degrees = _most_likely_degrees(distance, count)
            mean = weight @ filled / (weight.sum() + _PSEUDO_TASKS)
            centred = np.sqrt(weight)[:, None] * (filled - mean)
            factor = len(mean) / np.trace(np.linalg.solve(covariance, prior))
            total = left + centred.T @ centred + strength * factor * prior
            covariance = total / (len(Z) + strength)
        return dataclasses.replace(self, mean=mean, covariance=covariance, degrees=degrees)

    def with_levels(self, variance: float) -> StudentTasks:
        """The distribution of tasks whose columns are moved by levels of their own.

        A level is the same in all rows of a task. Levels are independent, with this variance.
        """
        N, P = len(self.inputs), len(self.mean) // len(self.inputs)
        levels = np.kron(np.full((N, N), variance), np.eye(P))
        return dataclasses.replace(self, covariance=self.covariance + levels)

    @check_shapes("Z: [T, N, P]", "return[0]: [T, N, P]", "return[1]: [T, N, P]")
    def predict(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of all cells given those of their task; observed ones are certain."""
        values = Z.reshape(len(Z), -1)
        filled, variance = np.empty_like(values), np.zeros_like(values)
        prior = np.diagonal(self.covariance)
        for t, z in enumerate(values):
            shown = ~np.isnan(z)
            filled[t], explained, distance = _condition(self.mean, self.covariance, z, shown)
            count = np.count_nonzero(shown)
            factor = (self.degrees + distance) / max(self.degrees + count - 2.0, 1.0)
            variance[t, ~shown] = factor * (prior[~shown] - np.square(explained).sum(0))
        return filled.reshape(Z.shape), variance.reshape(Z.shape)


@check_shapes("table.X: [T, N, D]")
def common_rows(table: MultiOutputTable) -> np.ndarray | None:
    """Inputs [G, D] of the rows that tasks have, where most tasks have most of them.

    None for fewer than forty tasks, for tasks that have less than half of these rows on average, or
    where a distribution of all their cells would take too long to fit.
    """
    if table.num_tasks < _LEAST_TASKS:
        return None
    inputs = np.unique(_rounded(table.X[table.rows]), axis=0)
    work = np.count_nonzero(table.observed) * (len(inputs) * table.num_outputs) ** 2
    if 2.0 * table.lengths.mean() < len(inputs) or work > _MOST_WORK:
        return None
    return inputs


@check_shapes("inputs: [G, D]", "table.X: [T, N, D]", "return: [T, N]")
def places_of_rows(inputs: np.ndarray, table: MultiOutputTable) -> np.ndarray:
    """Index of each row of a table among ``inputs``, as :func:`common_rows` found them.

    It is -1 in padding, for a row that is not there, and for rows of a task that share a place.
    """
    places = np.full(table.rows.shape, -1)
    rows = _rounded(table.X[table.rows])
    _, first, number = np.unique(
        np.concatenate([inputs, rows]), axis=0, return_index=True, return_inverse=True
    )
    found = first[number.ravel()[len(inputs) :]]
    places[table.rows] = np.where(found < len(inputs), found, -1)
    task, row = np.nonzero(places >= 0)
    _, of_pair, count = np.unique(
        np.stack([task, places[task, row]]), axis=1, return_inverse=True, return_counts=True
    )
    again = count[of_pair.ravel()] > 1
    places[task[again], row[again]] = -1
    return places


def _rounded(X: np.ndarray) -> np.ndarray:
    return np.round(X, _DIGITS) + 0.0  # no negative zeros


@check_shapes("places: [T, N]", "Z: [T, N, P]", "return: [T, G, P]")
def at_places(places: np.ndarray, Z: np.ndarray, num_places: int) -> np.ndarray:
    """Outputs of the rows of a table at their places; NaN at places that a task does not have."""
    found = np.full((len(Z), num_places, Z.shape[-1]), np.nan)
    task, row = np.nonzero(places >= 0)
    found[task, places[task, row]] = Z[task, row]
    return found


def _condition(
    mean: np.ndarray, covariance: np.ndarray, z: np.ndarray, shown: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """A task [n] with missing cells at their conditional means, the matrix B with B^T B the
    covariance of missing cells that the observed ones explain, and the squared distance of these
    from the mean.
    """
    if not shown.any():  # older versions of SciPy solve no empty systems
        return mean.copy(), np.zeros((0, len(z))), 0.0
    L = np.linalg.cholesky(covariance[np.ix_(shown, shown)])
    cross = covariance[np.ix_(shown, ~shown)]
    apart = (z - mean)[shown]
    solved = solve_triangular(L, np.column_stack([cross, apart]), lower=True, check_finite=False)
    explained, white = solved[:, :-1], solved[:, -1]
    filled = z.copy()
    filled[~shown] = mean[~shown] + explained.T @ white
    return filled, explained, float(white @ white)


def _most_likely_degrees(distance: np.ndarray, count: np.ndarray) -> float:
    """Degrees of freedom with the highest density of tasks, given their squared distances."""
    nu = _DEGREES[:, None]
    density = gammaln(0.5 * (nu + count)) - gammaln(0.5 * nu) - 0.5 * count * np.log(nu)
    density -= 0.5 * (nu + count) * np.log1p(distance / nu)
    return float(_DEGREES[np.argmax(density.sum(1))])
