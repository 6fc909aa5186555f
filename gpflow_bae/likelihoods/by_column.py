"""A likelihood of outputs of different kinds, for tables with such columns."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType

from ..core.arguments import check_integer
from .masked import MaskedLikelihood, masked

__all__ = ["ByColumn"]


class ByColumn(MaskedLikelihood, gpflow.likelihoods.ScalarLikelihood):
    r"""A product of likelihoods, each of some columns, for numbers, zeros and ones, and counts.

    .. math:: p(y | f) = \prod_k p_k(y_{C_k} | f_{C_k}) ,

    with one function for each column, in the scale of its likelihood, such as a logit or the
    logarithm of a rate. ``ByColumn([(Gaussian(), [0, 2]), (Bernoulli(), [1])])`` is of three
    columns.
    """

    def __init__(
        self,
        parts: Sequence[tuple[gpflow.likelihoods.Likelihood | MaskedLikelihood, Iterable[int]]],
    ):
        """
        :param parts: likelihoods, each with its columns. Together they have all P columns, from 0
            to P - 1, each once. A likelihood is one of :mod:`gpflow_bae.likelihoods`, or a scalar
            GPflow likelihood; parameters for each output are in the order in which its columns are
            listed.
        :raises ValueError: for columns that no part or several have, and a likelihood with
            parameters for another number of columns.
        :raises TypeError: for anything but pairs, and a likelihood that does not factorise over
            outputs, such as one of classes, or has several functions for one.
        """
        super().__init__()
        if not isinstance(parts, list | tuple) or not parts:
            raise TypeError(f"parts must be a list of {_PAIRS}, got {parts!r}.")
        pairs = [_checked(f"parts[{i}]", part) for i, part in enumerate(parts)]
        self.parts = [part for part, _ in pairs]
        self.columns = tuple(columns for _, columns in pairs)
        _check_columns(self._order)
        for i, (part, columns) in enumerate(pairs):
            part.check_outputs(len(columns), f"parts[{i}] with its columns {list(columns)}")

    @property
    def _order(self) -> list[int]:
        """Columns [P] in the order of the parts."""
        return [column for columns in self.columns for column in columns]

    @property
    def num_outputs(self) -> int:
        """Number of columns P."""
        return len(self._order)

    @property
    def kind(self) -> str:
        pairs = zip(self.parts, self.columns, strict=True)
        return ", ".join(f"{part.kind} of columns {list(columns)}" for part, columns in pairs)

    def check_outputs(self, num_outputs: int, whose: str = "the decoder") -> None:
        if num_outputs != self.num_outputs:
            raise ValueError(
                f"likelihood ByColumn is of {self.num_outputs} columns, and {whose} has "
                f"{num_outputs} output(s): parts must list each of them once, and no others."
            )

    def check_support(
        self,
        Y: np.ndarray,
        mask: np.ndarray | None = None,
        name: str = "Y",
        columns: np.ndarray | None = None,
    ) -> None:
        if columns is None:
            columns = np.arange(Y.shape[-1])
            if len(columns) != self.num_outputs:
                raise ValueError(
                    f"{name} has {len(columns)} column(s), and the likelihood ByColumn is of "
                    f"{self.num_outputs}."
                )
        for part, own in zip(self.parts, self.columns, strict=True):
            part.check_support(np.where(np.isin(columns, own), Y, np.nan), mask, name)

    def split(self, values: TensorType) -> list[tf.Tensor]:
        """Return the values [..., P_k] of each part's columns, from [..., P].

        :raises ValueError: for values of another number of columns.
        """
        order, values = self._order, tf.convert_to_tensor(values)
        if values.shape[-1] not in (None, len(order)):
            raise ValueError(
                f"The likelihood ByColumn is of {len(order)} columns, got values of shape "
                f"{values.shape}."
            )
        if order != sorted(order):
            values = tf.gather(values, order, axis=-1)
        found: list[tf.Tensor] = tf.split(values, [len(c) for c in self.columns], -1)
        return found

    def join(self, results: Iterable[tf.Tensor]) -> tf.Tensor:
        """Return [..., P] from [..., P_k] of each part; the inverse of :meth:`split`."""
        order, joined = self._order, tf.concat(_of_one_type(results), -1)
        return joined if order == sorted(order) else tf.gather(joined, np.argsort(order), axis=-1)

    def _of_parts(self, method: str, *values: TensorType | None) -> list[Any]:
        """Return the results of a method of each part, given its columns of the values."""
        split = [[None] * len(self.parts) if v is None else self.split(v) for v in values]
        return [getattr(part, method)(*own) for part, *own in zip(self.parts, *split, strict=True)]

    def _of_scalars(self, method: str, X: TensorType, *values: TensorType) -> list[Any]:
        """Return those of a method of each GPflow likelihood, which also takes inputs."""
        split = zip(self.parts, *map(self.split, values), strict=True)
        return [getattr(part._scalar, method)(X, *own) for part, *own in split]

    # Masked likelihoods.

    def _entry_log_prob(self, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return self.join(self._of_parts("_entry_log_prob", F, Y))

    @inherit_check_shapes
    def masked_log_prob(self, F: TensorType, Y: TensorType, mask: TensorType | None) -> tf.Tensor:
        return _sum(self._of_parts("masked_log_prob", F, Y, mask))

    def moments(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = map(self.join, zip(*self._of_parts("moments", F), strict=True))
        return mean, variance

    # GPflow's likelihoods.

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.join(self._of_scalars("_scalar_log_prob", X, F, Y))

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.join(self._of_scalars("_conditional_mean", X, F))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.join(self._of_scalars("_conditional_variance", X, F))

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        found = self._of_scalars("_predict_mean_and_var", X, Fmu, Fvar)
        mean, variance = map(self.join, zip(*found, strict=True))
        return mean, variance

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return _sum(self._of_scalars("_predict_log_density", X, Fmu, Fvar, Y))

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return _sum(self._of_scalars("_variational_expectations", X, Fmu, Fvar, Y))


def _of_one_type(results: Iterable[tf.Tensor]) -> list[tf.Tensor]:
    """Cast to the widest type; GPflow's likelihoods compute in ``default_float()``."""
    results = list(results)
    widest = np.result_type(*(v.dtype.as_numpy_dtype for v in results))
    return [tf.cast(v, widest) for v in results]


def _sum(results: Iterable[tf.Tensor]) -> tf.Tensor:
    return tf.add_n(_of_one_type(results))


_PAIRS = "pairs of a likelihood and its columns, such as [(Gaussian(), [0, 2]), (Bernoulli(), [1])]"


def _checked(name: str, part: Any) -> tuple[MaskedLikelihood, tuple[int, ...]]:
    """Return a part's likelihood, with masks, and its columns."""
    if not isinstance(part, list | tuple) or len(part) != 2:
        raise TypeError(f"{name} must be one of {_PAIRS}, got {part!r}.")
    likelihood, columns = part
    columns = list(columns) if np.iterable(columns) and not isinstance(columns, str) else columns
    if not isinstance(columns, list) or not columns:
        raise TypeError(f"The columns of {name} must be a list of integers, got {columns!r}.")
    for column in columns:
        check_integer(f"A column of {name}", column, 0)
    return masked(likelihood, f"The likelihood of {name}"), tuple(map(int, columns))


def _check_columns(listed: Sequence[int]) -> None:
    """
    :raises ValueError: if columns are not 0, ..., P - 1 in some order.
    """
    times = collections.Counter(listed)
    twice = sorted(column for column, count in times.items() if count > 1)
    if twice:
        raise ValueError(
            f"parts have column {twice[0]} more than once, and a column has one likelihood: leave "
            "it out of one part."
        )
    missing = [column for column in range(len(listed)) if column not in times]
    if missing:
        raise ValueError(
            f"parts have columns up to {max(listed)} without column {missing[0]}: give each "
            "column a likelihood; the first is 0."
        )
