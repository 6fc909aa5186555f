"""Missing angles of training images: hidden before a run, inferred, and scored after it."""

from __future__ import annotations

import gpflow
import numpy as np

from gpflow_bae import inputs, posteriors
from gpflow_bae.datasets.rotated_mnist import RotatedMNIST

NUM_DRAWS = 200  # draws of each angle's Gaussian
_SEED = 0  # seed of the hidden angles, which belong to the data and do not depend on a run's seed
_COLUMN = 1


def hide(data: RotatedMNIST, fraction: float) -> RotatedMNIST:
    """Set a random share of the training angles to NaN, unless some are NaN already.

    A larger share includes the angles of a smaller one.

    :raises ValueError: for a share that hides none, or leaves an object without a known angle.
    """
    X = data.train.X.copy()
    if np.isnan(X).any():
        return data
    number = round(fraction * len(X))
    order = np.random.default_rng(_SEED).permutation(len(X))
    X[order[:number], _COLUMN] = np.nan
    known = np.unique(X[~np.isnan(X[:, _COLUMN]), 0])
    if number == 0 or len(known) < len(np.unique(X[:, 0])):
        raise ValueError(
            f"missing_angle_fraction={fraction:g} of {len(X)} images hides {number}, and leaves "
            f"{len(known)} objects with a known angle; it must hide one, and leave each object one."
        )
    return data._replace(train=data.train._replace(X=X))


def with_missing_angles(
    kernel: gpflow.kernels.Kernel, data: RotatedMNIST, bayesian: bool
) -> gpflow.kernels.Kernel:
    """Return the kernel over angles in which missing ones are parameters.

    :param bayesian: whether a variational fit has a Gaussian for each; a chain samples values.
    """
    missing = inputs.MissingInputs(
        data.train.X[None],
        periods={_COLUMN: 2.0 * np.pi},
        q="gaussian" if bayesian else "point",
        initial_scale=0.1,
    )
    return inputs.CompletedInputs(kernel, missing)


def scores(
    posterior: posteriors.Posterior, truth: RotatedMNIST, fraction: float
) -> dict[str, float]:
    """Return errors of hidden angles in degrees, and the coverage of their intervals.

    The estimate is the mean direction; the interval holds the central 90 % of the draws around it.

    :param fraction: share of images whose angles are scored, the first to be hidden (:func:`hide`).
        Other hidden angles, if any, calibrate the widths of the intervals.
    """
    missing = posterior.model.inputs
    rows = missing.places[:, 1]
    values = truth.train.X[rows, _COLUMN]
    scored = np.isnan(hide(truth, fraction).train.X[rows, _COLUMN])
    count = {"num_missing_angles": float(scored.sum())}
    if not missing.draws and posterior.num_samples == 1:
        found = posteriors.completed_inputs(posterior)[0, 0, rows, _COLUMN]
        return circular_errors(found[scored], values[scored]) | count
    intervals = posteriors.input_intervals(posterior, _COLUMN, num_draws=NUM_DRAWS)
    metrics = circular_errors(intervals.estimate[scored], values[scored]) | count
    metrics |= _interval_scores(intervals, values, scored)
    if not scored.all():
        known = np.full(truth.train.X.shape, np.nan)
        known[rows[~scored], _COLUMN] = values[~scored]
        intervals = posteriors.input_intervals(posterior, _COLUMN, known=known, num_draws=NUM_DRAWS)
        calibrated = _interval_scores(intervals, values, scored)
        metrics |= {f"{name}_calibrated": value for name, value in calibrated.items()}
        metrics["angle_interval_scale"] = intervals.scale
    return metrics


def _interval_scores(
    intervals: posteriors.InputIntervals, values: np.ndarray, scored: np.ndarray
) -> dict[str, float]:
    width = np.rad2deg(intervals.upper - intervals.lower)[scored]
    return {
        "angle_coverage_90": float(intervals.holds(values)[scored].mean()),
        "angle_width_90": float(np.median(width)),
    }


def circular_errors(found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return errors in degrees of angles [H] in radians."""
    errors = np.rad2deg(np.abs(_wrap(truth - found)))
    return {
        "angle_error_median": float(np.median(errors)),
        "angle_error_mean": float(errors.mean()),
        "angle_error_above_30": float((errors > 30.0).mean()),
    }


def _wrap(angle: np.ndarray) -> np.ndarray:
    """Return the same angle in [-pi, pi)."""
    return (angle + np.pi) % (2.0 * np.pi) - np.pi
