"""Kinds of outputs: their values, and their transform for a Gaussian model."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ....core.output_transforms import Identity, Log, Logit, OutputTransform
from ....core.scales import below_one, varies
from ..problems import Problems

__all__ = ["KINDS", "ColumnKind", "decide_kind", "make_kind", "said_kind"]

KINDS = ("continuous", "positive", "count", "bounded", "binary", "category")
_LEAST_VALUES = 20  # with fewer, the shape of a distribution is not known
_SKEWNESS = 0.5  # above it a column counts as skewed
_LEFT = 0.9  # largest share of the skewness that a logarithm may leave
_LARGEST_COUNT = 2.0**53  # floats above it are all whole


@dataclasses.dataclass(frozen=True)
class ColumnKind:
    """The values that an output can have, and its transform.

    * name: name of the column.
    * kind: ``"continuous"`` (any number), ``"positive"`` (also zero, if there are zeros),
      ``"count"`` (0, 1, 2, ...), ``"bounded"`` or ``"binary"`` (0 and 1).
    * transform: the model sees transformed values, standardised.
    * lower, upper: the range; filled values and their intervals stay inside.
    * limits: ends of the range that many observed values are at, see
      :func:`~gpflow_bae.impute.reading.kinds.limits.limits_of`; filled values stay inside of these,
      too.
    * direction: 1 if the column never falls along a series, -1 if it never rises, 0 if it does
      both; filled values are between those observed before and after, see
      :mod:`gpflow_bae.impute.reading.kinds.monotone`.
    """

    name: str
    kind: str = "continuous"
    transform: OutputTransform = Identity()
    lower: float = -np.inf
    upper: float = np.inf
    limits: tuple[float, float] = (-np.inf, np.inf)
    direction: int = 0

    @property
    def range(self) -> tuple[float, float]:
        """Least and largest value that is filled in."""
        return max(self.lower, self.limits[0]), min(self.upper, self.limits[1])

    @property
    def whole(self) -> bool:
        """Whether only whole numbers occur."""
        return self.kind in ("count", "binary")

    def allows(self, values: np.ndarray) -> np.ndarray:
        """Which values a column of this kind can have: Booleans."""
        with np.errstate(invalid="ignore"):
            inside = (values >= self.lower) & (values <= self.upper)
            inside &= np.isfinite(self.transform.forward(values))
        return inside & (values == np.round(values)) if self.whole else inside

    def describe(self) -> str:
        """The kind in a few words, for messages and reports."""
        ways = {1: ", never falls", -1: ", never rises"}
        return self._of_values() + ways.get(self.direction, "")

    def _of_values(self) -> str:
        if isinstance(self.transform, Log):
            shift = self.transform.shift
            seen = f"log(value + {shift:g})" if shift else "its logarithm"
            return f"{self.kind}, as {seen}"
        if isinstance(self.transform, Logit):
            return f"between {self.lower:g} and {self.upper:g}, as its logit"
        plain = {"count": "count", "binary": "binary (0 or 1)", "positive": "positive, as it is"}
        return plain.get(self.kind, "continuous")

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name, as :meth:`from_dict` takes them."""
        shift = self.transform.shift if isinstance(self.transform, Log) else None
        bounds = [self.lower, self.upper] if self.kind == "bounded" else None
        record = {"name": self.name, "kind": self.kind, "shift": shift, "bounds": bounds}
        limits = [v if np.isfinite(v) else None for v in self.limits]
        return record | {"limits": limits, "direction": self.direction}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> ColumnKind:
        """The kind of plain values."""
        found = make_kind(record["name"], record["kind"], record["shift"], record["bounds"])
        low, high = record.get("limits", (None, None))
        limits = -np.inf if low is None else low, np.inf if high is None else high
        return dataclasses.replace(found, limits=limits, direction=record.get("direction", 0))

    def settle(
        self, mean: np.ndarray, variance: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Values, standard deviations and interval ends that this kind of column can have.

        All are inside of the range. The interval of a count ends at whole numbers, rounded
        outwards; the value of a binary output is the probability of 1, and its interval holds 0, 1
        or both.

        :param mean, variance: of cells, in their units.
        :param lower, upper: ends of their 90 % interval.
        """
        value, deviation = np.clip(mean, *self.range), np.sqrt(variance)
        if self.kind == "binary":
            ends = np.where(value > 0.95, 1.0, 0.0), np.where(value < 0.05, 0.0, 1.0)
            return value, np.sqrt(value * (1.0 - value)), *ends
        if self.kind == "count":
            lower, upper = np.floor(lower), np.ceil(upper)
        lower, upper = (np.clip(end, *self.range) for end in (lower, upper))
        return value, deviation, lower, upper


def decide_kind(name: str, values: np.ndarray) -> ColumnKind:
    """Infer the kind of a column from its values.

    * Zeros and ones alone: binary.
    * Whole numbers from 0 on, at least three different ones: count; as its logarithm if that is
      less skewed.
    * No negative number, and a less skewed logarithm: positive, as its logarithm.
    * Others: continuous, untransformed. So is a column with fewer than 20 values, and one whose
      numbers merely happen to be positive. A bounded column is never inferred.

    A logarithm is less skewed if the skewness is above 0.5 and less than 90 % of it, of either
    sign, is left: exponential and gamma variables are positive, uniform ones are not.

    :param values: its observed values, finite.
    """
    values = np.sort(values)  # sums then have the same rounding for any order of the rows
    distinct = np.unique(values)
    if set(distinct) == {0.0, 1.0}:
        return make_kind(name, "binary")
    if len(distinct) < 3 or distinct[0] < 0.0 or len(values) < _LEAST_VALUES:
        return make_kind(name, "continuous")
    count = bool((distinct == np.round(distinct)).all()) and distinct[-1] <= _LARGEST_COUNT
    shift = 1.0 if count else _shift(values)
    skewness = _skewness_of(values)
    of_logarithm = _skewness_of(np.log(values + shift))
    as_logarithm = skewness > _SKEWNESS and abs(of_logarithm) < _LEFT * skewness
    if count:
        return make_kind(name, "count", shift if as_logarithm else None)
    return make_kind(name, "positive", shift) if as_logarithm else make_kind(name, "continuous")


def said_kind(name: str, said: Any, values: np.ndarray, problems: Problems) -> ColumnKind | None:
    """The kind that a user names, or None with a problem if there is no such kind.

    A count is modelled as its logarithm where :func:`decide_kind` would; a positive column always.
    """
    if isinstance(said, str):
        if said in ("continuous", "binary"):
            return make_kind(name, said)
        if said == "positive":
            return make_kind(name, said, _shift(values))
        if said == "count":
            logarithm = decide_kind(name, values).transform
            return make_kind(name, said, logarithm.shift if isinstance(logarithm, Log) else None)
    else:
        try:
            low, high = map(float, said)
        except (TypeError, ValueError):
            low, high = np.nan, np.nan
        if low < high and np.isfinite([low, high]).all():
            return make_kind(name, "bounded", bounds=(low, high))
    problems.add(
        f"The kind of {name!r} is {said!r}",
        "Expected 'continuous', 'positive', 'count', 'binary' or 'category', or two bounds, the "
        "lower one first.",
    )
    return None


def make_kind(name: str, kind: str, shift: float | None = None, bounds: Any = None) -> ColumnKind:
    """The kind of a name, with its range and transform.

    :param shift: what a logarithm adds to the values; None for no logarithm.
    :param bounds: the two ends of a bounded column.
    """
    if kind == "bounded":
        low, high = map(float, bounds)
        return ColumnKind(name, kind, Logit(low, high), low, high)
    transform = Identity() if shift is None else Log(shift)
    lower, upper = {
        "continuous": (-np.inf, np.inf),
        "binary": (0.0, 1.0),
    }.get(kind, (0.0, np.inf))
    return ColumnKind(name, kind, transform, lower, upper)


def _shift(values: np.ndarray) -> float:
    """The shift before a logarithm: the first quartile of positive values if there are zeros, or 0.

    Zeros then lie a factor of two below values that are small themselves, and are no outliers.
    """
    positive = values[values > 0.0]
    if len(positive) == len(values) or len(positive) == 0:
        return 0.0
    return float(np.quantile(positive, 0.25))


def _skewness_of(values: np.ndarray) -> float:
    """Skewness of values; infinite where they differ by rounding only."""
    if not varies(values):
        return np.inf
    values, _ = below_one(values)
    centred, _ = below_one(values - values.mean())
    return float(np.mean(centred**3) / np.mean(centred**2) ** 1.5)
