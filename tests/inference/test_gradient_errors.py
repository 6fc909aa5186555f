"""Gradients with a draw of their error, from the halves of an engine's minibatches, and chains that
inject so much less noise.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference, likelihoods, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.control_variates import Reference
from gpflow_bae.inference.coordinates import target_in
from gpflow_bae.mcmc.gradient_noise import noise_variance, with_estimated_noise_subtracted
from tests.inference.amortized_models import SETTINGS, L, P, network, random_data, sgp_bae, whitened

SEED = tf.constant([3, 4])
FRESH = {"batch_size": 4, "steps_per_batch": 1}


def subtracting(h: float = 0.02, a: float = 0.3) -> mcmc.SamplingAlgorithm:
    return with_estimated_noise_subtracted(mcmc.sghmc.build(h, a, integrator="baoab"))


def case(name: str, **settings: Any) -> inference.ChainSampling:
    """Minibatches of points, of points with whitened codes, of tasks, and of rows without codes."""
    keras.utils.set_random_seed(1)
    model, data = {
        "points": lambda: (sgp_bae(3, "sampled"), random_data(1, 6)),
        "whitened": lambda: (whitened(), random_data(1, 6)),
        "tasks": lambda: (sgp_bae(), random_data(6, 3)),
        "rows": lambda: (
            models.TemperedBAE(network(P, L), network(L, P)),
            (None, np.random.default_rng(0).normal(size=[1, 6, P])),
        ),
    }[name]()
    replaced = dataclasses.replace(SETTINGS, **{**FRESH, **settings})
    kind = inference.sampling_algorithm(model)
    prepared = prepare_data(model, data, replaced.batch_size)
    return kind(model, prepared, replaced, subtracting())


def items(algorithm: Any, position: Any, rows: Any) -> Any:
    if not tf.is_tensor(position.codes):
        return position
    return position._replace(codes=tf.gather(position.codes, rows, axis=algorithm.data.axis))


def flat(parts: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in parts])


@pytest.mark.parametrize("scale_codes", [False, True])
@pytest.mark.parametrize("name", ["points", "whitened", "tasks", "rows"])
def test_the_gradient_of_both_halves_is_that_of_the_batch(name: str, scale_codes: bool) -> None:
    algorithm = case(name, scale_codes=scale_codes)
    rows = tf.constant([4, 0, 3, 5])
    position = items(algorithm, algorithm.initial_chain(SEED).sampler.position, rows)
    target = algorithm.target(algorithm.data.gather(rows))
    whole, (found, error) = (
        f(position, SEED) for f in (target.gradient, target.gradient_and_error)
    )
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(whole), strict=True):
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, atol=1e-5 * scale)
        assert scale > 0.0
    assert not np.any(flat(tf.nest.flatten(error.codes) or [0.0]))
    assert np.abs(flat(error.parameters)).max() > 0.01 * np.abs(flat(whole.parameters)).max()
    assert algorithm.target(algorithm.data.gather(rows[:3])).gradient_and_error is None
    assert algorithm.target(algorithm.data.gather(None)).gradient_and_error is None


@pytest.mark.parametrize("controlled", [False, True])
@pytest.mark.parametrize("name", ["whitened", "rows"])
def test_squared_errors_have_the_variance_of_the_gradient_as_their_mean(
    name: str, controlled: bool
) -> None:
    """Over all minibatches of 2 of 6 items, exactly; with control variates it is far smaller."""
    algorithm = case(name, batch_size=2)
    data = algorithm.data
    there = algorithm.initial_chain(SEED).sampler.position
    rng = np.random.default_rng(2)
    here = tf.nest.map_structure(lambda v: v + 0.02 * rng.normal(size=v.shape), there)
    full = algorithm.log_density_gradient(there, data.gather(None)).parameters
    gradients, errors = [], []
    for pair in itertools.combinations(range(6), 2):
        rows = tf.constant(pair)
        reference = Reference(items(algorithm, there, rows), full) if controlled else None
        target = algorithm.target(data.gather(rows), reference)
        position = items(algorithm, here, rows)
        gradient, error = target.gradient_and_error(position, SEED)
        gradients.append(flat(gradient.parameters))
        errors.append(flat(error.parameters))
    variance, found = np.var(gradients, 0), np.mean(np.square(errors), 0)
    np.testing.assert_allclose(found, variance, rtol=2e-3, atol=1e-5 * variance.max())


def test_errors_in_coordinates_are_those_of_the_gradient_there() -> None:
    """A linear map mixes elements, and the variance is that of what the sampler sees."""
    algorithm = case("rows", coordinates="fisher", burnin=16)
    state, rows = algorithm.initial(), tf.constant([4, 0, 3, 5])
    for number in range(2):
        state, _ = algorithm.round(state, number)
    chain = inference.chains.of_chain(state, 0)
    coordinates = inference.coordinates.Coordinates(chain.metric.parameters, None)
    natural = algorithm.target(algorithm.data.gather(rows))
    target = target_in(coordinates, natural)
    position = chain.sampler.position
    _, error = natural.gradient_and_error(position, SEED)
    found, own = target.gradient_and_error(coordinates.from_natural(position), SEED)
    expected = coordinates.gradient(error)
    # Of numbers up to ten, from networks in float32 that processors round in ways of their own.
    np.testing.assert_allclose(
        flat(own.parameters), flat(expected.parameters), rtol=1e-3, atol=2e-4
    )
    there = target.gradient(coordinates.from_natural(position), SEED)
    scale = np.abs(flat(there.parameters)).max()
    np.testing.assert_allclose(flat(found.parameters), flat(there.parameters), atol=1e-4 * scale)
    assert not np.allclose(flat(own.parameters), flat(error.parameters), rtol=0.1)


def run(**options: Any) -> Any:
    keras.utils.set_random_seed(1)
    model = models.TemperedBAE(network(P, L), network(L, P))
    data = (None, np.random.default_rng(0).normal(size=[1, 6, P]))
    schedule = dataclasses.replace(
        SETTINGS, num_sampler_steps=2, burnin=2, num_samples=2, thinning=2, **FRESH
    )
    schedule = dataclasses.replace(schedule, gradients="control_variates")
    options = {"sampler": subtracting(), "warm_start": None, "progress": False} | options
    return inference.sample_amortized(model, data, schedule, seed=3, **options)


@pytest.mark.usefixtures("untraced")
def test_resumed_and_alone_a_chain_is_the_same(tmp_path: pathlib.Path) -> None:
    """Bit by bit, with control variates: the running means are in the checkpoint."""
    two, folder = run(num_chains=2).bank, str(tmp_path / "run")
    run(out_dir=folder, max_samples=1, checkpoint_every=1)
    resumed = run(out_dir=folder, resume=True).bank
    _, arrays = two.contents()
    _, found = resumed.contents()
    assert len(arrays) > 8
    for key, value in arrays.items():
        np.testing.assert_array_equal(found[key], value[:1], err_msg=key)
    assert two.settings["sampler_settings"]["estimated_noise_decay"] == 0.99
    with pytest.raises(ValueError, match="settings"):  # the same sampler, without
        run(out_dir=folder, resume=True, sampler=mcmc.sghmc.build(0.02, 0.3, integrator="baoab"))


@pytest.mark.usefixtures("untraced")
def test_state_of_a_checkpoint_holds_the_running_means() -> None:
    """Those of parameters, with weights that sum to 1; codes have none."""
    algorithm = case("whitened")
    state, _ = algorithm.round(algorithm.initial(), 0)
    again = algorithm.restore(algorithm.arrays(state))
    for one, other in zip(tf.nest.flatten(state), tf.nest.flatten(again), strict=True):
        np.testing.assert_array_equal(one, other)
    found = noise_variance(inference.chains.of_chain(again, 0).sampler)
    assert all(np.any(v > 0.0) for v in found.parameters) and not np.any(found.codes)
    weight = float(again.sampler.shared["squared_error_weight"][0])
    assert weight == pytest.approx(1.0 - 0.99**SETTINGS.num_sampler_steps)


def test_chains_are_at_their_temperature_again() -> None:
    """All weights of a small autoencoder; the one that subtracts is compiled by XLA.

    The 27 numbers of its decoder forget their momenta in ten steps or so: their temperature over
    2000 steps is known to 2 or 3 %. (Its encoder's are hot with all data too, for their step.)
    """
    rng = np.random.default_rng(0)
    Y = np.tanh(rng.normal(size=[64, 2]) @ rng.normal(size=[2, P])) + 0.3 * rng.normal(size=[64, P])
    settings = inference.AmortizedSettings(
        num_sampler_steps=100, burnin=500, num_samples=20, thinning=100, **FRESH
    )
    plain = mcmc.sghmc.build(0.006, 0.1, integrator="baoab")
    found = []
    for sampler in (plain, with_estimated_noise_subtracted(plain)):
        keras.utils.set_random_seed(0)
        posterior = inference.sample_amortized(
            models.TemperedBAE(network(P, L), network(L, P)),
            (None, Y),
            dataclasses.replace(settings, batch_size=8),
            sampler=sampler,
            warm_start=None,
            progress=False,
            jit_compile=sampler is not plain,
        )
        blocks = posterior.kinetic_temperatures
        sizes = {".decoder.weights[0]": 8, ".decoder.weights[1]": 4}
        sizes |= {".decoder.weights[2]": 12, ".decoder.weights[3]": 3}
        found.append(sum(size * np.mean(blocks[k]) for k, size in sizes.items()) / 27)
    assert found[0] > 1.3
    assert found[1] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": None, "steps_per_batch": None}, "every step sees all 6 items, without"),
        ({"batch_size": 6}, "set a smaller batch_size, or take the sampler itself"),
        ({"batch_size": 3}, "halves of each minibatch, got batch_size=3: set an even one"),
        ({"steps_per_batch": None}, "steps_per_batch=None: set steps_per_batch=1"),
        ({"steps_per_batch": 2}, "steps_per_batch=2: set steps_per_batch=1, a fresh minibatch"),
    ],
)
def test_where_there_is_nothing_to_compare_it_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        case("points", **changes)


def test_engines_without_errors_of_gradients_say_so() -> None:
    model = models.VAE(network(L, P), network(P, 2 * L), likelihoods.Gaussian(0.3), latent_dim=L)
    with pytest.raises(ValueError, match="which the engine of a VAE does not have: take the sampl"):
        inference.BoundSampling(
            model,
            prepare_data(model, (None, random_data(1, 6)[1][0])),
            dataclasses.replace(SETTINGS, **FRESH),
            subtracting(),
        )
