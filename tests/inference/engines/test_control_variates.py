"""Control variates in an engine: where a round begins, a minibatch has all data's gradient."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.chains import of_chain
from gpflow_bae.inference.engines.bound_sampling import BoundSampling
from gpflow_bae.inference.engines.control_variates import Reference
from gpflow_bae.inference.engines.weight_sampling import WeightSampling
from tests.inference.amortized_models import SETTINGS, L, P, network, random_data, whitened

H, SEED = 0.02, tf.constant([3, 4])
CONTROLLED = {"batch_size": 3, "steps_per_batch": 1, "gradients": "control_variates"}


def chain_of(kind: Any, model: Any, data: Any, **settings: Any) -> inference.ChainSampling:
    """Without noise and friction from rest: a step adds h^2 times the gradient."""
    replaced = dataclasses.replace(
        SETTINGS, encoder=dataclasses.replace(SETTINGS.encoder, num_steps=0), **settings
    )
    prepared = prepare_data(model, data, replaced.batch_size)
    return kind(model, prepared, replaced, mcmc.sghmc.build(H, 1.0, temperature=0.0))


def sgp_bae_chain(**settings: Any) -> inference.ChainSampling:
    keras.utils.set_random_seed(1)
    return chain_of(inference.AmortizedSampling, whitened(), random_data(1, 12), **settings)


def tempered_chain(**settings: Any) -> inference.ChainSampling:
    keras.utils.set_random_seed(1)
    model = models.TemperedBAE(network(P, L), network(L, P))
    Y = np.random.default_rng(0).normal(size=[1, 12, P])
    return chain_of(WeightSampling, model, (None, Y), **settings)


def one_step(algorithm: inference.ChainSampling, number: int) -> tuple[Any, Any]:
    """What a round of a single step adds to the position, over h^2."""
    start = algorithm.initial_chain(SEED)
    seeds = tf.random.fold_in(SEED, number, alg="philox")[None]
    stacked = tf.nest.map_structure(lambda v: v[None], start)
    moved, statistics = algorithm.advance(stacked, seeds, tf.constant(0), tf.constant(False))
    assert statistics.finite.numpy().all()
    before, after = start.sampler.position, of_chain(moved, 0).sampler.position
    return start, tf.nest.map_structure(lambda a, b: (a - b) / H**2, after, before)


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("chain", [sgp_bae_chain, tempered_chain])
def test_the_first_step_of_a_round_follows_the_gradient_of_all_data(chain: Any) -> None:
    algorithm = chain(num_sampler_steps=1, **CONTROLLED)
    plain = chain(num_sampler_steps=1, batch_size=3, steps_per_batch=1)
    start, moved = one_step(algorithm, 7)
    _, without = one_step(plain, 7)
    full = algorithm.log_density_gradient(start.sampler.position, algorithm.data.gather(None))
    for found, other, expected in zip(
        moved.parameters, without.parameters, full.parameters, strict=True
    ):
        scale = np.abs(expected).max()
        # Differences of float32 positions of order 1, over h^2 = 4e-4.
        np.testing.assert_allclose(found, expected, atol=1e-3 + 1e-3 * scale)
        assert np.abs(other - expected).max() > 0.02 * scale
    if tf.is_tensor(moved.codes):
        np.testing.assert_allclose(moved.codes, without.codes, atol=1e-6)  # theirs have no error
        assert np.abs(moved.codes).max() > 0.0


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("chain", [sgp_bae_chain, tempered_chain])
def test_estimates_away_from_the_reference_have_the_full_gradient_as_their_mean(chain: Any) -> None:
    """Over all four batches of a partition, exactly; and they vary less than without."""
    algorithm = chain(**CONTROLLED)
    data = algorithm.data
    there = algorithm.initial_chain(SEED).sampler.position
    rng = np.random.default_rng(2)
    here = tf.nest.map_structure(lambda v: v + 0.05 * rng.normal(size=v.shape), there)
    full = algorithm.log_density_gradient(there, data.gather(None)).parameters

    def items(position: Any, rows: tf.Tensor) -> Any:
        if not tf.is_tensor(position.codes):
            return position
        return position._replace(codes=tf.gather(position.codes, rows, axis=1))

    estimates: dict[str, list[Any]] = {"with": [], "without": []}
    for start in range(0, 12, 3):
        rows = tf.range(start, start + 3)
        reference = Reference(items(there, rows), full)
        for name, used in (("with", reference), ("without", None)):
            target = algorithm.target(data.gather(rows), used)
            estimates[name].append(target.gradient(items(here, rows), SEED).parameters)
    expected = algorithm.log_density_gradient(here, data.gather(None)).parameters
    spread = {}
    for name, found in estimates.items():
        parts = [np.concatenate([np.ravel(v) for v in each]) for each in found]
        whole = np.concatenate([np.ravel(v) for v in expected])
        np.testing.assert_allclose(np.mean(parts, 0), whole, atol=2e-4 * np.abs(whole).max())
        spread[name] = np.mean(np.var(parts, 0))
    assert spread["with"] < 0.2 * spread["without"]


def test_where_they_are_of_no_use_they_are_refused() -> None:
    with pytest.raises(ValueError, match="every step sees all 12 items: set a smaller batch_size"):
        sgp_bae_chain(**(CONTROLLED | {"batch_size": None}))
    with pytest.raises(ValueError, match="set steps_per_batch=1"):
        inference.AmortizedSettings(gradients="control_variates")
    with pytest.raises(ValueError, match="gradients must be"):
        inference.AmortizedSettings(gradients="variates")
    assert not BoundSampling.has_control_variates
