"""Time of the SGP-VAE's bound and its gradient against the number of rows of a task.

python -m benchmarks.sgp_vae_scaling --threads=2

At a fixed number of inducing points the cost must grow linearly: the exponent of a power law
through the times is written beside them. Each size is timed in turns with the others.
"""

from __future__ import annotations

import json
import pathlib
import time

import gpflow
import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
NUM_OUTPUTS, LATENT_DIM, NUM_INDUCING = 7, 3, 64


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("threads", 2, "Threads of TensorFlow.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Turns; the median is reported.", lower_bound=1)
    flags.DEFINE_integer("largest", 65_536, "Largest number of rows.", lower_bound=512)
    flags.DEFINE_string("out_file", "docs/results/sgp_vae_scaling.json", "JSON to write.")
    flags.DEFINE_string("figure", "docs/results/figures/imputation_scaling.png", "PNG to write.")


def main(argv: list[str]) -> None:
    """Time, fit the exponent, write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    from experiments.common import provenance
    from experiments.imputation.plans import build_model, make_plan
    from gpflow_bae.data import MultiOutputTable, prepare_data
    from gpflow_bae.inference import VariationalFit, VariationalSettings

    sizes = [2**k for k in range(8, 30) if 2**k <= FLAGS.largest]
    plan = make_plan("sgp_vae", latent_dim=LATENT_DIM, num_inducing=NUM_INDUCING)
    rng = np.random.default_rng(0)

    def step(size: int):
        Y = rng.standard_normal((1, size, NUM_OUTPUTS))
        Y[rng.random(Y.shape) < 0.2] = np.nan
        X = np.linspace(0.0, 1.0, size)[None, :, None]
        few = MultiOutputTable(X[:, :: size // 128], Y[:, :: size // 128])
        model = build_model(plan, few)
        data = prepare_data(model, (X, Y))
        variables = list(model.trainable_variables)
        settings = VariationalSettings(prior_on_parameters=False)
        fit = VariationalFit(model, data, settings, seed=0)
        batch = data.gather(tf.range(data.num_items))

        @tf.function(autograph=False)
        def evaluate(seed: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss, _ = fit.batch_loss(batch, seed, fit.carried, None)
            return tape.gradient(loss, variables)

        evaluate(tf.constant([0, 0]))
        return evaluate

    steps = {size: step(size) for size in sizes}
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(FLAGS.repeats):
        for size, evaluate in steps.items():
            started = time.perf_counter()
            evaluate(tf.constant([0, turn]))[0].numpy()
            seconds[size].append(time.perf_counter() - started)
    medians = np.array([np.median(seconds[size]) for size in sizes])
    exponent = float(np.polyfit(np.log(sizes), np.log(medians), 1)[0])
    record = {
        "num_inducing": NUM_INDUCING,
        "latent_dim": LATENT_DIM,
        "num_outputs": NUM_OUTPUTS,
        "threads": FLAGS.threads,
        "precision": str(np.dtype(gpflow.default_float())),
        "rows": sizes,
        "milliseconds": (1e3 * medians).tolist(),
        "exponent": exponent,
        "versions": provenance.versions(),
    }
    pathlib.Path(FLAGS.out_file).write_text(json.dumps(record, indent=1) + "\n")
    _draw(sizes, 1e3 * medians, exponent)
    print(
        f"exponent {exponent:.3f}; {dict(zip(sizes, np.round(1e3 * medians, 1), strict=True))} ms"
    )


def _draw(sizes: list[int], milliseconds: np.ndarray, exponent: float) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.5, 3.6))
    axis.loglog(sizes, milliseconds, "o-", label=f"bound and gradient; exponent {exponent:.2f}")
    axis.loglog(
        sizes, milliseconds[-1] * np.array(sizes) / sizes[-1], "k:", label="proportional to rows"
    )
    axis.set_xlabel("rows of the task")
    axis.set_ylabel("milliseconds")
    axis.legend()
    figure.tight_layout()
    figure.savefig(FLAGS.figure, dpi=120)


if __name__ == "__main__":
    define_flags()
    app.run(main)
