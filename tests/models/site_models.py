"""Models with free sites, and data for them."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow as tf

from gpflow_bae import encoders, latent_priors, likelihoods, models
from gpflow_bae.base import Batch

TASKS, N, P, L = 2, 6, 3, 2
NOISE = np.array([0.1, 0.3, 0.2])
SEED = tf.constant([0, 1])
Data = tuple[np.ndarray, np.ndarray]


class Linear(gpflow.Module):
    """A decoder in float64, so that comparisons are to rounding."""

    def __init__(self, latent_dim: int) -> None:
        super().__init__(name=None)
        rng = np.random.default_rng(3)
        self.latent_dim, self.output_dim = latent_dim, P
        self.W, self.bias = rng.normal(size=(latent_dim, P)), rng.normal(size=P)

    def __call__(self, latents: Any) -> tf.Tensor:
        return tf.einsum("...l,lp->...p", latents, self.W) + self.bias


def kernels(count: int = L) -> list[gpflow.kernels.Kernel]:
    both = gpflow.kernels.Matern32(lengthscales=0.9), gpflow.kernels.Matern52(lengthscales=0.5)
    return list(both[:count])


def mixture(Z: np.ndarray, latent_dim: int = L) -> latent_priors.LinearMixture:
    """Channels that mix two functions, and share a nugget."""
    rng = np.random.default_rng(1)
    prior = latent_priors.LinearMixture(kernels(), Z, rng.normal(size=(latent_dim, 2)))
    prior.nugget_root.assign(np.tril(rng.normal(size=(latent_dim, latent_dim))))
    return prior


def nonlinear() -> keras.Sequential:
    network = keras.Sequential(
        [keras.Input((L,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(P)]
    )
    rng = np.random.default_rng(2)
    network.set_weights([0.7 * rng.standard_normal(w.shape) for w in network.get_weights()])
    return network


def built(
    prior: Any, decoder: Any, likelihood: Any = None, **how: Any
) -> models.VariationalAutoencoder:
    encoder = encoders.SiteEncoder(TASKS, N, prior.latent_dim, **how)
    likelihood = likelihood or likelihoods.Gaussian(NOISE)
    return models.VariationalAutoencoder(prior, decoder, encoder, likelihood)


def batch_of(data: Data, indices: Any = None) -> Batch:
    X, Y = data
    mask = np.isfinite(Y)
    values = np.where(mask, Y, 0.0).astype(np.float32)
    if indices is None:
        return Batch(tf.constant(X), tf.constant(values), tf.constant(mask))
    parts = (tf.constant(v[indices]) for v in (X, values, mask))
    return Batch(*parts, indices=tf.constant(indices))


def made_data() -> Data:
    """Two tasks with holes and inputs of their own; a row of the first has nothing."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 3.0, (TASKS, N, 1)), 1)
    Y = rng.standard_normal((TASKS, N, P)).astype(np.float32)
    Y[rng.uniform(size=Y.shape) < 0.25] = np.nan
    Y[0, 2] = np.nan
    return X, Y
