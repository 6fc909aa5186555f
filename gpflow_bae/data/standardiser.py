"""Standardisation of outputs, and transformation of predictions back to their units."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from check_shapes import check_shapes
from scipy.special import ndtri

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from ..core.output_transforms import Identity, Log, OutputTransform
from ..core.scales import spread, varies
from .tables import column_names, pad_tasks
from .unequal_tasks import unequal_lengths

__all__ = ["Standardiser"]

_LEAST = 1e-150  # deviations; the square of a smaller one is 0


@dataclasses.dataclass(frozen=True)
class Standardiser:
    """Scaling of each output to mean 0 and population variance 1 over its observed cells.

    * mean [P], std [P]: in the units of the outputs, or of the transformed outputs.
    * log_outputs: whether logarithms of the outputs are standardised, for positive, skewed outputs
      such as concentrations. A Gaussian prediction is then lognormal in the outputs' units.
    * transforms: of each output, applied first; if empty, ``log_outputs`` determines them.
    """

    mean: np.ndarray
    std: np.ndarray
    log_outputs: bool = False
    transforms: tuple[OutputTransform, ...] = ()

    def __post_init__(self) -> None:
        if not self.transforms:
            same = Log() if self.log_outputs else Identity()
            object.__setattr__(self, "transforms", (same,) * len(self.mean))
        elif self.log_outputs and set(self.transforms) != {Log()}:
            raise ValueError("log_outputs says that all transforms are Log(); pass one of the two.")
        elif len(self.transforms) != len(self.mean):
            raise ValueError(
                f"There are {len(self.transforms)} transforms for {len(self.mean)} outputs."
            )

    @classmethod
    @check_shapes("Y: [batch..., P]")
    @check_arguments()
    def fit(
        cls,
        Y: Any,
        output_names: Sequence[Any] = (),
        log_outputs: bool = False,
        transforms: Sequence[OutputTransform] = (),
    ) -> Standardiser:
        """Compute mean and standard deviation of each column of ``Y`` over its observed cells.

        :param Y: outputs, NaN where missing; of tasks of unequal lengths a list of arrays [N_t, P].
        :param output_names: names of the columns in error messages.
        :param log_outputs: whether to take logarithms first.
        :param transforms: P functions of :mod:`gpflow_bae.core.output_transforms` to apply first.
        :raises ValueError: if a column is never observed, constant or infinite, or outputs are
            outside of the domain of their transform, such as nonpositive ones with ``log_outputs``.
        """
        if unequal_lengths(Y) is not None:
            Y, _ = pad_tasks(Y, is_input=False)
        Y = as_numbers(Y, "Y", rank=1)
        if not Y.size:
            raise ValueError(f"Y has shape {Y.shape}, without any output; pass rows.")
        Y = Y.reshape(-1, Y.shape[-1])
        names = column_names("output_names", tuple(output_names), "y", Y.shape[-1])
        if log_outputs:
            wrong = [name for p, name in enumerate(names) if (Y[:, p] <= 0.0).any()]
            if wrong:
                raise ValueError(f"log_outputs needs positive outputs; {wrong} have others.")
        infinite = np.isinf(Y).any(0)
        scale = cls(np.zeros(len(names)), np.ones(len(names)), log_outputs, tuple(transforms))
        shown = ~np.isnan(Y)
        units = spread(np.where(np.isfinite(Y), Y, np.nan))
        Y = scale.transform(Y)
        outside = (shown & ~np.isfinite(Y)).any(0)
        finite = np.where(np.isfinite(Y), Y, np.nan)
        scales = spread(finite)
        for problem, found, advice in (
            ("holds infinities", infinite, "Use NaN for missing outputs"),
            ("is never observed", ~shown.any(0), "Leave it out, or use more tasks"),
            (
                "holds values outside of the range of its transform",
                outside,
                "Use another transform, or NaN for values that are wrong",
            ),
            (
                "is constant",
                ~varies(finite),
                "Leave it out: it has no scale, and nothing to predict",
            ),
            (
                f"has a deviation below {_LEAST:g} or above {1.0 / _LEAST:g}",
                ~(
                    (np.minimum(units, scales) > _LEAST)
                    & (np.maximum(units, scales) < 1.0 / _LEAST)
                ),
                "Use other units: variances must be numbers",
            ),
        ):
            if found.any():
                columns = [names[column] for column in np.flatnonzero(found)]
                raise ValueError(
                    f"Output {', '.join(map(repr, columns))} {problem}, so it cannot be "
                    f"standardised. {advice}."
                )
        return cls(np.nanmean(Y, axis=0), scales, log_outputs, tuple(transforms))

    @check_shapes("Y: [batch..., P]", "return: [batch..., P]")
    def transform(self, Y: Any) -> Any:
        """Standardise outputs; NaN stays NaN, and a list of tasks of unequal lengths a list.

        :raises ValueError: for another number of outputs than of the fit.
        """
        if unequal_lengths(Y) is not None:
            return [self.transform(task) for task in Y]
        Y = as_numbers(Y, "Y", rank=1)
        if Y.shape[-1] != len(self.mean):
            raise ValueError(
                f"Y has {Y.shape[-1]} outputs; this standardiser was fitted to {len(self.mean)}."
            )
        moved = [t.forward(Y[..., p]) for p, t in enumerate(self.transforms)]
        return (np.stack(moved, axis=-1) - self.mean) / self.std

    @check_shapes(
        "mean: [batch..., P]",
        "variance: [batch..., P]",
        "return[0]: [batch..., P]",
        "return[1]: [batch..., P]",
    )
    def inverse_moments(
        self, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Convert means and variances of standardised outputs to those in the outputs' units."""
        mean, variance = self._unscaled(mean, variance)
        moments = [t.moments(mean[..., p], variance[..., p]) for p, t in enumerate(self.transforms)]
        return np.stack([m for m, _ in moments], axis=-1), np.stack([v for _, v in moments], -1)

    @check_shapes("mean: [batch..., P]", "variance: [batch..., P]", "return: [batch..., P]")
    def inverse_quantile(
        self, mean: np.ndarray, variance: np.ndarray, probability: float
    ) -> np.ndarray:
        """Return quantiles of outputs in their own units.

        :param mean, variance: of standardised outputs, which are assumed Gaussian.
        :param probability: in (0, 1).
        """
        mean, variance = self._unscaled(mean, variance)
        z = mean + ndtri(probability) * np.sqrt(variance)
        return np.stack([t.inverse(z[..., p]) for p, t in enumerate(self.transforms)], axis=-1)

    @check_shapes(
        "Y: [batch..., P]",
        "mean: [batch..., P]",
        "variance: [batch..., P]",
        "return: [batch..., P]",
    )
    def log_density(self, Y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return the log density of outputs in their own units, in nats; NaN where they are.

        It includes the Jacobians of transform and scale, so it is comparable between
        standardisers and methods.

        :param Y: outputs in their own units.
        :param mean: means of standardised outputs, which are assumed Gaussian.
        :param variance: variances of standardised outputs.
        """
        Y = as_numbers(Y, "Y")
        gaussian = -0.5 * (
            np.log(2.0 * np.pi * variance) + np.square(self.transform(Y) - mean) / variance
        )
        return gaussian + self.log_jacobian(Y)

    @check_shapes("Y: [batch..., P]", "return: [batch..., P]")
    def log_jacobian(self, Y: np.ndarray) -> np.ndarray:
        """Return the log derivative of :meth:`transform`, in nats; NaN where ``Y`` is.

        Added to a log density of standardised outputs it gives that in the outputs' own units.

        :param Y: outputs in their own units.
        """
        Y = as_numbers(Y, "Y")
        slopes = [t.log_jacobian(Y[..., p]) for p, t in enumerate(self.transforms)]
        return np.where(np.isnan(Y), np.nan, np.stack(slopes, axis=-1) - np.log(self.std))

    def _unscaled(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = np.asarray(mean, dtype=np.float64) * self.std + self.mean
        return mean, np.asarray(variance, dtype=np.float64) * np.square(self.std)
