"""Regression by networks whose weights are sampled, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from ..core.arguments import check_integer
from ..core.tracing import compiled
from ..data.minibatches import random_integers
from ..inference.loops import repeat
from ..inference.optimise.optimisation import Optimisation, cosine_decay
from ..inference.preconditioning import KroneckerMap
from ..inference.preconditioning.kronecker import fisher_maps
from ..inference.runs.progress import Progress
from ..inference.runs.run import run
from ..mcmc import State, Step, Target, mclmc, targets
from ..mcmc.energy_variance import from_energy_variance
from ..mcmc.noise import fold_in, split, standard_noise
from ..mcmc.step_size import with_step_size
from .networks import check_activation

__all__ = ["BayesianMLPRegressor"]

Weights: TypeAlias = Sequence[tf.Tensor]
"""A kernel [inputs, outputs] and a bias [outputs] of each layer."""
Maps: TypeAlias = Sequence[KroneckerMap]
"""Linear maps of coordinates, in which steps are taken, to each kernel and bias."""

# The start of a chain: steps of Adam on the log posterior, and their first rate.
_ADAM_STEPS, _ADAM_RATE = 3000, 5e-3
# Variance of a step's energy error, per dimension, in burn-in and after it. Large steps explore
# (Sommer et al. 2025), and make the variance of a linear network's posterior nearly twice as large.
_EXPLORING, _SAMPLING = 0.5, 0.02
_BURNIN = 1.0 / 3.0  # share of the steps
# Step size and loss of direction where the search begins, of weights and of coordinates in which
# posterior variances are about 1.
_OF_WEIGHTS, _OF_COORDINATES = (1e-3, 0.05), (0.05, 0.01)
_FITS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)  # shares of burn-in after which maps are fitted again
_FIT_DRAWS, _FIT_POSITIONS = 200, 64  # differences of gradients, at the last of these
_ALL_ROWS, _BATCH = 4096, 1024  # the most rows that are a step's by default, and those of more
_NUM_SAMPLES = 100  # of each chain
_STEPS_PER_CALL = 100
_COMPILED_FROM = 5000  # steps of a chain, for which XLA's compilation pays
_LEAST_DEVIATION = 1e-6  # of the noise, in standard deviations of y
_ROWS_PER_CALL = 1024  # of predictions, by all samples at once
_ROWS = 0x205  # folded into the seed of a step for its rows


class BayesianMLPRegressor(RegressorMixin, BaseEstimator):
    r"""Networks for mean and noise of y, with samples of the posterior of their weights.

    .. math:: y_n \sim N(m(x_n; w), s(x_n; w)^2), \quad w \sim N(0, 1)

    Each chain begins at weights of its own, climbs the log posterior by Adam, and goes on by
    microcanonical Langevin dynamics (:mod:`gpflow_bae.mcmc.mclmc`) on all rows or, of large tables,
    on minibatches, as Sommer et al. (2025, "Microcanonical Langevin ensembles") sample networks.
    Steps are large in burn-in and half as large after it, where they make the posterior variance of
    a linear network up to a quarter too large. Chains stay near their modes, so that predictions
    average over the samples of all of them.

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
        :raises FloatingPointError: if a chain diverges.
        """
        self._check_arguments()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        seed = int(check_random_state(self.random_state).randint(2**30))
        self._scaler = StandardScaler().fit(X)
        self._ranks = QuantileTransformer(n_quantiles=min(1000, len(X)), random_state=0).fit(X)
        self.mean_, spread = float(np.mean(y)), float(np.std(y))
        self.scale_ = spread if spread > 0.0 else 1.0
        standardised = tf.constant((y - self.mean_) / self.scale_, tf.float32)
        chains = _Chains(self, self._features(X), standardised)
        calls = -(-self.num_steps // _STEPS_PER_CALL)
        with Progress("chains", self.num_chains * calls, shown=self.progress) as shown:
            found = [chains.sample(seed + c, calls, shown) for c in range(self.num_chains)]
        samples, step_sizes = zip(*found, strict=True)
        self.weights_ = [np.stack(leaves) for leaves in zip(*samples, strict=True)]
        self.step_size_ = np.array(step_sizes)
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
        check_integer("num_steps", self.num_steps, 3 * _STEPS_PER_CALL)
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
        X = self._features(validate_data(self, X, dtype=np.float64, reset=False))
        pooled = [tf.constant(w.reshape(-1, *w.shape[2:])) for w in self.weights_]
        for first in range(0, len(X), _ROWS_PER_CALL):
            found = _outputs(pooled, X[first : first + _ROWS_PER_CALL], self.activation)
            mean, deviation = (np.asarray(v, np.float64) for v in found)
            yield self.mean_ + self.scale_ * mean, self.scale_ * deviation


def _outputs(weights: Weights, X: tf.Tensor, activation: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and deviation [samples..., N] of standardised y.

    :param weights: with any leading dimensions of samples.
    """
    activate = keras.activations.get(activation)
    hidden = X
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    for number, (kernel, bias) in enumerate(layers):
        hidden = tf.matmul(hidden, kernel) + bias[..., None, :]
        if number < len(layers) - 1:
            hidden = activate(hidden)
    return hidden[..., 0], tf.nn.softplus(hidden[..., 1]) + _LEAST_DEVIATION


class _Chains:
    """Chains on the posterior of one network's weights; one trace serves all of them."""

    def __init__(self, regressor: BayesianMLPRegressor, X: tf.Tensor, y: tf.Tensor):
        self._X, self._y, self._activation = X, y, regressor.activation
        self._widths = [X.shape[1], *regressor.hidden_layer_sizes, 2]
        number = len(y)
        default = number if number <= _ALL_ROWS else _BATCH
        self._batch_size = min(regressor.batch_size or default, number)
        self._is_noisy = self._batch_size < number
        first = _OF_COORDINATES if self._is_noisy else _OF_WEIGHTS
        self._sampler = from_energy_variance(mclmc.build(*first), _EXPLORING)
        jit_compile = regressor.num_steps >= _COMPILED_FROM
        self._advance = compiled(self._steps, jit_compile=jit_compile)
        self._fit = compiled(self._fitted, jit_compile=False)
        self._variables = [tf.Variable(w) for w in self._fresh_weights(0)]
        self._adam = Optimisation(
            self._loss,
            {f"{i}": v for i, v in enumerate(self._variables)},
            [(self._variables, cosine_decay(_ADAM_RATE, _ADAM_STEPS, 0.02))],
            num_steps=_ADAM_STEPS,
            steps_per_call=_STEPS_PER_CALL,
            seed=(0, 0),
            label="start",
            jit_compile=jit_compile,
        )

    def sample(self, seed: int, calls: int, shown: Progress) -> tuple[list[np.ndarray], float]:
        """Return samples [S, ...] of each kernel and bias, and the chain's step size.

        :param calls: calls of a hundred steps.
        :raises FloatingPointError: if the chain diverges.
        """
        weights = self._start(seed)
        maps: Maps = [KroneckerMap(tf.ones([])) for _ in weights]
        if self._is_noisy:
            maps = self._fit([w[None] for w in weights], tf.constant([seed, 0]))
        state = self._sampler.init(_coordinates(maps, weights), Target())
        burnin = round(_BURNIN * calls)
        fits = {round(share * burnin) for share in _FITS} - {0}
        every, samples = max(1, (calls - burnin) // _NUM_SAMPLES), []
        passed: list[tuple[tf.Tensor, ...]] = []
        for call in range(calls):
            key, first = tf.constant([seed, call + 1]), tf.constant(call * _STEPS_PER_CALL)
            if call in fits and self._is_noisy:
                maps = self._fit([tf.stack(v) for v in zip(*passed, strict=True)], key)
                begun = self._sampler.init(_coordinates(maps, weights), Target())
                state, passed = begun._replace(shared=state.shared), []
            if call == burnin:  # the error is of third order in the step size
                found = self._sampler.info(state)["step_size"]
                state = with_step_size(state, found * (_SAMPLING / _EXPLORING) ** (1.0 / 6.0))
            state = self._advance(state, maps, key, first, tf.constant(call < burnin))
            weights = _values(maps, state.position)
            if call < burnin:
                passed = [*passed[-_FIT_POSITIONS:], weights]
            elif (call - burnin) % every == 0:
                samples.append([w.numpy() for w in weights])
                if not all(np.isfinite(w).all() for w in samples[-1]):
                    raise FloatingPointError(
                        f"The chain with seed {seed} diverged after {call * _STEPS_PER_CALL} "
                        "steps: does X or y hold values far from all others?"
                    )
            shown.update(1, "burn-in" if call < burnin else "sampling", {})
        step_size = float(self._sampler.info(state)["step_size"])
        return [np.stack(leaves) for leaves in zip(*samples, strict=True)], step_size

    def _start(self, seed: int) -> tuple[tf.Tensor, ...]:
        for variable, value in zip(self._variables, self._fresh_weights(seed), strict=True):
            variable.assign(value)
        self._adam.begin_again((seed, 0))
        run(self._adam, lambda: None, progress=False)
        return tuple(tf.identity(v) for v in self._variables)

    def _fresh_weights(self, seed: int) -> Iterator[np.ndarray]:
        """Yield kernels that keep the variance of their inputs (He et al. 2015), and zeros."""
        random = np.random.default_rng(seed)
        for inputs, outputs in zip(self._widths[:-1], self._widths[1:], strict=True):
            kernel = random.normal(0.0, np.sqrt(2.0 / inputs), (inputs, outputs))
            yield kernel.astype(np.float32)
            yield np.zeros(outputs, np.float32)

    def _log_likelihood(self, weights: Weights, seed: tf.Tensor | None = None) -> tf.Tensor:
        """Return log p(y | X, weights), less a constant; estimated by some rows given a seed."""
        X, y, number = self._X, self._y, len(self._y)
        if self._is_noisy and seed is not None:
            rows = random_integers([self._batch_size], seed) % number
            X, y = tf.gather(X, rows), tf.gather(y, rows)
        mean, deviation = _outputs(weights, X, self._activation)
        cells = -0.5 * tf.square((y - mean) / deviation) - tf.math.log(deviation)
        total = tf.reduce_sum(tf.cast(cells, tf.float64))
        return total if seed is None else number / self._batch_size * total

    def _log_prior(self, weights: Weights) -> tf.Tensor:
        return tf.add_n([-0.5 * tf.reduce_sum(tf.square(tf.cast(w, tf.float64))) for w in weights])

    def _loss(self, seed: tf.Tensor, carried: Any, constants: Any) -> tuple[tf.Tensor, Any]:
        density = self._log_likelihood(self._variables, seed) + self._log_prior(self._variables)
        return -density / len(self._y), carried

    def _gradient(self, weights: Weights, seed: tf.Tensor) -> Weights:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            density = self._log_likelihood(weights, seed) + self._log_prior(weights)
        gradient: Weights = tape.gradient(density, weights)
        return gradient

    def _target(self, maps: Maps) -> Target:
        """Return the target in the coordinates of maps; of weights, for steps on all rows."""
        if not self._is_noisy:
            return Target(self._gradient, targets.target(self._log_likelihood, self._log_prior))
        # The prior gets the noise of a minibatch as well: directions that the rows do not inform
        # would have less noise than others.
        deviation = (len(self._y) / self._batch_size) ** 0.5

        def gradient(position: Weights, seed: tf.Tensor) -> Weights:
            own = fold_in(seed, _ROWS)
            found = []
            slopes = self._gradient(_values(maps, position), own)
            for number, (part, slope) in enumerate(zip(maps, slopes, strict=True)):
                noise = standard_noise(slope.shape, fold_in(own, number))
                found.append(part.pullback(slope + deviation * noise))
            return tuple(found)

        return Target(gradient)

    def _steps(
        self, state: State, maps: Maps, seed: tf.Tensor, first: tf.Tensor, adapt: tf.Tensor
    ) -> State:
        target = self._target(maps)

        def step(i: tf.Tensor, state: State) -> State:
            return self._sampler.step(state, target, fold_in(seed, i), Step(first + i, adapt))

        after: State = repeat(_STEPS_PER_CALL, step, state)
        return after

    def _fitted(self, passed: Weights, seed: tf.Tensor) -> Maps:
        """Return maps in which the noise of gradients at positions [n, ...] is isotropic."""

        def draw(seed: tf.Tensor) -> Weights:
            which = random_integers([], seed) % tf.shape(passed[0])[0]
            weights = [w[which] for w in passed]
            pair = (self._gradient(weights, fold_in(seed, i)) for i in (1, 2))
            # The noise of as many rows as there are, whose covariance is the information.
            scale = (0.5 * self._batch_size / len(self._y)) ** 0.5
            return [scale * (a - b) for a, b in zip(*pair, strict=True)]

        return fisher_maps(draw, split(seed, _FIT_DRAWS), [tf.ones_like(w[0]) for w in passed])


def _values(maps: Maps, coordinates: Weights) -> tuple[tf.Tensor, ...]:
    return tuple(m.forward(u) for m, u in zip(maps, coordinates, strict=True))


def _coordinates(maps: Maps, weights: Weights) -> tuple[tf.Tensor, ...]:
    return tuple(m.inverse(w) for m, w in zip(maps, weights, strict=True))
