"""Figures of rotated MNIST: of one run at its end, and of the results page from finished runs.

Runs with a validation set are left out of the page, as their scores are for choosing settings.
Figures without data are left out.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from check_shapes import check_shapes
from matplotlib.figure import Figure

from experiments.common import pages
from experiments.common.curves import plot_losses
from experiments.common.driver import Outcome
from experiments.common.images import plot_images
from gpflow_bae import diagnostics, plotting
from gpflow_bae.datasets.rotated_mnist import RotatedMNIST
from gpflow_bae.posteriors import Prediction

MAX_CODES = 2000  # largest number of points of a t-SNE map
RHAT_IMAGES = 64  # test images whose predictions are kept for each sample
MSE = "test MSE per pixel (squared grey value)"
# Colour of each model, and its published error (gppvae: Jazbec et al., others: Tran et al.).
MODELS = {
    "cvae": (plotting.GREY, 0.082),
    "gppvae": (plotting.PURPLE, 0.037),
    "svgp_vae": (plotting.VERMILION, 0.0257),
    "deep_svigp": (plotting.GREEN, 0.0236),
    "sgp_bae": (plotting.BLUE, 0.0228),
    "bae": (plotting.SKY, None),
    "vae": (plotting.ORANGE, None),
}


def draw(
    outcome: Outcome,
    data: RotatedMNIST,
    prediction: Prediction | None,
    one_draw: np.ndarray | None,
    model: Any = None,
) -> None:
    """Draw the figures of one run, and store the data of these and of the page's figures.

    :param prediction: prediction of the test images, [1, N, P]; None without a prior over X.
    :param one_draw: images [N, P] decoded from a single draw of the codes.
    :param model: the model, for a run without a posterior.
    """
    outcome.arrays = arrays = {
        "X": data.test.X.astype(np.float32),
        "truth": data.test.Y.astype(np.float16),
        "num_train": np.array(len(data.train.Y)),
    }
    try:
        arrays |= _codes(outcome.posterior, model, data)
    except Exception as error:
        print(f"No map of the codes: {error}")  # keep all other results of the finished run
    figures = outcome.figures
    if prediction is not None and one_draw is not None:
        arrays |= _predictions(outcome, data, prediction, one_draw)
        error = np.square(arrays["mean"].astype(np.float32) - arrays["truth"])
        figures["generated"] = _plot_images(
            arrays["X"][:, 0],
            {"truth": arrays["truth"], "mean": arrays["mean"], "one draw": arrays["one_draw"]},
            {
                "epistemic\nstd": (np.sqrt(arrays["epistemic_variance"]), "std\n(grey value)"),
                "squared\nerror": (error, "error\n(grey value²)"),
            },
        )
    if "embedding" in arrays:
        figures["codes"] = _plot_codes({"codes of training images": arrays})
    if outcome.curves.get("mse"):
        figures["curve"], axis = plotting.single_axis("training time (s)", MSE)
        axis.plot(outcome.curves["seconds"], outcome.curves["mse"], marker=".")
    if any(len(outcome.curves.get(name, ())) for name in _LOSSES):
        figures["loss"] = plot_losses(outcome.curves, _LOSSES)


def _predictions(
    outcome: Outcome, data: RotatedMNIST, prediction: Prediction, one_draw: np.ndarray
) -> dict[str, np.ndarray]:
    arrays = {
        "mean": prediction.mean[0].astype(np.float16),
        "one_draw": np.asarray(one_draw, np.float16),
        "noise_variance": prediction.noise_variance[0].astype(np.float32),
        "epistemic_variance": prediction.epistemic_variance[0].astype(np.float32),
    }
    posterior = outcome.posterior
    if posterior is not None and posterior.latents is not None:
        X = data.test.X[None, :RHAT_IMAGES]
        singles = (posterior.select([s]) for s in range(posterior.num_samples))
        means = [single.predict(X, num_codes=2).mean[0] for single in singles]
        arrays["prediction_samples"] = np.stack(means).astype(np.float16)
    return arrays


def _codes(posterior: Any, model: Any, data: RotatedMNIST) -> dict[str, np.ndarray]:
    """Return posterior mean codes of training images, their angles, and their t-SNE map."""
    from sklearn.manifold import TSNE

    if posterior is None:  # a deep SVIGP has codes, but no encoder
        codes = model.predict_f(data.train.X)[0].numpy()
    else:
        codes = posterior.predict_latent()[0][0]
    rows = np.arange(len(codes))
    if len(rows) > MAX_CODES:
        rows = np.sort(np.random.default_rng(0).choice(rows, MAX_CODES, replace=False))
    codes = np.asarray(codes[rows], np.float32)
    tsne = TSNE(perplexity=min(30.0, (len(rows) - 1) / 3.0), init="pca", random_state=0, n_jobs=1)
    return {
        "codes": codes,
        "code_angles": data.train.X[rows, 1].astype(np.float32),
        "embedding": tsne.fit_transform(codes),
    }


def _plot_images(
    ids: np.ndarray, rows: dict[str, np.ndarray], maps: dict[str, tuple[np.ndarray, str]]
) -> Figure:
    """Draw ten of the images [N, P], and maps of them."""
    chosen = np.linspace(0, len(ids) - 1, min(10, len(ids))).astype(int)

    def squares(values: np.ndarray) -> np.ndarray:
        side = int(np.sqrt(values.shape[1]))
        return np.asarray(values[chosen], np.float32).reshape(-1, side, side)

    return plot_images(
        [f"object {int(number)}" for number in ids[chosen]],
        {name: squares(values) for name, values in rows.items()},
        {name: (squares(values), label) for name, (values, label) in maps.items()},
    )


def _plot_codes(codes: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Draw t-SNE maps side by side, coloured by angle, with their names as titles."""
    columns = min(3, len(codes))
    rows = -(-len(codes) // columns)
    figure = Figure(figsize=(3.6 * columns + 1.2, 3.4 * rows + 0.2), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (name, arrays) in zip(axes, codes.items(), strict=False):
        degrees = np.rad2deg(arrays["code_angles"]) % 360.0
        style = {"s": 4, "cmap": "twilight", "vmin": 0.0, "vmax": 360.0}
        shown = axis.scatter(*arrays["embedding"].T, c=degrees, **style)
        axis.set(title=name, xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
    for axis in axes[len(codes) :]:
        axis.set_axis_off()
    bar = figure.colorbar(shown, ax=axes.tolist(), label="angle of the digit (degrees)")
    bar.set_ticks(np.arange(0, 361, 45))
    return figure


_LOSSES = {
    "variational_loss": ("record of the fit by Adam", "training loss per image"),
    "encoder_loss": ("round of the chain", "loss of the encoder"),
}


def draw_runs(runs: list[dict]) -> dict[str, Figure]:
    """Draw all figures for which ``runs`` have data, by name."""
    figures = {}
    for preset in ("quick", "paper"):
        of_preset = [r for r in runs if r["preset"] == preset]
        plain = [r for r in of_preset if _is_plain(r)]
        groups = {m: _seeds([r for r in plain if r["model"] == m]) for m in MODELS}
        first = {m: group[0] for m, group in groups.items() if group}
        found: dict[str, Figure] = {}
        if predicted := {m: r["arrays"] for m, r in first.items() if "mean" in r["arrays"]}:
            found["generated"] = _plot_models(predicted)
        if codes := {m: r["arrays"] for m, r in first.items() if "embedding" in r["arrays"]}:
            found["codes"] = _plot_codes(codes)
        if curves := {m: r["curves"] for m, r in first.items() if r["curves"].get("mse")}:
            found["mse_against_seconds"] = _plot_against_seconds(curves)
        if curves.get("sgp_bae", {}).get("mse_per_sample"):
            found["mse_per_sample"] = _plot_per_sample(curves["sgp_bae"])
        chains = _seeds([r for r in of_preset if r["model"] == "sgp_bae"])
        if len(chains) > 1:
            found |= {"rhat": plot_rhat(chains), "traces": plot_traces(chains)}
        figures |= {f"{name}_{preset}": figure for name, figure in found.items()}
    return figures


def _is_plain(run: dict) -> bool:
    return not run.get("variant") or run["variant"].startswith("first ")


def _seeds(runs: list[dict]) -> list[dict]:
    """Return one run for each seed, with the settings that most runs have."""
    groups: dict[str, dict[int, dict]] = collections.defaultdict(dict)
    for run in sorted(runs, key=lambda r: not r.get("complete", True)):
        groups[_key(run)].setdefault(run["seed"], run)
    best = max(groups.values(), key=len, default={})
    return [best[seed] for seed in sorted(best)]


def _key(run: dict) -> str:
    return json.dumps([run["model"], run["preset"], run["settings"]], sort_keys=True)


def _plot_models(arrays: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Draw generated digits, a row for each model, and the epistemic deviation of SGP-BAE."""
    any_of_them, maps = next(iter(arrays.values())), {}
    rows = {"truth": any_of_them["truth"], **{m: a["mean"] for m, a in arrays.items()}}
    if "sgp_bae" in arrays:
        deviation = np.sqrt(arrays["sgp_bae"]["epistemic_variance"])
        maps["sgp_bae,\nepistemic"] = (deviation, "std\n(grey value)")
    return _plot_images(any_of_them["X"][:, 0], rows, maps)


def _plot_against_seconds(curves: Mapping[str, Mapping[str, list[float]]]) -> Figure:
    figure, axis = plotting.single_axis("training time (s)", MSE)
    for model, (color, published) in MODELS.items():
        if model in curves:
            axis.plot(curves[model]["seconds"], curves[model]["mse"], color=color, label=model)
        if published is not None:
            axis.axhline(published, color=color, ls=":", label=f"{model}, published {published}")
    axis.set(xscale="log", yscale="log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("{x:.2g}")
    figure.set_size_inches(8.4, 4.4)
    figure.legend(loc="outside right center", frameon=False, fontsize="small")
    return figure


def _plot_per_sample(curves: Mapping[str, list[float]]) -> Figure:
    figure, axis = plotting.single_axis("posterior sample, in the order of the chain", MSE)
    single = curves["mse_per_sample"]
    numbers, running = np.arange(1, len(single) + 1), curves["mse"][-len(single) :]
    axis.plot(numbers, single, color=plotting.SKY, marker=".", lw=0.7, label="one sample")
    axis.plot(numbers, running, color=plotting.BLUE, label="average prediction so far")
    axis.legend(frameon=False)
    return figure


def plot_rhat(runs: list[dict]) -> Figure:
    """Draw R-hat of predicted pixels over chains, which are runs with different seeds.

    :raises ValueError: if settings or presets of the runs differ, or two have the same seed.
    """
    chains = _chains(runs)
    chains = chains.reshape(*chains.shape[:2], -1)
    chains = chains[..., np.ptp(chains, axis=(0, 1)) > 0]  # pixels that vary
    values = diagnostics.rank_normalised_rhat(chains)
    values = values[np.isfinite(values)]
    figure, axis = plotting.single_axis(
        "R-hat of a predicted pixel (the last bin holds all above)", "pixels"
    )
    top = max(1.1, float(np.quantile(values, 0.995)))
    axis.hist(np.minimum(values, top), np.linspace(min(1.0, values.min()), top, 60))
    for level, words, style in ((0.5, "median", "--"), (0.95, "95 % below", "-.")):
        score = float(np.quantile(values, level))
        label = f"{words} {score:.3f}"
        axis.axvline(min(score, top), color=plotting.VERMILION, ls=style, label=label)
    axis.legend(frameon=False, title=f"{len(runs)} chains of {chains.shape[1]} samples")
    return figure


def plot_traces(runs: list[dict]) -> Figure:
    """Draw traces of a predicted pixel of four test images (Tran et al. 2023, figure 9).

    The pixel of an image is the one whose prediction is nearest to grey on average over all
    samples of all chains, because most others are white or black in every sample.

    :param runs: chains, which are runs with different seeds.
    :raises ValueError: if settings or presets of the runs differ, or two have the same seed.
    """
    chains = _chains(runs)
    images = np.linspace(0, chains.shape[2] - 1, 4).astype(int)
    figure = Figure(figsize=(8.4, 4.6), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True).ravel()
    for axis, image in zip(axes, images, strict=True):
        pixel = int(np.argmin(np.abs(chains[:, :, image].mean(axis=(0, 1)) - 0.5)))
        for run, chain in zip(runs, chains, strict=True):
            axis.plot(chain[:, image, pixel], lw=0.8, label=f"seed {run['seed']}")
        axis.set(title=f"image {image}, pixel {pixel}", ylabel="grey value")
    for axis in axes[2:]:
        axis.set_xlabel("posterior sample, in the order of the chain")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


@check_shapes("return: [C, S, N, P]")
def _chains(runs: list[dict]) -> np.ndarray:
    """Return predicted images of the samples of several runs, as many for each."""
    if len({_key(r) for r in runs}) != 1 or len({r["seed"] for r in runs}) < len(runs):
        raise ValueError(
            "Chains are compared for runs of the same settings with a seed each; these differ."
        )
    samples = [np.asarray(r["arrays"]["prediction_samples"], np.float32) for r in runs]
    number = min(map(len, samples))
    return np.stack([s[:number] for s in samples])


def main() -> None:
    """Run the command."""
    pages.draw_runs("rotated_mnist", draw_runs)
