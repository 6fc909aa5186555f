"""What amortised sampling costs, against a No-U-Turn sampler on the same joint density.

python -m experiments.amortisation --out_dir=runs/amortisation --jit_compile=true
python -m experiments.report --collect runs/amortisation
python -m experiments.amortisation_figures

Samples the reference once (``reference.npz``), then, for each encoder loss, a chain whose codes are
carried, and from its end the chains of a grid over K and J. Every cell of the grid has a folder of
its own with a results.json; --resume skips those that are done. docs/inference.md has the outcome.
"""

import json
import pathlib
import sys
import time
from typing import Any

from absl import app, flags

from experiments.common import flags as common_flags
from experiments.common import results, runs

FLAGS = common_flags.FLAGS


def define_flags() -> None:
    """The shared flags and this driver's own."""
    common_flags.define(["sgp_bae"])
    flags.DEFINE_list("sampler_steps", ["5", "20", "50", "200"], "Values of K.")
    flags.DEFINE_list(
        "encoder_losses", ["energy", "nll", "mse"], "Encoder losses; J is varied for the first."
    )
    flags.DEFINE_integer("num_chains", 8, "Chains of the reference.", lower_bound=2)
    flags.DEFINE_integer("num_warmup", 500, "Their adaptation.", lower_bound=1)
    flags.DEFINE_integer("num_draws", 1000, "Draws of each after it.", lower_bound=10)


def main(argv: list[str]) -> None:
    """Sample the reference and run the grid."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    if FLAGS.preset != "quick":
        raise app.UsageError("This study has no published counterpart: only --preset=quick.")
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments import amortisation_problem as problems
    from experiments import amortisation_reference
    from experiments import amortisation_study as study

    out_dir = pathlib.Path(FLAGS.out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    problem = problems.generate(0)
    started = time.process_time()
    reference = amortisation_reference.sample_reference(
        problems.build_model(problem),
        problem,
        num_chains=FLAGS.num_chains,
        num_warmup=FLAGS.num_warmup,
        num_draws=FLAGS.num_draws,
        path=out_dir / "reference.npz",
    )
    print(
        f"reference: R-hat {reference.rhat:.4f}, ESS {reference.ess:.0f}, "
        f"{reference.num_divergent} divergences, {time.process_time() - started:.0f} CPU s",
        flush=True,
    )
    starts = {
        loss: _start(study, loss, problem, reference, out_dir) for loss in FLAGS.encoder_losses
    }
    for cell in study.grid(FLAGS.encoder_losses, [int(k) for k in FLAGS.sampler_steps]):
        _run_cell(study, cell, problem, reference, starts[cell.encoder_loss], out_dir)


def _start(study: Any, loss: str, problem: Any, reference: Any, out_dir: pathlib.Path) -> Any:
    """The end of the carried chain with this loss, sampled now or by an earlier call."""
    path, cell = out_dir / f"start_{loss}.npz", study.start_cell(loss)
    if not path.exists():
        posterior = _run_cell(study, cell, problem, reference, None, out_dir)
        if posterior is None:
            raise app.UsageError(f"{path} is gone: delete {out_dir / cell.name} too.")
        study.end(posterior).save(path)
    return study.Start.load(path)


def _run_cell(
    study: Any, cell: Any, problem: Any, reference: Any, start: Any, out_dir: pathlib.Path
) -> Any:
    """The cell's chain, scored and written down; None where an earlier call has done that."""
    folder = out_dir / cell.name
    if (folder / results.RESULTS).exists() and FLAGS.resume:
        return None
    config = {
        "experiment": study.EXPERIMENT,
        "model": "sgp_bae",
        "preset": FLAGS.preset,
        "seed": FLAGS.seed,
        "settings": study.describe(cell),
    }
    results.prepare_out_dir(folder, config, FLAGS.resume)
    started, cpu = time.perf_counter(), time.process_time()
    posterior = study.run(
        cell,
        problem,
        start=start,
        seed=FLAGS.seed,
        jit_compile=common_flags.resolve_jit_compile(FLAGS.jit_compile),
    )
    metrics = study.scores(posterior, problem, reference)
    cpu = time.process_time() - cpu
    metrics |= {"reference_rhat": reference.rhat, "reference_ess": reference.ess}
    results.write_results(
        folder,
        study.EXPERIMENT,
        "sgp_bae",
        FLAGS.preset,
        FLAGS.seed,
        1.0,
        metrics,
        posterior.seconds | {"cpu": cpu, "total": time.perf_counter() - started},
        posterior.model.num_sampled + posterior.latents[0].size,
        settings=study.describe(cell),
        command=runs.command("amortisation", sys.argv[1:]),
    )
    shown = {k: round(v, 3) for k, v in metrics.items() if k.endswith(("bias", "sd_ratio"))}
    print(f"{cell.name} {cpu:.0f} CPU s: {json.dumps(shown)}", flush=True)
    return posterior


if __name__ == "__main__":
    define_flags()
    app.run(main)
