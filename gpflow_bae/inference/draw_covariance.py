r"""Coordinates from the covariance of a chain's own draws, in windows of burn-in.

As Stan adapts its metric (Carpenter et al. 2017; Stan Reference Manual, "HMC algorithm
parameters"): the first 15 % of burn-in only bring the chain to where it stays; then come windows,
each twice as long as the one before, at the end of which coordinates are taken from the draws of
that window alone; the last tenth is for the step size. With n draws of covariance S

.. math:: \Sigma = \frac{n}{n + 5} S + 10^{-3} \frac{5}{n + 5} I,

and steps are made in u, values = A u, A A^T = Sigma: ``"covariance"``, for up to a thousand values
in all, or with the diagonal of S alone, ``"variances"``, for any number. Every step is a draw. In
those coordinates the posterior has about unit covariance where it is about Gaussian; nothing is
asked of priors, likelihoods or networks, but the draws of a window must have gone around, which in
high dimensions takes long: :mod:`gpflow_bae.inference.fisher_metric` asks the model instead.

Coordinates are fixed when burn-in ends, so samples are of the posterior, whatever these are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from ..linalg import cholesky
from ..mcmc import State
from ..tracing import compiled
from .chain_state import Chain, Point
from .chains import map_chains

__all__ = ["DrawCoordinates", "DrawCovariance", "gathered", "windows"]

_MOST_VALUES = 1000  # whose covariance is dense
_INITIAL, _TERMINAL, _FIRST = 0.15, 0.1, 0.05  # shares of burn-in
_SHRINKAGE, _SMALL = 5.0, 1e-3  # of Stan


def windows(rounds: int) -> tuple[int, tuple[int, ...]]:
    """Before which round gathering begins, and before which ones coordinates are taken.

    :param rounds: of burn-in. Fewer than seven have a single window, fewer than three none.
    """
    first, last = int(np.ceil(_INITIAL * rounds)), rounds - int(np.ceil(_TERMINAL * rounds))
    if last <= first:
        return first, ()
    size, stop, stops = max(1, int(round(_FIRST * rounds))), first, []
    while stop < last:
        # A window after which there is no room for one of twice its length takes all that is left.
        stop = last if stop + 3 * size > last else stop + size
        size *= 2
        stops.append(stop)
    return first, tuple(stops)


class DrawCoordinates(NamedTuple):
    """Coordinates of a chain, values = root u, and the draws of the window that it is in."""

    root: tf.Tensor  # [K, K], lower triangular, or [K] for variances alone
    count: tf.Tensor  # [], of draws
    mean: tf.Tensor  # [K]
    scatter: tf.Tensor  # like root: sum of squares around the mean

    def to_natural(self, point: Point) -> Point:
        """Values of the model."""
        if self.root.shape.rank == 1:
            return _mapped(lambda v: self.root * v, point)
        return _mapped(lambda v: tf.linalg.matvec(self.root, v), point)

    def from_natural(self, point: Point) -> Point:
        """The inverse of :meth:`to_natural`."""
        if self.root.shape.rank == 1:
            return _mapped(lambda v: v / self.root, point)
        return _mapped(
            lambda v: tf.linalg.triangular_solve(self.root, v[:, None])[:, 0],
            point,
        )

    def gradient(self, natural: Point) -> Point:
        """The gradient by coordinates, given that by the values."""
        if self.root.shape.rank == 1:
            return _mapped(lambda v: self.root * v, natural)
        return _mapped(lambda v: tf.linalg.matvec(self.root, v, transpose_a=True), natural)

    def with_draw(self, point: Point) -> DrawCoordinates:
        """With one more draw, by Welford's recursion.

        :param point: in these coordinates.
        """
        value = _joined(self.to_natural(point))
        count = self.count + 1.0
        before = value - self.mean
        mean = self.mean + before / count
        after = value - mean
        more = before * after if self.root.shape.rank == 1 else before[:, None] * after
        return self._replace(count=count, mean=mean, scatter=self.scatter + more)


def gathered(metric: Any, point: Point, adapt: tf.Tensor) -> Any:
    """A chain's metric after a step of burn-in: with a draw more, where it gathers draws.

    :param point: in the coordinates of the metric.
    :param adapt: False after burn-in, where it stays as it is.
    """
    if not isinstance(metric, DrawCoordinates):
        return metric
    return tf.cond(adapt, lambda: metric.with_draw(point), lambda: metric)


class DrawCovariance:
    """Takes coordinates of chains from their draws, between rounds of burn-in."""

    def __init__(
        self,
        kind: Literal["covariance", "variances"],
        burnin_rounds: int,
        like: Point,
        restart: Callable[[Point], State],
    ):
        """
        :param like: a position, of whose values there are K in all.
        :param restart: a sampler's state at a position, at rest: how a chain goes on.
        :raises ValueError: for a covariance of more than a thousand values, or a burn-in that is
            too short for a window.
        """
        self._size = sum(int(np.prod(v.shape)) for v in tf.nest.flatten(like))
        self._dense, self._restart = kind == "covariance", restart
        if self._dense and self._size > _MOST_VALUES:
            raise ValueError(
                f'coordinates="covariance" has a number for each pair of at most {_MOST_VALUES} '
                f'values, and {self._size} are sampled: set coordinates="variances".'
            )
        self._first, self._stops = windows(burnin_rounds)
        if not self._stops:
            raise ValueError(
                f'coordinates="{kind}" are found in windows of burn-in, which takes at least 3 '
                f"rounds of num_sampler_steps, got {burnin_rounds}: set a longer burnin."
            )
        self._refit = compiled(self._mapped(self._refitted))
        self._empty = compiled(self._mapped(self._emptied))

    def identity(self) -> DrawCoordinates:
        """Before the first window: values as they are."""
        dtype, size = gpflow.default_float(), self._size
        root = tf.eye(size, dtype=dtype) if self._dense else tf.ones([size], dtype)
        nothing = tf.zeros([size], dtype)
        return DrawCoordinates(root, tf.zeros([], dtype), nothing, tf.zeros_like(root))

    def before_round(self, chains: Chain, number: int, seeds: tf.Tensor) -> Chain:
        """Chains as they go into a round: in new coordinates, where a window has ended.

        :param seeds: not used.
        """
        if number in self._stops:
            return self._refit(chains)
        return self._empty(chains) if number == self._first else chains

    def _mapped(self, function: Callable[[Chain], Chain]) -> Callable[[Chain], Chain]:
        def of_all(chains: Chain) -> Chain:
            specification = tf.nest.map_structure(
                lambda v: tf.TensorSpec(v.shape[1:], v.dtype), chains
            )
            return map_chains(function, (chains,), specification)

        return of_all

    @staticmethod
    def _emptied(chain: Chain) -> Chain:
        metric = chain.metric
        emptied = metric._replace(
            count=tf.zeros_like(metric.count),
            mean=tf.zeros_like(metric.mean),
            scatter=tf.zeros_like(metric.scatter),
        )
        return chain._replace(metric=emptied)

    def _refitted(self, chain: Chain) -> Chain:
        metric = chain.metric
        n = metric.count
        shrunk = metric.scatter / (n - 1.0) * n / (n + _SHRINKAGE)
        least = _SMALL * _SHRINKAGE / (n + _SHRINKAGE)
        if self._dense:
            eye = tf.eye(self._size, dtype=shrunk.dtype)
            root = cholesky(shrunk + least * eye, "the covariance of a chain's draws")
        else:
            root = tf.sqrt(shrunk + least)
        chain = self._emptied(chain._replace(metric=metric._replace(root=root)))
        return chain._replace(sampler=self._restart(chain.sampler.position))


def _joined(point: Point) -> tf.Tensor:
    """All values in one vector, in ``default_float()``."""
    dtype = gpflow.default_float()
    return tf.concat([tf.cast(tf.reshape(v, [-1]), dtype) for v in tf.nest.flatten(point)], 0)


def _mapped(function: Callable[[tf.Tensor], tf.Tensor], point: Point) -> Point:
    leaves = tf.nest.flatten(point)
    parts = tf.split(function(_joined(point)), [int(np.prod(v.shape)) for v in leaves])
    parts = [
        tf.cast(tf.reshape(part, v.shape), v.dtype) for part, v in zip(parts, leaves, strict=True)
    ]
    return tf.nest.pack_sequence_as(point, parts)
