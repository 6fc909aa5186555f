"""Draw the figure of the page of the imputer's benchmarks from its collected runs.

python -m experiments.imputation.benchmark_figures
"""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure

from experiments.common import pages

#: Lowest mean absolute error of the 28 methods of the benchmark's appendix, tables 12 to 16.
PUBLISHED = {
    "italy_air point01": 0.135,
    "italy_air point05": 0.214,
    "italy_air point09": 0.454,
    "italy_air subseq05": 0.329,
    "italy_air block05": 0.377,
    "ett_h1 point01": 0.144,
    "ett_h1 point05": 0.223,
    "ett_h1 point09": 0.507,
    "ett_h1 subseq05": 0.558,
    "ett_h1 block05": 0.401,
}
_HIDDEN = {
    "point01": "10 % of points",
    "point05": "50 % of points",
    "point09": "90 % of points",
    "subseq05": "subsequences",
    "block05": "blocks",
}
_NAMES = {"italy_air": "ItalyAir", "ett_h1": "ETT_h1"}


def draw(runs: list[dict[str, Any]]) -> dict[str, Figure]:
    """Draw the errors of the imputer, of straight lines, of SAITS and of the best published one."""
    errors = {(run["model"], run["variant"]): run["metrics"].get("mae") for run in runs}
    sets = ("", *(f" masks {seed}" for seed in range(2025, 2029)))  # of hidden cells
    figure = Figure(figsize=(7.0, 3.4), layout="constrained")
    axes = figure.subplots()
    series = {
        "straight lines": ("o", "0.6", "linear_interpolation"),
        "best published": ("s", "tab:orange", None),
        "SAITS, run here": ("^", "tab:red", "saits"),
        "imputer": ("D", "tab:blue", "imputer"),
    }
    places = range(len(PUBLISHED))[::-1]
    for label, (marker, colour, model) in series.items():
        for number, masks in enumerate(sets if model else sets[:1]):
            values = [
                errors.get((model, w + masks), math.nan) if model else PUBLISHED[w]
                for w in PUBLISHED
            ]
            named = label if number == 0 else None
            axes.plot(values, places, marker, color=colour, label=named, markersize=5, alpha=0.8)
    words = [window.split(" ") for window in PUBLISHED]
    axes.set_yticks(places, [f"{_NAMES[name]}, {_HIDDEN[pattern]}" for name, pattern in words])
    axes.set_xlabel("mean absolute error of hidden cells, in standard deviations")
    axes.set_xlim(0.0, None)
    axes.grid(axis="x", alpha=0.3)
    axes.legend()
    return {"errors": figure}


if __name__ == "__main__":
    pages.draw_collected("imputation_benchmarks", draw)
