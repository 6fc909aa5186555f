"""Predictions of the rotated-MNIST experiment, and their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import logsumexp

from experiments.common import plans
from experiments.rotated_mnist.models import Plan
from gpflow_bae import metrics, models
from gpflow_bae.data import as_inputs
from gpflow_bae.datasets.rotated_mnist import RotatedMNIST
from gpflow_bae.posteriors import Posterior, Prediction

NUM_CODES = 8  # draws of the codes for each posterior sample


def mean_squared_error(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return the mean squared error per pixel."""
    return float(np.mean(np.square(predicted - truth)))


def test_scores(
    prediction: Prediction, log_density: np.ndarray, truth: np.ndarray
) -> dict[str, float]:
    """Return error per pixel, coverage of 90 % intervals, log densities and epistemic variance.

    ``nll`` is that of the mixture over samples and codes; ``nll_moments`` and the intervals are
    those of the Gaussian with its mean and variance.

    :param log_density: log density of the pixels [1, N, P] under the mixture.
    """
    mean, variance = prediction.mean[0], prediction.variance[0]
    return {
        "mse": mean_squared_error(mean, truth),
        "coverage_90": metrics.coverage(truth, mean, variance, level=0.9),
        "nll": metrics.nll_from_log_density(truth, log_density[0]),
        "nll_moments": metrics.nll(truth, mean, variance),
        "epistemic_variance": float(prediction.epistemic_variance.mean()),
    }


def quick_mse(model: Any, data: RotatedMNIST) -> float:
    """Return the test error of decoded mean codes, which is cheap enough for a curve."""
    return mean_squared_error(_decode(model, data, latent_moments(model, data)[0])[0], data.test.Y)


def _decode(model: Any, data: RotatedMNIST, codes: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and noise variance of the test images, [N, P] each, given codes [1, N, L]."""
    mean, noise = model.observation_likelihood.moments(_function(model, data, codes))
    return mean.numpy()[0], noise.numpy()[0]


def _function(model: Any, data: RotatedMNIST, codes: tf.Tensor) -> tf.Tensor:
    """Return the decoder's outputs for the test images [1, N, P], for the likelihood."""
    conditional = isinstance(model, models.CVAE)
    return model.decode(data.test.X[None], codes) if conditional else model.decoder(codes)


def _draw_codes(model: Any, data: RotatedMNIST, seed: int, number: int) -> Iterator[tf.Tensor]:
    """Draw the test images' codes under a point-estimate model."""
    mean, variance = latent_moments(model, data)
    variance += getattr(getattr(model, "latent_prior", None), "code_noise", 0.0)
    rng = np.random.default_rng(seed)
    for _ in range(number):
        yield mean + tf.sqrt(variance) * rng.standard_normal(mean.shape)


def latent_moments(model: Any, data: RotatedMNIST) -> tuple[tf.Tensor, tf.Tensor]:
    """Return moments of the test images' codes [1, N, L] given X, under a point-estimate model."""
    inputs = getattr(model, "inputs", None)
    Xnew = as_inputs(data.test.X, inputs=inputs)
    if isinstance(model, models.DeepSVIGP):
        mean, variance = model.predict_f(Xnew[0])
        return mean[None], variance[None]
    if isinstance(model, models.SGPBAE):
        return model.latent_prior.given_inducing_outputs(Xnew)
    X = as_inputs(data.train.X, inputs=inputs)
    mean, variance = model.pseudo_observations(X, tf.constant(data.train.Y[None]), [0, 0])
    if isinstance(model, models.CVAE):
        return _mean_codes_by_object(mean, variance, data)
    return model.latent_prior.predict(Xnew, X, mean, variance)


def _mean_codes_by_object(
    mean: tf.Tensor, variance: tf.Tensor, data: RotatedMNIST
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return moments of a CVAE's code of an object, averaged over its images (Jazbec 2021)."""
    ids = tf.constant(data.train.X[:, 0], tf.int32)
    number = len(data.object_vectors)
    wanted = tf.constant(data.test.X[:, 0], tf.int32)
    codes = tf.math.unsorted_segment_mean(mean[0], ids, number)
    count = tf.math.unsorted_segment_sum(tf.ones_like(variance[0]), ids, number)
    spread = tf.math.unsorted_segment_sum(variance[0], ids, number) / tf.square(count)
    return tf.gather(codes, wanted)[None], tf.gather(spread, wanted)[None]


def predict_point(model: Any, data: RotatedMNIST, seed: int = 0) -> tuple[Prediction, np.ndarray]:
    """Predict test images under a point-estimate model, averaged over draws of the codes.

    :return: moments, and the log density of the test images [1, N, P] under the mixture of draws.
    """
    likelihood, draws = model.observation_likelihood, []
    for codes in _draw_codes(model, data, seed, 4 * NUM_CODES):
        F = _function(model, data, codes)
        density = likelihood.log_prob_of_cells(F, data.test.Y[None])
        draws.append([v.numpy() for v in (*likelihood.moments(F), density)])
    means, noises, densities = (np.stack(values) for values in zip(*draws, strict=True))
    prediction = Prediction(means.mean(0), noises.mean(0), means.var(0))
    return prediction, logsumexp(densities, axis=0) - np.log(len(densities))


def mixture(parts: Sequence[tuple[Prediction, np.ndarray]]) -> tuple[Prediction, np.ndarray]:
    """Return an ensemble's predictive moments and log density, given those of its members."""
    means, noises, spreads = (
        np.stack([getattr(prediction, name) for prediction, _ in parts])
        for name in ("mean", "noise_variance", "epistemic_variance")
    )
    density = logsumexp([density for _, density in parts], axis=0) - np.log(len(parts))
    return Prediction(means.mean(0), noises.mean(0), spreads.mean(0) + means.var(0)), density


def decode_one_draw(
    plan: Plan, model: Any, posterior: Posterior | None, data: RotatedMNIST
) -> np.ndarray:
    """Decode one draw of the codes from one posterior sample (Jazbec et al. 2021)."""
    if plan.has_samples:
        assert posterior is not None
        last = posterior.select([posterior.num_samples - 1])
        return last.predict(data.test.X[None], num_codes=1).mean[0]
    (draw,) = _draw_codes(model, data, 1, 1)
    return _decode(model, data, draw)[0]


def reconstruction_error(posterior: Posterior, data: RotatedMNIST) -> float:
    """Return the error of encoding and decoding images of new objects, without the prior."""
    mean, _ = plans.encode_and_decode(posterior, data.validation.Y[None])
    return mean_squared_error(mean[0], data.validation.Y)
