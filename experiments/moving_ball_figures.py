"""Figures of the moving-ball results page, drawn from finished runs.

python -m experiments.moving_ball_figures --runs=runs --out_dir=docs/results/figures

Reads every results.json and arrays.npz below --runs, and draws the paper's figures: recovered
trajectories, RMSE against M, lengthscale posteriors for several M, inducing inputs, and what each
posterior sample scores along the chain.
"""

import collections
import json
import pathlib

import numpy as np
from absl import app, flags

from gpflow_bae import plotting

FLAGS = flags.FLAGS
EXPERIMENT = "moving_ball"


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_string("runs", None, "Folder below which finished runs lie.", required=True)
    flags.DEFINE_string("out_dir", "docs/results/figures", "Where the PNG files go.")


def main(argv: list[str]) -> None:
    """Draw what the runs allow."""
    del argv
    out_dir = pathlib.Path(FLAGS.out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    runs = load_runs(pathlib.Path(FLAGS.runs))
    for name, figure in draw(runs).items():
        path = out_dir / f"{EXPERIMENT}_{name}.png"
        figure.savefig(path, dpi=110)
        print(path)


def load_runs(folder: pathlib.Path) -> list[dict]:
    """Results with their arrays, in the order of their paths."""
    runs = []
    for path in sorted(folder.rglob("results.json")):
        result = json.loads(path.read_text())
        if result["experiment"] != EXPERIMENT:
            continue
        with np.load(path.parent / "arrays.npz") as arrays:
            runs.append(result | {"arrays": dict(arrays)})
    return runs


def draw(runs: list[dict]) -> dict:
    """All figures that ``runs`` allow, by name."""
    figures = {}
    for preset in ("quick", "paper"):
        chosen = [r for r in runs if r["preset"] == preset and _of_the_preset(r)]
        ours = [r for r in chosen if r["model"] == "sgp_bae"]
        at_ten = [r for r in ours if r["settings"]["num_inducing"] == 10]
        if at_ten:
            first = min(at_ten, key=lambda r: r["seed"])
            arrays, scores = first["arrays"], first["curves"]["rmse_per_sample"]
            figures[f"trajectories_{preset}"] = plotting.plot_trajectories(
                arrays["truth"], arrays["mean"], np.sqrt(arrays["variance"])
            )
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
        figures[f"lengthscale_{preset}"] = plotting.plot_lengthscale_posteriors(
            {m: _array(by_number[m][0], "lengthscales") for m in numbers}, 2.0
        )
        if len(numbers) > 2:
            means = [float(np.mean([r["metrics"]["rmse"] for r in by_number[m]])) for m in numbers]
            figures[f"rmse_against_inducing_{preset}"] = plotting.plot_rmse_against_inducing(
                {"sgp_bae": (numbers, means, None)}, _mean_rmse(chosen, ("vae", "bae", "gp_bae"))
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
    define_flags()
    app.run(main)
