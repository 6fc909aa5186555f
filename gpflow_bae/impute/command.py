"""Fill the holes of a table of your own, with uncertainty, and see whether to trust it.

gpflow-bae-impute --input=table.csv --time=date --inputs=lat,lon --outputs=a,b,c \\
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

from .figures import draw
from .imputer import MODELS, Imputer

__all__ = ["define_flags", "main", "run"]

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
    flags.DEFINE_enum("model", "sgp_vae", MODELS, "Which model.")
    flags.DEFINE_string("posterior", None, "Folder of an earlier fit; nothing is fitted.")
    flags.DEFINE_integer(
        "latent_dim", None, "Latent channels; half of the outputs by default.", lower_bound=1
    )
    flags.DEFINE_integer("num_inducing", 64, "Inducing points.", lower_bound=1)
    flags.DEFINE_integer("epochs", None, "Adam steps.", lower_bound=1)
    flags.DEFINE_float("hold_out", 0.1, "Share of observed cells that the check hides; 0 for none.")
    flags.DEFINE_integer("seed", 0, "Of everything random.", lower_bound=0)


def main(argv: list[str]) -> None:
    """Read, check, fill, write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    out = pathlib.Path(FLAGS.out)
    try:
        frames = _frames()
        imputer = _imputer()
        table = frames.read_file(FLAGS.input, FLAGS.separator)
        user = imputer.read(table)
    except (FileNotFoundError, ImportError, ValueError) as error:
        # What is wrong with a table is the user's to read, not a traceback.
        sys.exit(f"impute: {error}")
    print(f"{user.num_rows} rows, {len(user.tasks)} task(s), {user.num_holes} holes.")
    if FLAGS.posterior is None:
        if FLAGS.hold_out > 0:
            print(imputer.score(table, fraction=FLAGS.hold_out).to_string())
        imputer.fit(table).save(out.with_suffix(".posterior"))
        moments = imputer.predict_y()
    else:
        moments = imputer.predict_y(table)
    frames.write_file(user.fill(*moments), out)
    paths = []
    for name, figure in draw(user, *moments).items():
        paths.append(out.with_name(f"{out.stem}_{name}.png"))
        figure.savefig(paths[-1], dpi=120)
    print(f"Filled table: {out}. Figures: {', '.join(str(p) for p in paths)}.")


def _frames() -> Any:
    """The module that reads and writes tables, which needs pandas; Parquet files need pyarrow."""
    try:
        from . import frames

        if {".parquet", ".pq"} & {pathlib.Path(p).suffix for p in (FLAGS.input, FLAGS.out)}:
            import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Tables are read with pandas, and Parquet files with pyarrow ({error}): "
            "pip install 'gpflow-bae[impute]'."
        ) from error
    return frames


def _imputer() -> Imputer:
    """An earlier fit, if one is named, or one to be fitted to the columns that the flags name."""
    if FLAGS.posterior is not None:
        return Imputer.load(FLAGS.posterior)
    return Imputer(
        FLAGS.outputs,
        FLAGS.time,
        FLAGS.inputs,
        FLAGS.task,
        model=FLAGS.model,
        latent_dim=FLAGS.latent_dim,
        num_inducing=FLAGS.num_inducing,
        epochs=FLAGS.epochs,
        seed=FLAGS.seed,
    )


def run() -> None:
    """The command, as the console script and ``python -m experiments.impute`` start it."""
    before = set(FLAGS)
    define_flags()
    for name in set(FLAGS) - before:  # --help shows the flags of the program that was started
        FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS[name])
    program = sys.modules["__main__"]
    program.__doc__ = program.__doc__ or __doc__
    app.run(main)
