"""The certificate of a TemperedBAE, whose rows are its inputs too: no draws of data, but NUTS."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from experiments.certificates.problem import standard_normal
from experiments.certificates.study import Plan, agreement, beside_nuts, long_chains
from experiments.common import nuts, plans
from experiments.common.driver import Options, Outcome
from gpflow_bae import models
from gpflow_bae.base import Batch


def rows(seed: int) -> np.ndarray:
    """Forty points [40, 3] around a bent line, with noise of 0.1."""
    rng = np.random.default_rng([seed, 0xBA])
    line = np.tanh(rng.normal(size=(40, 1))) * np.array([1.0, -0.7, 0.4])
    return line + 0.1 * rng.normal(size=line.shape)


def build_model(seed: int) -> models.TemperedBAE:
    """One code, tanh(w y + b), and a linear decoder; N(0, 1) on weights; all in float64."""
    keras.utils.set_random_seed(seed)
    encode = keras.layers.Dense(1, activation="tanh", dtype="float64")
    decode = keras.layers.Dense(3, dtype="float64")
    encoder = keras.Sequential([keras.Input((3,), dtype="float64"), encode])
    decoder = keras.Sequential([keras.Input((1,), dtype="float64"), decode])
    return models.TemperedBAE(encoder, decoder, weight_prior=standard_normal)


def log_joint(model: models.TemperedBAE, Y: np.ndarray) -> tuple[Any, list[tf.Tensor]]:
    """log p(parameters, Y) of vectors [C, D], and pieces with the shapes of one state."""
    like, batch = list(model.sampled.values()), Batch(None, tf.constant(Y), None)

    def one(values: Sequence[tf.Tensor]) -> tf.Tensor:
        return model.sampled.log_prior(values) + model.bind(values).data_log_likelihood(batch)

    return nuts.flat(one, like), like


def run(plan: Plan, options: Options) -> Outcome:
    """Four long chains, and NUTS, on one table."""
    Y, model = rows(options.seed), build_model(options.seed)
    posterior = long_chains(plan, model, (None, Y), options)
    own = posterior.reconstructions(Y).reshape(4 * plan.num_draws, -1)
    metrics = plans.chain_temperatures(posterior) | agreement(own)
    started = time.perf_counter()
    density, like = log_joint(model, Y)
    vectors, _, _ = nuts.sample_vectors(
        density, like, 4, plan.num_warmup, plan.num_draws, options.seed
    )
    seconds = {"sampling": posterior.seconds["sampling"], "nuts": time.perf_counter() - started}
    values = [tf.constant(v) for v in nuts.unpacked(vectors, like)]
    reference = model.map_samples(lambda bound: bound.reconstruct(tf.constant(Y)), values)
    reference = np.reshape(reference, own.shape)
    metrics |= beside_nuts(own, reference, seconds["nuts"])
    metrics["ess_per_second"] = metrics.pop("ess") / seconds["sampling"]
    return Outcome(
        metrics=metrics, num_parameters=posterior.model.sampled.num_scalars, seconds=seconds
    )
