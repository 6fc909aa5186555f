"""The figure and the table of docs/inference.md, from collected runs.

python -m experiments.amortisation.figures

Reads docs/results/amortisation.json, draws docs/results/figures/amortisation_bias.png, and replaces
the table between the two marks in docs/inference.md, so that nobody types a number of it.
"""

import pathlib
import re
from collections.abc import Callable, Mapping

import numpy as np
from absl import app, flags
from matplotlib.figure import Figure

from experiments.common import pages
from gpflow_bae import plotting

FLAGS = flags.FLAGS
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"

# Group of cells: its name in a figure and in the table.
GROUPS = {
    "train": "predictions at the data",
    "new": "predictions at new inputs",
    "codes": "codes",
    "decoder": "decoder at fixed codes",
}
# What goes through the encoder; table only.
ENCODED = {
    "encoded": "encoder's codes",
    "predict_train": "`predict` at the data",
    "predict_new": "`predict` at new inputs",
}
_COLORS = {"energy": plotting.BLUE, "nll": plotting.GREEN, "mse": plotting.VERMILION}
_MARKERS = {"energy": "o", "nll": "^", "mse": "s"}
_LINE_STYLES = {5: ":", 30: "-", 100: "--"}


def fill_in(runs: list[dict]) -> None:
    """Put the table of the runs into the page that --page names."""
    page = pathlib.Path(FLAGS.page)
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    if not pattern.search(text):
        raise app.UsageError(f"{page} has no {BEGIN} ... {END} to put the table between.")
    page.write_text(pattern.sub(lambda _: f"{BEGIN}\n{table(runs)}\n{END}", text), encoding="utf-8")
    print(page)


def draw(runs: list[dict]) -> Figure:
    """Bias (above) and ratio of standard deviations (below) against K, a column per group."""
    figure = Figure(figsize=(12.0, 5.6), layout="constrained")
    axes = figure.subplots(2, len(GROUPS), sharex=True, sharey="row")
    for column, (group, title) in enumerate(GROUPS.items()):
        for row, suffix in enumerate(("bias", "sd_ratio")):
            axis, name = axes[row, column], f"{group}_{suffix}"
            for (loss, j), members in _lines(runs).items():
                axis.plot(
                    [run["settings"]["num_sampler_steps"] for run in members],
                    [run["metrics"][name] for run in members],
                    color=_COLORS[loss],
                    marker=_MARKERS[loss],
                    linestyle=_LINE_STYLES[j],
                    label=f"encoder, {loss}, J = {j}",
                )
            carried = [run for run in runs if run["settings"]["codes"] == "carried"]
            values = [run["metrics"][name] for run in carried]
            if values:
                axis.axhspan(
                    min(values), max(values), color=plotting.GREY, alpha=0.4, label="carried"
                )
            if suffix == "sd_ratio":
                axis.axhline(1.0, color=plotting.BLACK, linewidth=0.8)
                axis.set_xlabel("K, sampler steps per round")
            axis.set_xscale("log")
        axes[0, column].axhline(
            0.1, color=plotting.BLACK, linewidth=0.8, linestyle="-.", label="0.1"
        )
        axes[0, column].set_title(title, fontsize="medium")
    axes[0, 0].set_ylim(bottom=0.0)
    axes[0, 0].set_ylabel("bias of the mean (reference sd, rms)")
    axes[1, 0].set_ylabel("sd / reference sd (mean)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure


def draw_cell(metrics: Mapping[str, float]) -> Figure:
    """One chain beside the reference: bias and ratio of standard deviations of every group."""
    names = GROUPS | {group: words.replace("`", "") for group, words in ENCODED.items()}
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    rows = np.arange(len(names))
    errors = [metrics.get(f"{group}_mc_error", 0.0) for group in names]
    biases = [metrics[f"{group}_bias"] for group in names]
    left.barh(rows, biases, xerr=errors, color=plotting.BLUE, ecolor=plotting.GREY)
    left.axvline(0.1, color=plotting.BLACK, lw=0.8, ls="-.", label="0.1")
    left.set(xlabel="bias of the mean ± Monte Carlo error (reference sd)", yticks=rows)
    left.set_yticklabels(names.values())
    left.legend(frameon=False)
    left.invert_yaxis()
    right.plot([metrics[f"{group}_sd_ratio"] for group in names], rows, "o", color=plotting.BLUE)
    right.axvline(1.0, color=plotting.BLACK, lw=0.8)
    right.set(xlabel="sd / reference sd (mean over cells)")
    right.grid(alpha=0.25)
    return figure


def _lines(runs: list[dict]) -> dict[tuple[str, int], list[dict]]:
    """Runs with codes of the encoder by loss and J, in the order of K."""
    lines: dict[tuple[str, int], list[dict]] = {}
    for run in sorted(runs, key=_order):
        settings = run["settings"]
        if settings["codes"] == "encoder":
            key = settings["encoder_loss"], settings["num_encoder_steps"]
            lines.setdefault(key, []).append(run)
    return lines


def _order(run: dict) -> tuple:
    settings = run["settings"]
    return (
        settings["codes"],
        list(_COLORS).index(settings["encoder_loss"]),
        settings["num_encoder_steps"],
        settings["num_sampler_steps"],
    )


def table(runs: list[dict]) -> str:
    """A row for each run: bias ± Monte Carlo error, ratio of standard deviations, by group."""
    header = ["codes", "loss", "K", "J", *GROUPS.values(), *ENCODED.values(), "CPU s"]
    lines = [header, ["---"] * len(header)]
    for run in sorted(runs, key=_order):
        settings, metrics = run["settings"], run["metrics"]
        lines.append(
            [
                settings["codes"],
                settings["encoder_loss"],
                str(settings["num_sampler_steps"]),
                str(settings["num_encoder_steps"]),
                *(
                    f"{metrics[g + '_bias']:.2f} ± {metrics[g + '_mc_error']:.2f}, "
                    f"{metrics[g + '_sd_ratio']:.2f}"
                    for g in GROUPS
                ),
                *(f"{metrics[g + '_bias']:.2f}, {metrics[g + '_sd_ratio']:.2f}" for g in ENCODED),
                f"{run['seconds']['cpu']:.0f}",
            ]
        )
    rows = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{rows}\n\n{_provenance(runs)}"


def _provenance(runs: list[dict]) -> str:
    """What the rows share, and what they differ in, in one line."""
    first = runs[0]

    def values(of: Callable[[dict], object]) -> str:
        return ", ".join(sorted({str(of(run)) for run in runs}))

    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    return (
        f"Reference: largest R-hat {first['metrics']['reference_rhat']:.3f}, smallest effective "
        f"sample size {first['metrics']['reference_ess']:.0f}. "
        f"Seed {values(lambda run: run['seed'])}; {sum(r['seconds']['cpu'] for r in runs):.0f} CPU "
        f"seconds for {len(runs)} rows, compilation and scoring included, without the reference; "
        f"commit {values(lambda run: run['git_commit'])}; {versions}; "
        f"`{values(lambda run: run['command'])}`."
    )


if __name__ == "__main__":
    flags.DEFINE_string("page", "docs/inference.md", "Page that has the table.")
    pages.draw_collected("amortisation", lambda runs: {"bias": draw(runs)}, fill_in)
