"""Figures of the moving ball: of one run at its end, and of the results page from finished runs.

python -m experiments.moving_ball.figures --runs=runs --out_dir=docs/results/figures

Reads every results.json and arrays.npz below --runs, and draws the paper's figures: recovered
trajectories, RMSE against M, lengthscale posteriors for several M, inducing inputs, and what each
posterior sample scores along the chain.
"""

import collections
from typing import Any

import numpy as np
import scipy.stats

from experiments.common import pages, plans
from experiments.common.curves import plot_losses
from experiments.common.driver import Outcome
from gpflow_bae import plotting


def draw(plan: Any, outcome: Outcome, X: np.ndarray) -> None:
    """The paper's figures of one run, from its arrays, to which the hyperparameters are added.

    :param X: Times of the training frames [T, N, 1].
    """
    arrays, found = outcome.arrays, outcome.figures
    found["trajectories"] = _trajectories(arrays)
    text = f"{plan.model}, test RMSE {outcome.metrics['rmse']:.2f} (0: exact, 1: the mean path)"
    if plan.model in ("vae", "bae"):
        text += "; without a Gaussian process over time codes fold the plane"
    found["trajectories"].supxlabel(text, fontsize="medium")
    if plan.is_sampled:
        found["chain"] = plans.chain_figure(outcome.posterior, plan.schedule, plan.warm_start)
    if "variational_loss" in outcome.curves:
        words = ("block of 50 steps of Adam", "negative bound per frame (nats)")
        found["loss"] = plot_losses(outcome.curves, {"variational_loss": words})
    for path, values in outcome.posterior.hyperparameters().items():
        arrays[path.lstrip(".").replace("[", "_").replace("]", "")] = values
        if path.endswith("lengthscales") and len(values) > 1:
            label = plan.describe().get("num_inducing", X.shape[1])
            found["lengthscale"] = _lengthscales({label: values})
        if path.endswith(".Z") and len(values) > 1:
            found["inducing"] = plotting.plot_inducing_posterior(
                values[..., 0], (float(X.min()), float(X.max()))
            )


def _trajectories(arrays: dict[str, np.ndarray]) -> Any:
    return plotting.plot_trajectories(arrays["truth"], arrays["mean"], np.sqrt(arrays["variance"]))


def _lengthscales(samples: dict[int, np.ndarray]) -> Any:
    """Beside the prior, LogNormal(0, 1), and the kernel that the ball's path is drawn from."""
    return plotting.plot_lengthscale_posteriors(samples, 2.0, scipy.stats.lognorm(s=1.0).pdf)


def draw_runs(runs: list[dict]) -> dict[str, Any]:
    """All figures that ``runs`` allow, by name."""
    figures = {}
    for preset in ("quick", "paper"):
        chosen = [r for r in runs if r["preset"] == preset and _of_the_preset(r)]
        ours = [r for r in chosen if r["model"] == "sgp_bae"]
        at_ten = [r for r in ours if r["settings"]["num_inducing"] == 10]
        if at_ten:
            first = min(at_ten, key=lambda r: r["seed"])
            arrays, scores = first["arrays"], first["curves"]["rmse_per_sample"]
            figures[f"trajectories_{preset}"] = _trajectories(arrays)
            figures[f"rmse_per_sample_{preset}"] = plotting.plot_training_curve(
                np.arange(1, len(scores) + 1),
                scores,
                "test RMSE of one posterior sample",
                "posterior sample, in the order of the chain",
            )
            figures[f"inducing_{preset}"] = plotting.plot_inducing_posterior(
                _array(first, "Z")[..., 0], (0.0, 29.0)
            )
        by_number = collections.defaultdict(list)
        for run in sorted(ours, key=lambda r: r["seed"]):
            by_number[run["settings"]["num_inducing"]].append(run)
        numbers = sorted(by_number)
        if not numbers:
            continue
        figures[f"lengthscale_{preset}"] = _lengthscales(
            {m: _array(by_number[m][0], "lengthscales") for m in numbers}
        )
        if len(numbers) > 2:
            means = [float(np.mean([r["metrics"]["rmse"] for r in by_number[m]])) for m in numbers]
            figures[f"rmse_against_inducing_{preset}"] = plotting.plot_rmse_against_inducing(
                {"sgp_bae": (numbers, means)}, _mean_rmse(chosen, ("vae", "bae", "gp_bae"))
            )
    return figures


def _of_the_preset(run: dict) -> bool:
    """Whether a run has the preset's settings, or is a shorter chain of that model."""
    variant = run.get("variant", "")
    return not variant or variant.startswith("first ") or variant == "short"


def _mean_rmse(runs: list[dict], models: tuple[str, ...]) -> dict[str, float]:
    values = {m: [r["metrics"]["rmse"] for r in runs if r["model"] == m] for m in models}
    return {m: float(np.mean(v)) for m, v in values.items() if v}


def _array(run: dict, suffix: str) -> np.ndarray:
    names = [name for name in run["arrays"] if name.endswith(suffix)]
    return run["arrays"][names[0]]


if __name__ == "__main__":
    pages.draw_runs("moving_ball", draw_runs)
