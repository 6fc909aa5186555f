"""The paper's figures of the tabular study: manifold, traces and weight posteriors."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from experiments.common.driver import Outcome
from experiments.tabular.plans import ChainPlan, Plan
from gpflow_bae import plotting
from gpflow_bae.datasets import tabular


def draw(
    plan: Plan,
    outcome: Outcome,
    table: tabular.Table,
    codes: np.ndarray,
    reconstruction: np.ndarray,
    num_burnin: int = 0,
) -> None:
    """Draw the figures of one run.

    :param codes, reconstruction: codes of the test rows [Ntest, L], averaged over samples, and
        reconstructed rows.
    :param num_burnin: rows of the trace before the first sample.
    """
    figures = outcome.figures
    if plan.dataset == "swiss_roll":
        figures["swiss_roll"] = _manifold(table, codes, reconstruction)
    if "training_mse" in outcome.curves:
        values = outcome.curves["training_mse"]
        epochs = np.arange(1, len(values) + 1)
        found = plotting.plot_training_curve(epochs, values, "training MSE", "epoch")
        figures["training"] = found
    if plan.sampler is not None:
        trace, posterior = outcome.posterior.trace, outcome.posterior
        what = "round" if isinstance(plan, ChainPlan) else "step"
        figures["log_likelihood"] = _traces(
            trace["log_likelihood"], what, "log likelihood (nats)", num_burnin
        )
        figures["mse"] = _traces(
            posterior.squared_errors(table.test).T, "posterior sample", "test MSE"
        )
        weights = posterior.hyperparameters(include_weights=True)
        kernels = [path for path in weights if weights[path].ndim == 4][:4]
        figures["weights"] = _marginals({k: weights[k][:, :, 0, 0] for k in kernels})


def _manifold(table: tabular.Table, codes: np.ndarray, reconstruction: np.ndarray) -> Figure:
    """Draw test rows, reconstructions and codes, coloured by the position on the roll."""
    figure = Figure(figsize=(12.0, 4.0), layout="constrained")
    for i, (title, rows) in enumerate(
        (("test rows", table.test), ("reconstructed", reconstruction)), start=1
    ):
        axes = figure.add_subplot(1, 3, i, projection="3d")
        axes.scatter(*rows.T, c=table.labels, s=6, cmap="viridis")
        axes.set(title=title, xlabel="x", ylabel="height", zlabel="z")
        axes.view_init(elev=12.0, azim=-78.0)
    axes = figure.add_subplot(1, 3, 3)
    shown = axes.scatter(*codes.T, c=table.labels, s=6, cmap="viridis")
    axes.set(title="codes", xlabel="code 1", ylabel="code 2")
    figure.colorbar(shown, ax=axes, label="angle along the roll (rad)")
    return figure


def _traces(values: np.ndarray, xlabel: str, ylabel: str, num_burnin: int = 0) -> Figure:
    """Draw values [steps, R], a line per replica, and mark the end of burn-in."""
    figure = Figure(figsize=(7.0, 3.2), layout="constrained")
    axes = figure.subplots()
    stride = max(1, len(values) // 2000)
    for replica, line in enumerate(np.asarray(values, float).T):
        axes.plot(np.arange(len(line))[::stride], line[::stride], lw=0.7, label=str(replica))
    if num_burnin:
        axes.axvline(num_burnin, color=plotting.GREY, ls="--", lw=1.0)
        axes.set_title("dashed: from here on samples at temperature 1", fontsize="small")
        # The first steps span nearly the whole range, so the limits are those of later ones.
        later = values[len(values) // 20 :]
        margin = 0.05 * (later.max() - later.min()) + 1e-12
        axes.set_ylim(later.min() - margin, later.max() + margin)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    figure.legend(title="replica", loc="outside right upper", fontsize="small")
    return figure


def _marginals(samples: dict[str, np.ndarray]) -> Figure:
    """Draw histograms of one weight of each kernel, a line per replica; samples are [R, S]."""
    figure = Figure(figsize=(3.2 * max(1, len(samples)), 3.0), layout="constrained")
    figure.suptitle(
        "a weight of each layer, a line for each replica: they coincide where chains have mixed",
        fontsize="small",
    )
    for axes, (path, values) in zip(
        np.ravel(figure.subplots(1, max(1, len(samples)), squeeze=False)),
        samples.items(),
        strict=True,
    ):
        bins = np.linspace(values.min(), values.max() + 1e-9, 30)
        for replica in values:
            axes.hist(replica, bins, histtype="step", density=True)
        axes.set(xlabel="first weight", yticks=[])
        axes.set_title(path.lstrip("."), fontsize="medium")
        axes.locator_params(axis="x", nbins=3)
    return figure
