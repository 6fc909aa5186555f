"""Time of the Markovian prior's posterior and its gradients against the number of times.

python -m benchmarks.markov_scaling --threads=2

:class:`~gpflow_bae.latent_priors.MarkovGP` is conditioned on pseudo-observations of two channels at
irregular times, and the evidence's gradient is taken by kernels and pseudo-observations, with
filters and smoothers as parallel scans and step by step. The cost must grow linearly: the exponent
of a power law through the medians is written beside them, and the largest difference between what
the two find. Every size is timed in turns with the others. A loop over single times is linear too
but slower, so ``--largest_sequential`` ends it earlier.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
SIZES = (1000, 3000, 10_000, 30_000, 100_000)
KINDS = {"parallel": True, "sequential": False}
POINTS_PER_LENGTHSCALE = 20


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("threads", 2, "Threads of TensorFlow.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Turns; the median is reported.", lower_bound=1)
    flags.DEFINE_integer("largest", SIZES[-1], "Largest number of times.", lower_bound=SIZES[1])
    flags.DEFINE_integer("largest_sequential", SIZES[2], "The same, step by step.", SIZES[0])
    flags.DEFINE_string("out_file", "docs/results/markov_scaling.json", "JSON to write.")
    flags.DEFINE_string("figure", "docs/results/figures/priors_markov_scaling.png", "PNG to write.")


def evaluation(size: int, parallel: bool, seed: int = 0) -> Callable[[], list[Any]]:
    """A compiled function without arguments: moments [1, N, 2], evidence [1], and its gradients.

    Gradients are those by the kernels' parameters, and by the pseudo-observations' means and
    variances [1, N, 2].

    :param size: N, times drawn uniformly, twenty to a lengthscale.
    :param parallel: filters and smoothers as scans of depth log N, or step by step.
    :param seed: of times and pseudo-observations.
    """
    import gpflow
    import tensorflow as tf

    from gpflow_bae.latent_priors import MarkovGP

    rng = np.random.default_rng(seed)
    X = tf.constant(rng.uniform(0.0, size / POINTS_PER_LENGTHSCALE, (1, size, 1)))
    mean = tf.constant(rng.standard_normal((1, size, 2)))
    variance = tf.constant(rng.uniform(0.1, 1.0, (1, size, 2)))
    kernels = [gpflow.kernels.Matern32(), gpflow.kernels.Matern52(lengthscales=2.0)]
    prior = MarkovGP(kernels, 2, parallel=parallel)

    @tf.function(autograph=False)
    def evaluate() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([mean, variance])
            found = prior.condition(X, mean, variance)
        sources = [*prior.trainable_variables, mean, variance]
        return [*found, *tape.gradient(found.log_marginal, sources)]

    return evaluate


def difference(first: Sequence[Any], second: Sequence[Any]) -> float:
    """The largest absolute difference, each result in units of its own largest entry or of 1."""
    worst = 0.0
    for one, other in zip(first, second, strict=True):
        scale = max(1.0, float(np.abs(other).max()))
        worst = max(worst, float(np.abs(np.subtract(one, other)).max()) / scale)
    return worst


def exponent_of(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log sizes, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def measure(sizes: dict[str, list[int]], repeats: int) -> dict[str, Any]:
    """Medians over turns, their exponents, and how far the two kinds agree where both are run.

    :param sizes: numbers of times, by kind.
    """
    evaluations = {
        (kind, size): evaluation(size, KINDS[kind]) for kind in sizes for size in sizes[kind]
    }
    results = {key: [v.numpy() for v in evaluate()] for key, evaluate in evaluations.items()}
    differences = {
        str(size): difference(results["parallel", size], results["sequential", size])
        for size in sizes["sequential"]
        if size in sizes["parallel"]
    }
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in evaluations}
    for _ in range(repeats):
        for key, evaluate in evaluations.items():
            started = time.perf_counter()
            evaluate()[-1].numpy()
            seconds[key].append(time.perf_counter() - started)
    record: dict[str, Any] = {"largest_difference": differences}
    for kind, numbers in sizes.items():
        medians = [float(np.median(seconds[kind, size])) for size in numbers]
        record[kind] = {"times": numbers, "milliseconds": [1e3 * v for v in medians]}
        if len(numbers) > 1:
            record[kind]["exponent"] = exponent_of(numbers, medians)
    return record


def main(argv: list[str]) -> None:
    """Time, fit the exponents, write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    import gpflow
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    from experiments.common import provenance

    limits = {"parallel": FLAGS.largest, "sequential": min(FLAGS.largest, FLAGS.largest_sequential)}
    sizes = {kind: [n for n in SIZES if n <= limit] for kind, limit in limits.items()}
    record = {
        "latent_dim": 2,
        "kernels": ["Matern32", "Matern52"],
        "threads": FLAGS.threads,
        "repeats": FLAGS.repeats,
        "precision": str(np.dtype(gpflow.default_float())),
        **measure(sizes, FLAGS.repeats),
        "versions": provenance.versions(),
    }
    pathlib.Path(FLAGS.out_file).write_text(json.dumps(record, indent=1) + "\n")
    _draw(record)
    for kind in sizes:
        found = record[kind]
        times = dict(zip(found["times"], np.round(found["milliseconds"], 1).tolist(), strict=True))
        print(f"{kind}: exponent {found.get('exponent', float('nan')):.3f}; {times} ms")
    print(f"largest difference: {record['largest_difference']}")


def _draw(record: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.5, 3.6))
    for kind, marker in zip(KINDS, "os", strict=True):
        found = record[kind]
        slope = f"; exponent {found['exponent']:.2f}" if "exponent" in found else ""
        axis.loglog(found["times"], found["milliseconds"], f"{marker}-", label=kind + slope)
    times, milliseconds = (np.array(record["parallel"][n]) for n in ("times", "milliseconds"))
    axis.loglog(times, milliseconds[-1] * times / times[-1], "k:", label="proportional to times")
    axis.set_xlabel("times")
    axis.set_ylabel("milliseconds")
    axis.legend()
    figure.tight_layout()
    figure.savefig(FLAGS.figure, dpi=120)


if __name__ == "__main__":
    define_flags()
    app.run(main)
