"""The imputer on TSI-Bench's windows of hourly measurements, by the benchmark's protocol.

python -m experiments.tsi_bench --pattern=point01 --data_dir=DATA --out_dir=runs/italy_air

``imputer`` is :class:`gpflow_bae.impute.Imputer` with its defaults, a task for each window and the
hour as time. It is fitted to the training windows, and fills each test window given the window's
observed cells. ``--fit_to=both`` fits it to the observed cells of the test windows, too, as matrix
methods are. ``linear_interpolation`` uses a single window; ``iterative_imputer`` is scikit-learn's,
applied to single hours and fitted to both. ``saits`` is the network of PyPOTS
(:mod:`experiments.baselines.saits`). Scores are those of all hidden cells of the test windows, in
the units of the benchmark: ``mae``, ``mse``, and, but for ``saits``, ``crps`` and ``coverage_90``.
``validation_coverage_90`` is that of the validation windows, which lie between the training and the
test windows; the imputer is not fitted to them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from absl import flags

from experiments.common import driver, plans
from experiments.common import flags as common_flags

if TYPE_CHECKING:
    import numpy as np

    from gpflow_bae.datasets import tsi_bench

FLAGS = flags.FLAGS
_DATASETS = ("italy_air", "ett_h1")
_MASK_SEED = 2024  # of the data sets' own files
_PATTERNS = ("point01", "point05", "point09", "subseq05", "block05")


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """All settings that change the outcome of a run, except the seed."""

    dataset: str
    pattern: str
    fit_to: str
    mask_seed: int = _MASK_SEED


def define_flags() -> None:
    """Define the shared flags, and those of this study."""
    common_flags.define(list(_METHODS))
    flags.DEFINE_enum("dataset", "italy_air", _DATASETS, "Whose windows are filled.")
    flags.DEFINE_enum("pattern", "point01", _PATTERNS, "Which cells are hidden.")
    flags.DEFINE_integer(
        "mask_seed",
        _MASK_SEED,
        "Seed of the hidden cells; others than the data set's own are made by "
        "benchmarks.tsi_masks.",
        lower_bound=0,
    )
    flags.DEFINE_enum(
        "fit_to",
        "train",
        ["train", "both"],
        "What the imputer learns from: training windows, as the benchmark asks, or the observed "
        "cells of the test windows, too.",
    )


def run(model: str, plan: Plan, options: driver.Options) -> driver.Outcome:
    """Fit, fill the test windows, and score the hidden cells."""
    import numpy as np

    from gpflow_bae import metrics
    from gpflow_bae.datasets import tsi_bench

    parts = tsi_bench.load(FLAGS.data_dir, plan.dataset, plan.pattern, plan.mask_seed)
    started = time.perf_counter()
    filled = _METHODS[model](parts, plan, options)
    seconds = time.perf_counter() - started

    def hidden(part: str) -> list[np.ndarray]:
        windows = parts[part]
        return [np.asarray(v)[windows.hidden][:, None] for v in (windows.Y, *filled[part])]

    truth, mean, *spread = hidden("test")
    found = {"mae": metrics.mae(truth, mean), "mse": metrics.rmse(truth, mean) ** 2}
    if spread:
        variance, *ends = spread
        found["crps"] = metrics.crps(truth, mean, variance)
        found["coverage_90"] = metrics.coverage_from_intervals(truth, *ends)
    if "val" in filled:
        truth, _, _, *ends = hidden("val")
        found["validation_coverage_90"] = metrics.coverage_from_intervals(truth, *ends)
    return driver.Outcome(
        metrics=found,
        num_parameters=0,
        seconds={"total": seconds},
    )


def _hours(windows: np.ndarray) -> np.ndarray:
    """Return the hour of each row of windows [T, N, P], as inputs [T, N, 1]."""
    import numpy as np

    hours = np.arange(windows.shape[1], dtype=float)
    return np.tile(hours[:, None], (len(windows), 1, 1))


_Filled = dict[str, tuple["np.ndarray", ...]]
"""Means, variances and ends of 90 % intervals [T, N, P] by part, such as the test windows."""


def _imputer(parts: dict[str, tsi_bench.Windows], plan: Plan, options: driver.Options) -> _Filled:
    """Return predictions of the validation and test windows, given the observed cells of each."""
    import numpy as np

    from gpflow_bae.impute import Imputer

    test = parts["test"].observed
    Y = parts["train"].observed
    if plan.fit_to == "both":
        Y = np.concatenate([Y, test])
    imputer = Imputer(seed=options.seed, progress=options.progress).fit(_hours(Y), Y)
    if plan.fit_to == "both":
        return {"test": tuple(v[-len(test) :] for v in imputer.predict_cells())}
    windows = {part: parts[part].observed for part in ("val", "test")}
    return {part: tuple(imputer.predict_cells(_hours(Y), Y)) for part, Y in windows.items()}


def _baseline(parts: dict[str, tsi_bench.Windows], plan: Plan, options: driver.Options) -> _Filled:
    """Return those of the test windows by a baseline that is fitted to all windows at once."""
    import numpy as np

    from experiments.baselines import iterative_imputer, linear_interpolation
    from gpflow_bae.data import MultiOutputTable

    methods = {m.__name__.rsplit(".", 1)[-1]: m for m in (iterative_imputer, linear_interpolation)}
    test = parts["test"].observed
    Y = np.concatenate([parts["train"].observed, test])
    moments = methods[FLAGS.model].fit_predict(MultiOutputTable(_hours(Y), Y), options.seed)
    mean, variance = (v[-len(test) :] for v in moments)
    reach = 1.6448536269514722 * np.sqrt(variance)  # the normal distribution's 95 % quantile
    return {"test": (mean, variance, mean - reach, mean + reach)}


def _saits(parts: dict[str, tsi_bench.Windows], plan: Plan, options: driver.Options) -> _Filled:
    """Return the test windows as a network fills them, which has no variances."""
    from experiments.baselines import saits

    windows = {name: part.observed for name, part in parts.items()}
    windows["val_complete"] = parts["val"].Y
    return {"test": (saits.fill(plan.dataset, windows, options.seed),)}


_METHODS: dict[str, Callable[..., _Filled]] = {
    "imputer": _imputer,
    "linear_interpolation": _baseline,
    "iterative_imputer": _baseline,
    "saits": _saits,
}


def runs() -> Iterator[driver.Run]:
    """Generate the run of the flags."""
    if FLAGS.fit_to == "both" and FLAGS.model != "imputer":
        raise ValueError(f"--fit_to is for --model=imputer; {FLAGS.model} has no choice.")
    plan = Plan(
        dataset=FLAGS.dataset,
        pattern=FLAGS.pattern,
        fit_to=FLAGS.fit_to,
        mask_seed=FLAGS.mask_seed,
    )
    yield driver.Run(
        model=FLAGS.model,
        plan=plan,
        execute=lambda options: run(FLAGS.model, plan, options),
        words=[
            plan.dataset,
            plan.pattern,
            "fitted to both" if plan.fit_to == "both" else "",
            "" if plan.mask_seed == _MASK_SEED else f"masks {plan.mask_seed}",
        ],
    )


STUDY = driver.Study("imputation_benchmarks", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
