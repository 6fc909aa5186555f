"""Small models with made-up samples; built alike in every process, so that files compare."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np

from gpflow_bae import likelihoods, models
from gpflow_bae.data import prepare_data
from gpflow_bae.posteriors import Bank, Posterior, TemperedPosterior

T, N, P, L = 3, 6, 4, 2
X_NEW = np.array([[0.3], [2.5], [5.0]])


def dense(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def data(missing: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.tile(np.linspace(0.0, 4.0, N)[:, None], (T, 1, 1))
    Y = rng.standard_normal((T, N, P))
    return X, np.where(rng.uniform(size=Y.shape) < missing, np.nan, Y)


def make_model(**changes: Any) -> models.SGPBAE:
    return models.SGPBAE(
        **{
            "kernel": gpflow.kernels.SquaredExponential(),
            "inducing_variable": np.array([[0.0], [2.0], [4.0]]),
            "decoder": dense(L, P),
            "encoder": dense(2 * P, L),
            "likelihood": likelihoods.Gaussian(0.2),
            "latent_dim": L,
            "code_noise_variance": 0.5,
            **changes,
        }
    )


def jittered(model: Any, shape: tuple[int, ...], codes: bool = False, **others: Any) -> Bank:
    """A bank of samples [C, S] that differ in everything: the model's values, jittered."""
    rng = np.random.default_rng(1)

    def scattered(paths: Any, values: Any) -> dict[str, np.ndarray]:
        found = {}
        for path, value in zip(paths, values, strict=True):
            noise = 0.3 * rng.standard_normal((*shape, *value.shape))
            found[path] = (value.numpy() + noise).astype(value.dtype.as_numpy_dtype)
        return found

    return Bank(
        scattered(model.sampled.paths, model.sampled.values()),
        scattered(model.amortized.paths, model.amortized.values()),
        rng.standard_normal((*shape, T, N, L)) if codes else None,
        type(model).__name__,
        **others,
    )


def posterior(num_chains: int = 2, num_samples: int = 3, codes: bool = False) -> Posterior:
    """Of a model with holes in its data."""
    keras.utils.set_random_seed(0)
    model = make_model()
    bank = jittered(model, (num_chains, num_samples), codes)
    return Posterior(model, bank, prepare_data(model, data(missing=0.2)))


def tempered(num_replicas: int = 2, num_samples: int = 3) -> TemperedPosterior:
    """Linear networks, and a trace of four steps."""
    keras.utils.set_random_seed(0)
    model = models.TemperedBAE(dense(P, L), dense(L, P))
    trace = {"log_likelihood": np.arange(4.0 * num_replicas).reshape(num_replicas, 4)}
    bank = jittered(model, (num_replicas, num_samples), trace=trace, seconds={"sampling": 2.0})
    return TemperedPosterior(model, bank, swap_rate=np.array([0.25] * (num_replicas - 1)))


def rows() -> np.ndarray:
    """Rows [5, P] of a table with a hole."""
    values = np.random.default_rng(2).standard_normal((5, P))
    values[1, 2] = np.nan
    return values
