"""Scores of predictions of test cells, for each output and averaged over outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from check_shapes import check_shapes
from scipy.special import logsumexp

from gpflow_bae import metrics
from gpflow_bae.data import MultiOutputTable, Standardiser


@dataclasses.dataclass(frozen=True, eq=False)
class TablePrediction:
    """A prediction of a table's cells: moments, quantiles, and the density of the truth.

    * mean, variance [T, N, P]: moments in the units of the outputs, with observation noise.
    * log_density [T, N, P]: log density of the truth of the test cells in these units, in nats;
      NaN elsewhere.
    * standardiser, standardised_mean, standardised_variance: the method's scaling of outputs, and
      the predictive moments of scaled outputs. :meth:`quantile` is that of a Gaussian with these
      moments. This is exact if the method predicts one Gaussian; if it averages over samples,
      ``log_density`` is that of their mixture.
    """

    mean: np.ndarray
    variance: np.ndarray
    log_density: np.ndarray
    standardiser: Standardiser
    standardised_mean: np.ndarray
    standardised_variance: np.ndarray

    @classmethod
    @check_shapes("table.Y: [T, N, P]", "mean: [T, N, P]", "variance: [T, N, P]")
    def gaussian(
        cls,
        table: MultiOutputTable,
        mean: np.ndarray,
        variance: np.ndarray,
        standardiser: Standardiser | None = None,
        log_density: np.ndarray | None = None,
    ) -> TablePrediction:
        """Predict a Gaussian for each standardised cell, or a lognormal if logarithms are scaled.

        :param table: table with the truth of the test cells.
        :param mean, variance: moments of standardised outputs, or without a ``standardiser`` of
            outputs in their own units.
        :param log_density: log density of the test cells in the units of the outputs [T, N, P];
            None for that of the Gaussians.
        """
        if standardiser is None:
            num_outputs = table.num_outputs
            standardiser = Standardiser(np.zeros(num_outputs), np.ones(num_outputs))
        if log_density is None:
            log_density = standardiser.log_density(table.test_truth, mean, variance)
        moments = standardiser.inverse_moments(mean, variance)
        return cls(*moments, log_density, standardiser, mean, variance)

    @classmethod
    def mixture(cls, parts: Sequence[TablePrediction]) -> TablePrediction:
        """Return the equal mixture of predictions of the same cells with the same standardiser."""
        densities = np.stack([part.log_density for part in parts])
        return cls(
            *_mixture([(part.mean, part.variance) for part in parts]),
            logsumexp(densities, axis=0) - np.log(len(parts)),
            parts[0].standardiser,
            *_mixture([(part.standardised_mean, part.standardised_variance) for part in parts]),
        )

    def quantile(self, probability: float) -> np.ndarray:
        """Return quantiles [T, N, P] of outputs in their own units."""
        return self.standardiser.inverse_quantile(
            self.standardised_mean, self.standardised_variance, probability
        )


def _mixture(
    moments: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Return moments of an equal mixture, by the law of total variance."""
    means, variances = (np.stack(part) for part in zip(*moments, strict=True))
    return means.mean(0), variances.mean(0) + means.var(0)


@check_shapes("table.Y: [T, N, P]", "mean: [T, N, P]", "variance: [T, N, P]")
def score(table: MultiOutputTable, mean: np.ndarray, variance: np.ndarray) -> dict[str, float]:
    """Return the scores of :func:`score_prediction` for a Gaussian in each cell.

    :param mean: predictive means, in the units of the outputs.
    :param variance: predictive variances, with observation noise.
    """
    return score_prediction(table, TablePrediction.gaussian(table, mean, variance))


def score_prediction(table: MultiOutputTable, prediction: TablePrediction) -> dict[str, float]:
    """Return scores of a prediction's test cells, averaged over the tested outputs.

    ``smse`` and ``rmse`` are scores of the mean and ``mae`` of the median, which minimise them.
    ``nll`` is the negative log predictive density, and ``nll_moments`` that of the Gaussian with
    the predictive mean and variance in the units of the outputs. ``coverage_90`` is that of the
    interval between the quantiles at 5 and 95 %.

    Ashman et al. (2020) and Tran et al. (2023) average the same way.

    :raises ValueError: if the table has no test cell, or a prediction there is not valid.
    """
    per_output = list(score_outputs(table, prediction).values())
    return {name: float(np.mean([s[name] for s in per_output])) for name in per_output[0]}


def score_outputs(
    table: MultiOutputTable, prediction: TablePrediction
) -> dict[str, dict[str, float]]:
    """Return the scores of each output with test cells, by the name of the output."""
    truth = table.test_truth
    tested = [p for p in range(table.num_outputs) if table.test_mask[..., p].any()]
    if not tested:
        raise ValueError(
            "table has no test cell, so there is nothing to score. Hide some with hold_out."
        )
    low, median, high = (prediction.quantile(q) for q in (0.05, 0.5, 0.95))
    scores = {}
    for p in tested:
        y, mean, middle, lower, upper, variance, density = (
            values[..., p, None]
            for values in (
                truth,
                prediction.mean,
                median,
                low,
                high,
                prediction.variance,
                prediction.log_density,
            )
        )
        scores[table.output_names[p]] = {
            "smse": metrics.smse(y, mean),
            "mae": metrics.mae(y, middle),
            "rmse": metrics.rmse(y, mean),
            # First, for its error messages: without a positive variance there is no density either.
            "nll_moments": metrics.nll(y, mean, variance),
            "nll": metrics.nll_from_log_density(y, density),
            "coverage_90": metrics.coverage_from_intervals(y, lower, upper),
        }
    return scores
