"""Names the log densities of rows that were stored before there was more than one kind.

    python -m tools.name_scores    # of docs/results, once; a second time changes nothing

Until then the studies of missing data and of rotated MNIST scored the Gaussian with a prediction's
mean and variance and called that ``nll``. It is ``nll_moments`` now, as in new runs, whose ``nll``
is of the mixture over posterior samples. So in rows without any ``nll_moments``, scores and curves
``nll``, ``nll_encoder_only``, ... become ``nll_moments``, ``nll_moments_encoder_only``, ...

No number changes. Rows of ``igp`` and ``mean`` keep ``nll`` beside it: they predict one Gaussian
for each cell, whose log density that is. Rows of outputs modelled as logarithms had the mean
absolute error of the lognormal's mean and the coverage of a Gaussian interval, which new runs do
not have; these become ``mae_of_mean`` and ``coverage_90_moments``.
"""

from __future__ import annotations

import pathlib
from typing import Any

from experiments.common import results

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "docs" / "results"
STUDIES = ("imputation", "rotated_mnist")

_GAUSSIAN = {"nll": "nll_moments"}
_OF_LOGARITHMS = {"mae": "mae_of_mean", "coverage_90": "coverage_90_moments"}


def renamed(values: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Values by their new names, in the order that they have."""
    found = {}
    for name, value in values.items():
        old = next((o for o in names if name == o or name.startswith(f"{o}_")), None)
        new = name if old is None else names[old] + name.removeprefix(old)
        found[new] = value
    return found


def named(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose scores say what they are of."""
    if any(name.startswith("nll_moments") for name in row["metrics"]):
        return row
    names = dict(_GAUSSIAN)
    if row["settings"].get("log_outputs") or row["model"] == "jura/gpar":
        names |= _OF_LOGARITHMS
    metrics = renamed(row["metrics"], names)
    if row["model"].endswith(("/igp", "/mean")):
        metrics["nll"] = metrics["nll_moments"]
    found = row | {"metrics": metrics}
    if "curves" in row:
        found["curves"] = renamed(row["curves"], names)
    return found


if __name__ == "__main__":
    for study in STUDIES:
        path = RESULTS / f"{study}.json"
        results.write_json(path, [named(row) for row in results.read_collected(path)])
