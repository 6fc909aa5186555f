"""Covariates of cells, such as batches: read, checked and converted to columns of inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from ..core.arguments import as_numbers, warn_caller
from ..core.scales import spread, varies
from .tissue import Tissue, categories_of, named

__all__ = ["AVERAGE", "Covariates", "inputs_of", "reference_inputs", "warn_of_confounding"]

AVERAGE = "average"
_NEAREST = 5  # neighbours whose batches are compared with a cell's own
_MOST_APART = 0.6  # excess of neighbours of equal batch, 0 by chance and 1 at most


def inputs_of(
    places: np.ndarray, covariates: np.ndarray, sizes: np.ndarray, slices: np.ndarray
) -> np.ndarray:
    """Concatenate scaled places, covariates, size and slice to inputs [N, D + K + 2]."""
    return np.concatenate([places, covariates, sizes[:, None], slices[:, None]], 1)


def reference_inputs(X: np.ndarray, num_covariates: int, keep_slices: bool = False) -> np.ndarray:
    """Return inputs at the same places of cells of median size and with average covariates.

    :param keep_slices: whether cells stay in their own slices, rather than the first.
    """
    X = X.copy()
    X[:, -2 - num_covariates : -2], X[:, -2] = 0.0, 1.0
    if not keep_slices:
        X[:, -1] = 0.0
    return X


@dataclasses.dataclass(frozen=True)
class Covariates:
    """Map from batches and numbers of cells to columns [N, K] that are 0 on average over the fit.

    A column of a batch is 1 for its cells and 0 for others, less its share of the cells. A number
    is standardised. So zeros stand for the average over the fit's cells.

    - batch_key: column of ``adata.obs`` with the names of batches; None for none.
    - batches: names of batches; one or none of them has no column.
    - shares: share of each batch in the cells [B].
    - keys: columns of ``adata.obs`` with numbers [C].
    - means, scales: mean and standard deviation of each number [C].
    """

    batch_key: str | None = None
    batches: list[str] = dataclasses.field(default_factory=list)
    shares: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    keys: list[str] = dataclasses.field(default_factory=list)
    means: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    scales: np.ndarray = dataclasses.field(default_factory=lambda: np.ones(0))

    @classmethod
    def of(
        cls, adata: Any, batch_key: str | None, covariate_keys: str | Sequence[str]
    ) -> Covariates:
        """Read the covariates of the cells of a fit.

        :raises ValueError: for a missing column, cells without a value, as many batches as cells,
            and numbers that are none or all equal.
        """
        keys = [covariate_keys] if isinstance(covariate_keys, str) else list(covariate_keys)
        batches: list[str] = []
        shares = np.zeros(0)
        if batch_key is not None:
            found, batches = _batches(adata, batch_key, None)
            if len(batches) > max(1, adata.n_obs // 2):
                raise ValueError(
                    f"adata.obs[{batch_key!r}] names {len(batches)} batches of {adata.n_obs} "
                    "cells: set batch_key to a column of few categories. Columns of numbers "
                    "belong in covariate_keys."
                )
            shares = np.bincount(found, minlength=len(batches)) / len(found)
        values = _numbers(adata, keys)
        constant = [key for key, differ in zip(keys, varies(values), strict=True) if not differ]
        if constant:
            raise ValueError(
                f"adata.obs[{constant[0]!r}] has one value in all cells, so it has no effect: "
                "leave it out of covariate_keys."
            )
        return cls(batch_key, batches, shares, keys, values.mean(0), spread(values))

    @property
    def number(self) -> int:
        """Number of columns K."""
        return (len(self.batches) if len(self.batches) > 1 else 0) + len(self.keys)

    def columns_of(self, adata: Any) -> np.ndarray:
        """Return the columns [N, K] of cells, with batches of the fit.

        :raises ValueError: for a missing column, an unknown batch, and cells without a value.
        """
        numbers = np.zeros(adata.n_obs, int)
        if self.batch_key is not None:
            numbers, _ = _batches(adata, self.batch_key, self.batches)
        return self._columns(numbers, _numbers(adata, self.keys))

    def columns_at(self, values: Any, number: int) -> np.ndarray:
        """Return the columns [number, K] of cells at new places.

        :param values: a value, or one for each place, of each key; or ``"average"``.
        :raises ValueError: for missing and unknown keys and batches, and other lengths.
        """
        is_average = isinstance(values, str) and values == AVERAGE
        if is_average or (not self.number and values is None):
            return np.zeros((number, self.number))
        wanted = {} if self.batch_key is None else {self.batch_key: f"one of {self.batches}"}
        wanted |= dict.fromkeys(self.keys, "a number")
        if not wanted:
            raise ValueError("The fit has no covariates: leave covariates out.")
        if not isinstance(values, Mapping) and not hasattr(values, "columns"):
            words = ", ".join(f"{key!r}: {value}" for key, value in wanted.items())
            raise ValueError(
                f"The fit has covariates, and covariates is {values!r}: set it to {{{words}}}, or "
                f"to {AVERAGE!r} for the average over the fit's cells."
            )
        if set(values) != set(wanted):
            raise ValueError(
                f"covariates has {sorted(map(str, values))}; expected values of {sorted(wanted)}."
            )
        given = {key: np.atleast_1d(np.asarray(values[key])) for key in wanted}
        for key, value in given.items():
            if value.shape not in ((1,), (number,)):
                raise ValueError(
                    f"covariates[{key!r}] has shape {value.shape}; expected a value, or one for "
                    f"each of the {number} places."
                )
        numbers = np.zeros(number, int)
        if self.batch_key is not None:
            names = [str(name) for name in given[self.batch_key]]
            unknown = sorted(set(names) - set(self.batches))
            if unknown:
                raise ValueError(
                    f"covariates[{self.batch_key!r}] has {unknown}, which are not of the fit: it "
                    f"has {self.batches}. For an unknown batch take {AVERAGE!r}."
                )
            numbers = np.broadcast_to([self.batches.index(name) for name in names], number)
        found = np.zeros((number, len(self.keys)))
        for c, key in enumerate(self.keys):
            found[:, c] = as_numbers(given[key], f"covariates[{key!r}]")
        if not np.isfinite(found).all():
            raise ValueError("covariates must be finite numbers, apart from batches.")
        return self._columns(numbers, found)

    def _columns(self, batches: np.ndarray, values: np.ndarray) -> np.ndarray:
        values = (values - self.means) / self.scales
        if len(self.batches) < 2:
            return values
        return np.concatenate([np.eye(len(self.batches))[batches] - self.shares, values], 1)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Covariates:
        """Invert ``dataclasses.asdict``; lists become arrays."""
        arrays = {name: np.array(values[name], float) for name in ("shares", "means", "scales")}
        return cls(**values | arrays)


def _batches(adata: Any, key: str, known: list[str] | None) -> tuple[np.ndarray, list[str]]:
    return categories_of(adata, key, known, argument="batch_key", noun="batch", plural="batches")


def _numbers(adata: Any, keys: list[str]) -> np.ndarray:
    """Return the numbers of cells [N, C]."""
    found = np.zeros((adata.n_obs, len(keys)))
    for c, key in enumerate(keys):
        if key not in adata.obs:
            raise ValueError(
                f"adata.obs has no column {key!r}, only {sorted(adata.obs)}: set covariate_keys "
                "to columns of numbers."
            )
        column = adata.obs[key]
        if column.dtype.kind not in "iuf":
            raise ValueError(
                f"adata.obs[{key!r}] holds {column.dtype}, and covariate_keys are columns of "
                "numbers: set batch_key to a column of names."
            )
        found[:, c] = as_numbers(column, f"adata.obs[{key!r}]")
        lost = ~np.isfinite(found[:, c])
        if lost.any():
            raise ValueError(
                f"adata.obs[{key!r}] has no value of {int(lost.sum())} cells "
                f"({named(adata.obs_names[lost])}): give it, or leave these cells out."
            )
    return found


def warn_of_confounding(covariates: Covariates, tissue: Tissue, slice_key: str | None) -> None:
    """Warn of effects that are none, or that cannot be told from those of slices and places."""
    key, number = covariates.batch_key, len(covariates.batches)
    if key is not None and number == 1:
        warn_caller(
            f"adata.obs[{key!r}] names one batch ({covariates.batches[0]}), so there is no effect "
            "of batches to correct."
        )
    if not covariates.number:
        return
    columns, slices = tissue.covariates, tissue.slices
    size = np.bincount(slices)
    means = np.stack([np.bincount(slices, values) / size for values in columns.T], 1)
    within = columns - means[slices]
    of_batches = within[:, :number] if number > 1 else within[:, :0]
    expected = covariates.number - (number > 1)
    if number > 1 and len(size) > 1 and np.abs(of_batches).max() < 1e-9:
        warn_caller(
            f"Each slice has cells of one batch only, so effects of batches (batch_key={key!r}) "
            f"and of slices (slice_key={slice_key!r}) on genes cannot be told apart. Slices have "
            "their own level of each gene, which takes up both."
        )
    elif np.linalg.matrix_rank(within, tol=1e-6 * np.sqrt(len(within))) < expected:
        names = [*([key] if number > 1 else []), *covariates.keys]
        warn_caller(
            f"Effects of {names} cannot be told apart from each other"
            + (f", or from those of slices ({slice_key})" if len(size) > 1 else "")
            + ": some of these columns follow from others. Codes have none of them, but single "
            "effects are arbitrary."
        )
    same, by_chance = _equal_neighbours(tissue, number) if number > 1 else (0.0, 0.0)
    if same - by_chance > _MOST_APART * (1.0 - by_chance):
        warn_caller(
            f"Batches (batch_key={key!r}) lie apart: in slices of several batches {same:.0%} of a "
            f"cell's neighbours are of its batch, {by_chance:.0%} by chance. What differs between "
            "regions there cannot be told from effects of batches, and is removed with them. If "
            "each batch is a section of its own, set slice_key too."
        )


def _equal_neighbours(tissue: Tissue, number: int) -> tuple[float, float]:
    """Return the share of neighbours that are of a cell's batch, and what it is by chance.

    Of cells in slices of several batches; 0 and 0 if there are none.
    """
    batches = tissue.covariates[:, :number].argmax(1)
    same, by_chance = [np.zeros(0)], [np.zeros(0)]
    for s in range(int(tissue.slices.max()) + 1):
        rows = np.flatnonzero(tissue.slices == s)
        own = batches[rows]
        if len(np.unique(own)) < 2:
            continue
        places = tissue.places[rows].astype(float)
        _, near = cKDTree(places).query(places, min(_NEAREST + 1, len(rows)))
        same.append((own[near[:, 1:]] == own[:, None]).mean(1))
        by_chance.append((np.bincount(own)[own] - 1) / max(len(own) - 1, 1))
    if len(same) == 1:
        return 0.0, 0.0
    return float(np.concatenate(same).mean()), float(np.concatenate(by_chance).mean())
