"""Nonnegative factors over space (Townes and Engelhardt, Nature Methods 2023), by GPflow's SVGP.

The rate of gene p at place x is sum_l w_pl exp(f_l(x)) with a Gaussian process for each factor and
loadings w above 0. The paper's factors have inducing points and a Gaussian q(u) each and no
encoder: that is GPflow's sparse variational model, and everything after its functions is a
likelihood. Counts are negative binomial here, as their log density is what is scored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import tensorflow as tf
from scipy.cluster.vq import kmeans2

from gpflow_bae.decoders import ConditionalDecoder
from gpflow_bae.likelihoods import DecoderLikelihood, NegativeBinomial

_DRAWS, _PREDICTION_DRAWS = 1, 256
_INDUCING, _LARGEST_BATCH = 100, 2000
_STARTS = (0.15, 1.2)  # lengthscales in extents of the tissue, from short to long


@keras.saving.register_keras_serializable("gpflow_bae_experiments")
class PositiveLoadings(keras.layers.Layer):
    """log sum_l w_pl exp(z_l), by the logarithms of w."""

    def __init__(self, units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape: tuple[int | None, ...]) -> None:
        """One loading for each factor and gene."""
        self.log_loadings = self.add_weight(shape=(shape[-1], self.units), name="log_loadings")

    def call(self, logs: tf.Tensor) -> tf.Tensor:
        """[rows, L] to [rows, P]."""
        largest = tf.reduce_max(logs, -1, keepdims=True)
        total = tf.matmul(tf.exp(logs - largest), tf.exp(self.log_loadings))
        return tf.math.log(total) + largest


class Factors(NamedTuple):
    """A fit: the model of inputs [places, size], and how places are scaled."""

    model: gpflow.models.SVGP
    centre: np.ndarray
    unit: float
    losses: list[float]

    def inputs(self, places: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """X [N, D + 1]."""
        return np.concatenate([(places - self.centre) / self.unit, sizes[:, None]], 1)

    def predicted(
        self, X: np.ndarray, counts: np.ndarray, seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of cells: log predictive density of their counts [N, P], expected ones [N, P], and draws
        of them [S, N, P].
        """
        mean, variance = self.model.predict_f(X)
        rng = np.random.default_rng([seed, 0x4F])
        noise = rng.standard_normal((_PREDICTION_DRAWS, *mean.shape))
        decoder, likelihood = self.model.likelihood.decoder, self.model.likelihood.observation
        at = np.broadcast_to(X, (len(noise), *X.shape))
        F = decoder(mean + tf.sqrt(variance) * noise, at)
        Y = np.broadcast_to(counts, F.shape)
        of_draws = likelihood.log_prob_of_cells(F, Y).numpy().astype(float)
        density = np.logaddexp.reduce(of_draws, 0) - np.log(len(of_draws))
        draws = likelihood.draw(F, tf.constant([seed, 0x4F], tf.int32)).numpy()
        return density, likelihood.moments(F)[0].numpy().mean(0), draws

    def at(self, places: np.ndarray) -> np.ndarray:
        """Means of the factors' logarithms [N, L]."""
        X = self.inputs(places, np.ones(len(places)))
        found: np.ndarray = self.model.predict_f(X)[0].numpy()
        return found


def fit(
    places: np.ndarray,
    counts: np.ndarray,
    sizes: np.ndarray,
    *,
    num_factors: int,
    num_steps: int,
    seed: int,
) -> Factors:
    """Climbs the bound by Adam, in minibatches of a thousand where there are many cells.

    :param counts: [N, P], NaN where hidden.
    """
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng([seed, 0x4E5F])
    N, D, P = len(places), places.shape[1], counts.shape[1]
    centre, unit = places.mean(0), float(np.max(np.ptp(places, axis=0)))
    network = keras.Sequential([keras.Input((num_factors,)), PositiveLoadings(P)])
    seen = ~np.isnan(counts) * sizes[:, None]
    rates = (np.nansum(counts, 0) + 0.5) / (seen.sum(0) + 0.5)
    spread = rng.normal(0.0, 0.5, (num_factors, P))  # so that factors are not alike at the start
    network.set_weights([np.log(rates / num_factors) + spread])
    decoder = ConditionalDecoder(network, size_column=D)
    kernels = [
        gpflow.kernels.Matern32(lengthscales=length, active_dims=list(range(D)))
        for length in np.geomspace(*_STARTS, num_factors)
    ]
    scaled = (places - centre) / unit
    number = min(_INDUCING, N // 4)
    Z = np.concatenate([kmeans2(scaled, number, minit="++", seed=seed)[0], np.ones((number, 1))], 1)
    points = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(Z)
    )
    gpflow.set_trainable(points, False)
    number_of_step = tf.Variable(0, trainable=False)
    model = gpflow.models.SVGP(
        gpflow.kernels.SeparateIndependent(kernels),
        DecoderLikelihood(decoder, NegativeBinomial(np.full(P, 0.5)), _DRAWS, number_of_step),
        points,
        num_latent_gps=num_factors,
        num_data=N,
    )
    found = Factors(model, centre, unit, [])
    X, Y = found.inputs(places, sizes), counts.astype(float)
    data = tf.data.Dataset.from_tensor_slices((X, Y))
    size = N if N <= _LARGEST_BATCH else _LARGEST_BATCH // 2
    batches = iter(data.repeat().shuffle(N, seed=seed).batch(size))
    optimizer = keras.optimizers.Adam(
        keras.optimizers.schedules.CosineDecay(1e-2, num_steps, alpha=0.05)
    )
    variables = model.trainable_variables
    optimizer.build(variables)

    @tf.function
    def step(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = -model.elbo(batch)  # loadings by likelihood, as in the paper
        optimizer.apply(tape.gradient(loss, variables), variables)
        number_of_step.assign_add(1)
        return loss

    for _ in range(num_steps):
        found.losses.append(float(step(next(batches))) / N)
    return found
