"""How well the examples of README.md and docs/get_started.md do as they are written.

python -m benchmarks.examples --out=docs/results/examples.json

Each example runs in a process of its own for each seed, which takes the place of the one that it
names; the first seed runs twice, and must give the same numbers. Errors stand beside those of
column means; README's also beside the moving ball's own quick runs (docs/results/moving_ball.json).
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

from absl import app, flags

ROOT = pathlib.Path(__file__).parents[1]
PAGES = {"readme": ROOT / "README.md", "get_started": ROOT / "docs" / "get_started.md"}
CALL = "seed=0)"

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The benchmark's flags."""
    flags.DEFINE_list("examples", list(PAGES), f"Among {list(PAGES)}.")
    flags.DEFINE_list("seeds", [str(s) for s in range(5)], "Of each run.")
    flags.DEFINE_string("one", None, "Run this example alone, in this process, and print scores.")
    flags.DEFINE_string("out", None, "JSON file to write; printed only where not given.")


def run_example(name: str, seed: int) -> dict[str, float]:
    """Scores of one example with one seed."""
    blocks = re.findall(r"```python\n(.*?)```", PAGES[name].read_text(), flags=re.S)
    source = "\n".join(blocks)
    assert source.count(CALL) >= 1, f"{name} has no call with {CALL!r}"
    head, _, tail = source.rpartition(CALL)
    source = f"{head}seed={seed}){tail}"
    names: dict = {"__name__": "example"}
    started, cpu = time.perf_counter(), time.process_time()
    exec(compile(source, name, "exec"), names)
    scores = _ball(names) if name == "readme" else _holes(names)
    return scores | {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu,
    }


def _ball(names: dict) -> dict[str, float]:
    """Aligned trajectory errors: of the training videos, and of others through the same map."""
    from gpflow_bae import metrics
    from gpflow_bae.datasets import moving_ball

    videos, posterior = names["videos"], names["posterior"]
    held_out = moving_ball.generate(seed=1000, num_videos=35)
    train = posterior.predict_latent(given=(videos.X, videos.Y))[0]
    test = posterior.predict_latent(given=(held_out.X, held_out.Y))[0]
    alignment = metrics.fit_affine(train, videos.trajectories)
    return {
        "rmse_train": metrics.aligned_trajectory_rmse(train, videos.trajectories, alignment),
        "rmse_one_map": metrics.aligned_trajectory_rmse(test, held_out.trajectories, alignment),
        "rmse_of_means": float(videos.trajectories.std()),
    }


def _holes(names: dict) -> dict[str, float]:
    return {"rmse_holes": float(names["error"]), "rmse_of_means": float(names["of_means"])}


def main(argv: list[str]) -> None:
    """Run, print, and maybe write."""
    del argv
    if FLAGS.one is not None:
        print(json.dumps(run_example(FLAGS.one, int(FLAGS.seeds[0]))))
        return
    from experiments.common import provenance

    rows = []
    for name in FLAGS.examples:
        for number, seed in enumerate([FLAGS.seeds[0], *FLAGS.seeds]):
            command = [sys.executable, "-m", "benchmarks.examples", f"--one={name}"]
            done = subprocess.run(
                [*command, f"--seeds={seed}"],
                cwd=ROOT,
                env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            scores = json.loads(done.stdout.strip().splitlines()[-1])
            rows.append({"example": name, "seed": int(seed), "again": number == 0, **scores})
            print(rows[-1], flush=True)
            if FLAGS.out is not None:
                made_with = {
                    "versions": provenance.versions(),
                    "git_commit": provenance.git_commit(),
                }
                record = {"rows": rows, **made_with}
                pathlib.Path(FLAGS.out).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    define_flags()
    app.run(main)
