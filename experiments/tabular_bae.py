"""Bayesian autoencoders of tables, sampled with tempered MCMC (Chandra et al. 2022).

python -m experiments.tabular_bae --dataset=swiss_roll --method=adapt_lg_star --preset=paper \
    --setting=published --seed=0 --out_dir=runs/swiss_roll

``swiss_roll`` is generated; ``madelon`` and ``coil2000`` are read from --data_dir. --setting is
``published`` (networks, proposals and prior as in the paper) or ``tuned`` (ours: the same networks,
prior and likelihood, with a start near a mode and whitened coordinates). --method=sghmc is ours:
four chains at temperature 1 from the best of many modes. --method=columns classifies rows by the
columns themselves, without an autoencoder.
"""

from collections.abc import Iterator

from absl import app, flags

from experiments.common import driver
from experiments.common import flags as common_flags

DATASETS = ["swiss_roll", "madelon", "coil2000"]
METHODS = ["adam", "sgd", "random_walk", "lg", "adapt_lg", "adapt_lg_star", "hmc", "sghmc"]
METHODS += ["columns"]
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
    flags.DEFINE_boolean(
        "all_rows",
        False,
        "Train on all 5822 rows of coil2000 and test on the 4000 others, as in table 1 of the "
        "paper, instead of a quarter.",
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
    if FLAGS.all_rows and FLAGS.dataset != "coil2000":
        raise app.UsageError("--all_rows is of coil2000: the others have test rows of their own.")
    changes = common_flags.overrides(_OVERRIDES)
    if FLAGS.method == "columns":
        yield _columns_run()
        return
    plan = make_plan(FLAGS.dataset, FLAGS.method, FLAGS.preset, FLAGS.setting, changes)

    def execute(options: driver.Options) -> driver.Outcome:
        table = study.load(
            FLAGS.dataset, FLAGS.data_dir, FLAGS.seed, FLAGS.num_rows, FLAGS.all_rows
        )
        return study.run(plan, table, options, FLAGS.max_steps)

    yield driver.Run(
        model=f"{FLAGS.dataset}/{FLAGS.method}",
        plan=plan,
        execute=execute,
        # Every changed setting is in the variant, as results of one variant are averaged.
        words=[
            FLAGS.setting,
            "" if FLAGS.num_rows == 2000 else f"{FLAGS.num_rows} rows",
            "4000 test rows" if FLAGS.all_rows else "",
            *(f"{name}={value}" for name, value in changes.items()),
        ],
        more=({} if FLAGS.num_rows == 2000 else {"num_rows": FLAGS.num_rows})
        | ({"all_rows": True} if FLAGS.all_rows else {}),
    )


def _columns_run() -> driver.Run:
    from experiments.tabular import study

    if FLAGS.dataset == "swiss_roll":
        raise app.UsageError("--method=columns is of tables with classes: madelon and coil2000.")

    def execute(options: driver.Options) -> driver.Outcome:
        rows = (FLAGS.dataset, FLAGS.data_dir, FLAGS.seed)
        return study.classify_columns(study.load(*rows, all_rows=FLAGS.all_rows))

    return driver.Run(
        model=f"{FLAGS.dataset}/columns",
        plan=None,
        execute=execute,
        words=["4000 test rows" if FLAGS.all_rows else ""],
        more={"all_rows": True} if FLAGS.all_rows else {},
    )


STUDY = driver.Study("tabular_bae", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
