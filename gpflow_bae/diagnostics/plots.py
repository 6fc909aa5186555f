"""Trace and rank plots of a few scalars over chains, by ArviZ."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .. import plotting
from .samples import arviz_for, num_chains_and_draws

__all__ = ["rank_plot", "trace_plot"]

_MAX_PLOTTED = 20  # rcParams["plot.max_subplots"] of ArviZ, at two axes each


def trace_plot(samples: Mapping[str, np.ndarray]) -> Figure:
    """Plot density and trace of every chain, with one row for each scalar, by ArviZ.

    :param samples: [C, S] by name, at most 20 names.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: if one is not a scalar or not finite, or there are none or too many.
    """
    arviz = arviz_for("trace_plot")
    scalars = _scalars(samples)
    num_chains, _ = num_chains_and_draws("samples", scalars)
    colors = _chain_colors(num_chains)
    figure = Figure(figsize=(10.0, 1.8 * len(scalars) + 0.8), layout="constrained")
    arviz.plot_trace(
        scalars,
        var_names=list(scalars),  # in this order, not alphabetical
        # Without given axes ArviZ would create a pyplot figure.
        axes=figure.subplots(len(scalars), 2, squeeze=False),
        chain_prop={"color": colors},
        compact=False,
        divergences=False,
        show=False,
    )
    # ArviZ's own legend is inside the first trace, and hides it if there are many chains.
    handles = [Line2D([], [], color=color, label=str(c)) for c, color in enumerate(colors)]
    figure.legend(handles=handles, title="chain", loc="outside right upper", frameon=False)
    return figure


def rank_plot(samples: Mapping[str, np.ndarray]) -> Figure:
    """Plot histograms of the ranks of each chain's draws among those of all chains, by ArviZ.

    For mixed chains they are uniform, up to the noise of ESS draws; they show differences between
    chains more clearly than traces do (Vehtari et al. 2021).

    :param samples: [C, S] by name, at most 20 names.
    :raises ImportError: without the extra ``diagnostics``.
    :raises ValueError: if one is not a scalar or not finite, or there are none or too many.
    """
    arviz = arviz_for("rank_plot")
    scalars = _scalars(samples)
    num_chains, _ = num_chains_and_draws("samples", scalars)
    height = 0.8 + 0.3 * num_chains
    figure = Figure(figsize=(6.4, height * len(scalars) + 0.4), layout="constrained")
    arviz.plot_rank(
        scalars,
        var_names=list(scalars),  # in this order, not alphabetical
        ax=figure.subplots(len(scalars), 1, squeeze=False),
        colors=_chain_colors(num_chains),
        show=False,
    )
    return figure


def _scalars(samples: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Check scalars and return them as arrays [C, S]."""
    if len(samples) > _MAX_PLOTTED:
        raise ValueError(
            f"samples holds {len(samples)} scalars; a figure shows at most {_MAX_PLOTTED}."
        )
    scalars = {}
    for name, values in samples.items():
        values = np.asarray(values, dtype=np.float64)
        if values.ndim != 2:
            raise ValueError(
                f"samples[{name!r}] must hold one scalar for every draw, [C, S], got shape "
                f"{values.shape}; pick entries, such as values[..., 0]."
            )
        if not np.isfinite(values).all():
            raise ValueError(f"samples[{name!r}] holds NaN or infinity.")
        scalars[name.lstrip(".")] = values
    return scalars


def _chain_colors(num_chains: int) -> list[str]:
    return list(itertools.islice(itertools.cycle(plotting.CYCLE), num_chains))
