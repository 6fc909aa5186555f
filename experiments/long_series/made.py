"""A series of irregular times with holes whose truth is known.

Two independent Gaussian processes over time, Matern 3/2 with a lengthscale of 1 and Matern 5/2 with
one of 2, are seen through a random network with one hidden layer, with noise. There are twenty
times to a unit, drawn uniformly, so a longer series is more of the same.
"""

from __future__ import annotations

from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_bae.latent_priors.state_space import state_space

__all__ = ["LENGTHSCALES", "Series", "draw", "hide", "make"]

LENGTHSCALES = (1.0, 2.0)
_DENSITY = 20.0  # times to a unit
_GAP = 1.0  # length of a gap, in units of time
_GAP_SHARE, _CELL_SHARE = 0.2, 0.1


class Series(NamedTuple):
    """One series, in order of time.

    - X [N, 1]: times, float64.
    - Y [N, P]: outputs with noise, float32, NaN where hidden.
    - complete [N, P]: the same, nothing hidden.
    - truth [N, P]: without noise; standard deviation 1 over the series, mean 0.
    """

    X: np.ndarray
    Y: np.ndarray
    complete: np.ndarray
    truth: np.ndarray


def make(num_points: int, noise: float, seed: int, num_outputs: int = 8) -> Series:
    """A series of N times.

    :param noise: standard deviation.
    :param seed: of functions, network, noise and holes.
    """
    rng = np.random.default_rng(seed)
    length = num_points / _DENSITY
    times = np.sort(rng.uniform(0.0, length, num_points))
    kinds = (gpflow.kernels.Matern32, gpflow.kernels.Matern52)
    kernels = [kind(lengthscales=s) for kind, s in zip(kinds, LENGTHSCALES, strict=True)]
    codes = np.concatenate([draw(kernel, times, rng) for kernel in kernels], axis=1)
    first, second = rng.normal(size=(2, 16)), rng.normal(size=(16, num_outputs)) / 4.0
    truth = np.tanh(codes @ first) @ second
    truth = (truth - truth.mean(0)) / truth.std(0)
    complete = truth + noise * rng.standard_normal(truth.shape)
    hidden = hide(times, length, num_outputs, rng)
    X, complete = times[:, None], complete.astype(np.float32)
    return Series(X, np.where(hidden, np.float32(np.nan), complete), complete, truth)


def draw(
    kernel: gpflow.kernels.Kernel, times: np.ndarray, rng: np.random.Generator, number: int = 1
) -> np.ndarray:
    """Exact draws [N, number] of a GP at ``times [N]`` in order, at a cost of N."""
    process = state_space(kernel)
    A = process.transition(tf.constant(np.diff(times, prepend=times[0])))
    Q = process.noise(A).numpy()
    Q[0] = process.covariance.numpy()
    # Times may nearly coincide, where a Cholesky factor would ask for jitter.
    values, vectors = np.linalg.eigh(Q)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    A, size = A.numpy(), Q.shape[-1]
    states = np.zeros((len(times), size, number))
    state = np.zeros((size, number))
    for n in range(len(times)):
        state = A[n] @ state + roots[n] @ rng.standard_normal((size, number))
        states[n] = state
    return np.einsum("d,ndk->nk", process.projection.numpy(), states)


def hide(
    times: np.ndarray, length: float, num_outputs: int, rng: np.random.Generator
) -> np.ndarray:
    """Which cells are hidden: Booleans [N, P], rows in gaps wholly.

    There is a gap of one unit of time somewhere in every five.
    """
    slot = _GAP / _GAP_SHARE
    starts = slot * np.arange(int(length / slot))
    starts = starts + rng.uniform(0.0, slot - _GAP, len(starts))
    place = np.searchsorted(starts, times, side="right") - 1
    in_gap = (place >= 0) & (times < starts[np.maximum(place, 0)] + _GAP)
    return in_gap[:, None] | (rng.random((len(times), num_outputs)) < _CELL_SHARE)
