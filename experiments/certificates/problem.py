"""Sampled models small enough for hundreds of chains, and draws of all they have from their priors.

One task of twelve points with three outputs, one code each, a decoder tanh(w z + b) and Gaussian
noise. Sampled are decoder weights, lengthscales, noise variance, inducing outputs and codes;
kernels' variances, inducing inputs and code noise are fixed, because only products of scales are
determined by data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae import decoders, encoders, likelihoods, models

NUM_POINTS, NUM_OUTPUTS, NUM_INDUCING = 12, 3, 5
CODE_NOISE = 0.05
MODELS = ("bae", "gp_bae", "sgp_bae", "sgp_bae_minibatch", "dsgp_bae")


class Truth(NamedTuple):
    """Everything that a model says there is."""

    parameters: tuple[np.ndarray, ...]  # unconstrained, in the order of model.sampled.paths
    codes: np.ndarray  # [1, N, 1]
    Y: np.ndarray  # [1, N, P]


def inputs() -> np.ndarray:
    """The inputs of the task [1, N, 1]."""
    return np.linspace(0.0, 5.0, NUM_POINTS)[None, :, None]


def standard_normal(shape: tuple[int, ...]) -> Any:
    """The prior of weights."""
    # Of a shape, because the fused density of a scalar normal has no rule for vectorized_map.
    return tfp.distributions.Normal(np.zeros(shape), np.ones(shape))


def _kernel(variance: float, lengthscale: float) -> gpflow.kernels.Kernel:
    kernel = gpflow.kernels.Matern32(variance=variance, lengthscales=lengthscale)
    kernel.lengthscales.prior = tfp.distributions.LogNormal(
        np.log(lengthscale), np.array(0.3, np.float64)
    )
    gpflow.set_trainable(kernel.variance, False)
    return kernel


def build_model(name: str, seed: int = 0) -> models.BayesianAutoencoder:
    """A model of :data:`MODELS`, with everything in float64.

    ``sgp_bae_minibatch`` is that whose inducing outputs are sampled, as minibatches need it, and
    whose codes are whitened given them; so is ``dsgp_bae``, with two layers.
    """
    keras.utils.set_random_seed(seed)
    dense = keras.layers.Dense(NUM_OUTPUTS, activation="tanh", dtype="float64")
    decoder = keras.Sequential([keras.Input((1,), dtype="float64"), dense])
    encoder = keras.Sequential([keras.Input((2 * NUM_OUTPUTS,)), keras.layers.Dense(1)])
    likelihood = likelihoods.Gaussian(0.1)
    likelihood.variance.prior = tfp.distributions.LogNormal(np.log(0.1), np.array(0.5, np.float64))
    common: dict[str, Any] = {
        "decoder": decoders.KerasDecoder(decoder, standard_normal),
        "encoder": encoders.StochasticEncoder(encoder),
        "likelihood": likelihood,
        "latent_dim": 1,
    }
    Z = np.linspace(0.0, 5.0, NUM_INDUCING)[:, None]
    noise = {"code_noise_variance": CODE_NOISE}
    model: models.BayesianAutoencoder
    if name == "bae":
        model = models.BAE(**common)
    elif name == "gp_bae":
        model = models.GPBAE(_kernel(1.0, 1.5), **common, **noise)
    elif name == "sgp_bae":
        model = models.SGPBAE(_kernel(1.0, 1.5), Z, **common, **noise)
    elif name == "sgp_bae_minibatch":
        whitened: dict[str, Any] = {"inducing_outputs": "sampled", "whitened_codes": True}
        model = models.SGPBAE(_kernel(1.0, 1.5), Z, **common, **noise, **whitened)
    else:
        kernels = [_kernel(0.2, 1.5), _kernel(1.0, 1.5)]
        model = models.DSGPBAE(kernels, Z, whitened_codes=True, **common, **noise)
    for path, parameter in gpflow.utilities.parameter_dict(model).items():
        if path.endswith((".Z", ".code_noise_variance")):
            gpflow.set_trainable(parameter, False)
    inducing = model.latent_prior.whitened_inducing
    if inducing is not None:
        inducing.prior = standard_normal(tuple(inducing.shape))
    return model


def draw_from_prior(model: models.BayesianAutoencoder, seed: int) -> Truth:
    """Parameters, codes given them, and observations given both."""
    rng = np.random.default_rng([seed, 0xCE])
    parameters = []
    for parameter in model.sampled.parameters:
        value = parameter.prior.sample(seed=rng.integers(0, 2**31, 2).tolist())
        value = tf.broadcast_to(tf.cast(value, parameter.dtype), parameter.shape)
        transform = parameter.transform
        parameters.append(value if transform is None else transform.inverse(value))
    X = tf.constant(inputs())
    bound = model.bind(parameters, seed=tf.constant(rng.integers(0, 2**31, 2), tf.int32))
    codes = tf.constant(rng.standard_normal([1, NUM_POINTS, 1]))
    covariance = None if model.whitened_codes else bound.latent_prior.code_covariance(X)
    if model.whitened_codes:
        codes = bound.from_whitened(X, codes)
    elif covariance is not None:
        codes = tf.linalg.matmul(tf.linalg.cholesky(covariance)[:, 0], codes)
    F = bound.decode(X, codes)
    _, variance = bound.likelihood.moments(F)
    Y = F + tf.sqrt(variance) * rng.standard_normal(F.shape)
    return Truth(tuple(p.numpy() for p in parameters), codes.numpy(), Y.numpy())
