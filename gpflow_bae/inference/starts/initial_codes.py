"""Initial codes of a warm start: the linear projections that are smoothest under the prior."""

from __future__ import annotations

import functools

import gpflow
import numpy as np
import tensorflow as tf

from ...data import Observations
from ...data.compressed_rows import rows_seen
from ...kernels.reading import covariance_of_points, covariance_of_tasks
from ...latent_priors.base import UNINFORMATIVE_VARIANCE, GaussianLatentPrior
from ...latent_priors.kernel_prior import KernelLatentPrior

__all__ = ["smoothest_projections"]

MAX_POINTS = 5000
_MAX_COST = 2e11  # largest sum of N^3 over tasks


def smoothest_projections(
    prior: GaussianLatentPrior,
    data: Observations,
    num_components: int = 80,
    noise_variance: float = 0.1,
) -> np.ndarray:
    """Return uncorrelated, unit-variance linear projections of ``Y`` that are smoothest a priori.

    Among the whitened leading principal components W [T N, q] of ``Y``, the directions a that
    minimise sum_t a^T W_t^T (K_t + noise_variance I)^-1 W_t a with a^T a = 1, where K_t is the
    kernel matrix of task t at its initial hyperparameters. With a kernel over time they are the
    slow features of Wiskott and Sejnowski (2002); with K = I they are the principal components.
    An autoencoder that starts from random codes folds the latent space; these do not.

    For large data the smoothness is that of ``MAX_POINTS`` evenly spaced points of a task, and of
    as many tasks as a limit on the cost allows; all points have codes. A point without any
    observation (padding of a short task) has no part in the projections, and the code zero.

    :param prior: the model's prior; only its first kernel is used.
    :param num_components: number q of principal components to search.
    :return: codes [T, N, L] with zero mean and unit variance over points with an observation.
    :raises ValueError: if ``Y`` spans fewer dimensions than the codes have.
    """
    num_tasks, num_points, num_outputs = data.Y.shape
    rows = tf.cast(tf.reshape(data.Y, [-1, num_outputs]), gpflow.default_float())
    if data.mask is None:
        centred = rows - tf.reduce_mean(rows, 0)
    else:
        seen = tf.cast(tf.reshape(data.mask, [-1, num_outputs]), rows.dtype)
        centred = seen * (rows - tf.reduce_sum(rows, 0) / tf.reduce_sum(seen, 0))
    scale, U, _ = tf.linalg.svd(centred)
    rank = int(np.sum(scale.numpy() > 1e-8 * scale.numpy()[0]))
    width = min(num_components, rank)
    if width < prior.latent_dim:
        raise ValueError(
            f"Y spans {rank} dimensions, fewer than latent_dim = {prior.latent_dim}; lower "
            "latent_dim, or start without smoothest projections."
        )
    seen = tf.ones([num_tasks, num_points, 1], tf.bool)
    if data.mask is not None:
        seen = rows_seen(data.mask)
    whitened = U[:, :width] * np.sqrt(np.count_nonzero(seen))
    if not isinstance(prior, KernelLatentPrior):
        codes = whitened[:, : prior.latent_dim]
    else:
        tasks = tf.reshape(whitened, [num_tasks, num_points, width])
        X, tasks, seen = _subset(data.X, tasks, seen)
        kernel = prior.kernels[0]
        variances = covariance_of_points(kernel, functools.partial(kernel, full_cov=False), X)
        weights = tf.cast(seen[..., 0], variances.dtype)
        total = covariance_of_tasks(kernel, X)
        total /= tf.reduce_sum(weights * variances) / tf.reduce_sum(weights)
        total += tf.linalg.diag(noise_variance * weights + UNINFORMATIVE_VARIANCE * (1.0 - weights))
        shape = [tf.shape(tasks)[0], *total.shape[-2:]]
        solved = tf.linalg.solve(tf.broadcast_to(total, shape), tasks)
        roughness = tf.reduce_sum(tf.linalg.matmul(tasks, solved, transpose_a=True), 0)
        _, directions = tf.linalg.eigh(roughness)  # ascending: the smoothest first
        codes = tf.linalg.matmul(whitened, directions[:, : prior.latent_dim])
    return tf.reshape(codes, [num_tasks, num_points, prior.latent_dim]).numpy()


def _subset(
    X: tf.Tensor, tasks: tf.Tensor, seen: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return inputs, components and ``seen`` of a subset of points and tasks that is solved in
    seconds.
    """
    num_tasks, num_points, _ = tasks.shape
    if num_points > MAX_POINTS:
        chosen = np.linspace(0, num_points - 1, MAX_POINTS).astype(np.int32)
        X, tasks, seen = (tf.gather(v, chosen, axis=1) for v in (X, tasks, seen))
        num_points = MAX_POINTS
    most = max(1, int(_MAX_COST / num_points**3))
    if num_tasks > most:
        chosen = np.linspace(0, num_tasks - 1, most).astype(np.int32)
        tasks, seen = tf.gather(tasks, chosen), tf.gather(seen, chosen)
        X = X if X.shape[0] == 1 else tf.gather(X, chosen)
    return X, tasks, seen
