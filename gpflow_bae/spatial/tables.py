"""Data frames with results for genes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .expression import false_discoveries

__all__ = ["table_of_groups", "table_of_space"]

_INTERVAL = [0.05, 0.95]


def table_of_groups(
    genes: list[str], first: np.ndarray, second: np.ndarray, delta: float, fdr: float
) -> Any:
    """Return the table of :meth:`~gpflow_bae.spatial.SpatialBAE.differential_expression`.

    :param first, second: draws of expected counts [S, P].
    """
    import pandas

    change = np.log2(first) - np.log2(second)
    probability = np.mean(np.abs(change) > delta, 0)
    lower, upper = np.quantile(change, _INTERVAL, 0)
    table = pandas.DataFrame(
        {
            "proba_de": probability,
            "lfc_mean": change.mean(0),
            "lfc_sd": change.std(0),
            "lfc_lower": lower,
            "lfc_upper": upper,
            "mean1": first.mean(0),
            "mean2": second.mean(0),
            "is_de": false_discoveries(probability) <= fdr,
        },
        index=pandas.Index(genes, name="gene"),
    )
    order = np.lexsort((-np.abs(change.mean(0)), -probability))
    return table.iloc[order]


def table_of_space(genes: list[str], draws: dict[str, np.ndarray]) -> Any:
    """Return the table of :meth:`~gpflow_bae.spatial.SpatialBAE.spatial_genes`.

    :param draws: results of :func:`~gpflow_bae.spatial.expression.over_space`, each [S, P].
    """
    import pandas

    lower, upper = np.quantile(draws["count_share"], _INTERVAL, 0)
    table = pandas.DataFrame(
        {
            "share": draws["count_share"].mean(0),
            "share_lower": lower,
            "share_upper": upper,
            "rate_share": draws["rate_share"].mean(0),
            "spatial_sd": draws["spatial_sd"].mean(0),
            "mean": draws["mean"].mean(0),
        },
        index=pandas.Index(genes, name="gene"),
    )
    return table.sort_values("share", ascending=False, kind="stable")
