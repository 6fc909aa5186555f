"""Regressions that users know: networks sampled by microcanonical chains, beside others.

python -m experiments.regression --dataset=airfoil --model=network --data_dir=DATA --out_dir=OUT

``network`` is :class:`gpflow_bae.estimators.BayesianMLPRegressor` with its defaults. ``bde`` is
``sklearn-contrib-bde`` with the settings of its own benchmark (ten members of four layers of 16
units, 50,000 steps of warm-up), which needs NumPy 2 and the package. ``gpr`` is GPflow's exact
Gaussian process with a Matern-5/2 kernel, and ``forest`` a random forest. Scores are in standard
deviations of the training rows' y: ``rmse``; ``nll_moments`` of the Gaussian with the predicted
mean and deviation, as that benchmark has it; ``coverage_90`` of this Gaussian's interval; and
``nll`` of the mixture over samples. The figure has predictions and truths of the test rows.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from absl import flags

from experiments.common import driver, plans
from experiments.common import flags as common_flags

if TYPE_CHECKING:
    import numpy as np

    from gpflow_bae.datasets.tabular import Regression

FLAGS = flags.FLAGS
_DATASETS = ("airfoil", "bike_sharing", "diabetes")


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """All settings that change the outcome of a run, except the seed."""

    dataset: str
    num_chains: int | None = None
    num_steps: int | None = None
    validation_fold: int | None = None


def define_flags() -> None:
    """Define the shared flags, and those of this study."""
    common_flags.define(list(_METHODS))
    flags.DEFINE_enum("dataset", "airfoil", _DATASETS, "The table.")
    flags.DEFINE_integer("num_chains", None, "Chains of network. Default: the estimator's.", 1)
    flags.DEFINE_integer("num_steps", None, "Steps of a chain. Default: the estimator's.", 300)
    flags.DEFINE_integer(
        "validation_fold",
        None,
        "Score a fifth of the training rows, drawn with this seed, instead of the test: for "
        "choosing settings.",
        0,
    )


def run(model: str, plan: Plan, options: driver.Options) -> driver.Outcome:
    """Fit, predict the test rows, and score."""
    import numpy as np

    from gpflow_bae import metrics
    from gpflow_bae.datasets import tabular

    data = tabular.regression(plan.dataset, FLAGS.data_dir, plan.validation_fold)
    centre, scale = data.train_y.mean(), data.train_y.std()
    data = data._replace(
        train_y=(data.train_y - centre) / scale, test_y=(data.test_y - centre) / scale
    )
    started = time.perf_counter()
    mean, deviation, log_density = _METHODS[model](data, plan, options)
    seconds = time.perf_counter() - started
    truth = data.test_y[:, None]
    mean, variance = mean[:, None], np.square(deviation)[:, None]
    found = {
        "rmse": metrics.rmse(truth, mean),
        "nll_moments": metrics.nll(truth, mean, variance),
        "coverage_90": metrics.coverage(truth, mean, variance),
    }
    if log_density is not None:
        found["nll"] = -float(np.mean(log_density))
    return driver.Outcome(
        metrics=found,
        num_parameters=0,
        seconds={"total": seconds},
        figures={"predictions": _figure(*(v[:, 0] for v in (truth, mean, variance)))},
    )


def _figure(truth: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Any:
    """Plot predictions and their 90 % intervals against truths [N], a hundred rows at most."""
    import numpy as np
    from matplotlib.figure import Figure

    from gpflow_bae.plotting import BLUE, GREY, VERMILION

    shown = np.random.default_rng(0).permutation(len(truth))[:100]
    truth, mean, end = truth[shown], mean[shown], 1.645 * np.sqrt(variance[shown])
    outside = np.abs(truth - mean) > end
    figure = Figure(figsize=(5.0, 4.2), layout="constrained")
    axes = figure.subplots()
    limits = [float(truth.min()) - 0.2, float(truth.max()) + 0.2]
    axes.plot(limits, limits, color=GREY, linewidth=1.0)
    for those, colour, name in (
        (~outside, BLUE, "the interval holds the truth"),
        (outside, VERMILION, "it does not"),
    ):
        style = {"fmt": "o", "markersize": 3.0, "linewidth": 1.0, "color": colour, "label": name}
        axes.errorbar(truth[those], mean[those], yerr=end[those], **style)
    axes.set(xlabel="truth (standard deviations)", ylabel="prediction, with a 90 % interval")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


_Found = tuple["np.ndarray", "np.ndarray", "np.ndarray | None"]


def _network(data: Regression, plan: Plan, options: driver.Options) -> _Found:
    """Return mean and deviation of the test rows, and the log density of each."""
    from gpflow_bae.estimators import BayesianMLPRegressor

    names = ("num_chains", "num_steps")
    given = {name: getattr(plan, name) for name in names if getattr(plan, name) is not None}
    regressor = BayesianMLPRegressor(
        random_state=options.seed, progress=options.progress, **given
    ).fit(data.train_X, data.train_y)
    mean, deviation = regressor.predict(data.test_X, return_std=True)
    return mean, deviation, regressor.predict_log_density(data.test_X, data.test_y)


def _bde(data: Regression, plan: Plan, options: driver.Options) -> _Found:
    import numpy as np
    from bde import BdeRegressor
    from bde.loss.loss import GaussianNLL

    regressor = BdeRegressor(
        n_members=10,
        hidden_layers=[16, 16, 16, 16],
        loss=GaussianNLL(),
        epochs=1200,
        validation_split=0.15,
        lr=1e-3,
        weight_decay=1e-4,
        warmup_steps=50_000,
        n_samples=1000,
        n_thinning=10,
        patience=20,
        seed=options.seed,
    )
    train_X, test_X = _standardised(data)
    regressor.fit(train_X, data.train_y)
    mean, deviation = regressor.predict(test_X, mean_and_std=True)
    return np.ravel(np.asarray(mean)), np.ravel(np.asarray(deviation)), None


def _gpr(data: Regression, plan: Plan, options: driver.Options) -> _Found:
    import gpflow
    import numpy as np

    train_X, test_X = _standardised(data)
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(train_X.shape[1]))
    model = gpflow.models.GPR((train_X, data.train_y[:, None]), kernel, noise_variance=0.1)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 500}
    )
    mean, variance = (np.asarray(v)[:, 0] for v in model.predict_y(test_X))
    return mean, np.sqrt(variance), None


def _forest(data: Regression, plan: Plan, options: driver.Options) -> _Found:
    import numpy as np
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(1000, oob_score=True, random_state=options.seed)
    forest.fit(data.train_X, data.train_y)
    # Of rows that a tree has not seen; the benchmark gives forests the test rows' own error.
    deviation = np.std(forest.oob_prediction_ - data.train_y)
    mean = forest.predict(data.test_X)
    return mean, np.full_like(mean, deviation), None


def _standardised(data: Regression) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs of training and test rows, in deviations of the former."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(data.train_X)
    return scaler.transform(data.train_X), scaler.transform(data.test_X)


_METHODS: dict[str, Callable[[Regression, Plan, driver.Options], _Found]] = {
    "network": _network,
    "bde": _bde,
    "gpr": _gpr,
    "forest": _forest,
}


def runs() -> Iterator[driver.Run]:
    """Generate the run of the flags."""
    plan = Plan(
        dataset=FLAGS.dataset,
        num_chains=FLAGS.num_chains,
        num_steps=FLAGS.num_steps,
        validation_fold=FLAGS.validation_fold,
    )
    if FLAGS.model != "network" and (plan.num_chains or plan.num_steps):
        raise ValueError("--num_chains and --num_steps are for --model=network.")
    fold = plan.validation_fold
    yield driver.Run(
        model=FLAGS.model,
        plan=plan,
        execute=lambda options: run(FLAGS.model, plan, options),
        words=[
            plan.dataset,
            "" if plan.num_chains is None else f"{plan.num_chains} chains",
            "" if plan.num_steps is None else f"{plan.num_steps} steps",
            "" if fold is None else f"validation {fold}",
        ],
    )


STUDY = driver.Study("regression", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
