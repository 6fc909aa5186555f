"""Steps on data in files beside steps on the same data in memory, and memory against rows.

python -m benchmarks.streams --threads=2

A variational fit (SVGP-VAE) and the sampling of its parameters take minibatches of a million made
rows, from shards that this command writes first and from memory, block by block in turns. Memory
is what a fit that sees as many rows as there are holds at most, in a process of its own, beyond
what that held before it, for each number of rows, from files and from memory.
"""

from __future__ import annotations

import functools
import importlib
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from absl import flags

from benchmarks.common import commands

FLAGS = flags.FLAGS
NUM_OUTPUTS, LATENT_DIM, NUM_INDUCING, BATCH, STEPS = 64, 4, 32, 512, 50
SIZES = (100_000, 1_000_000)


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("threads", 2, "Threads of TensorFlow.", lower_bound=1)
    flags.DEFINE_integer("repeats", 25, "Turns, of fifty steps each.", lower_bound=1)
    flags.DEFINE_integer("largest", SIZES[-1], "Most rows.", lower_bound=SIZES[0])
    flags.DEFINE_string("out_file", "docs/results/streams.json", "JSON to write.")


def made_rows(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Inputs [n, 1] and observations [n, P] in pieces: noisy sines, a tenth is missing."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((2, NUM_OUTPUTS))
    for start in range(0, count, 50_000):
        X = rng.uniform(0.0, 30.0, (min(50_000, count - start), 1))
        Y = np.concatenate([np.sin(X), np.cos(0.5 * X)], 1) @ W
        Y += 0.1 * rng.standard_normal(Y.shape)
        Y[rng.uniform(size=Y.shape) < 0.1] = np.nan
        yield X, Y.astype(np.float32)


def model() -> Any:
    """An SVGP-VAE whose networks have a hidden layer of 256."""
    import gpflow
    import keras

    from gpflow_bae import likelihoods, models

    def network(num_inputs: int, num_outputs: int) -> keras.Model:
        hidden = keras.layers.Dense(256, activation="tanh")
        return keras.Sequential(
            [keras.Input((num_inputs,)), hidden, keras.layers.Dense(num_outputs)]
        )

    return models.SVGPVAE(
        gpflow.kernels.Matern52(),
        np.linspace(0.0, 30.0, NUM_INDUCING)[:, None],
        decoder=network(LATENT_DIM, NUM_OUTPUTS),
        encoder=network(NUM_OUTPUTS, 2 * LATENT_DIM),
        likelihood=likelihoods.Gaussian(0.1),
        latent_dim=LATENT_DIM,
    )


def fit_blocks(data: Any) -> Callable[[], object]:
    """Fifty steps of Adam on the bound, what comes before them (reading) included."""
    from gpflow_bae import inference
    from gpflow_bae.data import prepare_data
    from gpflow_bae.inference import VariationalFit

    fitted = model()
    settings = inference.VariationalSettings(num_steps=10**6, batch_size=BATCH)
    data = prepare_data(fitted, data, BATCH)
    fit = VariationalFit(fitted, data, settings, seed=0, steps_per_call=STEPS)
    done = 0

    def block() -> object:
        nonlocal done
        _, taken, trace = fit.step(None, done, fit.num_steps)
        done += taken
        return trace

    return block


def sampler_rounds(data: Any) -> Callable[[], object]:
    """Fifty steps of adaptive SGHMC under the bound, each on a minibatch of its own."""
    from gpflow_bae import inference
    from gpflow_bae.data import prepare_data
    from gpflow_bae.inference.engines.bound_sampling import BoundSampling

    sampled = model()
    settings = inference.AmortizedSettings(
        batch_size=BATCH, steps_per_batch=1, num_sampler_steps=STEPS, burnin=10**6
    )
    algorithm = BoundSampling(sampled, prepare_data(sampled, data, BATCH), settings)
    chain, number = algorithm.initial(), 0

    def round_of_steps() -> object:
        nonlocal chain, number
        chain, _, trace = algorithm.step(chain, number, 10**9)
        number += 1
        return trace

    return round_of_steps


def opened(folder: pathlib.Path, in_memory: bool) -> Any:
    """The rows of a folder, as a stream or as arrays."""
    from gpflow_bae.data import StreamedObservations

    stream = StreamedObservations.from_tfrecords(folder / "*.tfrecord")
    return stream.sample(stream.num_points) if in_memory else stream


def reading(folder: pathlib.Path, in_memory: bool) -> None:
    """A fit that sees as many rows as there are in a folder, from its files or from arrays."""
    data: Any
    if in_memory:  # not through the stream, which would count too
        parts = zip(*made_rows(int(folder.name)), strict=True)
        data = tuple(np.concatenate(part) for part in parts)
    else:
        data = opened(folder, False)
    block = fit_blocks(data)
    for _ in range(-(-int(folder.name) // (BATCH * STEPS))):
        block()


def written(folder: pathlib.Path) -> float:
    """Seconds that writing the shards of a folder takes."""
    from gpflow_bae.data import write_tfrecords

    began = time.perf_counter()
    write_tfrecords(folder, made_rows(int(folder.name)))
    return time.perf_counter() - began


def measure(folder: pathlib.Path) -> dict[str, Any]:
    """Write shards, and take times and memory."""
    from benchmarks.common import machine, timing

    # Imported once, or the processes below would each hold it anew.
    importlib.import_module("gpflow_bae.inference")
    folders = [folder / f"{size}" for size in SIZES if size <= FLAGS.largest]
    seconds: dict[str, float] = {}
    growth = []
    for rows in folders:  # in processes of their own, before this one uses TensorFlow
        seconds[f"write_{rows.name}"] = machine.in_child(functools.partial(written, rows))
        for in_memory in (False, True):
            run = functools.partial(reading, rows, in_memory)
            held = machine.in_child(functools.partial(machine.working_memory, run))
            size = int(rows.name)
            growth.append(
                {
                    "rows": size,
                    "data": "memory" if in_memory else "files",
                    "megabytes_of_data": size * (4 * NUM_OUTPUTS + 8) / 1e6,
                    "megabytes_of_the_fit": held,
                }
            )
            print(growth[-1], flush=True)
    machine.set_threads(FLAGS.threads)
    began = time.perf_counter()
    stream = opened(folders[-1], False)
    seconds["open"] = time.perf_counter() - began
    arrays = opened(folders[-1], True)
    steps = []
    for name, make in {"fit": fit_blocks, "sampler": sampler_rounds}.items():
        found = timing.interleaved({"files": make(stream), "memory": make(arrays)}, FLAGS.repeats)
        steps.append(
            {
                "what": name,
                **{f"{k}_step_ms": timing.milliseconds(v, STEPS) for k, v in found.items()},
                "files_over_memory": timing.ratio(found["files"], found["memory"]),
            }
        )
        print(steps[-1], flush=True)
    return {
        "rows": int(folders[-1].name),
        "outputs": NUM_OUTPUTS,
        "batch_rows": BATCH,
        "threads": FLAGS.threads,
        "seconds": seconds,
        "steps": steps,
        "memory": growth,
        **commands.made_with(),
    }


def main() -> None:
    """Measure and write."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        record = measure(pathlib.Path(temporary))
    record["seconds"]["all"] = time.perf_counter() - began
    commands.write(FLAGS.out_file, record)


if __name__ == "__main__":
    commands.start(define_flags, main)
