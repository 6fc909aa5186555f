"""Regression by networks whose weights are sampled, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from ..core.arguments import check_integer
from ..inference.runs.progress import Progress
from .network_chains import STEPS_PER_CALL, NetworkChains, outputs
from .networks import check_activation

__all__ = ["BayesianMLPRegressor"]

_ROWS_PER_CALL = 1024  # of predictions, by all samples at once
_WIDE = 1.5  # predictions of fitted rows with as many deviations of y are of no use


class BayesianMLPRegressor(RegressorMixin, BaseEstimator):
    r"""Networks for mean and noise of y, with samples of the posterior of their weights.

    .. math:: y_n \sim N(m(x_n; w), s(x_n; w)^2), \quad w \sim N(0, 1)

    Each chain begins at weights of its own, climbs the log posterior by Adam, and goes on by
    microcanonical Langevin dynamics (:mod:`gpflow_bae.mcmc.mclmc`) on all rows or, of large tables,
    on minibatches, as Sommer et al. (2025, "Microcanonical Langevin ensembles") sample networks.
    Steps are large in burn-in and 0.6 times as large after it, where they make the posterior
    variance of a linear network up to a quarter too large. Chains do not agree with each other, so
    predictions average over the samples of all of them.

    All weights have the prior N(0, 1), which lets functions of deep networks vary by far more than
    y. It suits a thousand rows with little noise. Of few or noisy rows predictions are too wide,
    and another model, such as a Gaussian process or a ridge regression, is better: ``fit`` warns
    where predictions of its own rows are more than 1.5 times as wide as y.

    A step on a minibatch follows a noisy gradient. It is taken in coordinates in which the noise is
    isotropic, so that it only turns the chain's direction (Sommer et al. 2026, "Can microcanonical
    Langevin dynamics leverage mini-batch gradient noise?", who scale single weights; here layers
    are rotated, too). As the noise has about the covariance of the information, posterior variances
    are then about 1 as well. The coordinates are fitted in the first half of burn-in.

    y is standardised inside. A column enters twice, standardised and as the rank of its value
    among the rows of ``fit``, so that skewed columns need no logarithms.

    >>> X = np.random.default_rng(0).random((40, 2))
    >>> brief = {"hidden_layer_sizes": (8,), "num_chains": 2, "num_steps": 600}
    >>> regressor = BayesianMLPRegressor(**brief).fit(X, np.sin(6.0 * X[:, 0]))
    >>> mean, deviation = regressor.predict(X[:3], return_std=True)
    >>> mean.shape, deviation.shape
    ((3,), (3,))
    """

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] = (16, 16, 16, 16),
        activation: str = "silu",
        *,
        num_chains: int = 8,
        num_steps: int = 100_000,
        batch_size: int | None = None,
        random_state: Any = 0,
        progress: bool = False,
    ):
        """
        :param hidden_layer_sizes: widths of the hidden layers; ``()`` is linear.
        :param activation: a name that ``keras.activations.get`` knows.
        :param num_chains: number of networks C.
        :param num_steps: steps of each chain, of which the first third is burn-in: some 0.6 ms a
            chain for a thousand rows.
        :param batch_size: number of rows of a step, drawn at random. Default: all up to 4096, and
            1024 of more, so that any table takes as long. More rows a step make larger steps.
        :param random_state: an integer, for equal fits to equal data; a ``RandomState``; or None
            for new random numbers in each fit.
        :param progress: whether ``fit`` shows a progress bar.
        """
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.num_chains = num_chains
        self.num_steps = num_steps
        self.batch_size = batch_size
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> BayesianMLPRegressor:
        """Sample the posterior given rows.

        Sets ``weights_``, a kernel and a bias [C, S, ...] of each layer; ``step_size_`` [C];
        ``mean_`` and ``scale_`` of y; ``n_features_in_``; and ``feature_names_in_`` of data frames.

        :param X: rows [N, D], N >= 2, without missing values.
        :param y: numbers [N].
        :raises ValueError: for invalid arguments or rows.
        :raises FloatingPointError: if a chain diverges or is stuck, as it may with few rows for
            many weights.
        """
        self._check_arguments()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        seed = int(check_random_state(self.random_state).randint(2**30))
        self._scaler = StandardScaler().fit(X)
        self._ranks = QuantileTransformer(n_quantiles=min(1000, len(X)), random_state=0).fit(X)
        self.mean_, spread = float(np.mean(y)), float(np.std(y))
        self.scale_ = spread if spread > 0.0 else 1.0
        standardised = tf.constant((y - self.mean_) / self.scale_, tf.float32)
        chains = NetworkChains(
            self._features(X),
            standardised,
            self.hidden_layer_sizes,
            self.activation,
            self.num_steps,
            self.batch_size,
        )
        calls = -(-self.num_steps // STEPS_PER_CALL)
        total = self.num_chains * calls * STEPS_PER_CALL
        with Progress("chains", total, shown=self.progress) as shown:
            found = [chains.sample(seed + c, calls, shown) for c in range(self.num_chains)]
        samples, step_sizes = zip(*found, strict=True)
        self.weights_ = [np.stack(leaves) for leaves in zip(*samples, strict=True)]
        self.step_size_ = np.array(step_sizes)
        (mean, deviation), *_ = self._moments_of(self._features(X[:_ROWS_PER_CALL]))
        ratio = np.sqrt(np.mean(np.square(deviation)) + np.mean(mean.var(0))) / self.scale_
        if ratio > _WIDE:
            warnings.warn(
                f"Predictions of the rows of fit have a standard deviation {ratio:.2g} times that "
                f"of y: {len(X)} rows are too few, or too noisy, for the prior of this network. "
                "Take another model.",
                stacklevel=2,
            )
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of y [N] at rows ``X [N, D]``, over samples of all chains.

        :param return_std: return also its standard deviation [N], of noise and samples together.
        """
        means, variances = [], []
        for mean, deviation in self._moments(X):
            means.append(mean.mean(0))
            variances.append(np.square(deviation).mean(0) + mean.var(0))
        mean = np.concatenate(means)
        return (mean, np.sqrt(np.concatenate(variances))) if return_std else mean

    def predict_log_density(self, X: Any, y: Any) -> np.ndarray:
        """Return log p(y | x) [N] of numbers ``y [N]``, of the mixture over samples, in nats."""
        check_consistent_length(X, y)
        y, parts, first = column_or_1d(y, dtype=np.float64, warn=True), [], 0
        for mean, deviation in self._moments(X):
            here = y[first : first + mean.shape[1]]
            first += mean.shape[1]
            z = (here - mean) / deviation
            each = -0.5 * np.square(z) - np.log(deviation) - 0.5 * np.log(2.0 * np.pi)
            parts.append(np.logaddexp.reduce(each, 0) - np.log(len(each)))
        return np.concatenate(parts)

    def _check_arguments(self) -> None:
        sizes = self.hidden_layer_sizes
        if not isinstance(sizes, Sequence) or isinstance(sizes, str):
            raise ValueError(
                f"hidden_layer_sizes must be a sequence of widths, such as (16, 16), got {sizes!r}."
            )
        for number, size in enumerate(sizes):
            check_integer(f"hidden_layer_sizes[{number}]", size, 1)
        check_activation(self.activation)
        check_integer("num_chains", self.num_chains, 1)
        check_integer("num_steps", self.num_steps, 3 * STEPS_PER_CALL)
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, 1)

    @check_shapes("X: [N, D]", "return: [N, F]")
    def _features(self, X: np.ndarray) -> tf.Tensor:
        """Return standardised columns and ranks, both with mean 0 and variance 1 in ``fit``."""
        ranks = np.sqrt(12.0) * (self._ranks.transform(X) - 0.5)
        return tf.constant(np.hstack([self._scaler.transform(X), ranks]), tf.float32)

    def _moments(self, X: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield means and deviations [C * S, n] of the samples, in the units of y, of some rows."""
        check_is_fitted(self)
        yield from self._moments_of(
            self._features(validate_data(self, X, dtype=np.float64, reset=False))
        )

    def _moments_of(self, X: tf.Tensor) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the same, given features [N, F]."""
        pooled = [tf.constant(w.reshape(-1, *w.shape[2:])) for w in self.weights_]
        for first in range(0, len(X), _ROWS_PER_CALL):
            found = outputs(pooled, X[first : first + _ROWS_PER_CALL], self.activation)
            mean, deviation = (np.asarray(v, np.float64) for v in found)
            yield self.mean_ + self.scale_ * mean, self.scale_ * deviation
