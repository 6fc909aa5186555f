"""Outputs in units of their own mean and standard deviation, and predictions back in theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from check_shapes import check_shapes

from .tables import column_names

__all__ = ["Standardiser"]


@dataclasses.dataclass(frozen=True)
class Standardiser:
    """Mean 0 and variance 1 for each output, by what is observed of it (population variance).

    * mean [P], std [P]: in the units of the outputs, or of their logarithms.
    * log_outputs: whether the outputs' logarithms are standardised; for positive, skewed outputs
      such as concentrations. A Gaussian prediction is then a lognormal one.
    """

    mean: np.ndarray
    std: np.ndarray
    log_outputs: bool = False

    @classmethod
    @check_shapes("Y: [batch..., P]")
    def fit(
        cls, Y: np.ndarray, output_names: Sequence[str] = (), log_outputs: bool = False
    ) -> Standardiser:
        """Takes mean and standard deviation of each column of ``Y`` over its observed cells.

        :param Y: Outputs, NaN where missing.
        :param output_names: Of the columns, for errors.
        :param log_outputs: Whether to take logarithms first.
        :raises ValueError: If a column is never observed, constant or infinite, or
            ``log_outputs`` meets outputs that are not positive.
        """
        Y = np.asarray(Y, dtype=np.float64)
        Y = Y.reshape(-1, Y.shape[-1])
        names = column_names("output_names", tuple(output_names), "y", Y.shape[-1])
        if log_outputs:
            wrong = [name for p, name in enumerate(names) if (Y[:, p] <= 0.0).any()]
            if wrong:
                raise ValueError(f"log_outputs needs positive outputs; {wrong} have others.")
            Y = np.log(Y)
        for problem, wrong, advice in (
            ("holds infinities", np.isinf(Y).any(0), "Use NaN for missing outputs"),
            ("is never observed", np.isnan(Y).all(0), "Leave it out, or use more tasks"),
            (
                "is constant",
                np.fmax.reduce(Y, axis=0) == np.fmin.reduce(Y, axis=0),
                "Leave it out: it has no scale, and nothing to predict",
            ),
        ):
            if wrong.any():
                columns = [names[column] for column in np.flatnonzero(wrong)]
                raise ValueError(
                    f"Output {', '.join(map(repr, columns))} {problem}, so it cannot be "
                    f"standardised. {advice}."
                )
        return cls(np.nanmean(Y, axis=0), np.nanstd(Y, axis=0), log_outputs)

    @check_shapes("Y: [batch..., P]", "return: [batch..., P]")
    def transform(self, Y: np.ndarray) -> np.ndarray:
        """Standardised outputs; NaN stays NaN."""
        Y = np.asarray(Y, dtype=np.float64)
        return ((np.log(Y) if self.log_outputs else Y) - self.mean) / self.std

    @check_shapes(
        "mean: [batch..., P]",
        "variance: [batch..., P]",
        "return[0]: [batch..., P]",
        "return[1]: [batch..., P]",
    )
    def inverse_moments(
        self, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of outputs in their own units, from those of standardised ones."""
        mean = np.asarray(mean, dtype=np.float64) * self.std + self.mean
        variance = np.asarray(variance, dtype=np.float64) * np.square(self.std)
        if self.log_outputs:
            mean = np.exp(mean + 0.5 * variance)
            variance = np.square(mean) * np.expm1(variance)
        return mean, variance
