"""Names the log densities of rows that were stored before there was more than one kind.

    python -m tools.name_scores    # of docs/results, once; a second time changes nothing

Until then the studies of missing data and of rotated MNIST scored the Gaussian with a prediction's
mean and variance and called that ``nll``. It is ``nll_moments`` now, as in new runs, whose ``nll``
is of the mixture over posterior samples. So in rows without any ``nll_moments``, scores and curves
``nll``, ``nll_encoder_only``, ... become ``nll_moments``, ``nll_moments_encoder_only``, ...

No number changes. Rows of ``igp`` and ``mean`` keep ``nll`` beside it: they predict one Gaussian
for each cell, whose log density that is. Rows of outputs modelled as logarithms, whose errors and
intervals are of other points now too, were run again instead.
"""

from __future__ import annotations

import pathlib
from typing import Any

from experiments.common import results

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "docs" / "results"
STUDIES = ("imputation", "rotated_mnist")


def renamed(values: dict[str, Any]) -> dict[str, Any]:
    """Values by their new names, in the order that they have."""
    return {
        "nll_moments" + name.removeprefix("nll") if name.split("_")[0] == "nll" else name: value
        for name, value in values.items()
    }


def named(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose scores say what they are of."""
    if any(name.startswith("nll_moments") for name in row["metrics"]):
        return row
    metrics = renamed(row["metrics"])
    if row["model"].endswith(("/igp", "/mean")):
        metrics["nll"] = metrics["nll_moments"]
    found = row | {"metrics": metrics}
    if "curves" in row:
        found["curves"] = renamed(row["curves"])
    return found


if __name__ == "__main__":
    for study in STUDIES:
        path = RESULTS / f"{study}.json"
        results.write_json(path, [named(row) for row in results.read_collected(path)])
