"""Chains of microcanonical Langevin dynamics on the weights of networks for mean and noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

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

__all__ = ["STEPS_PER_CALL", "NetworkChains", "outputs"]

Weights: TypeAlias = Sequence[tf.Tensor]
"""A kernel [inputs, outputs] and a bias [outputs] of each layer."""
Maps: TypeAlias = Sequence[KroneckerMap]
"""Linear maps of coordinates, in which steps are taken, to each kernel and bias."""

# The start of a chain: steps of Adam on the log posterior, and their first rate.
_ADAM_STEPS, _ADAM_RATE = 3000, 5e-3
# Variance of a step's energy error, per dimension, in burn-in and after it. Large steps explore
# (Sommer et al. 2025), and make the variance of a linear network's posterior 1.4 times and more.
_EXPLORING, _SAMPLING = 0.5, 0.02
_BURNIN = 1.0 / 3.0  # share of the steps
# Step size and loss of direction where the search begins, of weights and of coordinates in which
# posterior variances are about 1.
_OF_WEIGHTS, _OF_COORDINATES = (1e-3, 0.05), (0.05, 0.01)
_STUCK = 1e-3  # a smaller share of that step size is of a chain that does not move
_FITS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)  # shares of burn-in after which maps are fitted again
_FIT_DRAWS, _FIT_POSITIONS = 200, 64  # differences of gradients, at the last of these
_ALL_ROWS, _BATCH = 4096, 1024  # the most rows that are a step's by default, and those of more
_NUM_SAMPLES = 100  # of each chain
STEPS_PER_CALL = 100
_COMPILED_FROM = 5000  # steps of a chain, for which XLA's compilation pays
_LEAST_DEVIATION = 1e-6  # of the noise, in standard deviations of y
_ROWS = 0x205  # folded into the seed of a step for its rows


def outputs(weights: Weights, X: tf.Tensor, activation: Any) -> tuple[tf.Tensor, tf.Tensor]:
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


class NetworkChains:
    """Chains on the posterior of one network's weights; one trace serves all of them."""

    def __init__(
        self,
        X: tf.Tensor,
        y: tf.Tensor,
        hidden: Sequence[int],
        activation: str,
        num_steps: int,
        batch_size: int | None,
    ):
        """
        :param X, y: rows [N, F] and numbers [N], all of mean 0 and variance 1.
        :param hidden: widths of the hidden layers.
        :param batch_size: rows of a step; None for all of them, or some of many.
        """
        self._X, self._y, self._activation = X, y, activation
        self._widths = [X.shape[1], *hidden, 2]
        number = len(y)
        default = number if number <= _ALL_ROWS else _BATCH
        self._batch_size = min(batch_size or default, number)
        self._is_noisy = self._batch_size < number
        first = _OF_COORDINATES if self._is_noisy else _OF_WEIGHTS
        self._least_step = _STUCK * first[0]
        self._sampler = from_energy_variance(
            mclmc.build(*first),
            _SAMPLING,
            isotropic_noise=self._is_noisy,
            exploring=_EXPLORING,
        )
        jit_compile = num_steps >= _COMPILED_FROM
        self._advance = compiled(self._steps, jit_compile=jit_compile)
        self._fit = compiled(self._fitted, jit_compile=False)
        self._variables = [tf.Variable(w) for w in self._fresh_weights(0)]
        self._adam = Optimisation(
            self._loss,
            {f"{i}": v for i, v in enumerate(self._variables)},
            [(self._variables, cosine_decay(_ADAM_RATE, _ADAM_STEPS, 0.02))],
            num_steps=_ADAM_STEPS,
            steps_per_call=STEPS_PER_CALL,
            seed=(0, 0),
            label="start",
            jit_compile=jit_compile,
        )

    def sample(self, seed: int, calls: int, shown: Progress) -> tuple[list[np.ndarray], float]:
        """Return samples [S, ...] of each kernel and bias, and the chain's step size.

        :param calls: calls of a hundred steps.
        :raises FloatingPointError: if the chain diverges or is stuck.
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
            key, first = tf.constant([seed, call + 1]), tf.constant(call * STEPS_PER_CALL)
            if call in fits and self._is_noisy:
                maps = self._fit([tf.stack(v) for v in zip(*passed, strict=True)], key)
                begun = self._sampler.init(_coordinates(maps, weights), Target())
                state, passed = begun._replace(shared=state.shared), []
            state = self._advance(state, maps, key, first, tf.constant(call < burnin))
            weights = _values(maps, state.position)
            if call < burnin:
                passed = [*passed[-_FIT_POSITIONS:], weights]
            elif (call - burnin) % every == 0:
                samples.append([w.numpy() for w in weights])
                step_size = float(self._sampler.info(state)["step_size"])
                is_stuck = step_size < self._least_step
                if is_stuck or not all(np.isfinite(w).all() for w in samples[-1]):
                    raise FloatingPointError(
                        f"The chain with seed {seed} {'is stuck' if is_stuck else 'diverged'} "
                        f"after {call * STEPS_PER_CALL} steps: does X or y hold values far from "
                        "all others, or are there few rows for the weights of the network?"
                    )
            shown.update(STEPS_PER_CALL, "burn-in" if call < burnin else "sampling", {})
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
        mean, deviation = outputs(weights, X, self._activation)
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

        after: State = repeat(STEPS_PER_CALL, step, state)
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
