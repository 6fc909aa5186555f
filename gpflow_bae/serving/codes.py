"""Codes at one posterior sample: of rows by the encoder, and at new inputs by the prior."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ..base import Batch
from ..data.compressed_rows import rows_seen
from ..encoders import RowCodes
from ..latent_priors import DeepSparseGP
from ..latent_priors.inducing import (
    InducingLatentPrior,
    InducingPosterior,
    weighted_codes,
)
from ..mcmc.noise import standard_noise
from ..models import Autoencoder
from ..posteriors.conditionals import conditioned
from ..posteriors.sample_loop import SampleLoop
from .bank import SampleBank

__all__ = [
    "conditioned_constants",
    "encode_rows",
    "generation_kind",
    "inputs_seen",
    "prior_codes",
    "prior_variances",
]

_ROWS_FOR_PRIOR_VARIANCE = 1000


def encode_rows(
    bank: SampleBank,
    model: Any,
    index: tf.Tensor,
    rows: dict[str, tf.Tensor],
    mask: tf.Tensor | None,
    seed: tf.Tensor,
    num_draws: int,
) -> RowCodes:
    """Encode each row separately with the encoder of sample ``index``.

    All rows share their noise, so that the result of a row depends only on the row and the seed,
    not on other rows that a server puts into the same batch.

    A variational encoder emits a pseudo-observation of the code, not its posterior. The prior is
    included with its variance averaged over the training inputs, which is exact for a standard
    normal prior, and for a single row under a stationary kernel.

    :param model: the bank's model at that sample.
    :param rows: ``y [rows, P]``, zeros where missing, and ``x`` for a conditional model.
    :param mask: [rows, P], True where observed; None if nothing is missing.
    """
    prior_variance = None
    if isinstance(model, Autoencoder) and model.guide.uses_prior_variance:
        prior_variance = bank.constant("prior_variance", index)

    def noise(shape: tuple[int, ...], dtype: tf.DType) -> tf.Tensor:
        return _noise(shape, seed, dtype)

    batch = Batch(rows.get("x"), rows["y"], mask)
    return model.codes_of_rows(batch, noise, num_draws, prior_variance)


def _noise(shape: tuple[int, ...], seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Draw standard normals; a graph constant if the seed is known when it is traced."""
    if tf.is_symbolic_tensor(seed):
        return standard_noise(shape, seed, dtype)
    with tf.init_scope():
        values = standard_noise(shape, seed, dtype).numpy()
    return tf.constant(values)


def inputs_seen(posterior: Any) -> np.ndarray | None:
    """Return training inputs [rows, D] of rows with an observation, of all tasks; None without."""
    X, mask = posterior.X, posterior.mask
    if X is None:
        return None
    X = np.broadcast_to(X, [*np.shape(posterior.Y)[:2], X.shape[-1]])
    seen = np.ones(X.shape[:2], bool) if mask is None else np.asarray(rows_seen(mask))[..., 0]
    return X[seen]


def prior_variances(posterior: Any, samples: list[int]) -> np.ndarray:
    """Return the prior variance of codes, averaged over training inputs, per sample: [S, L].

    Of many inputs some are used, from all tasks.
    """
    X = inputs_seen(posterior)
    if X is not None:
        chosen = np.linspace(0, len(X) - 1, min(len(X), _ROWS_FOR_PRIOR_VARIANCE))
        X = tf.constant(X[chosen.astype(int)])
    width = posterior.model.latent_dim
    seen = Batch(posterior.X, tf.convert_to_tensor(posterior.Y), posterior.mask)

    def of_sample(values: list[tf.Tensor]) -> tf.Tensor:
        variance = posterior.model.bind(values).prior_for(seen).marginal_variance(X)
        shape = tf.broadcast_dynamic_shape(tf.shape(variance), [1, width])
        return tf.reduce_mean(tf.reshape(tf.broadcast_to(variance, shape), [-1, width]), 0)

    parameters = posterior.select(samples).parameters
    return SampleLoop(of_sample).map((parameters,), dtypes=gpflow.default_float())


def generation_kind(posterior: Any) -> tuple[str | None, str]:
    """Return how codes at new inputs are computed, or None and the reason that they cannot be."""
    model = posterior.model
    name = model.latent_prior_name
    if not model.needs_inputs:
        return None, f"{name} is a prior without inputs, so there is no x to generate from"
    prior = model.latent_prior
    if model.inputs is not None and model.inputs.needs_observations:
        return None, "vectors of objects are made of observations of them, which x does not hold"
    if not prior.needs_inputs:
        return "standard", ""  # a conditional autoencoder, whose networks take the inputs
    if isinstance(prior, DeepSparseGP) and prior.whitened_inducing is not None:
        return "deep", ""
    if not isinstance(prior, InducingLatentPrior):
        return None, f"{name} predicts from all training codes at once, which are not exported"
    if prior.whitened_inducing is not None:
        return "inducing", ""
    tasks = int(np.shape(posterior.Y)[0])
    if tasks == 1:
        return "conditioned", ""
    return None, (
        f"each of the {tasks} training tasks has inducing outputs of its own under {name}, and a "
        "new task none before it is observed"
    )


def conditioned_constants(posterior: Any, samples: list[int]) -> dict[str, np.ndarray]:
    """Return inducing outputs given the training data, per sample: mean [S, L, M] and factor.

    For a single task with integrated inducing outputs. The prior is conditioned once here, so that
    the training data need not be exported.
    """
    model, X, mask = posterior.model, posterior.X, posterior.mask
    Y = tf.convert_to_tensor(posterior.Y)

    def of_sample(values: list, encoder: list, codes: list, seed: tf.Tensor) -> tuple:
        prior, pseudo = conditioned(model, values, encoder, codes, seed, (X, Y, mask), 16)
        inducing = prior.inducing_posterior(X, *pseudo)
        return inducing.mean[0], inducing.factor[0]

    chosen = posterior.select(samples)
    codes = [] if chosen.latents is None else [chosen.latents]
    seeds = np.array([[0, s] for s in samples], np.int32)
    means, factors = SampleLoop(of_sample).map(
        (chosen.parameters, chosen.encoder, codes, seeds), dtypes=(gpflow.default_float(),) * 2
    )
    return {
        "inducing_mean": means.astype(np.float32),
        "inducing_factor": factors.astype(np.float32),
    }


def prior_codes(
    bank: SampleBank, model: Any, index: tf.Tensor, kind: str, x: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and variance [rows, L] of codes at ``x [rows, D]``, code noise included."""
    prior = model.latent_prior
    x = tf.cast(x, gpflow.default_float())
    if model.inputs is not None:
        x = model.inputs.prepare_tensor(x)
    if kind == "inducing":
        return prior.given_inducing_outputs(x)
    if kind == "conditioned":
        mean, factor = (bank.constant(f"inducing_{k}", index) for k in ("mean", "factor"))
        features, left = prior._features(x)
        inducing = InducingPosterior(mean, factor, tf.zeros([], mean.dtype))
        variance = tf.linalg.matrix_transpose(left + prior._spread(inducing, features))
        mean = prior.shifted(weighted_codes(features, mean), x)
        return mean, variance + prior.code_noise
    unknown = tf.zeros(tf.stack([tf.shape(x)[0], model.latent_dim]), x.dtype)
    unknown = tf.ensure_shape(unknown, [None, model.latent_dim])
    mean, variance = prior.predict(x, x, unknown, tf.ones_like(unknown))
    return mean, variance + prior.code_noise
