"""What several replicas run in test_replicas: python -m tests.inference.sharding.replicas_program.

Arguments: ``alone``, ``devices`` (two logical processors of this process) or ``workers`` (this
process is what TF_CONFIG makes it); the cases; where the arrays go; and a folder for checkpoints.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow as tf

Arrays = dict[str, np.ndarray]


def strategy_of(mode: str) -> tf.distribute.Strategy | None:
    """What a user's program makes at its start."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if mode == "workers":
        return tf.distribute.MultiWorkerMirroredStrategy()
    if mode == "alone":
        return None
    processor = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(processor, logical)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def sampled(strategy: Any, model: Any, data: Any, **options: Any) -> Arrays:
    """What a run of a few rounds gives."""
    from gpflow_bae import inference, mcmc
    from tests.inference.amortized_models import SETTINGS

    names = {f.name for f in dataclasses.fields(SETTINGS)} & options.keys()
    settings = dataclasses.replace(SETTINGS, **{n: options.pop(n) for n in names})
    sampler = mcmc.sghmc.build(step_size=1e-3)
    given = {"warm_start": None, "sampler": sampler, "seed": 3, "progress": False} | options
    posterior = inference.sample_amortized(model, data, settings, strategy=strategy, **given)
    arrays = {f"parameters/{k}": v for k, v in posterior.bank.parameters.items()}
    arrays |= {f"encoder/{k}": v for k, v in posterior.bank.encoder.items()}
    arrays |= {f"trace/{k}": v for k, v in posterior.bank.trace.items()}
    if posterior.bank.latents is not None:
        arrays["latents"] = posterior.bank.latents
    return arrays


def tasks(strategy: Any, **options: Any) -> Arrays:
    """Minibatches of three tasks of five, so that one replica has one of them and another two."""
    from tests.inference import amortized_models as made

    data = made.random_data(5, 6)
    return sampled(strategy, made.sgp_bae(), data, batch_size=3, spread="minibatches", **options)


def points(strategy: Any) -> Arrays:
    """Minibatches of points of one task, fresh ones in each step, with an encoder's minibatches."""
    from gpflow_bae import inference
    from tests.inference import amortized_models as made

    model = made.sgp_bae(inducing_outputs="sampled")
    encoder = inference.EncoderSettings(num_steps=2, batch_size=5)
    sizes = {"batch_size": 7, "encoder": encoder, "steps_per_batch": 1}
    return sampled(strategy, model, made.random_data(1, 20), gradients="control_variates", **sizes)


def bound(strategy: Any) -> Arrays:
    """Parameters under a bound, whose codes are drawn."""
    from gpflow_bae import likelihoods, models
    from tests.inference import amortized_models as made

    kernel = gpflow.kernels.SquaredExponential()
    networks = made.network(made.L, made.P), made.network(made.P, 2 * made.L)
    model = models.GPVAE(kernel, *networks, likelihoods.Gaussian(0.3), latent_dim=made.L)
    return sampled(strategy, model, made.random_data(5, 6), batch_size=4)


def weights(strategy: Any) -> Arrays:
    """All weights of a network."""
    from gpflow_bae import models
    from tests.inference import amortized_models as made

    model = models.TemperedBAE(made.network(made.P, made.L), made.network(made.L, made.P))
    Y = np.nan_to_num(made.random_data(1, 12)[1])
    return sampled(strategy, model, (None, Y), batch_size=6)


def chains(strategy: Any) -> Arrays:
    """Two chains, each with a start of its own."""
    from gpflow_bae import encoders, inference
    from tests.inference import amortized_models as made

    encoder = encoders.GaussianEncoder(made.network(made.P, 2 * made.L))
    start = inference.WarmStart(
        encoder,
        inference.VariationalSettings(num_steps=20),
        distillation=inference.EncoderSettings(batch_size=256, num_steps=10),
    )
    model, data = made.sgp_bae(), made.random_data(4, 6)
    return sampled(strategy, model, data, warm_start=start, num_chains=2)


def variational(strategy: Any) -> Arrays:
    """A bound's maximum, in place, with a prior on parameters."""
    from gpflow_bae import inference, likelihoods, models
    from tests.inference import amortized_models as made

    kernel = gpflow.kernels.SquaredExponential()
    models.set_default_kernel_priors(kernel)
    networks = made.network(made.L, made.P), made.network(made.P, 2 * made.L)
    model = models.GPVAE(kernel, *networks, likelihoods.Gaussian(0.3), latent_dim=made.L)
    settings = inference.VariationalSettings(num_steps=6, batch_size=3, prior_on_parameters=True)
    data = made.random_data(5, 6)
    losses = inference.fit_variational(
        model, data, settings, steps_per_call=3, progress=False, strategy=strategy
    )
    return {v.name: v.numpy() for v in model.trainable_variables} | {"losses": losses}


def killed(strategy: Any) -> Arrays:
    """The last worker dies after two rounds; what the others say."""

    def die(number: int, _: Any) -> None:
        if number == 2 and strategy.cluster_resolver.task_id == 1:
            os._exit(1)

    try:
        tasks(strategy, out_dir=sys.argv[4], checkpoint_every=1, callback=die)
    except RuntimeError as error:
        return {"words": np.array(str(error))}
    return {}


def resumed(strategy: Any) -> Arrays:
    """The run of :func:`tasks`, from where it was killed."""
    return tasks(strategy, out_dir=sys.argv[4], checkpoint_every=1, resume=True)


def other_seeds(strategy: Any) -> Arrays:
    """Each worker with a seed of its own: what that is told."""
    try:
        tasks(strategy, seed=strategy.cluster_resolver.task_id)
    except ValueError as error:
        return {"words": np.array(str(error))}
    return {}


CASES: dict[str, Callable[[Any], Arrays]] = {
    f.__name__: f
    for f in (tasks, points, bound, weights, chains, variational, killed, resumed, other_seeds)
}


def main(mode: str, names: str, path: str, folder: str = "") -> None:
    """Run some cases, one after the other."""
    strategy = strategy_of(mode)
    warnings.filterwarnings("ignore", message="The fit reconstructs")
    found = {}
    for name in names.split(","):
        keras.utils.set_random_seed(0)
        print(name, flush=True)
        found |= {f"{name}/{key}": value for key, value in CASES[name](strategy).items()}
    np.savez(path, **found)
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's server would wait for its peers


if __name__ == "__main__":
    main(*sys.argv[1:])
