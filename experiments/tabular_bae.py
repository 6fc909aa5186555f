"""Bayesian autoencoders of tables, sampled with tempered MCMC (Chandra et al. 2022).

python -m experiments.tabular_bae --dataset=swiss_roll --method=adapt_lg_star --preset=paper \
    --setting=published --seed=0 --out_dir=runs/swiss_roll

``swiss_roll`` is generated; ``madelon`` and ``coil2000`` are read from --data_dir. --setting is
``published`` (networks, proposals and prior as in the paper) or ``tuned`` (ours: the same networks,
prior and likelihood, started near a mode and sampled in whitened coordinates).
"""

import pathlib
import sys
import time

from absl import app, flags

from experiments.common import flags as common_flags
from experiments.common import results, runs

DATASETS = ["swiss_roll", "madelon", "coil2000"]
METHODS = ["adam", "sgd", "random_walk", "lg", "adapt_lg", "adapt_lg_star", "hmc"]
FLAGS = common_flags.FLAGS

# Flags that replace one setting of the preset when given; None keeps the preset's.
_OVERRIDES = {
    "num_replicas": (flags.DEFINE_integer, "Replicas of the temperature ladder."),
    "max_temperature": (flags.DEFINE_float, "Highest temperature of the ladder."),
    "swap_interval": (flags.DEFINE_integer, "Steps between swaps."),
    "num_samples": (flags.DEFINE_integer, "Steps of each replica, burn-in included."),
    "thinning": (flags.DEFINE_integer, "Steps between samples that are kept."),
    "noise_scale": (flags.DEFINE_float, "Standard deviation of the proposal's noise."),
    "learning_rate": (flags.DEFINE_float, "Of the gradient step."),
    "adam_learning_rate": (flags.DEFINE_float, "Of the step of Adam."),
    "gradient_probability": (flags.DEFINE_float, "Share of proposals that follow a gradient."),
    "num_start_steps": (flags.DEFINE_integer, "Steps of Adam towards a mode first."),
    "whitening": (flags.DEFINE_string, "none, kronecker or dense."),
    "whitening_damping": (flags.DEFINE_float, "Added to the precision of every direction."),
    "max_leapfrog_steps": (flags.DEFINE_integer, "Of hmc."),
}


def define_flags() -> None:
    """The shared flags and this driver's own."""
    common_flags.define(METHODS, default_model="adapt_lg_star", model_flag="method")
    flags.DEFINE_enum("dataset", "swiss_roll", DATASETS, "Which table.")
    flags.DEFINE_enum(
        "setting", "tuned", ["published", "tuned"], "The paper's settings, or ours (see above)."
    )
    flags.DEFINE_integer(
        "max_steps", None, "Stop after so many steps; --resume goes on.", lower_bound=1
    )
    common_flags.define_overrides(_OVERRIDES)


def main(argv: list[str]) -> None:
    """Run one method on one table, and write results and figures."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments import tabular_figures
    from experiments import tabular_study as study

    out_dir = pathlib.Path(FLAGS.out_dir)
    overrides = common_flags.overrides(_OVERRIDES)
    plan = study.Plan.make(FLAGS.dataset, FLAGS.method, FLAGS.preset, FLAGS.setting, overrides)
    table = study.load(FLAGS.dataset, FLAGS.data_dir, FLAGS.seed)
    name = f"{FLAGS.dataset}/{FLAGS.method}"
    config = {
        "experiment": study.EXPERIMENT,
        "model": name,
        "preset": FLAGS.preset,
        "seed": FLAGS.seed,
        "settings": plan.describe(),
    }
    if not runs.claim(out_dir, config, FLAGS.resume):
        return
    started = time.perf_counter()
    outcome = study.run(
        plan,
        table,
        seed=FLAGS.seed,
        out_dir=out_dir,
        resume=FLAGS.resume,
        max_steps=FLAGS.max_steps,
        jit_compile=common_flags.resolve_jit_compile(FLAGS.jit_compile),
    )
    # A row of its own for every change to a setting: rows of one variant are averaged over seeds.
    variant = " ".join([FLAGS.setting, *(f"{name}={value}" for name, value in overrides.items())])
    complete = True
    if plan.sampler is not None and outcome.posterior is not None:
        num_steps = len(outcome.posterior.trace["log_likelihood"])
        complete = num_steps >= plan.sampler.num_samples
        if not complete:
            variant += f" first {num_steps} of {plan.sampler.num_samples} steps"
    results.write_results(
        out_dir,
        study.EXPERIMENT,
        name,
        FLAGS.preset,
        FLAGS.seed,
        None if plan.sampler is None else 1.0,
        outcome.metrics,
        outcome.seconds | {"total": time.perf_counter() - started},
        outcome.num_parameters,
        variant=variant,
        complete=complete,
        settings=plan.describe(),
        command=runs.command("tabular_bae", sys.argv[1:]),
        curves=outcome.curves,
    )
    tabular_figures.draw(plan, outcome, table, out_dir)
    shown = ", ".join(f"{k} {v:.4g}" for k, v in outcome.metrics.items())
    print(f"{name}: {shown}. Results and figures are in {out_dir}.")


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(common_flags)  # so that --help lists them
    app.run(main)
