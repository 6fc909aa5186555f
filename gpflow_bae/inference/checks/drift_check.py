"""Check whether the log likelihood of chains still drifts after burn-in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.arguments import warn_caller
from ...posteriors import Posterior, TemperedPosterior

__all__ = ["Drift", "drift_of", "warn_of_drift"]

_LEAST_ROUNDS = 24  # fewer give too little information
# A stationary series of ten autocorrelation times exceeds both with a probability below 1 %.
_SURE = 4.5  # standard errors
_LARGE = 1.0  # standard deviations of the series around its trend
_LEAST_NATS = 1.0  # smaller changes give no warning


class Drift(NamedTuple):
    """Change of a series between its first and its last third."""

    before: float  # mean of the first third
    after: float  # mean of the last third
    standard_error: float  # of their difference
    deviation: float  # of the series around its linear trend

    @property
    def is_sure(self) -> bool:
        """Whether the drift is significant, and larger than the fluctuations."""
        change = abs(self.after - self.before)
        return change > max(_SURE * self.standard_error, _LARGE * self.deviation)


def drift_of(values: np.ndarray) -> Drift:
    """Compare the first third of a series with the last, as Geweke (1992).

    The standard error accounts for autocorrelation by the initial monotone sequence estimator of
    Geyer (1992), around the linear trend, which would otherwise count as autocorrelation. A series
    of fewer than about ten autocorrelation times cannot be distinguished from one that drifts.

    :param values: [n], with n of at least 24.
    """
    number = len(values)
    third, time = number // 3, np.linspace(-1.0, 1.0, number)
    around = values - values.mean() - (time @ values) / (time @ time) * time
    spectrum = np.fft.rfft(around, 2 * number)
    covariances = np.fft.irfft(spectrum * spectrum.conj())[:number] / number
    pairs = covariances[: number // 2 * 2].reshape(-1, 2).sum(1)
    positive = np.argmin(pairs > 0.0) if (pairs <= 0.0).any() else len(pairs)
    monotone = np.minimum.accumulate(pairs[:positive])
    variance = max(2.0 * monotone.sum() - covariances[0], covariances[0])  # of a mean, times n
    return Drift(
        float(values[:third].mean()),
        float(values[-third:].mean()),
        float(np.sqrt(2.0 * variance / third)),
        float(np.sqrt(covariances[0])),
    )


def warn_of_drift(posterior: Posterior | TemperedPosterior, burnin: int) -> None:
    """Warn if chains had not reached stationarity after burn-in, with advice.

    :param burnin: rounds or steps of the trace before the first sample.
    :warns UserWarning: if the mean log likelihood of the chains drifted significantly
        (:func:`drift_of`), and by at least one nat.
    """
    found = posterior.bank.trace.get("log_likelihood")
    if found is None or found.shape[1] - burnin < _LEAST_ROUNDS:
        return
    values = np.asarray(found[:, burnin:], np.float64)
    if not np.isfinite(values).all():
        return
    drift = drift_of(values.mean(0))
    if not drift.is_sure or abs(drift.after - drift.before) < _LEAST_NATS:
        return
    how = "rose" if drift.after > drift.before else "fell"
    warn_caller(
        f"The chain was still on its way: after burn-in its log likelihood {how} from "
        f"{drift.before:.5g} (mean of the first third) to {drift.after:.5g} (of the last), more "
        "than it fluctuates. So its samples are not those of the posterior, and predictions would "
        "change if it went on. Take a longer burn-in and more rounds (burnin, thinning and "
        "num_samples of the settings), or start at a better place (warm_start); "
        'posterior.bank.trace["log_likelihood"] has every round.',
    )
