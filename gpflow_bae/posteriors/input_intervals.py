"""Credible intervals of missing inputs, calibrated on hidden ones with known values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from ..data.unequal_tasks import padded_inputs
from ..inputs import MissingInputs
from .amortized import Posterior
from .completed_inputs import completed_inputs

__all__ = ["InputIntervals", "calibrated", "input_intervals"]


class InputIntervals(NamedTuple):
    """Intervals of the M missing entries of a column.

    - places: task and point [M, 2] of each.
    - estimate: mean of the draws [M]; their circular mean for a periodic column.
    - lower, upper: ends of the interval [M]; within half a period of the estimate.
    - scale: factor between the intervals and those of the draws.
    - period: period of the column, or None.
    """

    places: np.ndarray
    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    scale: float
    period: float | None

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Whether intervals contain values [M], modulo the period if there is one."""
        away = _wrapped(np.asarray(values) - self.estimate, self.period)
        held: np.ndarray = (self.lower - self.estimate <= away) & (
            away <= self.upper - self.estimate
        )
        return held


@check_arguments(num_draws=2, seed=0)
def input_intervals(
    posterior: Posterior,
    column: int,
    *,
    level: float = 0.9,
    known: TensorType | None = None,
    num_draws: int = 200,
    seed: int = 0,
) -> InputIntervals:
    """Return central intervals of missing entries of a column (``MissingInputs``).

    Intervals of draws are only calibrated if the model is, and one with independent noise but
    dependent errors is overconfident. To calibrate them, hide some known inputs from the fit and
    pass their values: all intervals are then scaled by one factor so that those of hidden entries
    contain them (split conformal prediction, Lei et al. 2018, with errors in units of the halves
    of each interval). Entries missing at random then have coverage ``level`` under any model.

    :param column: column of X.
    :param level: probability of the intervals.
    :param known: X [N, D] or [T, N, D] (or a list of [N_t, D]) with the values of entries that were
        hidden from the model, NaN where unknown. None for the uncalibrated intervals of the draws.
    :param num_draws: total number of draws of inputs with distributions, at least one of each
        sample; a chain has one of each sample.
    :param seed: seed of the draws.
    :raises TypeError: for a model without :class:`~gpflow_bae.inputs.MissingInputs`.
    :raises ValueError: for a column without missing entries, a ``level`` that is not between 0 and
        1, ``known`` of another shape or with too few values for that level, and point estimates,
        which have no width.
    """
    missing = posterior.model.inputs
    if not isinstance(missing, MissingInputs):
        raise TypeError(
            "input_intervals needs a model whose kernel is CompletedInputs(kernel, MissingInputs); "
            f"this model's inputs are {type(missing).__name__ if missing else 'known'}."
        )
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}.")
    columns = {
        own.column: table for own, table in zip(missing.columns, missing.tables, strict=True)
    }
    if column not in columns:
        raise ValueError(
            f"column {column} has no missing entries; those of {sorted(columns)} have."
        )
    places = np.argwhere(missing.missing[..., column])
    if posterior.data.rows.lengths is not None:
        places = places[places[:, 1] < np.asarray(posterior.data.rows.lengths)[places[:, 0]]]
    draws = completed_inputs(posterior, num_draws=num_draws if missing.draws else 1, seed=seed)
    draws = draws if posterior.data.has_tasks else draws[:, None]
    draws = draws[:, places[:, 0], places[:, 1], column]
    values = None
    if known is not None:
        given = as_numbers(padded_inputs(known), "known")
        if given.shape not in (missing.missing.shape, missing.missing.shape[1:]):
            raise ValueError(
                f"known has shape {given.shape}, and MissingInputs was made of X of shape "
                f"{missing.missing.shape}: give X with the values that were hidden."
            )
        values = given.reshape(missing.missing.shape)[places[:, 0], places[:, 1], column]
    period = getattr(columns[column].prior, "period", None)
    return InputIntervals(places, *calibrated(draws, values, level, period), period)


def calibrated(
    draws: np.ndarray, values: np.ndarray | None, level: float, period: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return estimates, lower and upper ends [M], and the scale; see :func:`input_intervals`.

    :param draws: [S, M].
    :param values: known values [M], NaN for others; None for a scale of 1.
    :raises ValueError: as :func:`input_intervals`.
    """
    estimate = draws.mean(0)
    if period is not None:
        turn = 2.0 * np.pi / period
        estimate = np.angle(np.exp(1j * turn * draws).mean(0)) / turn
    away = _wrapped(draws - estimate, period)
    ends = np.quantile(away, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    # The mean of a skewed posterior may lie at an end of the central interval, or outside.
    least = 1e-3 * (ends[1] - ends[0])
    below, above = np.minimum(ends[0], -least), np.maximum(ends[1], least)
    if not (least > 0.0).all():
        raise ValueError(
            'draws of an entry do not differ, so it has no interval: fit with q="gaussian", or '
            "sample a chain of several samples."
        )
    scale = 1.0
    if values is not None:
        scale = _scale(_wrapped(values - estimate, period), below, above, level)
    lower, upper = estimate + scale * below, estimate + scale * above
    if period is not None:  # an interval covers at most one period
        lower = np.maximum(lower, estimate - 0.5 * period)
        upper = np.minimum(upper, estimate + 0.5 * period)
    return estimate, lower, upper, scale


def _scale(errors: np.ndarray, below: np.ndarray, above: np.ndarray, level: float) -> float:
    """Return the conformal scale with coverage ``level``, from known errors (others NaN)."""
    seen = np.isfinite(errors)
    number = int(seen.sum())
    rank = int(np.ceil(level * (number + 1)))  # the smallest error with at least that many below it
    if rank > number:
        least = int(np.ceil(level / (1.0 - level) - 1e-9))
        raise ValueError(
            f"known has the values of {number} entries that were hidden; intervals of {level:g} "
            f"need {least} at least."
        )
    ratio = np.where(errors < 0.0, errors / below, errors / above)[seen]
    return float(np.sort(ratio)[rank - 1])


def _wrapped(difference: Any, period: float | None) -> np.ndarray:
    """Return a difference, modulo the period to its smallest magnitude if there is one."""
    difference = np.asarray(difference, float)
    if period is None:
        return difference
    found: np.ndarray = (difference + 0.5 * period) % period - 0.5 * period
    return found
