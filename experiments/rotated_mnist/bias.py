"""Bias of the minibatch estimate of SVGP-VAE's inducing outputs (Jazbec et al. 2021, app. C.4).

Eq. 9 estimates the posterior mean of the inducing outputs from a minibatch. It is consistent but
biased, because the minibatch enters through an inverse. One SVGP-VAE is fitted as by the driver;
during the fit estimates from random minibatches of several sizes are averaged and compared with the
value from all data, for the same networks. The minibatches partition random passes over the data,
so most of their noise cancels; the remaining Monte Carlo error is recorded beside the bias, and a
bias of that size is not significant.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from matplotlib import colormaps
from matplotlib.figure import Figure

from experiments.common import provenance, results
from experiments.common.images import save_png
from experiments.rotated_mnist.models import build_model, num_steps
from experiments.rotated_mnist.plans import make_plan
from gpflow_bae import inference
from gpflow_bae.datasets import rotated_mnist

BATCH_SIZES = (64, 128, 256, 512, 1024)
NUM_PASSES = 30  # passes over the data, in minibatches of each size
NUM_RECORDS = 20  # largest number of epochs of the fit at which the bias is measured


def run(data_dir: str, epochs: int, seed: int, out_file: str, figure: str) -> None:
    """Fit the model, measure the bias, and write results and figure."""
    data = rotated_mnist.load(data_dir)
    plan = make_plan("svgp_vae", "quick", regime=[f"joint-{epochs}"])
    keras.utils.set_random_seed(seed)
    model = build_model(plan, data)
    number = len(data.train.Y)
    per_epoch = num_steps(plan, number, 1)
    every = max(1, epochs // NUM_RECORDS)
    sizes = [size for size in BATCH_SIZES if size < number]
    measure = make_measure(model, data, sizes, seed)
    records = [{"epoch": 0, **measure()}]

    def record(step: int, loss: float) -> None:
        epoch, rest = divmod(step, per_epoch)
        if rest == 0 and epoch % every == 0:
            records.append({"epoch": epoch, **measure()})

    settings = dataclasses.replace(plan.variational, num_steps=per_epoch * epochs)
    arrays = (data.train.X[None], data.train.Y[None])
    inference.fit_variational(
        model, arrays, settings, seed=seed, steps_per_call=per_epoch, callback=record
    )
    result = {
        "seed": seed,
        "num_points": number,
        "num_passes": NUM_PASSES,
        "settings": plan.describe(),
        "epoch": [r["epoch"] for r in records],
        "relative_bias": {str(b): [r["bias"][b] for r in records] for b in sizes},
        "monte_carlo_error": {str(b): [r["error"][b] for r in records] for b in sizes},
        "versions": provenance.versions(),
        "git_commit": provenance.git_commit(),
    }
    results.write_json(out_file, result)
    pathlib.Path(figure).parent.mkdir(parents=True, exist_ok=True)
    save_png(plot(result), figure, 110)
    print(out_file, figure, sep="\n")


def make_measure(
    model: Any,
    data: rotated_mnist.RotatedMNIST,
    sizes: Sequence[int],
    seed: int,
    num_passes: int = NUM_PASSES,
) -> Callable[[], dict[str, dict[int, float]]]:
    """Make a function that measures the bias in the model's current state.

    It returns, for each batch size b, the bias |mean over minibatches - m| / |m| where m is the
    mean of the whitened inducing outputs of all channels given all data, and the Monte Carlo
    error of that mean in the same unit.
    """
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


def plot(result: dict) -> Figure:
    """Draw the relative bias along the fit for each batch size; its Monte Carlo error is dotted."""
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
