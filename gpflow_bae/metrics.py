"""Scores of predictions, in NumPy.

``rmse``, ``mae``, ``smse``, the two ``nll`` and the three coverages treat the last axis as columns
(outputs) and every other axis as points: they score each column over its points, then average over
columns, as in the experiments of Ashman et al. (2020). Entries where the truth is NaN are missing
and are skipped; a column with only missing entries is an error. ``rmse`` and ``mae`` are in the
unit of the truth, ``nll`` is in nats per observed entry, the others have no unit.

Trajectories are scored up to an affine map, because latent coordinates are only identified up to
one: see :func:`aligned_trajectory_rmse`.
"""

import dataclasses
import statistics

import numpy as np
from check_shapes import check_shapes
from scipy import special

from .core.annotations import check_arguments
from .core.arguments import as_numbers
from .core.scales import varies

__all__ = [
    "Affine",
    "aligned_trajectory_rmse",
    "coverage",
    "coverage_from_intervals",
    "crps",
    "fit_affine",
    "mae",
    "nll",
    "nll_from_log_density",
    "rmse",
    "smse",
]


@check_shapes("truth: [points..., P]", "prediction: [points..., P]", "return: []")
def rmse(truth: np.ndarray, prediction: np.ndarray) -> float:
    """Return the root mean squared error of each column, averaged over columns.

    :param truth: Observations; NaN = missing.
    :param prediction: Predicted values; finite wherever the truth is observed.
    :return: In the unit of ``truth``.
    :raises ValueError: If a column has no observed entry, or a prediction is not finite.
    """
    return float(np.mean(np.sqrt(_mean_squared_error(truth, prediction))))


@check_shapes("truth: [points..., P]", "prediction: [points..., P]", "return: []")
def mae(truth: np.ndarray, prediction: np.ndarray) -> float:
    """Return the mean absolute error of each column, averaged over columns; see :func:`rmse`."""
    truth = _columns(truth)
    error = np.abs(truth - _predicted("prediction", prediction, truth))
    return float(np.mean(np.nanmean(error, axis=0)))


@check_shapes("truth: [points..., P]", "prediction: [points..., P]", "return: []")
def smse(truth: np.ndarray, prediction: np.ndarray) -> float:
    """Return the standardised mean squared error: MSE over MSE of predicting the column's mean.

    The MSE of each column is divided by the column's (population) variance over the observed
    entries of ``truth``, then columns are averaged. The constant predictor at the mean of the test
    column scores 1.

    :return: Without unit; arguments as in :func:`rmse`.
    :raises ValueError: As :func:`rmse`, or if a column is constant.
    """
    error = _mean_squared_error(truth, prediction)
    values = _columns(truth)
    constant = np.flatnonzero(~varies(values))
    if constant.size:
        raise ValueError(
            f"truth is constant in column(s) {constant.tolist()}, so the mean squared error of"
            " its mean is 0 and smse is undefined there. Score more points, leave these columns"
            " out, or use rmse."
        )
    return float(np.mean(error / np.nanvar(values, axis=0)))


@check_shapes(
    "truth: [points..., P]", "mean: [points..., P]", "variance: [points..., P]", "return: []"
)
def nll(truth: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """Return the negative log density of Gaussian predictions per entry, averaged over columns.

    :param truth: Observations; NaN = missing.
    :param mean: Predictive mean; finite wherever the truth is observed.
    :param variance: Predictive variance, observation noise included; positive and finite wherever
        the truth is observed.
    :return: In nats; it shifts by log(c) when the data are multiplied by c.
    :raises ValueError: If a column has no observed entry, or a prediction is not valid.
    """
    truth = _columns(truth)
    mean = _predicted("mean", mean, truth)
    variance = _predicted_variance(variance, truth)
    entries = 0.5 * (np.log(2.0 * np.pi * variance) + (truth - mean) ** 2 / variance)
    return float(np.mean(np.nanmean(entries, axis=0)))


@check_shapes("truth: [points..., P]", "log_density: [points..., P]", "return: []")
def nll_from_log_density(truth: np.ndarray, log_density: np.ndarray) -> float:
    """Return the negative log density of any prediction per entry, averaged over columns.

    :func:`nll` is that of a Gaussian prediction.

    :param truth: Observations; NaN = missing.
    :param log_density: Log density of each observed entry under its prediction, in nats; finite
        wherever the truth is observed.
    :raises ValueError: If a column has no observed entry, or a log density is not finite.
    """
    entries = _predicted("log_density", log_density, _columns(truth))
    return -float(np.mean(np.nanmean(entries, axis=0)))


@check_shapes(
    "truth: [points..., P]", "mean: [points..., P]", "variance: [points..., P]", "return: []"
)
def crps(truth: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """Continuous ranked probability score of a Gaussian prediction, averaged over columns.

    Gneiting and Raftery (2007), eq. 21. It is the absolute error of a prediction without
    uncertainty; arguments and errors as in :func:`nll`.

    :return: In the unit of ``truth``; smaller is better.
    """
    truth = _columns(truth)
    mean = _predicted("mean", mean, truth)
    deviation = np.sqrt(_predicted_variance(variance, truth))
    z = (truth - mean) / deviation
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    below = special.ndtr(z)
    entries = deviation * (z * (2.0 * below - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))
    return float(np.mean(np.nanmean(entries, axis=0)))


@check_arguments()
@check_shapes(
    "truth: [points..., P]", "mean: [points..., P]", "variance: [points..., P]", "return: []"
)
def coverage(
    truth: np.ndarray, mean: np.ndarray, variance: np.ndarray, level: float = 0.9
) -> float:
    """Return the fraction of the truth inside the central interval of a Gaussian prediction.

    :param truth, mean, variance: As for :func:`nll`.
    :param level: Probability of the interval, in (0, 1).
    :return: In [0, 1]; a calibrated prediction gives ``level``.
    :raises ValueError: If ``level`` is out of range, a column has no observed entry, or a
        prediction is not valid.
    """
    _check_level(level)
    truth = _columns(truth)
    mean = _predicted("mean", mean, truth)
    half_width = statistics.NormalDist().inv_cdf(0.5 + 0.5 * level) * np.sqrt(
        _predicted_variance(variance, truth)
    )
    return _share(np.abs(truth - mean) <= half_width, truth)


@check_shapes(
    "truth: [points..., P]", "lower: [points..., P]", "upper: [points..., P]", "return: []"
)
def coverage_from_intervals(truth: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    """Return the fraction of the truth inside intervals, ends included.

    :param truth: Observations; NaN = missing.
    :param lower: Lower end of each entry's interval, such as a quantile of its prediction; finite
        wherever the truth is observed.
    :param upper: Upper end, likewise.
    :raises ValueError: If a column has no observed entry, or an end is not finite.
    """
    truth = _columns(truth)
    lower, upper = (_predicted(n, v, truth) for n, v in (("lower", lower), ("upper", upper)))
    return _share((lower <= truth) & (truth <= upper), truth)


@dataclasses.dataclass(frozen=True)
class Affine:
    """The affine map source -> source @ weights + offset, and its residual variance.

    weights [L, Q], offset [Q], residual_variance [Q]: mean squared residual of each target column
    over the points of the fit, in squared units of the target.
    """

    weights: np.ndarray
    offset: np.ndarray
    residual_variance: np.ndarray

    @check_shapes("source: [batch..., L]", "return: [batch..., Q]")
    def __call__(self, source: np.ndarray) -> np.ndarray:
        """Map points [..., L] -> [..., Q]."""
        return np.asarray(source, dtype=np.float64) @ self.weights + self.offset

    @check_shapes("variance: [batch..., L]", "return: [batch..., Q]")
    def map_variance(self, variance: np.ndarray, include_residual: bool = False) -> np.ndarray:
        """Map variances of independent coordinates to marginal variances: [..., L] -> [..., Q].

        :param variance: Variance of each coordinate of the source.
        :param include_residual: Also add ``residual_variance``, for the variance of a target drawn
            around the map.
        """
        mapped = np.asarray(variance, dtype=np.float64) @ self.weights**2
        return mapped + self.residual_variance if include_residual else mapped


@check_shapes("source: [points..., L]", "target: [points..., Q]")
def fit_affine(source: np.ndarray, target: np.ndarray) -> Affine:
    """Fit the least-squares affine map from ``source`` to ``target`` over all points.

    If coordinates of the source are constant or collinear, the map has the smallest weights (in
    standardised coordinates); constant coordinates get weight 0.

    :param source: Points to map, such as latent codes; finite.
    :param target: Target points, such as true trajectories; finite.
    :return: The map, with the mean squared residual of each target column.
    :raises ValueError: If there is no point, or an entry is NaN or infinite.
    """
    source, target = _finite_pair("source", source, "target", target)
    source = source.reshape(-1, source.shape[-1])
    target = target.reshape(-1, target.shape[-1])
    source_mean = np.mean(source, axis=0)
    target_mean = np.mean(target, axis=0)
    centred = source - source_mean
    spread = np.sqrt(np.mean(centred**2, axis=0))
    # Centring a constant column leaves rounding errors, which least squares would fit.
    rounding = 1e-12 * np.max(np.abs(source), axis=0)
    moves = spread > rounding
    scales = np.where(moves, spread, 1.0)
    standardised = np.where(moves, centred, 0.0) / scales
    weights = np.linalg.lstsq(standardised, target - target_mean, rcond=1e-10)[0] / scales[:, None]
    offset = target_mean - source_mean @ weights
    residual_variance = np.mean((target - source @ weights - offset) ** 2, axis=0)
    return Affine(weights=weights, offset=offset, residual_variance=residual_variance)


@check_arguments()
@check_shapes("latents: [T, N, L]", "truth: [T, N, Q]", "return: []")
def aligned_trajectory_rmse(
    latents: np.ndarray, truth: np.ndarray, affine: Affine | None = None
) -> float:
    """Return the error of recovered trajectories after an affine map: sqrt(SSE / (T * N * Q)).

    All videos share one map. A map fitted on the training videos gives the metric ``rmse`` of the
    moving ball (Q = 2), None gives ``rmse_test_aligned``, the published one (Jazbec et al., 2021).
    In contrast to :func:`rmse`, squared errors are pooled over columns.

    :param latents: Recovered codes of T videos with N frames; finite.
    :param truth: True trajectories; finite.
    :param affine: Map from codes to trajectories; None fits one to these pairs.
    :return: In the unit of ``truth``.
    :raises ValueError: If an entry is NaN or infinite, or ``affine`` does not map L to Q columns.
    """
    latents, truth = _finite_pair("latents", latents, "truth", truth)
    if affine is None:
        affine = fit_affine(latents, truth)
    expected = (latents.shape[-1], truth.shape[-1])
    if affine.weights.shape != expected:
        raise ValueError(
            f"affine has weights of shape {affine.weights.shape}; latents and truth need"
            f" {expected} (columns of latents, columns of truth). Fit it on codes of the same"
            " model with fit_affine(train_latents, train_trajectories)."
        )
    return float(np.sqrt(np.mean((truth - affine(latents)) ** 2)))


def _mean_squared_error(truth: np.ndarray, prediction: np.ndarray) -> np.ndarray:
    truth = _columns(truth)
    return np.nanmean((truth - _predicted("prediction", prediction, truth)) ** 2, axis=0)


def _columns(truth: np.ndarray) -> np.ndarray:
    """Check and flatten to [points, P]."""
    truth = as_numbers(truth, "truth")
    if truth.ndim < 2:
        raise ValueError(
            f"truth has shape {truth.shape}; expected [..., N, P] with one column per output."
            " Add the last axis to a single output: truth[:, None]."
        )
    if not truth.size:
        raise ValueError(f"truth has shape {truth.shape}, without any entry; pass points to score.")
    truth = truth.reshape(-1, truth.shape[-1])
    if np.any(np.isinf(truth)):
        raise ValueError("truth holds infinite entries; use NaN for missing ones.")
    empty = np.flatnonzero(np.all(np.isnan(truth), axis=0))
    if empty.size:
        raise ValueError(
            f"truth has no observed entry in column(s) {empty.tolist()} (all NaN), so there is"
            " nothing to score there. Leave these columns out."
        )
    return truth


def _predicted(name: str, prediction: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Check and reshape to the shape of ``truth``; NaN where that is missing."""
    prediction = as_numbers(prediction, name)
    if prediction.size != truth.size:
        raise ValueError(
            f"{name} has shape {prediction.shape}; expected that of truth, {truth.shape} with all "
            "points in a row."
        )
    prediction = prediction.reshape(truth.shape)
    observed = ~np.isnan(truth)
    num_bad = np.count_nonzero(~np.isfinite(prediction) & observed)
    if num_bad:
        raise ValueError(
            f"{name} is NaN or infinite in {num_bad} of the {np.count_nonzero(observed)} entries"
            " where the truth is observed; every observed entry needs a finite prediction. Check"
            " the model that made it for divergence."
        )
    return np.where(observed, prediction, np.nan)


def _predicted_variance(variance: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Check as ``_predicted``, and that variances are positive where observed."""
    variance = _predicted("variance", variance, truth)
    if np.any(variance <= 0.0):
        raise ValueError(
            f"variance is {np.nanmin(variance):g} at its smallest; it must be positive"
            " wherever the truth is observed. Pass variances (not log-variances), with the"
            " observation noise included."
        )
    return variance


def _share(inside: np.ndarray, truth: np.ndarray) -> float:
    """Return the fraction of observed entries that are inside, averaged over columns."""
    return float(np.mean(np.nanmean(np.where(np.isnan(truth), np.nan, inside), axis=0)))


def _finite_pair(
    first_name: str, first: np.ndarray, second_name: str, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    first = as_numbers(first, first_name)
    second = as_numbers(second, second_name)
    for name, array in ((first_name, first), (second_name, second)):
        if array.size == 0:
            raise ValueError(f"{name} has shape {array.shape}, without any entry; pass points.")
        num_bad = np.count_nonzero(~np.isfinite(array))
        if num_bad:
            raise ValueError(
                f"{name} holds {num_bad} NaN or infinite entries of {array.size}; an affine map"
                " needs finite points. Leave the affected points out of both arrays, or check the"
                " model that made them for divergence."
            )
    return first, second


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level!r}; it must lie strictly between 0 and 1, such as 0.9.")
