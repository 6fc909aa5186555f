"""Time and memory of a step under nearest neighbours against the number of places.

python -m benchmarks.neighbours_scaling --threads=2

The model and settings are those of ``python -m experiments.large_spatial``: 20 outputs, three
channels, 20 neighbours, minibatches of 512 places that bring their neighbours with them. A step
sees as many places whatever their number, so neither its time nor what it holds beside the data may
grow. Times: sizes take turns, and a fit's first calls, which compile, are left out. Working memory
is the most that a process of its own held during a fit, compiled functions included, less what it
held when data and neighbours were there; it can be nothing, where a fit needs less than was let go.
``--part`` runs one of the two, and leaves what the file says of the other.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
import time

import numpy as np
from absl import app, flags

from benchmarks import machine

FLAGS = flags.FLAGS
SIZES = (10_000, 100_000, 1_000_000)
STEPS_PER_CALL = 50


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("threads", 2, "Threads of TensorFlow.", lower_bound=1)
    flags.DEFINE_integer("turns", 3, "Fits of each size.", lower_bound=1)
    flags.DEFINE_integer("calls", 8, "Of 50 steps each, of every fit.", lower_bound=3)
    flags.DEFINE_integer("largest", SIZES[-1], "Largest number of places.", lower_bound=SIZES[0])
    flags.DEFINE_enum("part", "both", ["both", "times", "memory"], "What is measured.")
    flags.DEFINE_integer("memory_of", None, "Print the working memory of a fit of so many places.")
    flags.DEFINE_string("out_file", "docs/results/neighbours_scaling.json", "JSON to write.")


class Fit:
    """A model and its data, whose steps are timed."""

    def __init__(self, num_points: int):
        from experiments import large_spatial
        from gpflow_bae import inference
        from gpflow_bae.data import prepare_data

        settings = inference.VariationalSettings(num_steps=1, learning_rate=5e-3, batch_size=512)
        plan = large_spatial.Plan(
            model="nearest_neighbours",
            variational=settings,
            num_points=num_points,
            num_outputs=20,
            latent_dim=3,
            lengthscale=0.05,
            start_lengthscale=0.1,
            noise=0.5,
            num_neighbours=20,
            ordering="maximin",
            num_inducing=0,
        )
        self.settings = settings
        field = large_spatial.make_field(plan, 0)
        started = time.perf_counter()
        self.model = large_spatial.build_model(plan, field.X)
        self.data = prepare_data(self.model, (field.X, field.Y))
        self.neighbours_seconds = time.perf_counter() - started

    def run(self, calls: int) -> list[float]:
        """Milliseconds a step in each call of fifty but the first two."""
        from gpflow_bae import inference

        times: list[float] = []
        inference.fit_variational(
            self.model,
            self.data,
            dataclasses.replace(self.settings, num_steps=calls * STEPS_PER_CALL),
            steps_per_call=STEPS_PER_CALL,
            progress=False,
            callback=lambda *_: times.append(time.perf_counter()),
        )
        return (1e3 * np.diff(times)[1:] / STEPS_PER_CALL).tolist()

    def working_memory(self, calls: int) -> float:
        """The most that this process holds during a fit, less what it holds before, megabytes."""
        return machine.working_memory(lambda: self.run(calls))


def measure_times(sizes: list[int]) -> dict[int, dict[str, float]]:
    """Of each size the median of all calls, and how long its neighbours took to be found."""
    fits = {size: Fit(size) for size in sizes}
    steps: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(FLAGS.turns):
        for size, fit in fits.items():
            steps[size] += fit.run(FLAGS.calls)
    return {
        size: {
            "step_ms": float(np.median(steps[size])),
            "neighbours_seconds": fits[size].neighbours_seconds,
        }
        for size in sizes
    }


def measure_memory(sizes: list[int]) -> dict[int, dict[str, float]]:
    """Of each size, in a process that has held no other."""
    found = {}
    for size in sizes:
        command = [sys.executable, "-m", "benchmarks.neighbours_scaling", f"--memory_of={size}"]
        command += [f"--threads={FLAGS.threads}", f"--calls={FLAGS.calls}"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[size] = {"working_memory_mb": float(output.split()[-1])}
    return found


def main(argv: list[str]) -> None:
    """Measure, and write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if FLAGS.memory_of is not None:
        print(Fit(FLAGS.memory_of).working_memory(FLAGS.calls))
        return

    from experiments.common import provenance

    sizes = [size for size in SIZES if size <= FLAGS.largest]
    path = pathlib.Path(FLAGS.out_file)
    rows: dict[int, dict[str, float]] = {size: {"places": size} for size in sizes}
    if FLAGS.part != "both" and path.exists():
        rows |= {row["places"]: row for row in json.loads(path.read_text())["rows"]}
    parts = {"times": measure_times, "memory": measure_memory}
    for name, measure in parts.items():
        if FLAGS.part in ("both", name):
            for size, numbers in measure(sizes).items():
                rows[size] |= numbers
    first, *_, last = rows.values()
    record = {
        "batch_size": 512,
        "num_neighbours": 20,
        "latent_dim": 3,
        "num_outputs": 20,
        "threads": FLAGS.threads,
        "turns": FLAGS.turns,
        "rows": list(rows.values()),
        "step_of_largest_over_smallest": (
            last["step_ms"] / first["step_ms"] if "step_ms" in first else None
        ),
        "versions": provenance.versions(),
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    for row in rows.values():
        print({name: round(value, 1) for name, value in row.items()})


if __name__ == "__main__":
    define_flags()
    app.run(main)
