"""Bias of the minibatch estimate of SVGP-VAE's inducing outputs (Jazbec et al. 2021, app. C.4).

python -m experiments.rotated_mnist_bias --data_dir=DATA --epochs=40

Eq. 9 estimates the posterior mean of the inducing outputs from a minibatch. It is consistent, not
unbiased: the minibatch enters through an inverse. One SVGP-VAE is fitted as the driver does; on the
way the estimates from random minibatches of several sizes are averaged and compared with the value
from all data, for the same networks. The minibatches are cut from random passes over the data, so
most of their noise cancels; the Monte Carlo error that is left is recorded beside the bias: a
bias of that size is none that was seen.
"""

import dataclasses
import json
import pathlib

from absl import app, flags

from experiments.common import flags as common_flags

FLAGS = flags.FLAGS
BATCH_SIZES = (64, 128, 256, 512, 1024)
NUM_PASSES = 30  # over the data, in minibatches of each size
NUM_RECORDS = 20  # epochs of the fit at which the bias is measured, at most


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_string("data_dir", common_flags.default_data_dir(), "Folder of the data sets.")
    FLAGS["data_dir"].default_as_str = f"${common_flags.DATA_DIR_VARIABLE} or ~/.cache/gpflow_bae"
    flags.DEFINE_string("out_file", "docs/results/rotated_mnist_bias.json", "JSON to write.")
    flags.DEFINE_string("figure", "docs/results/figures/rotated_mnist_bias.png", "PNG to write.")
    flags.DEFINE_integer("epochs", 40, "Epochs of the fit.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the fit and of the minibatches.", lower_bound=0)


def main(argv: list[str]) -> None:
    """Fit, measure, write and draw."""
    del argv
    from experiments import rotated_mnist_models as composed
    from experiments import rotated_mnist_plans as plans
    from experiments.common import provenance, results
    from gpflow_bae import inference
    from gpflow_bae.datasets import rotated_mnist

    data = rotated_mnist.load(FLAGS.data_dir)
    plan = plans.make_plan("svgp_vae", "quick", regime=[f"joint-{FLAGS.epochs}"])
    composed.seed_networks(FLAGS.seed)
    model = composed.build_model(plan, data)
    number = len(data.train.Y)
    per_epoch = composed.num_steps(plan, number, 1)
    every = max(1, FLAGS.epochs // NUM_RECORDS)
    sizes = [size for size in BATCH_SIZES if size < number]
    measure = make_measure(model, data, sizes, FLAGS.seed)
    records = [{"epoch": 0, **measure()}]

    def record(step: int, loss: float) -> None:
        epoch, rest = divmod(step, per_epoch)
        if rest == 0 and epoch % every == 0:
            records.append({"epoch": epoch, **measure()})

    settings = dataclasses.replace(plan.variational, num_steps=per_epoch * FLAGS.epochs)
    arrays = (data.train.X[None], data.train.Y[None])
    inference.fit_variational(
        model, arrays, settings, seed=FLAGS.seed, steps_per_call=per_epoch, callback=record
    )
    result = {
        "seed": FLAGS.seed,
        "num_points": number,
        "num_passes": NUM_PASSES,
        "settings": plan.describe(),
        "epoch": [r["epoch"] for r in records],
        "relative_bias": {str(b): [r["bias"][b] for r in records] for b in sizes},
        "monte_carlo_error": {str(b): [r["error"][b] for r in records] for b in sizes},
        "versions": provenance.versions(),
        "git_commit": provenance.git_commit(),
    }
    results.write_json(FLAGS.out_file, json.loads(json.dumps(result)))
    pathlib.Path(FLAGS.figure).parent.mkdir(parents=True, exist_ok=True)
    plot(result).savefig(FLAGS.figure, dpi=110)
    print(FLAGS.out_file, FLAGS.figure, sep="\n")


def make_measure(model, data, sizes, seed, num_passes=NUM_PASSES):
    """A function that measures the model as it is then.

    It returns, for each batch size b, the bias |mean over minibatches - m| / |m| where m is the
    mean of the whitened inducing outputs of all channels given all data, and the Monte Carlo
    error of that mean in the same unit.
    """
    import numpy as np
    import tensorflow as tf

    X, Y = data.train
    rng = np.random.default_rng(seed)

    @tf.function(autograph=False, reduce_retracing=True)
    def estimate(X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return model.latent_prior.inducing_posterior(X, mean, variance, point_scale=scale).mean

    def measure() -> dict[str, dict[int, float]]:
        mean, variance = (v.numpy() for v in model.encode(X, Y))
        exact = estimate(X, mean, variance, 1.0).numpy()
        found: dict[str, dict[int, float]] = {"bias": {}, "error": {}}
        for size in sizes:
            scale, passes = np.float64(len(X) / size), []
            for _ in range(num_passes):
                order = rng.permutation(len(X))[: len(X) // size * size].reshape(-1, size)
                batches = [estimate(X[i], mean[i], variance[i], scale).numpy() for i in order]
                passes.append(np.mean(batches, axis=0))
            error = np.sqrt(np.sum(np.var(passes, axis=0, ddof=1)) / num_passes)
            off = np.linalg.norm(np.mean(passes, axis=0) - exact)
            found["bias"][size] = float(off / np.linalg.norm(exact))
            found["error"][size] = float(error / np.linalg.norm(exact))
        return found

    return measure


def plot(result: dict):
    """Relative bias along the fit, a line for each batch size; dotted, its Monte Carlo error."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axis = figure.subplots()
    sizes = list(result["relative_bias"])
    for i, size in enumerate(sizes):
        color = colormaps["viridis"](0.9 * i / max(1, len(sizes) - 1))
        axis.plot(
            result["epoch"], result["relative_bias"][size], color=color, marker=".", label=size
        )
        axis.plot(result["epoch"], result["monte_carlo_error"][size], color=color, ls=":")
    axis.set(xlabel="epoch of the SVGP-VAE's fit", yscale="log")
    axis.set_ylabel("relative bias of the inducing outputs' mean")
    axis.grid(alpha=0.25)
    figure.legend(title="batch size\n(dotted: Monte\nCarlo error)", loc="outside right center")
    return figure


if __name__ == "__main__":
    define_flags()
    app.run(main)
