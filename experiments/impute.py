"""Fill the holes of a table of your own, with uncertainty, and see whether to trust it.

python -m experiments.impute --input=table.csv --time=date --inputs=lat,lon --outputs=a,b,c \
    --task=station --out=imputed.csv

A tenth of the observed cells is hidden first, and the model is scored on it beside column means,
linear interpolation and independent GPs. Then the model is fitted to everything, and writes
``imputed.csv`` with ``<output>_sd`` and a 90 % interval for every filled cell, a figure for each
output, and the fitted posterior. ``--posterior=DIR`` fills other rows with that posterior, without
fitting again; it may hold tasks that the fit never saw.
"""

import pathlib
import sys
from typing import Any

from absl import app, flags

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_string("input", None, "CSV or Parquet file with holes.", required=True)
    flags.DEFINE_string("out", None, "The same table, filled; CSV or Parquet.", required=True)
    flags.DEFINE_list("outputs", [], "Columns to fill.")
    flags.DEFINE_string("time", None, "Column of numbers or ISO dates; the first input.")
    flags.DEFINE_list("inputs", [], "Further numeric inputs, such as coordinates.")
    flags.DEFINE_string("task", None, "Column that names the independent series a row belongs to.")
    flags.DEFINE_string("separator", ",", "Between the columns of a CSV file.")
    flags.DEFINE_enum("model", "sgp_vae", ["sgp_vae", "sgp_bae"], "Which model.")
    flags.DEFINE_string("posterior", None, "Folder of an earlier fit; nothing is fitted.")
    flags.DEFINE_integer("latent_dim", None, "Latent channels; half of the outputs by default.")
    flags.DEFINE_integer("num_inducing", 64, "Inducing points.", lower_bound=1)
    flags.DEFINE_integer("epochs", None, "Adam steps.", lower_bound=1)
    flags.DEFINE_float("hold_out", 0.1, "Share of observed cells that the check hides; 0 for none.")
    flags.DEFINE_integer("seed", 0, "Of everything random.", lower_bound=0)


def main(argv: list[str]) -> None:
    """Read, check, fill, write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    from experiments import impute_study as study
    from experiments import impute_table

    out = pathlib.Path(FLAGS.out)
    try:
        earlier, columns, user = _read(study, impute_table)
    except (FileNotFoundError, ValueError) as error:
        # What is wrong with a table is the user's to read, not a traceback.
        sys.exit(f"impute: {error}")
    holes = int((~user.table.observed[user.table.rows]).sum())
    print(f"{len(user.raw)} rows, {len(user.tasks)} task(s), {holes} holes.")
    if earlier is None:
        plan = study.make_plan(
            FLAGS.model, user.table, FLAGS.latent_dim, FLAGS.num_inducing, FLAGS.epochs
        )
        if FLAGS.hold_out > 0:
            print(study.check(plan, user.table, FLAGS.hold_out, FLAGS.seed).to_string())
        saved = study.SavedFit.fit(plan, user, columns, FLAGS.seed)
        saved.write(out.with_suffix(".posterior"))
        mean, variance = saved.predict(user)
    else:
        mean, variance = earlier.predict(user, new=True)
    impute_table.write_table(user, mean, variance, out)
    paths = study.draw(user, mean, variance, out)
    print(f"Filled table: {out}. Figures: {', '.join(str(p) for p in paths)}.")


def _read(study: Any, impute_table: Any) -> tuple[Any, dict[str, Any], Any]:
    """The earlier fit, if one is named, the columns' roles, and the table."""
    earlier = None if FLAGS.posterior is None else study.SavedFit.read(FLAGS.posterior)
    columns = {
        "outputs": FLAGS.outputs,
        "time": FLAGS.time,
        "inputs": FLAGS.inputs,
        "task": FLAGS.task,
    }
    if earlier is not None:
        columns = earlier.columns
    user = impute_table.read_table(
        FLAGS.input,
        **columns,
        separator=FLAGS.separator,
        scaling=None if earlier is None else earlier.scaling,
    )
    return earlier, columns, user


if __name__ == "__main__":
    define_flags()
    app.run(main)
