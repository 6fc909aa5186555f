"""A posterior small enough for the No-U-Turn sampler: an SGP-BAE of two short series.

Four observables, one code for each point, and a decoder tanh(w z + b) with Gaussian noise. The
posterior of decoder weights, kernel, noise and codes is not Gaussian, but it has one symmetry only,
the sign of the codes, so a reference sampler can be trusted with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae import decoders, encoders, likelihoods, models

NUM_TASKS, NUM_POINTS, NUM_OUTPUTS, NUM_INDUCING = 2, 10, 4, 5
LENGTHSCALE, VARIANCE, CODE_NOISE, NOISE = 1.5, 1.0, 0.1, 0.05
_QUADRATURE = np.polynomial.hermite_e.hermegauss(16)


class Problem(NamedTuple):
    """Data drawn from the model itself."""

    X: np.ndarray  # [T, N, D]
    Y: np.ndarray  # [T, N, P]
    X_new: np.ndarray  # [1, N', D], between the data and beyond them


class Quantities(NamedTuple):
    """What samplers are compared in, one row for each draw: conditional means, and mean squares.

    A mean square minus the square of the mean is the spread inside of a draw; where a draw
    determines the quantity it is zero.
    """

    train: np.ndarray  # [S, T N P], decoder at the codes
    train_square: np.ndarray
    new: np.ndarray  # [S, T N' P], decoder averaged over the codes at X_new
    new_square: np.ndarray

    def moments(self, group: str) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and standard deviation of every cell of ``"train"`` or ``"new"``."""
        mean = getattr(self, group).mean(0)
        second = getattr(self, f"{group}_square").mean(0)
        return mean, np.sqrt(np.maximum(second - mean**2, 0.0))


def generate(seed: int = 0) -> Problem:
    """Draw functions, codes and observations from the model."""
    rng = np.random.default_rng(seed)
    X = np.linspace(0.0, 5.0, NUM_POINTS)[:, None]
    covariance = VARIANCE * np.exp(-0.5 * ((X - X.T) / LENGTHSCALE) ** 2)
    root = np.linalg.cholesky(covariance + CODE_NOISE * np.eye(NUM_POINTS))
    codes = rng.standard_normal((NUM_TASKS, NUM_POINTS)) @ root.T
    weights = np.array([1.0, -0.8, 0.6, 1.2])
    biases = np.array([0.0, 0.3, -0.3, 0.2])
    noise = np.sqrt(NOISE) * rng.standard_normal((NUM_TASKS, NUM_POINTS, NUM_OUTPUTS))
    Y = np.tanh(codes[..., None] * weights + biases) + noise
    X_new = np.array([-0.5, 0.8, 2.2, 3.6, 5.5])[None, :, None]
    return Problem(np.tile(X, [NUM_TASKS, 1, 1]), Y, X_new)


def _float64_normal(shape: tuple[int, ...]) -> Any:
    # Of the weight's shape, because the fused density of a scalar normal (L2Loss) has no rule for
    # vectorized_map, and the reference runs its chains side by side.
    return tfp.distributions.Normal(np.zeros(shape), np.ones(shape))


def build_model(seed: int = 0) -> models.SGPBAE:
    """The model with a decoder in float64, which both samplers take.

    Sampled are decoder weights, lengthscale, noise variance and codes. The kernel variance is fixed
    because only its product with the weights is determined.
    """
    keras.utils.set_random_seed(seed)
    decoder = keras.Sequential(
        [
            keras.Input((1,), dtype="float64"),
            keras.layers.Dense(NUM_OUTPUTS, activation="tanh", dtype="float64"),
        ]
    )
    hidden = keras.layers.Dense(16, activation="tanh")
    encoder = keras.Sequential([keras.Input((2 * NUM_OUTPUTS,)), hidden, keras.layers.Dense(1)])
    model = models.SGPBAE(
        kernel=gpflow.kernels.SquaredExponential(variance=VARIANCE, lengthscales=LENGTHSCALE),
        inducing_variable=np.linspace(0.0, 5.0, NUM_INDUCING)[:, None],
        decoder=decoders.KerasDecoder(decoder, _float64_normal),
        encoder=encoders.StochasticEncoder(encoder),
        likelihood=likelihoods.Gaussian(NOISE),
        latent_dim=1,
        code_noise_variance=CODE_NOISE,
    )
    gpflow.set_trainable(model.latent_prior.inducing_variable, False)
    gpflow.set_trainable(model.latent_prior.code_noise_variance, False)
    gpflow.set_trainable(model.latent_prior.kernels[0].variance, False)
    return model


def quantities(
    model: models.SGPBAE, problem: Problem, parameters: tuple[np.ndarray, ...], codes: np.ndarray
) -> Quantities:
    """Evaluate every draw; the codes at new inputs are integrated by quadrature.

    :param parameters: unconstrained [S, ...], in the order of ``model.sampled.parameters``.
    :param codes: [S, T, N, 1].
    """
    X, X_new = tf.constant(problem.X), tf.constant(problem.X_new)
    nodes, weights = (tf.constant(v) for v in _QUADRATURE)
    weights /= tf.reduce_sum(weights)

    def one(draw: tuple[tuple[tf.Tensor, ...], tf.Tensor]) -> tuple[tf.Tensor, ...]:
        values, latents = draw
        bound = model.bind(values)
        kernel, bias = (tf.convert_to_tensor(w) for w in bound.decoder.weights)
        mean, variance = bound.latent_prior.predict(X_new, X, latents, tf.zeros_like(latents))
        variance += tf.convert_to_tensor(bound.latent_prior.code_noise_variance)
        at = mean[..., None] + tf.sqrt(variance)[..., None] * nodes  # [T, N', L = 1, nodes]
        at_new = tf.tanh(at * kernel[0][:, None] + bias[:, None])  # [T, N', P, nodes]
        return (
            tf.tanh(tf.matmul(latents, kernel) + bias),
            tf.reduce_sum(at_new * weights, -1),
            tf.reduce_sum(tf.square(at_new) * weights, -1),
        )

    draws = tuple(tf.constant(p) for p in parameters), tf.constant(codes)
    parts = tf.vectorized_map(one, draws, fallback_to_while_loop=False)
    train, new, new_square = (np.reshape(p, [len(p), -1]) for p in parts)
    return Quantities(train, train**2, new, new_square)
