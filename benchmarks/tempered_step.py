"""Time of one step of all replicas on Madelon's networks, beside the matrix products in it.

python -m benchmarks.tempered_step --threads=2 --out=docs/results/tempered_step.json

Networks 500-450-400-300 and back (1 052 500 weights), 2000 rows, 8 replicas, float32; the rows are
uniform noise of Madelon's shape, because only their number matters here. Steps and bare matrix
products are timed in turns, so that a drift of the machine meets both.
"""

import json
import pathlib
import time

from absl import app, flags

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The benchmark's flags."""
    flags.DEFINE_integer(
        "threads", 2, "TensorFlow's intra-op threads, and inter-op ones.", lower_bound=1
    )
    flags.DEFINE_integer("repeats", 5, "Timed rounds of each variant.", lower_bound=1)
    flags.DEFINE_integer("replicas", 8, "Replicas.", lower_bound=2)
    flags.DEFINE_integer("rows", 2000, "Rows of the table.", lower_bound=1)
    flags.DEFINE_boolean("jit_compile", False, "Time the XLA-compiled step too.")
    flags.DEFINE_string("out", None, "JSON file to write; printed only where not given.")


def main(argv: list[str]) -> None:
    """Time, print, and maybe write."""
    del argv
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    # Replicas do not depend on each other: as many of them at once as there are threads.
    tf.config.threading.set_inter_op_parallelism_threads(FLAGS.threads)

    from benchmarks import machine
    from experiments.common import provenance
    from experiments.tabular import networks
    from gpflow_bae import inference, models
    from gpflow_bae.data import prepare_data
    from gpflow_bae.inference.preconditioning import affine_map
    from gpflow_bae.inference.starts import initial_values

    rows = np.random.default_rng(0).random((FLAGS.rows, 500)).astype(np.float32)
    model = models.TemperedBAE(*networks.build("madelon", rows, "spectral", 0))
    data = prepare_data(model, (None, rows))
    variants = {}
    steps = 5
    for kind, jit in [("none", False), ("kronecker", False)] + (
        [("none", True)] if FLAGS.jit_compile else []
    ):
        settings = inference.TemperedSettings(
            method="lg", num_replicas=FLAGS.replicas, swap_interval=steps, num_samples=10**6
        )
        values, _ = initial_values(model, data, settings, seed=0, progress=False)
        coordinates = affine_map(model, data, values, kind, 2, 100.0, seed=0)
        blocks = inference.TemperedSampling(model, data, settings, jit_compile=jit)
        chain = blocks.initial_chain(coordinates)

        def run(blocks=blocks, chain=chain) -> None:
            blocks.step(chain, 0, steps)

        variants[f"lg_{kind}{'_xla' if jit else ''}"] = run
    sizes = networks.SIZES["madelon"]
    widths = [*sizes, *sizes[-2::-1]]
    variants["matrix_products"] = machine.network_products(
        FLAGS.rows, widths, steps=steps, copies=FLAGS.replicas, input_gradient=False
    )

    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for run in variants.values():
        run()  # trace and warm up
    for _ in range(FLAGS.repeats):
        for name, run in variants.items():
            started = time.perf_counter()
            run()
            seconds[name].append((time.perf_counter() - started) / steps)

    floor = np.median(seconds["matrix_products"])
    products = sum(a * b for a, b in zip(widths, widths[1:], strict=False))
    # Forward, and two products backward but for the rows' own gradient.
    flops = 2 * FLAGS.rows * FLAGS.replicas * (3 * products - widths[0] * widths[1])
    result = {
        "threads": FLAGS.threads,
        "replicas": FLAGS.replicas,
        "num_parameters": model.sampled.num_scalars,
        "step_s": {n: round(float(np.median(s)), 3) for n, s in seconds.items()},
        "step_s_best": {n: round(float(np.min(s)), 3) for n, s in seconds.items()},
        "ratio_to_matrix_products": {
            n: round(float(np.median(s) / floor), 2) for n, s in seconds.items()
        },
        "gflops_of_matrix_products": round(flops / floor / 1e9, 1),
        "versions": provenance.versions(),
    }
    print(json.dumps(result, indent=1))
    if FLAGS.out:
        pathlib.Path(FLAGS.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    define_flags()
    app.run(main)
