"""TFP's No-U-Turn sampler on a model's joint density of parameters and codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae import models
from gpflow_bae.base import Batch
from gpflow_bae.core import functional

tfm = tfp.mcmc


def flat_log_joint(
    model: models.BayesianAutoencoder, X: np.ndarray, Y: np.ndarray
) -> tuple[Any, list[tf.Tensor]]:
    """Return log p(parameters, latents, Y) of vectors [C, D], and tensors shaped like one state.

    :param X: inputs [T, N, D].
    :param Y: observations [T, N, P], none of them missing.
    """
    like = [*model.sampled.values(), tf.zeros([*Y.shape[:-1], model.latent_dim], tf.float64)]
    batch = Batch(tf.constant(X), tf.constant(Y), None)

    def one(values: Sequence[tf.Tensor]) -> tf.Tensor:
        *parameters, latents = values
        state = models.State(tuple(parameters), latents)
        return model.log_prior(state) + model.log_likelihood(state, batch)

    return flat(one, like), like


def flat(
    log_density: Callable[[Sequence[tf.Tensor]], tf.Tensor], like: list[tf.Tensor]
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a log density of vectors [C, D], given one of tensors shaped like ``like``."""

    def densities(vectors: tf.Tensor) -> tf.Tensor:
        return tf.vectorized_map(
            lambda vector: log_density(functional.unflatten(vector, like)),
            vectors,
            fallback_to_while_loop=False,
        )

    return densities


def unpacked(vectors: np.ndarray, like: Sequence[tf.Tensor]) -> list[np.ndarray]:
    """Split draws of :func:`sample_vectors` into tensors [C S, ...], chain after chain."""
    flat = np.reshape(np.swapaxes(vectors, 0, 1), [-1, vectors.shape[-1]])
    pieces = np.split(flat, np.cumsum([int(np.prod(v.shape)) for v in like])[:-1], axis=1)
    return [np.reshape(piece, [-1, *v.shape]) for piece, v in zip(pieces, like, strict=True)]


def sample_vectors(
    log_joint: Any,
    like: list[tf.Tensor],
    num_chains: int,
    num_warmup: int,
    num_draws: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sample vectors [draws, C, D] of a log density, and return divergences and acceptances too.

    :param like: tensors with the shapes of a vector's parts, near whose values chains start.
    """
    start_seed, chain_seed = np.array([seed, 0], np.int32), np.array([seed, 1], np.int32)
    noise = tf.random.stateless_normal(
        [num_chains, int(sum(np.prod(v.shape) for v in like))],
        start_seed,
        dtype=tf.float64,
        alg="philox",
    )
    start = functional.flatten(like) + 0.3 * noise
    kernel = tfm.DualAveragingStepSizeAdaptation(
        tfm.NoUTurnSampler(log_joint, step_size=np.float64(0.1), max_tree_depth=7),
        num_adaptation_steps=int(0.8 * num_warmup),
        target_accept_prob=np.float64(0.85),
    )

    def trace(_: tf.Tensor, results: Any) -> tuple[tf.Tensor, tf.Tensor]:
        inner = results.inner_results
        return inner.has_divergence, tf.exp(tf.minimum(inner.log_accept_ratio, 0.0))

    # With XLA, because leapfrog steps of thirty scalars are mostly overhead otherwise.
    run = tf.function(
        lambda: tfm.sample_chain(
            num_draws,
            start,
            kernel=kernel,
            num_burnin_steps=num_warmup,
            trace_fn=trace,
            seed=chain_seed,
        ),
        autograph=False,
        jit_compile=True,
    )
    vectors, (divergent, acceptance) = run()
    return vectors.numpy(), divergent.numpy(), acceptance.numpy()
