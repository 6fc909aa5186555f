"""Time and memory of an estimator of counts in tissue against the number of cells.

python -m benchmarks.spatial_scaling --threads=2

One fit of ``SpatialBAE`` with its defaults but for ``--num_steps``, on made cells of 200 genes of
which a tenth of the counts are not 0, each size in a process of its own. A step sees 1000 cells
whatever their number, so an epoch takes as many steps as there are thousands of cells. Memory is
the most that the process held, with the cells, the fit and all that it writes to ``adata``.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import scipy.sparse
from absl import flags

from benchmarks.common import commands, machine

FLAGS = flags.FLAGS
SIZES = (6_050, 60_500, 605_000)
GENES = 200
_AT_ONCE = 50_000  # cells that are made together


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("threads", 2, "Threads of TensorFlow.", lower_bound=1)
    flags.DEFINE_integer("num_steps", 600, "Of each fit.", lower_bound=200)
    flags.DEFINE_integer("largest", SIZES[-1], "Largest number of cells.", lower_bound=SIZES[0])
    flags.DEFINE_integer("of", None, "Print the figures of so many cells.")
    flags.DEFINE_string("out_file", "docs/results/spatial_scaling.json", "JSON to write.")


def made_cells(number: int, seed: int = 0) -> Any:
    """Cells at random places, with genes that follow six waves over them."""
    import anndata

    rng = np.random.default_rng(seed)
    waves, loadings = rng.normal(0.0, 6.0, (2, 6)), rng.normal(0.0, 0.4, (6, GENES))
    base = rng.normal(-2.6, 0.8, GENES)
    places, parts = rng.uniform(0.0, 1.0, (number, 2)), []
    for start in range(0, number, _AT_ONCE):
        smooth = np.sin(places[start : start + _AT_ONCE] @ waves)
        rates = np.exp((base + smooth @ loadings).astype(np.float32))
        counts = rng.poisson(rates * rng.standard_gamma(2.0, rates.shape, np.float32) / 2.0)
        counts[counts.sum(1) == 0, 0] = 1
        parts.append(scipy.sparse.csr_matrix(counts.astype(np.int32)))
    adata = anndata.AnnData(scipy.sparse.vstack(parts, format="csr"))
    adata.obsm["spatial"] = 1e4 * places
    return adata


def figures(number: int, num_steps: int) -> dict[str, float]:
    """Seconds by phase, milliseconds of a step, and memory of one fit."""
    from gpflow_bae.inference.runs.run import watched
    from gpflow_bae.spatial import SpatialBAE, SpatialPlan

    adata = made_cells(number)
    calls: list[tuple[float, int]] = []
    started = time.perf_counter()
    with watched(lambda label, steps, trace: calls.append((time.perf_counter(), steps))):
        plan = SpatialPlan(num_restarts=1)
        model = SpatialBAE(num_steps=num_steps, plan=plan, progress=False).fit(adata)
    ended = time.perf_counter()
    times, steps = (np.array(v) for v in zip(*calls, strict=True))
    # The first call of each phase, which begins to count anew, compiles.
    goes_on = np.diff(steps) > 0
    step = (np.diff(times)[goes_on] / np.diff(steps)[goes_on])[1:]
    found = model.predict(adata.obsm["spatial"][:1000])
    assert np.isfinite(found.mean).all() and np.isfinite(adata.obsm["X_gpbae"]).all()
    return {
        "cells": number,
        "step_ms": float(1e3 * np.median(step)),
        "epoch_seconds": float(np.median(step) * number / min(number, 1000)),
        "fit_seconds": float(times[-1] - started),
        "predictions_seconds": float(ended - times[-1]),
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    """Measure, and write."""
    if FLAGS.of is not None:
        machine.set_threads(FLAGS.threads)
        print(json.dumps(figures(FLAGS.of, FLAGS.num_steps)))
        return
    rows = []
    for size in (size for size in SIZES if size <= FLAGS.largest):
        command = [sys.executable, "-m", "benchmarks.spatial_scaling", f"--of={size}"]
        command += [f"--threads={FLAGS.threads}", f"--num_steps={FLAGS.num_steps}"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows.append(json.loads(output.splitlines()[-1]))
        print(rows[-1], flush=True)
    record = {
        "genes": GENES,
        "threads": FLAGS.threads,
        "num_steps": FLAGS.num_steps,
        "rows": rows,
        **commands.made_with(),
    }
    commands.write(FLAGS.out_file, record)


if __name__ == "__main__":
    commands.start(define_flags, main)
