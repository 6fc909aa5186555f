"""Time of one SGHMC step of SGP-BAE on rotated MNIST, beside the decoder's own passes in it.

python -m benchmarks.rotated_mnist_step --threads=2 --data_dir=DATA

A step draws a minibatch, takes the gradient of the log posterior in everything that is sampled, and
moves. The decoder's forward and backward pass on as many codes is what no sampler can do without.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time

from absl import app, flags

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("threads", 2, "Threads of TensorFlow.", lower_bound=1)
    flags.DEFINE_integer("repeats", 5, "Turns; the median is reported.", lower_bound=1)
    flags.DEFINE_string("data_dir", None, "Folder of the data sets.", required=True)
    flags.DEFINE_string("out_file", "docs/results/rotated_mnist_step.json", "JSON to write.")


def main(argv: list[str]) -> None:
    """Time in turns, and write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(FLAGS.threads)

    from benchmarks.cases import STEPS, decoder_passes
    from experiments.common import provenance
    from experiments.rotated_mnist.models import build_model
    from experiments.rotated_mnist.plans import make_plan
    from gpflow_bae import inference
    from gpflow_bae.data import prepare_data
    from gpflow_bae.datasets import rotated_mnist

    data = rotated_mnist.load(FLAGS.data_dir, (3,))
    arrays = (data.train.X[None], data.train.Y[None])
    timed = {}
    for per_view in (8, 2):
        plan = make_plan("sgp_bae", "paper", inducing_per_view=per_view)
        model = build_model(plan, data)
        for size in (512, 256):
            settings = dataclasses.replace(
                plan.schedule, batch_size=size, num_sampler_steps=STEPS, num_encoder_steps=0
            )
            prepared = prepare_data(model, arrays, size)
            compiled = inference.AmortizedSampling(model, prepared, settings, plan.sampler)
            chains = compiled.initial()

            def sample(compiled=compiled, chains=chains) -> None:
                compiled.round(chains, 0)[1].log_prior.numpy()

            timed[f"step_B{size}_M{16 * per_view}"] = sample
            timed[f"decoder_B{size}_M{16 * per_view}"] = decoder_passes(
                model, (1, size, model.decoder.output_dim)
            )
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for run in timed.values():
        run()
    for _ in range(FLAGS.repeats):
        for name, run in timed.items():
            started = time.perf_counter()
            run()
            seconds[name].append((time.perf_counter() - started) / STEPS)
    record = {
        "threads": FLAGS.threads,
        "milliseconds": {n: 1e3 * float(np.median(v)) for n, v in seconds.items()},
        "versions": provenance.versions(),
    }
    pathlib.Path(FLAGS.out_file).write_text(json.dumps(record, indent=1) + "\n")
    print({n: round(v, 1) for n, v in record["milliseconds"].items()})


if __name__ == "__main__":
    define_flags()
    app.run(main)
