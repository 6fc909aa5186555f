"""A linear-Gaussian SGP-BAE whose codes have a closed form, and data drawn from it.

f ~ GP(0, k) for each task, latent_n = f(x_n) + code noise, y_n = W^T latent_n + noise; inducing
inputs at all data, so FITC is exact. The reference is dense NumPy over the stacked observations,
with the kernel written out: nothing of it is shared with the package.
"""

import functools

import gpflow
import keras
import numpy as np

from gpflow_bae import decoders, encoders, likelihoods, models

NUM_TASKS = 200
X = np.linspace(0.0, 5.0, 8)[:, None]
WEIGHTS = np.array([[1.0, 0.5]])  # [L, P]
LENGTHSCALE, VARIANCE, CODE_NOISE, NOISE = 1.5, 1.2, 0.1, 0.5


def kernel_matrix(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return VARIANCE * np.exp(-0.5 * ((a - b.T) / LENGTHSCALE) ** 2)


@functools.cache
def observations() -> np.ndarray:
    """[T, N, P] draws of the model."""
    rng = np.random.default_rng(3)
    code_covariance = kernel_matrix(X, X) + CODE_NOISE * np.eye(len(X))
    root = np.linalg.cholesky(code_covariance)
    codes = rng.standard_normal((NUM_TASKS, len(X))) @ root.T
    noise = np.sqrt(NOISE) * rng.standard_normal((NUM_TASKS, len(X), WEIGHTS.shape[1]))
    return codes[..., None] * WEIGHTS + noise


def exact(covariance_with_codes: np.ndarray, marginal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean [T, N'] and variance [N'] of Gaussian targets given the observations.

    :param covariance_with_codes: of the targets with the codes [N', N].
    :param marginal: prior variance of the targets [N'].
    """
    w = WEIGHTS[0]
    code_covariance = kernel_matrix(X, X) + CODE_NOISE * np.eye(len(X))
    y_covariance = np.kron(code_covariance, np.outer(w, w)) + NOISE * np.eye(len(X) * len(w))
    cross = np.kron(covariance_with_codes, w[None, :])  # [N', N P]
    gain = np.linalg.solve(y_covariance, cross.T).T
    mean = observations().reshape(NUM_TASKS, -1) @ gain.T
    return mean, marginal - np.sum(gain * cross, axis=1)


def fixed_model() -> models.SGPBAE:
    """All but the codes as the data were drawn."""
    decoder = decoders.KerasDecoder(
        keras.Sequential([keras.Input((1,)), keras.layers.Dense(2, use_bias=False)])
    )
    decoder.weights[0].assign(WEIGHTS)
    encoder = encoders.StochasticEncoder(
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    )
    model = models.SGPBAE(
        kernel=gpflow.kernels.SquaredExponential(variance=VARIANCE, lengthscales=LENGTHSCALE),
        inducing_variable=X,
        decoder=decoder,
        encoder=encoder,
        likelihood=likelihoods.Gaussian(NOISE),
        latent_dim=1,
        code_noise_variance=CODE_NOISE,
    )
    for part in (model.latent_prior, model.decoder, model.likelihood):
        gpflow.set_trainable(part, False)
    return model
