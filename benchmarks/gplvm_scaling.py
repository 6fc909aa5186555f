"""Time of a minibatch step of the GPLVM against rows, and against columns that are missing.

python -m benchmarks.gplvm_scaling --threads=1

Rows: at a fixed batch the step must not notice how many there are, from a thousand to a million.
Columns: rows with eight observed cells each, in tables of more and more columns. Sizes are timed in
turns; memory is that of the process after the steps of a size, beside that of its codes.
"""

from __future__ import annotations

import json
import pathlib
import time

import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
LATENT_DIM, NUM_INDUCING, NUM_COLUMNS, NUM_ENTRIES, BATCH = 5, 30, 100, 8, 256
STEPS = 50  # in one compiled call


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("threads", 1, "Threads of TensorFlow.", lower_bound=1)
    flags.DEFINE_integer("repeats", 9, "Turns; the median is reported.", lower_bound=1)
    flags.DEFINE_integer("largest", 1_000_000, "Largest number of rows.", lower_bound=1000)
    flags.DEFINE_string("out_file", "docs/results/gplvm_scaling.json", "JSON to write.")


def main(argv: list[str]) -> None:
    """Time and write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    from experiments.common import provenance

    rows = [n for n in (1000, 10_000, 100_000, 1_000_000) if n <= FLAGS.largest]
    columns = [100, 300, 1000]
    cases = [(n, NUM_COLUMNS) for n in rows] + [(10_000, p) for p in columns[1:]]
    fits, memory = {}, {}
    for case in cases:
        before = _resident_bytes()
        fits[case] = _fit(*case)
        fits[case].block(tf.constant([0, 0]), fits[case].carried, tf.constant(STEPS))
        memory[case] = _resident_bytes() - before
    seconds: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
    for turn in range(FLAGS.repeats):
        for case, fit in fits.items():
            started = time.perf_counter()
            loss, _ = fit.block(tf.constant([1, turn]), fit.carried, tf.constant(STEPS))
            loss.numpy()
            seconds[case].append((time.perf_counter() - started) / STEPS)
    record = {
        "batch_rows": BATCH,
        "entries_per_row": NUM_ENTRIES,
        "latent_dim": LATENT_DIM,
        "num_inducing": NUM_INDUCING,
        "threads": FLAGS.threads,
        "cases": [
            {
                "rows": n,
                "columns": p,
                "step_ms": 1e3 * float(np.median(seconds[n, p])),
                # mean and log scale, two moments of each, and two counts, in float64
                "bytes_of_codes": n * 8 * (6 * LATENT_DIM + 2),
                "bytes_of_data": n * NUM_ENTRIES * 8,
                "process_grew_by_bytes": memory[n, p],
            }
            for n, p in cases
        ],
        "versions": provenance.versions(),
    }
    pathlib.Path(FLAGS.out_file).write_text(json.dumps(record, indent=1) + "\n")
    for case in record["cases"]:
        print(case)


def _fit(num_rows: int, num_columns: int):
    """The engine's compiled block for a table of that size."""
    import gpflow

    from gpflow_bae import encoders, inference, models
    from gpflow_bae.data import SparseTable
    from gpflow_bae.inference import VariationalFit

    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(num_rows), NUM_ENTRIES)
    # Distinct columns in a row, every column in some row.
    first = rng.permutation(num_rows) % num_columns
    columns = ((first[:, None] + np.arange(NUM_ENTRIES)) % num_columns).ravel()
    table = SparseTable(rows, columns, rng.standard_normal(len(rows)), max_entries=NUM_ENTRIES)
    model = models.StochasticGPLVM(
        encoders.FreeFormEncoder(1, num_rows, LATENT_DIM),
        gpflow.kernels.SquaredExponential(lengthscales=np.ones(LATENT_DIM)),
        rng.standard_normal((NUM_INDUCING, LATENT_DIM)),
        gpflow.likelihoods.Gaussian(1.0),
        num_columns,
        q_diag=True,
    )
    settings = inference.VariationalSettings(num_steps=10**6, batch_size=BATCH)
    return VariationalFit(model, table, settings, seed=0, steps_per_call=STEPS)


def _resident_bytes() -> int:
    """Memory of this process now (Linux)."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


if __name__ == "__main__":
    define_flags()
    app.run(main)
