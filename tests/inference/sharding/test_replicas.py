"""Replicas that share minibatches or chains: what they make is what one makes."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.workers import free_ports
from gpflow_bae import inference, likelihoods, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.engines.bound_sampling import BoundSampling
from gpflow_bae.inference.engines.weight_sampling import WeightSampling
from gpflow_bae.inference.sharding.replicas import ALONE, Replicas, replicas_of
from gpflow_bae.inference.sharding.spread import Spread
from gpflow_bae.inference.sharding.workers import Workers
from tests.inference import amortized_models as made
from tests.inference.sharding import replicas_program

ROOT = pathlib.Path(__file__).resolve().parents[3]
SEED = tf.constant([3, 4])


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    keras.utils.set_random_seed(0)
    yield


def replicas(count: int = 2) -> Replicas:
    """So many on one device, one after the other."""
    return Replicas(Workers(1, 0, "CPU:0"), ("CPU:0",) * count)


def gp_vae() -> models.GPVAE:
    kernel = gpflow.kernels.SquaredExponential()
    networks = made.network(made.L, made.P), made.network(made.P, 2 * made.L)
    return models.GPVAE(kernel, *networks, likelihoods.Gaussian(0.3), latent_dim=made.L)


def sampled_points() -> models.SGPBAE:
    return made.sgp_bae(inducing_outputs="sampled")


def weights_model() -> models.TemperedBAE:
    return models.TemperedBAE(made.network(made.P, made.L), made.network(made.L, made.P))


CASES: dict[str, tuple[Any, Any, tuple[int, int], dict[str, Any]]] = {
    # Minibatches of five tasks, which neither two nor three replicas divide.
    "tasks": (inference.AmortizedSampling, made.sgp_bae, (7, 6), {"batch_size": 5}),
    "the paper's": (
        inference.AmortizedSampling,
        made.sgp_bae,
        (5, 6),
        {"codes": "encoder", "encoder": inference.EncoderSettings(num_steps=2, loss="mse")},
    ),
    "points": (
        inference.AmortizedSampling,
        sampled_points,
        (1, 20),
        {
            "batch_size": 7,
            "steps_per_batch": 1,
            "encoder": inference.EncoderSettings(num_steps=2, batch_size=5),
        },
    ),
    "bound": (BoundSampling, gp_vae, (7, 6), {"batch_size": 5}),
    "weights": (WeightSampling, weights_model, (1, 12), {"batch_size": 6, "steps_per_batch": 2}),
}


@pytest.mark.parametrize(
    ("case", "count"), [*((case, 2) for case in CASES if case != "tasks"), ("tasks", 3)]
)
def test_shared_minibatches_give_the_round_of_one_replica(case: str, count: int) -> None:
    """Shares of the log likelihood add up, the log prior is counted once, noise is each item's own.

    Everything that a chain holds after a round, the encoder and Adam's moments included; to the
    rounding of float32 sums of other orders (2^-23 each, over four steps and some thousand terms).
    """
    kind, build, sizes, changes = CASES[case]
    settings = made.dataclasses.replace(made.SETTINGS, **changes)
    found = []
    for spread in (Spread(), Spread(replicas(count))):
        keras.utils.set_random_seed(0)
        model = build()
        data = prepare_data(model, made.random_data(*sizes), settings.batch_size)
        sampler = mcmc.sghmc.build(step_size=1e-3)
        engine = kind(model, data, settings, sampler, spread=spread)
        chain = engine.initial_chain(SEED)
        found.append(engine._round(chain, SEED, tf.constant(0), tf.constant(False)))
    for alone, shared in zip(*(tf.nest.flatten(f) for f in found), strict=True):
        np.testing.assert_allclose(shared, alone, rtol=3e-5, atol=3e-6)


def test_shared_minibatches_give_the_gradient_of_a_bound() -> None:
    """Of a fit in place: loss and gradients, with the log prior of parameters counted once."""
    model, data = gp_vae(), made.random_data(5, 6)
    models.set_default_kernel_priors(model.latent_prior.kernels[0])
    settings = inference.VariationalSettings(batch_size=3, prior_on_parameters=True)
    found = []
    for several in (ALONE, replicas(2)):
        prepared = prepare_data(model, data, 3)
        fit = inference.VariationalFit(model, prepared, settings, seed=0, replicas=several)
        constants = fit.of_step(fit.constants(), (), tf.constant(0))
        loss, _, gradients = fit.gradients(SEED, (), constants, list(model.trainable_variables))
        found.append([loss, *gradients])
    for alone, shared in zip(*found, strict=True):
        np.testing.assert_allclose(shared, alone, rtol=1e-5, atol=1e-6)


def test_chains_on_several_devices_are_those_of_one() -> None:
    """Bit by bit: nothing of a chain depends on where another one is."""
    data = made.random_data(4, 6)
    settings = made.dataclasses.replace(
        made.SETTINGS,
        num_sampler_steps=1,
        encoder=made.dataclasses.replace(made.SETTINGS.encoder, num_steps=1),
    )
    found = []
    for spread in (Spread(), Spread(replicas(2), "chains")):
        keras.utils.set_random_seed(0)
        model = made.sgp_bae()
        prepared = prepare_data(model, data)
        engine = inference.AmortizedSampling(model, prepared, settings, num_chains=2, spread=spread)
        seeds = tf.constant([[1, 2], [3, 4]])
        found.append(engine._all_chains(engine.initial(), seeds, tf.constant(0), tf.constant(True)))
    for alone, shared in zip(*(tf.nest.flatten(f) for f in found), strict=True):
        np.testing.assert_array_equal(shared, alone)


def test_shares_are_all_items_once() -> None:
    """Whatever their number, and sizes differ by one at most."""
    for count in (1, 2, 3, 7):
        for items in range(count, 30):
            shares = [share for _, share in replicas(count)._shares(items)]
            taken = [i for share in shares for i in range(share.start, share.stop or items)]
            assert taken == list(range(items))
            sizes = [len(np.zeros(items)[s.start : s.stop]) for s in shares]
            assert max(sizes) - min(sizes) <= 1
            assert sum(s.weight for s in shares) == pytest.approx(1.0)


def sample(**options: Any) -> Any:
    model = options.pop("model", None) or made.sgp_bae()
    data = options.pop("data", None) or made.random_data(2, 6)
    return inference.sample_amortized(model, data, made.SETTINGS, progress=False, **options)


def test_a_strategy_of_one_replica_changes_nothing() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    found = replicas_of(strategy)
    assert found.size == 1 and found.is_chief and replicas_of(None) is ALONE


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"num_chains": 3, "over": "chains"}, "num_chains=3 do not divide among 2"),
        ({"jit_compile": True}, "XLA compiles for one device alone"),
        ({"batch_size": 1}, "The 1 items of a minibatch cannot be shared among 2"),
        ({"sizes": (1, 8)}, "couples the points of a single task"),
    ],
)
def test_what_replicas_cannot_share_is_refused(replaced: dict[str, Any], words: str) -> None:
    options = {"num_chains": 1, "over": "minibatches", "jit_compile": False, "sizes": (3, 6)}
    options |= {k: v for k, v in replaced.items() if k in options}
    changes = {k: v for k, v in replaced.items() if k not in options}
    model = made.sgp_bae()
    settings = made.dataclasses.replace(made.SETTINGS, **changes)
    data = prepare_data(model, made.random_data(*options["sizes"]), settings.batch_size)
    with pytest.raises(ValueError, match=words):
        inference.AmortizedSampling(
            model,
            data,
            settings,
            num_chains=options["num_chains"],
            jit_compile=options["jit_compile"],
            spread=Spread.of(replicas(2), options["over"], options["num_chains"]),
        )


def test_what_is_no_strategy_is_refused() -> None:
    with pytest.raises(TypeError, match=r"tf\.distribute\.MirroredStrategy .* got str"):
        sample(strategy="mirrored")
    with pytest.raises(ValueError, match=r'spread must be .* got "everything"'.replace('"', "'")):
        sample(spread="everything")
    with pytest.raises(TypeError, match="got _DefaultDistributionStrategy"):
        sample(strategy=tf.distribute.get_strategy())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"objective": inference.GECO()}, "such as GECO"),
        ({"natural_gradient_step_size": 0.1}, "natural gradients"),
    ],
)
def test_fits_that_replicas_cannot_share_are_refused(changes: dict[str, Any], words: str) -> None:
    model, settings = gp_vae(), inference.VariationalSettings(**changes)
    data = prepare_data(model, made.random_data(3, 6))
    with pytest.raises(ValueError, match=words):
        inference.VariationalFit(model, data, settings, seed=0, replicas=replicas(2))


def test_an_estimate_of_inducing_outputs_is_not_shared() -> None:
    """Half of a minibatch of points gives another one than all of it."""
    networks = made.network(made.L, made.P), made.network(made.P, 2 * made.L)
    Z = np.linspace(-2.0, 2.0, 4)[:, None]
    kernel = gpflow.kernels.SquaredExponential()
    model = models.SVGPVAE(kernel, Z, *networks, likelihoods.Gaussian(0.3), latent_dim=made.L)
    data = prepare_data(model, made.random_data(1, 12), 6)
    settings = inference.VariationalSettings(batch_size=6)
    with pytest.raises(ValueError, match="couples the points of a single task"):
        inference.VariationalFit(model, data, settings, seed=0, replicas=replicas(2))


def test_chains_are_spread_where_they_divide() -> None:
    """And minibatches where they do not, or where there is one chain only."""
    for count, over_chains in ((1, False), (2, True), (3, False), (4, True)):
        assert (Spread.of(replicas(2), None, count).chains.size == 2) is over_chains


def launch(cases: str, folder: pathlib.Path) -> list[dict[str, np.ndarray]]:
    """Two workers on loopback, as a cluster would start them; what they write."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    processes = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        path = folder / f"{cases}.{index}.npz"
        command = [
            sys.executable,
            "-m",
            "tests.inference.sharding.replicas_program",
            "workers",
            cases,
        ]
        processes.append(
            subprocess.Popen(
                [*command, str(path), str(folder / "run")],
                env={**os.environ, "TF_CONFIG": config, "CUDA_VISIBLE_DEVICES": "-1"},
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        said = [process.communicate(timeout=1200)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    written = [folder / f"{cases}.{index}.npz" for index in range(2)]
    assert written[0].exists(), said
    return [dict(np.load(path)) for path in written if path.exists()]


def test_two_workers_end_as_one_and_resume_after_one_was_killed(tmp_path: pathlib.Path) -> None:
    """Minibatches to rounding, chains bit by bit; both workers have the same.

    A worker that is killed is named by the other one, which ends; both together then end as if
    nothing had happened, bit by bit.
    """
    first = launch("other_seeds,chains,tasks,killed", tmp_path)
    assert len(first) == 1  # of the worker that was not killed
    found = first[0]
    assert "seed of worker 1 is other than the chief's" in str(found["other_seeds/words"])
    assert "Worker 0 of 2 lost another one" in str(found["killed/words"])
    resumed = launch("resumed", tmp_path)
    for name, value in resumed[0].items():
        np.testing.assert_array_equal(value, resumed[1][name], err_msg=name)
        undisturbed = found[name.replace("resumed/", "tasks/")]
        np.testing.assert_array_equal(value, undisturbed, err_msg=name)
    for case in ("chains", "tasks"):
        keras.utils.set_random_seed(0)
        for name, alone in replicas_program.CASES[case](None).items():
            shared = found[f"{case}/{name}"]
            if case == "chains":
                np.testing.assert_array_equal(shared, alone, err_msg=name)
            else:  # rounding of sums of other orders, over six rounds
                np.testing.assert_allclose(shared, alone, rtol=1e-4, atol=1e-5, err_msg=name)
