"""Bayesian autoencoders of tables, sampled with tempered MCMC (Chandra et al. 2022).

python -m experiments.tabular_bae --dataset=swiss_roll --method=adapt_lg_star --preset=paper \
    --setting=published --seed=0 --out_dir=runs/swiss_roll

``swiss_roll`` is generated; ``madelon`` and ``coil2000`` are read from --data_dir. --setting is
``published`` (networks, proposals and prior as in the paper) or ``tuned`` (ours: the same networks,
prior and likelihood, with a start near a mode and whitened coordinates). --method=sghmc is ours:
four chains at temperature 1 from the best of many modes.
"""

from collections.abc import Iterator

from absl import app, flags

from experiments.common import driver
from experiments.common import flags as common_flags

DATASETS = ["swiss_roll", "madelon", "coil2000"]
METHODS = ["adam", "sgd", "random_walk", "lg", "adapt_lg", "adapt_lg_star", "hmc", "sghmc"]
FLAGS = common_flags.FLAGS

# Flags that each replace one setting of the preset when given.
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
    """Define the shared flags, and those of this driver."""
    common_flags.define(METHODS, default_model="adapt_lg_star", model_flag="method")
    flags.DEFINE_enum("dataset", "swiss_roll", DATASETS, "Which table.")
    flags.DEFINE_integer(
        "num_rows", 2000, "Of swiss_roll, a quarter of them for the test; the paper has 5000.", 100
    )
    flags.DEFINE_enum(
        "setting", "tuned", ["published", "tuned"], "The paper's settings, or ours (see above)."
    )
    flags.DEFINE_integer("max_steps", None, "Stop after so many steps; --resume goes on.", 1)
    common_flags.define_overrides(_OVERRIDES)


def runs() -> Iterator[driver.Run]:
    """Generate the run of one method on one table."""
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments.tabular import study
    from experiments.tabular.plans import make_plan

    if FLAGS["num_rows"].present and FLAGS.dataset != "swiss_roll":
        raise app.UsageError(f"--num_rows is of swiss_roll: {FLAGS.dataset} has the rows it has.")
    changes = common_flags.overrides(_OVERRIDES)
    plan = make_plan(FLAGS.dataset, FLAGS.method, FLAGS.preset, FLAGS.setting, changes)

    def execute(options: driver.Options) -> driver.Outcome:
        table = study.load(FLAGS.dataset, FLAGS.data_dir, FLAGS.seed, FLAGS.num_rows)
        return study.run(plan, table, options, FLAGS.max_steps)

    yield driver.Run(
        model=f"{FLAGS.dataset}/{FLAGS.method}",
        plan=plan,
        execute=execute,
        # Every changed setting is in the variant, as results of one variant are averaged.
        words=[
            FLAGS.setting,
            "" if FLAGS.num_rows == 2000 else f"{FLAGS.num_rows} rows",
            *(f"{name}={value}" for name, value in changes.items()),
        ],
        more={} if FLAGS.num_rows == 2000 else {"num_rows": FLAGS.num_rows},
    )


STUDY = driver.Study("tabular_bae", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
