"""SGP-BAE in closed form: with a linear decoder and Gaussian noise everything is jointly Gaussian.

f ~ GP(0, k) for each task, latent_n = f(x_n) + code noise, y_n = W^T latent_n + noise. The reference
below is dense NumPy over the stacked observations, with the kernel written out: nothing of it is
shared with the package. The data are drawn from the model itself, because the encoder sees one y_n
at a time and learns p(latent_n | y_n) from pairs of them; only then are those pairs draws of the
model's own joint, and pseudo-observations made of them are the likelihood of y_n.
"""

import functools

import gpflow
import keras
import numpy as np

from gpflow_bae import decoders, encoders, likelihoods, models, posteriors, training

NUM_TASKS = 400
X = np.linspace(0.0, 5.0, 8)[:, None]
X_NEW = np.array([[-0.7], [0.4], [2.2], [4.6], [6.0]])
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


def exact_codes(covariance_with_codes: np.ndarray, marginal: np.ndarray):
    """Mean [T, N'] and variance [N'] of Gaussian targets given the observations."""
    w = WEIGHTS[0]
    code_covariance = kernel_matrix(X, X) + CODE_NOISE * np.eye(len(X))
    y_covariance = np.kron(code_covariance, np.outer(w, w)) + NOISE * np.eye(len(X) * len(w))
    cross = np.kron(covariance_with_codes, w[None, :])  # [N', N P]
    gain = np.linalg.solve(y_covariance, cross.T).T
    mean = observations().reshape(NUM_TASKS, -1) @ gain.T
    return mean, marginal - np.sum(gain * cross, axis=1)


@functools.cache
def posterior() -> posteriors.Posterior:
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
    settings = training.AmortizedSettings(
        num_sampler_steps=50,
        num_encoder_steps=20,
        burnin=1500,
        num_samples=60,
        thinning=50,
        step_size=0.15,
        momentum_decay=0.25,
        codes="carried",
        encoder_learning_rate=1e-2,
    )
    return training.sample_amortized(model, (X, observations()), settings, progress=False)


def test_sampled_codes() -> None:
    """"""
    mean, variance = exact_codes(
        kernel_matrix(X, X) + CODE_NOISE * np.eye(len(X)), np.full(len(X), VARIANCE + CODE_NOISE)
    )
    codes = posterior().latents[..., 0]  # [S, T, N]
    error = (codes.mean(0) - mean) / np.sqrt(variance)
    print(
        "codes",
        np.sqrt(np.mean(error**2)),
        1 / np.sqrt(60),
        error.mean(),
        codes.var(0, ddof=1).mean(0) / variance,
    )


def test_predictions() -> None:
    mean, variance = exact_codes(kernel_matrix(X_NEW, X), np.full(len(X_NEW), VARIANCE))
    print("sd", np.sqrt(variance), "prior", VARIANCE)
    lm, lv = posterior().predict_latent(X_NEW, num_draws=64)
    error = (lm[..., 0] - mean) / np.sqrt(variance)
    print("latent", np.sqrt(np.mean(error**2, 0)), lv[..., 0].mean(0) / variance)
    y_mean, y_var = posterior().predict_y(X_NEW, num_draws=64, num_codes=16)
    em = mean[..., None] * WEIGHTS
    ev = (variance + CODE_NOISE)[:, None] * WEIGHTS**2 + NOISE
    error = (y_mean - em) / np.sqrt(ev)
    print("y", np.sqrt(np.mean(error**2, 0)), y_var.mean(0) / ev, (y_var / ev).std(0))
    print([w for w in posterior().encoder[0][-1]], posterior().encoder[1][-1])
    c = VARIANCE + CODE_NOISE
    w = WEIGHTS[0]
    print(
        "exact enc",
        c * w @ np.linalg.inv(c * np.outer(w, w) + NOISE * np.eye(2)),
        np.sqrt(c - c * w @ np.linalg.inv(c * np.outer(w, w) + NOISE * np.eye(2)) @ w * c),
    )
