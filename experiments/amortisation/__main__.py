"""What amortised sampling costs, against a No-U-Turn sampler on the same joint density.

python -m experiments.amortisation --out_dir=runs/amortisation --jit_compile=true
python -m experiments.report --collect runs/amortisation
python -m experiments.amortisation.figures

Samples the reference once (``reference.npz``), then, for each encoder loss, a chain whose codes are
carried, and from its end the chains of a grid over K and J. Every cell of the grid has a folder of
its own with a results.json; --resume skips those that are done. docs/inference.md has the outcome.
"""

import functools
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from absl import flags

from experiments.common import driver
from experiments.common import flags as common_flags

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


def runs() -> Iterator[driver.Run]:
    """The chains that others start from the end of, and the grid, a run for each cell."""
    if FLAGS.preset != "quick":
        raise ValueError("This study has no published counterpart: only --preset=quick.")
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments.amortisation import study

    problem, reference = _reference()
    starts = {}
    for loss in FLAGS.encoder_losses:
        cell = study.start_cell(loss)
        path = pathlib.Path(FLAGS.out_dir) / f"start_{loss}.npz"
        if not path.exists():
            yield _run(cell, problem, reference, save_end=path)
            if not path.exists():
                raise ValueError(f"{path} is gone: delete {path.with_name(cell.name)} too.")
        starts[loss] = study.Start.load(path)
    for cell in study.grid(FLAGS.encoder_losses, [int(k) for k in FLAGS.sampler_steps]):
        yield _run(cell, problem, reference, start=starts[cell.encoder_loss])


def _reference() -> tuple[Any, Any]:
    """The problem and the draws that chains are compared with, new or of an earlier call."""
    from experiments.amortisation import problem as problems
    from experiments.amortisation.reference import sample_reference

    out_dir = pathlib.Path(FLAGS.out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    problem, started = problems.generate(0), time.process_time()
    reference = sample_reference(
        problems.build_model(problem),
        problem,
        path=out_dir / "reference.npz",
        **common_flags.values("num_chains", "num_warmup", "num_draws"),
    )
    print(
        f"reference: R-hat {reference.rhat:.4f}, ESS {reference.ess:.0f}, "
        f"{reference.num_divergent} divergences, {time.process_time() - started:.0f} CPU s",
        flush=True,
    )
    return problem, reference


def _run(cell: Any, problem: Any, reference: Any, **ends: Any) -> driver.Run:
    from experiments.amortisation import study

    execute = functools.partial(study.execute, cell, problem, reference, **ends)
    return driver.Run(model="sgp_bae", plan=cell, execute=execute, folder=cell.name)


STUDY = driver.Study("amortisation", "amortisation", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
