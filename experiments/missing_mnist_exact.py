"""Missing digits: fitted posteriors of the codes beside the exact ones, by numerical integration.

python -m experiments.missing_mnist_exact --runs=runs --data_dir=DATA

Of every finished run of experiments.missing_mnist with two latent dimensions below --runs: what the
exact posterior of its codes would gain, under the functions that it found
(experiments/gplvm/exact.py).
"""

from absl import app, flags

from experiments.common import flags as common_flags
from experiments.common import terminal

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    common_flags.define_data_dir()
    flags.DEFINE_string("runs", None, "Folder below which finished runs lie.", required=True)
    flags.DEFINE_string("out_file", "docs/results/gplvm_exact.json", "JSON to write.")
    flags.DEFINE_integer("rows", 500, "Rows of each run, evenly spaced.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Compare, print and write."""
    # TensorFlow takes seconds to import, and --help does not need it.
    import json
    import pathlib

    import numpy as np

    from experiments import export_runs
    from experiments.common import provenance
    from experiments.gplvm import exact
    from gpflow_bae.datasets import missing_mnist

    found = []
    for path in sorted(pathlib.Path(FLAGS.runs).rglob("results.json")):
        run = json.loads(path.read_text())
        settings = run["settings"]
        is_ours = run["model"].startswith("missing_mnist/") and settings["latent_dim"] == 2
        if not is_ours or settings["posterior"] == "map":
            continue
        posterior = export_runs.read(path.parent, FLAGS.data_dir).posterior
        # Which images a seed has does not depend on what of them is hidden.
        images = missing_mnist.load(FLAGS.data_dir, posterior.num_rows, 0.4, run["seed"])
        rows = np.linspace(0, posterior.num_rows - 1, FLAGS.rows).astype(int)
        scores = exact.compare(posterior, images.truth, np.unique(rows))
        found.append({k: run[k] for k in ("model", "variant", "seed", "git_commit")} | scores)
        print(json.dumps(found[-1]), flush=True)
    if not found:
        raise app.UsageError(f"--runs={FLAGS.runs} holds no finished run of missing_mnist.")
    written = {"runs": found, "versions": provenance.versions()}
    pathlib.Path(FLAGS.out_file).write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    define_flags()
    terminal.run(main)
