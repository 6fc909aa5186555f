"""Where the time of one SGHMC step of SGP-BAE on rotated MNIST goes.

python -m benchmarks.rotated_mnist_step --threads=2 --data_dir=DATA

A step draws a minibatch, takes the gradient of the log posterior in everything that is sampled, and
moves. Beside it, in turns: the decoder's forward and backward pass on as many codes, without which
no sampler can do; the whole gradient of a fixed minibatch, which has the Gaussian process of the
codes and the priors besides; and the minibatch alone, drawn, gathered and put back.
What a step takes beyond the last two is noise, update and overhead.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

from absl import app, flags

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("threads", 2, "Threads of TensorFlow.", lower_bound=1)
    flags.DEFINE_integer("repeats", 9, "Turns; the median is reported.", lower_bound=1)
    flags.DEFINE_string("data_dir", None, "Folder of the data sets.", required=True)
    flags.DEFINE_string("out_file", "docs/results/rotated_mnist_step.json", "JSON to write.")


def gradients(model: Any, data: Any, state: Any, size: int) -> Callable[[], Any]:
    """Gradients of the log posterior of one minibatch, as many as a round has steps."""
    import tensorflow as tf

    from benchmarks.cases import STEPS
    from gpflow_bae.inference.loops import repeat
    from gpflow_bae.models import State

    batch = data.gather(tf.range(size))

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        def body(i: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
            # All moves with i, or a part of the loop's body could be taken out of it.
            fixed = [state.codes[:, :size], *state.parameters]
            moved = [v + 1e-9 * tf.cast(i, v.dtype) for v in fixed]
            with tf.GradientTape() as tape:
                tape.watch(moved)
                here = State(tuple(moved[1:]), moved[0])
                value = batch.scale * model.log_likelihood(here, batch)
                value += tf.cast(model.log_prior(here), value.dtype)
            found = tape.gradient(value, moved, unconnected_gradients="zero")
            return total + tf.add_n([tf.cast(tf.reduce_sum(g), total.dtype) for g in found])

        return repeat(STEPS, body, tf.zeros([], tf.float64))

    return lambda: run().numpy()


def minibatches(data: Any, sampler_state: Any, size: int) -> Callable[[], Any]:
    """Minibatches drawn, their rows and their part of the sampler's state gathered and put back."""
    import tensorflow as tf

    from benchmarks.cases import STEPS
    from gpflow_bae.data import draw_indices
    from gpflow_bae.inference.engines.minibatch_codes import gather_codes, scatter_codes
    from gpflow_bae.inference.loops import repeat

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        def body(i: tf.Tensor, carried: tuple[Any, tf.Tensor]) -> tuple[Any, tf.Tensor]:
            store, total = carried
            seed = tf.stack([i, i])
            indices = draw_indices(data.num_items, size, seed)
            batch = data.gather(indices)
            part = gather_codes(store, indices, 1)
            store = scatter_codes(store, part, indices, 1)
            return store, total + tf.reduce_sum(batch.Y[:, :, 0])

        return repeat(STEPS, body, (sampler_state, tf.zeros([])))[1]

    return lambda: run().numpy()


def main(argv: list[str]) -> None:
    """Time in turns, and write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    from benchmarks import cases
    from experiments.common import provenance
    from gpflow_bae.data import prepare_data

    timed = {}
    for size in (512, 256):
        parts = cases.rotated_mnist_parts(FLAGS.data_dir, size)
        data = prepare_data(parts.model, parts.arrays, size)
        shape = (1, size, parts.model.decoder.output_dim)
        built = cases.engine(parts, cases.STEPS)
        one = tf.nest.map_structure(lambda v: v[0], built.initial().sampler)
        timed |= {
            f"step_B{size}": cases.sampled(parts, {}).sampler,
            f"decoder_B{size}": cases.decoder_passes(parts.model, shape),
            f"gradient_B{size}": gradients(parts.model, data, one.position, size),
            f"minibatch_B{size}": minibatches(data, one, size),
        }
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for run in timed.values():
        run()
    for _ in range(FLAGS.repeats):
        for name, run in timed.items():
            started = time.perf_counter()
            run()
            seconds[name].append((time.perf_counter() - started) / cases.STEPS)
    record = {
        "threads": FLAGS.threads,
        "milliseconds": {n: 1e3 * float(np.median(v)) for n, v in seconds.items()},
        "versions": provenance.versions(),
        "git_commit": provenance.git_commit(),
    }
    pathlib.Path(FLAGS.out_file).write_text(json.dumps(record, indent=1) + "\n")
    print({n: round(v, 2) for n, v in record["milliseconds"].items()})


if __name__ == "__main__":
    define_flags()
    app.run(main)
