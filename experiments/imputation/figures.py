"""Figures of the imputation results, drawn from the collected runs.

python -m experiments.imputation.figures --results_dir=docs/results
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from experiments.common import pages
from gpflow_bae import plotting

#: The best published score of an SGP-VAE on each table with several initialisations.
PUBLISHED = {"eeg": ("smse", 0.24), "jura": ("mae", 0.40)}

_MARKERS = "os^DvPX<>*"


def draw_initialisations(runs: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the test score of every initialisation against its objective, a panel for each table.

    Filled markers are the best by the objective, over which the results average.

    :param runs: collected results; those of a single initialisation are left out.
    """
    figure = Figure(figsize=(13.0, 4.6), layout="constrained")
    panels = figure.subplots(1, len(PUBLISHED))
    for axes, (table, (metric, best)) in zip(panels, PUBLISHED.items(), strict=True):
        shown = [
            run
            for run in runs
            if run["model"] == f"{table}/sgp_vae" and "objective" in run.get("curves", {})
        ]
        for i, run in enumerate(shown):
            objective, score = (np.array(run["curves"][name]) for name in ("objective", metric))
            kept = objective <= np.sort(objective)[_num_kept(run) - 1]
            style = {
                "color": plotting.CYCLE[i % len(plotting.CYCLE)],
                "marker": _MARKERS[i % len(_MARKERS)],
            }
            label = run["variant"].partition(" best")[0]
            label += ", published settings" if run["preset"] == "paper" else ""
            axes.scatter(objective[kept], score[kept], s=24, label=label, **style)
            axes.scatter(
                objective[~kept],
                score[~kept],
                s=24,
                facecolors="none",
                edgecolors=style["color"],
                marker=style["marker"],
            )
        axes.axhline(best, color=plotting.GREY, ls="--", lw=1.0, label=f"best published: {best:g}")
        axes.set(
            title=table,
            xlabel="training objective per row (nats)",
            ylabel=f"{metric.upper()} of the test cells",
        )
        if metric == "smse":  # some fits are ten times worse than others
            axes.set_yscale("log")
            for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
                formatted(StrMethodFormatter("{x:g}"))
        axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def draw_chains(runs: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the log density along every chain that predicted test cells, a panel for each model.

    :param runs: collected results; variational fits and validation runs are left out.
    """
    chains = [
        run
        for run in runs
        if "log_density" in run.get("curves", {})
        and "validation" not in run["variant"]
        and "objective" not in run["curves"]
    ]
    names = sorted({run["model"] for run in chains})
    figure = Figure(figsize=(11.0, 3.2), layout="constrained")
    panels = figure.subplots(1, max(1, len(names)), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=False):  # without chains the panel stays empty
        for run in (run for run in chains if run["model"] == name):
            values = np.array(run["curves"]["log_density"], float)
            axes.plot(values, lw=0.8, color=plotting.CYCLE[run["seed"] % len(plotting.CYCLE)])
        # The first rounds span nearly the whole range, so the limits are those of later ones.
        later = np.concatenate(
            [run["curves"]["log_density"][20:] for run in chains if run["model"] == name]
        )
        axes.set_ylim(np.quantile(later, 0.01) - 0.05 * np.ptp(later), later.max())
        axes.set(title=name, xlabel="rounds of 50 steps", ylabel="log density (nats)")
    return figure


def _num_kept(run: Mapping[str, Any]) -> int:
    """Return k of "best k of n" in the variant."""
    words = run["variant"].split()
    return int(words[words.index("best") + 1])


def draw_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """Draw both figures, by name."""
    return {"initialisations": draw_initialisations(runs), "chains": draw_chains(runs)}


if __name__ == "__main__":
    pages.draw_collected("imputation", draw_runs)
