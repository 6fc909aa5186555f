"""The imputer on plain tables of MissBench, beside the imputations that were published with them.

python -m experiments.missbench --table=Student-Scores --data_dir=DATA --out_dir=runs/student

``imputer`` is :class:`gpflow_bae.impute.Imputer` with its defaults, given the rows of the table
alone; columns without an observed cell, or with one value, are filled with zero, the mean of all.
The other models are the tables that the benchmark published. Scores are those of the hidden cells,
in its units: ``rmse`` of all, ``median_rmse``, the median over columns, ``mae``, and of the imputer
``coverage_90``.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

from absl import flags

from experiments.common import driver, plans
from experiments.common import flags as common_flags

FLAGS = flags.FLAGS
_TABLES = ("Student-Scores", "analcatdata_gviolence", "pah", "pdgfr")


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """All settings that change the outcome of a run, except the seed."""

    table: str
    pattern: str


def define_flags() -> None:
    """Define the shared flags, and those of this study."""
    common_flags.define(["imputer", "column_mean", "softimpute", "hyperimpute", "mcpfn"])
    flags.DEFINE_enum("table", "Student-Scores", _TABLES, "Which table is filled.")
    flags.DEFINE_enum("pattern", "mcar", ["mcar", "mar", "mnar"], "How cells were hidden.")


def run(model: str, plan: Plan, options: driver.Options) -> driver.Outcome:
    """Fill the table, and score the hidden cells."""
    import numpy as np

    from gpflow_bae.datasets import missbench

    table = missbench.load(FLAGS.data_dir, plan.table, plan.pattern)
    metrics = {}
    started = time.perf_counter()
    if model == "imputer":
        from gpflow_bae.core.scales import varies
        from gpflow_bae.impute import Imputer

        shown = table.observed
        usable = [p for p in range(shown.shape[1]) if varies(shown[~np.isnan(shown[:, p]), p])]
        imputer = Imputer(seed=options.seed, progress=options.progress).fit(shown[:, usable])
        found = imputer.impute()
        filled, lower, upper = np.zeros((3, *shown.shape))
        for whole, part in ((filled, found.filled), (lower, found.lower), (upper, found.upper)):
            whole[:, usable] = part
        inside = (lower <= table.Y) & (table.Y <= upper)
        metrics["coverage_90"] = float(inside[table.hidden].mean())
    else:
        filled = table.published[model]
    seconds = time.perf_counter() - started
    missed = np.where(table.hidden, filled - table.Y, np.nan)[:, table.hidden.any(0)]
    metrics |= {
        "rmse": float(np.sqrt(np.nanmean(missed**2))),
        "median_rmse": float(np.median(np.sqrt(np.nanmean(missed**2, axis=0)))),
        "mae": float(np.nanmean(np.abs(missed))),
    }
    return driver.Outcome(metrics=metrics, num_parameters=0, seconds={"total": seconds})


def runs() -> Iterator[driver.Run]:
    """Generate the run of the flags."""
    plan = Plan(table=FLAGS.table, pattern=FLAGS.pattern)
    yield driver.Run(
        model=FLAGS.model,
        plan=plan,
        execute=lambda options: run(FLAGS.model, plan, options),
        words=[plan.table, plan.pattern],
    )


STUDY = driver.Study("imputation_benchmarks", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
