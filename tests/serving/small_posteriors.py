"""Small posteriors with made-up samples: what is served does not depend on how they were drawn."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np

from gpflow_bae import encoders, likelihoods, models
from gpflow_bae.data import prepare_data
from gpflow_bae.posteriors import Posterior

L, P = 2, 3


def network(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((num_inputs,)),
            keras.layers.Dense(4, activation="tanh"),
            keras.layers.Dense(num_outputs),
        ]
    )


def data(num_tasks: int = 1, num_points: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.uniform(-2.0, 2.0, (num_tasks, num_points, 1))
    return X, rng.standard_normal((num_tasks, num_points, P))


def posterior(model: Any, num_samples: int = 5, num_tasks: int = 1) -> Posterior:
    """Samples scattered around the model's own values."""
    rng = np.random.default_rng(0)

    def scattered(variables: list) -> list[np.ndarray]:
        return [
            (v.numpy() + 0.2 * rng.standard_normal((num_samples, *v.shape))).astype(
                v.dtype.as_numpy_dtype
            )
            for v in variables
        ]

    prepared = prepare_data(model, data(num_tasks))
    parameters = scattered([p.unconstrained_variable for p in model.sampled.parameters])
    encoder = scattered(model.amortized.variables)
    return Posterior.from_arrays(model, prepared, parameters, encoder)


def common(encoder_outputs: int = 2 * L) -> dict[str, Any]:
    return {
        "decoder": network(L, P),
        "encoder": network(P, encoder_outputs),
        "likelihood": likelihoods.Gaussian(0.3),
        "latent_dim": L,
    }


def sgp_bae(**changes: Any) -> models.SGPBAE:
    return models.SGPBAE(
        gpflow.kernels.SquaredExponential(),
        np.linspace(-2.0, 2.0, 4)[:, None],
        **common() | {"encoder": network(2 * P, L)},
        code_noise_variance=0.1,
        **changes,
    )


def sampled_sgp_bae() -> Posterior:
    """One long task with sampled inducing outputs and a stochastic encoder."""
    return posterior(sgp_bae(inducing_outputs="sampled"))


def variational(kind: type, **changes: Any) -> Posterior:
    """A VAE, or a GP-VAE of one task."""
    arguments = common() | changes
    if kind is not models.VAE and kind is not models.CVAE:
        arguments["kernel"] = gpflow.kernels.SquaredExponential(variance=2.0)
    if kind in (models.SVGPVAE, models.SGPVAE, models.GPPVAE):
        arguments["inducing_variable"] = np.linspace(-2.0, 2.0, 4)[:, None]
    return posterior(kind(**arguments), num_samples=2)


def conditional() -> Posterior:
    return variational(
        models.CVAE,
        decoder=network(L + 1, P),
        encoder=network(P + 1, 2 * L),
        condition_dim=1,
    )


def partial() -> Posterior:
    """An encoder that sees the mask."""
    encoder = encoders.GaussianEncoder(network(2 * P, 2 * L), takes_mask=True)
    return variational(models.SVGPVAE, encoder=encoder)
