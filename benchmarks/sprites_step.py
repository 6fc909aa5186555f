"""A training step on SPRITES at batch 500: its time, how long of that it waits, and memory.

python -m benchmarks.sprites_step --data_dir=DATA --threads=2

The step takes frames that `tf.data` makes of bytes in passing. Beside it in turns are the same
steps on frames that are floats in memory already: what they are faster by is waiting. Memory is
that of a process that takes steps from the stream, at most, beyond what it held before.
"""

from __future__ import annotations

import functools
import importlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
BATCH, STEPS, IN_MEMORY = 500, 5, 2000


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_string("data_dir", None, "Folder of the data sets.", required=True)
    flags.DEFINE_integer("threads", 2, "Threads of TensorFlow.", lower_bound=1)
    flags.DEFINE_integer("repeats", 10, "Turns, of five steps each.", lower_bound=1)
    flags.DEFINE_string("out_file", "docs/results/sprites_step.json", "JSON to write.")


def steps_on(in_memory: bool) -> Callable[[], object]:
    """Five steps of the paper preset, on the stream or on some frames as arrays."""
    from experiments.sprites import frames, models, plans, study
    from gpflow_bae.data import prepare_data
    from gpflow_bae.datasets import sprites
    from gpflow_bae.inference import VariationalFit

    plan = plans.make_plan("svgp_vae", "paper")
    data = study.load(FLAGS.data_dir, 36, 1000, None, 0)
    model = models.build_model(plan, data)
    rows: Any
    if in_memory:
        few = frames.Frames(data.train.X[:IN_MEMORY], data.train.Y[:IN_MEMORY])
        rows = few.X, sprites.as_float(few.Y)
    else:
        rows = frames.stream(data.train, plan.frames_per_character)
    prepared = prepare_data(model, rows, BATCH)
    fit = VariationalFit(model, prepared, plan.variational, seed=0, steps_per_call=STEPS)
    done = 0

    def block() -> object:
        nonlocal done
        _, taken, trace = fit.step(None, done, fit.num_steps)
        done += taken
        return np.asarray(trace)

    return block


def few_steps() -> None:
    """What memory is taken of."""
    block = steps_on(False)
    for _ in range(3):
        block()


def main(argv: list[str]) -> None:
    """Measure and write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    from benchmarks import machine, timing
    from experiments.common import provenance

    importlib.import_module("experiments.sprites.study")  # or the child would count it
    held = machine.in_child(functools.partial(machine.working_memory, few_steps))
    machine.set_threads(FLAGS.threads)
    found = timing.interleaved({"stream": steps_on(False), "memory": steps_on(True)}, FLAGS.repeats)
    record = {
        "batch": BATCH,
        "threads": FLAGS.threads,
        **{f"{name}_step_ms": timing.milliseconds(v, STEPS) for name, v in found.items()},
        "memory_over_stream": timing.ratio(found["memory"], found["stream"]),
        "megabytes": held,
        "versions": provenance.versions(),
        "git_commit": provenance.git_commit(),
    }
    pathlib.Path(FLAGS.out_file).write_text(json.dumps(record, indent=1) + "\n")
    print(record)


if __name__ == "__main__":
    define_flags()
    app.run(main)
