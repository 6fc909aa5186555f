"""Draws of all missing cells together, for multiple imputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from check_shapes import check_shapes
from scipy.special import ndtr

from ...data import MultiOutputTable
from ..method_names import GP
from ..reading.indicators import groups
from ..reading.kinds.column_kind import ColumnKind
from ..reading.user_table import UserTable
from .fitted import Fit
from .gaps import with_outputs
from .posterior import TablePosterior
from .rows import fit_rows, predict_rows

__all__ = ["draw"]

_MOST_VALUES = 20_000_000  # of draws that are kept at once


def draw(fit: Fit, user: UserTable, number: int, seed: int) -> Iterator[np.ndarray]:
    """Values [T, N, P] of the missing cells, in the units of the outputs; others are NaN.

    Each cell has the calibrated distribution that is filled in with its mean; cells of a row, and
    of a series, go together as the model says (a Gaussian copula). Without inputs each draw is of
    other parameters, too: those of a bootstrap of the rows (Little and Rubin 2002, section 10.2.3).
    With inputs parameters are those of the fit.
    """
    rngs = np.random.default_rng([seed, 0xD7]).spawn(number)
    table = user.table
    where = ~table.observed & table.rows[..., None]
    mean, variance = fit.predict(user, where=where)
    Z = fit.standardiser.transform(table.Y)
    by_model = np.array([method == GP for method in fit.choice.methods])
    residual = Z
    if fit.posterior is not None:
        residual = Z - fit.posterior.trend(user.calendar, Z.shape[:2])
    kinds = user.columns.kinds
    for moved, noise in _residuals(fit.posterior, table, residual, where, rngs):
        drawn = mean + np.where(by_model, moved, 0.0) + np.sqrt(variance) * noise
        values = fit.standardiser.inverse_quantile(drawn, np.zeros(drawn.shape), 0.5)
        chance = fit.standardiser.inverse_moments(mean, variance)[0]
        for p, kind in enumerate(kinds):
            values[..., p] = _possible(kind, values[..., p], chance[..., p], noise[..., p])
        for columns in groups(table.output_names):
            if len(columns) > 1:
                values[..., columns] = _one_of(chance[..., columns], noise[..., columns[0]])
        yield np.where(where, values, np.nan)


def _residuals(
    posterior: TablePosterior | None,
    table: MultiOutputTable,
    residual: np.ndarray,
    where: np.ndarray,
    rngs: Sequence[np.random.Generator],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Generate draws of cells [T, N, P].

    :return: what other parameters add to the means, and standard normal numbers.
    """
    if posterior is None:  # simple methods say nothing of how cells go together
        for rng in rngs:
            yield np.zeros(residual.shape), rng.standard_normal(residual.shape)
        return
    plan, rows = posterior.plan, table.rows
    if posterior.smooth is not None:
        together = max(1, _MOST_VALUES // residual.size)
        for first in range(0, len(rngs), together):
            noises = posterior.smooth.draw_residuals(
                table.X, residual, table.lengths, where, rngs[first : first + together]
            )
            for noise in noises:
                yield np.zeros(residual.shape), noise
        return
    again = np.flatnonzero(rows[0])
    before = predict_rows(posterior.of_rows, plan, table, residual)[0]
    for rng in rngs:
        chosen = rng.choice(again, len(again))
        # A column may have no observation among the chosen rows; a cell at its mean adds nothing.
        drawn = residual[:, chosen]
        empty = np.isnan(drawn).all((0, 1))
        drawn[:, 0, empty] = 0.0
        of_rows = fit_rows(plan, with_outputs(table, drawn), drawn)
        moved = predict_rows(of_rows, plan, table, residual)[0] - before
        noise = np.full(residual.shape, np.nan)
        noise[rows] = posterior.of_rows.draw_residuals(table.X[rows], residual[rows], rng)
        yield moved, noise


def _possible(
    kind: ColumnKind, values: np.ndarray, chance: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """Values that a column of this kind can have."""
    if kind.kind == "binary":
        return (ndtr(noise) > 1.0 - chance).astype(float)
    values = np.clip(values, kind.lower, kind.upper)
    return np.round(values) if kind.whole else values


@check_shapes("chances: [batch..., K]", "noise: [batch...]", "return: [batch..., K]")
def _one_of(chances: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """A one for the category that a number falls on, and zeros for the others."""
    shares = np.cumsum(np.clip(chances, 1e-9, None), axis=-1)
    below = ndtr(noise)[..., None] * shares[..., -1:] > shares
    return np.eye(chances.shape[-1])[np.minimum(below.sum(-1), chances.shape[-1] - 1)]
