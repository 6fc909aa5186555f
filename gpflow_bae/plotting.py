"""Figures of the experiments, plotted from arrays.

Every function returns a new ``matplotlib.figure.Figure`` and does not use pyplot, so it works
without a display and in threads: ``plot_training_curve(...).savefig("curve.png")``. Colours are
those of Okabe and Ito, which colour-blind readers can distinguish; line styles and markers
distinguish curves in grey.
"""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from check_shapes import check_shapes
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = [
    "plot_chain",
    "plot_inducing_posterior",
    "plot_lengthscale_posteriors",
    "plot_rmse_against_inducing",
    "plot_training_curve",
    "plot_trajectories",
    "single_axis",
]

BLUE = "#0072B2"
VERMILION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
ORANGE = "#E69F00"
SKY = "#56B4E9"
BLACK = "#000000"
GREY = "#666666"

CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINE_STYLES = ("--", ":", "-.")


@check_shapes(
    "truth: [T, N, 2]",
    "mean: [T, N, 2]",
    "std: [T, N, 2]",
)
def plot_trajectories(truth: np.ndarray, mean: np.ndarray, std: np.ndarray) -> Figure:
    """Plot true and recovered paths of the first four videos, one row each.

    Left and middle: each coordinate over time, with the central 90 % interval of a Gaussian with
    the given standard deviation. Right: the path in the plane.

    :param truth: True trajectories.
    :param mean: Recovered trajectories, in the coordinates of ``truth`` (after alignment).
    :param std: Their standard deviations.
    :raises ValueError: If the arrays hold no video.
    """
    if len(truth) == 0:
        raise ValueError("truth holds no video (T = 0); pass at least one.")
    num = min(4, len(truth))
    half_width = statistics.NormalDist().inv_cdf(0.95) * np.asarray(std)
    times = np.arange(truth.shape[1])

    figure = Figure(figsize=(10.0, 2.2 * num + 0.6), layout="constrained")
    axes = figure.subplots(num, 3, squeeze=False, width_ratios=(2, 2, 1.2))
    for video, row in enumerate(axes):
        for coordinate, name in enumerate(("horizontal", "vertical")):
            axis = row[coordinate]
            recovered = mean[video, :, coordinate]
            width = half_width[video, :, coordinate]
            axis.fill_between(
                times,
                recovered - width,
                recovered + width,
                color=VERMILION,
                alpha=0.25,
                linewidth=0,
                label="90 % credible",
            )
            axis.plot(times, truth[video, :, coordinate], color=BLUE, label="true")
            axis.plot(times, recovered, color=VERMILION, linestyle="--", label="recovered")
            axis.set_ylabel(f"{name} (prior std)")
            if video == 0:
                axis.set_title(f"{name} coordinate, a video to a row", fontsize="medium")
        plane = row[2]
        plane.plot(*truth[video].T, color=BLUE)
        plane.plot(*mean[video].T, color=VERMILION, linestyle="--")
        plane.plot(*truth[video, 0], color=BLUE, marker="o", linestyle="none", markersize=4)
        plane.set_aspect("equal", adjustable="datalim")
        plane.set_ylabel("vertical (prior std)")
        if video == 0:
            plane.set_title("path (dot: first frame)", fontsize="medium")
    axes[-1, 0].set_xlabel("time (frames)")
    axes[-1, 1].set_xlabel("time (frames)")
    axes[-1, 2].set_xlabel("horizontal (prior std)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return figure


def plot_rmse_against_inducing(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], lines: Mapping[str, float]
) -> Figure:
    """Plot RMSE against the number of inducing points, with reference models as lines.

    :param curves: For each label: numbers of inducing points, and mean RMSE over seeds.
    :param lines: RMSE of the models without inducing points, by label.
    """
    figure, axis = single_axis("number of inducing points, M", "test RMSE (prior std)")
    for (label, (num_inducing, mean)), color, marker in zip(
        curves.items(), itertools.cycle(CYCLE), itertools.cycle(_MARKERS), strict=False
    ):
        order = np.argsort(num_inducing)
        points = (np.asarray(values)[order] for values in (num_inducing, mean))
        axis.plot(*points, color=color, marker=marker, label=label)
    # Lines continue the colour cycle of the curves.
    colors = itertools.islice(itertools.cycle(CYCLE), len(curves), None)
    for (label, value), color, style in zip(
        lines.items(), colors, itertools.cycle(_LINE_STYLES), strict=False
    ):
        axis.axhline(value, color=color, linestyle=style, label=label)
    ticks = sorted({int(M) for num_inducing, _ in curves.values() for M in num_inducing})
    if ticks:
        axis.set_xticks(ticks)
    axis.set_ylim(bottom=0.0)
    axis.legend(frameon=False)
    return figure


def plot_lengthscale_posteriors(
    samples: Mapping[int, np.ndarray],
    true_value: float | None = None,
    prior: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Figure:
    """Plot the posterior density of the codes' lengthscale for several numbers of inducing points.

    The axis begins at zero and shows the prior, to compare its width with the posterior's; the
    legend has the central 95 % interval of each.

    :param samples: For each M, the posterior samples of the lengthscale, any shape (channels are
        pooled).
    :param true_value: Lengthscale of the kernel that the true path was drawn from, shown as a
        vertical line. Codes are a nonlinear map of the path, so their lengthscale differs slightly.
    :param prior: Density of the prior at an array of lengthscales.
    :raises ValueError: If there are no samples, or one is not finite.
    """
    if not samples:
        raise ValueError("samples is empty; pass the posterior samples of at least one M.")
    flat = {M: _finite(f"samples[{M}]", values) for M, values in sorted(samples.items())}
    pooled = np.concatenate(list(flat.values()))
    num_bins = min(60, max(5, int(np.sqrt(pooled.size))))
    bins = np.histogram_bin_edges(pooled, bins=num_bins).tolist()
    figure, axis = single_axis("lengthscale (frames)", "density (1 / frames)")
    axis.set_title("lengthscale of the codes: posterior", fontsize="medium")
    styles = itertools.cycle(("-", *_LINE_STYLES))
    for (M, values), color, style in zip(
        flat.items(), itertools.cycle(CYCLE), styles, strict=False
    ):
        low, high = np.quantile(values, (0.025, 0.975))
        axis.hist(values, bins=bins, density=True, histtype="stepfilled", color=color, alpha=0.15)
        axis.hist(
            values,
            bins=bins,
            density=True,
            histtype="step",
            color=color,
            linestyle=style,
            linewidth=1.5,
            label=f"M = {M}: {low:.2f} to {high:.2f}",
        )
    right = 1.3 * max(pooled.max(), true_value or 0.0)
    if prior is not None:
        grid = np.linspace(1e-3 * right, right, 400)
        axis.plot(grid, prior(grid), color=GREY, linewidth=1.0, label="prior")
    if true_value is not None:
        axis.axvline(
            true_value,
            color=BLACK,
            linestyle=":",
            linewidth=1.5,
            label=f"kernel of the ball's path: {true_value:g}\n(codes are a bent copy of it)",
        )
    axis.set_xlim(0.0, right)
    axis.legend(frameon=False, loc="upper left", fontsize="small")
    return figure


@check_shapes("steps: [R]", "log_likelihood: [chains..., R]", "log_prior: [chains..., R]")
def plot_chain(
    steps: Sequence[float] | np.ndarray,
    log_likelihood: np.ndarray,
    log_prior: np.ndarray,
    num_burnin: float = 0.0,
    prior_level: float | None = None,
    is_warm: bool = False,
) -> Figure:
    """Plot log likelihood and log prior of one or several chains, with burn-in shaded.

    From a mode, where a warm start ends, the prior density of a chain falls until the parameters
    reach the typical set of the posterior. Check that both curves level off.

    :param steps: Sampler steps at the end of each round.
    :param log_likelihood: Log density of codes and observations, in nats per point.
    :param log_prior: Log prior of the parameters, in nats per parameter.
    :param num_burnin: Number of steps of burn-in.
    :param prior_level: Mean of ``log_prior`` over draws of the prior, shown as a dashed line.
    :param is_warm: Whether the chain starts from a fit, which adds an explanation to the title.
    :raises ValueError: If there are no records.
    """
    if len(steps) == 0:
        raise ValueError("steps is empty; pass at least one record.")
    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    panels = figure.subplots(1, 2)
    for axis, values, title, unit in zip(
        panels,
        (log_likelihood, log_prior),
        ("log likelihood of codes and data", "log prior of the parameters"),
        ("nats per data point", "nats per parameter"),
        strict=True,
    ):
        if num_burnin:
            axis.axvspan(0.0, num_burnin, color=GREY, alpha=0.15, linewidth=0, label="burn-in")
        chains = np.atleast_2d(values)
        for number, of_chain in enumerate(chains):
            color = BLUE if len(chains) == 1 else f"C{number}"
            axis.plot(steps, of_chain, color=color, marker="." if len(steps) < 50 else None)
        axis.set(xlabel="step of the sampler", ylabel=unit)
        axis.set_title(title, fontsize="medium")
        axis.set_xlim(left=0.0)
        axis.grid(alpha=0.25)
    if prior_level is not None:
        panels[1].axhline(prior_level, color=BLACK, ls="--", lw=1.0, label="mean under the prior")
    handles = {
        label: handle
        for axis in panels
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False
        )
    if is_warm:
        figure.suptitle(
            "The chain starts at the mode of a fit, and the weights spread to where the posterior "
            "has its mass:\ntheir log prior falls on the way. The chain has arrived where both "
            "lines level off.",
            fontsize="small",
        )
    return figure


@check_shapes("samples: [S, M]")
def plot_inducing_posterior(samples: np.ndarray, x_range: tuple[float, float]) -> Figure:
    """Plot the pooled density of inducing inputs, and the interval of each.

    Inducing inputs are ordered from bottom to top by posterior median; thick bars are central 50 %
    intervals of the samples, thin ones 95 %.

    :param samples: Posterior samples of M one-dimensional inducing inputs.
    :param x_range: First and last input of the data, shaded.
    :raises ValueError: If there are no samples, one is not finite, or ``x_range`` is not
        increasing.
    """
    pooled = _finite("samples", samples)
    if not x_range[0] < x_range[1]:
        raise ValueError(f"x_range is {x_range}; expected (first, last) with first < last.")
    quantiles = np.quantile(np.asarray(samples), (0.025, 0.25, 0.5, 0.75, 0.975), axis=0)
    low, lower_quartile, median, upper_quartile, high = quantiles[:, np.argsort(quantiles[2])]
    M = len(median)
    rows = np.arange(1, M + 1)

    figure = Figure(figsize=(6.4, min(2.4 + 0.2 * M, 12.0)), layout="constrained")
    density, intervals = figure.subplots(2, 1, sharex=True, height_ratios=(1, max(1.0, M / 8)))
    for axis in (density, intervals):
        axis.axvspan(*x_range, color=GREY, alpha=0.12, linewidth=0, label="range of the data")
    density.hist(pooled, bins=60, density=True, color=BLUE, alpha=0.6)
    density.set_ylabel("density, pooled")
    density.set_title("where the inducing inputs lie: posterior", fontsize="medium")
    intervals.hlines(rows, low, high, color=BLUE, linewidth=2, label="95 %")
    intervals.hlines(rows, lower_quartile, upper_quartile, color=BLUE, linewidth=6, label="50 %")
    # A tick, which does not hide narrow intervals.
    tick = {"marker": "|", "markersize": 10, "linestyle": "none"}
    intervals.plot(median, rows, color=VERMILION, label="median", **tick)
    intervals.set_ylabel("inducing input, by median")
    intervals.set_ylim(0.0, M + 1.0)
    intervals.set_xlabel("time (frames)")
    handles, labels = intervals.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure


@check_shapes("steps: [K]", "values: [K]")
def plot_training_curve(
    steps: Sequence[float] | np.ndarray,
    values: Sequence[float] | np.ndarray,
    ylabel: str,
    xlabel: str = "step",
) -> Figure:
    """Plot a recorded quantity against the step of training or sampling.

    :param steps: Step of each record.
    :param values: The quantity; NaN leaves a gap.
    :param ylabel: Name and unit of the quantity.
    :param xlabel: Name and unit of ``steps``.
    :raises ValueError: If there are no records.
    """
    if len(steps) == 0:
        raise ValueError("steps is empty; pass at least one record.")
    figure, axis = single_axis(xlabel, ylabel)
    # Markers make a single record visible.
    axis.plot(steps, values, color=BLUE, marker="." if len(steps) < 50 else None)
    return figure


def single_axis(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    """Create a figure with one panel and a faint grid."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axis = figure.subplots()
    axis.grid(alpha=0.25)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axis


def _finite(name: str, values: np.ndarray) -> np.ndarray:
    flat = np.ravel(np.asarray(values, dtype=np.float64))
    if flat.size == 0:
        raise ValueError(f"{name} is empty; pass at least one posterior sample.")
    if not np.all(np.isfinite(flat)):
        raise ValueError(
            f"{name} holds NaN or infinite samples; drop them, or check the chain for divergence."
        )
    return flat
