"""Half of a reservoir's porosity and permeability at 141,900 places, filled from the other half.

python -m experiments.spe10 --model=nearest_neighbours --preset=paper --data_dir=DATA \\
    --out_dir=runs/spe10

The data are not in any package: :mod:`gpflow_bae.datasets.spe10` says where they are to be had.
Networks and the two priors are those of :mod:`experiments.large_spatial`, with a partial inference
network; lengthscales along the three axes differ. Places of which nothing is observed are left out
of the fit and predicted as new ones. ``--preset=quick`` takes every fifth cell along each axis.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

from absl import flags

from experiments import large_spatial
from experiments.common import driver, plans
from experiments.common import flags as common_flags

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a run, but the seed."""

    model: str
    variational: Any  # VariationalSettings
    every: int  # cells along each axis of which one is taken
    missing: float
    num_outputs: int
    latent_dim: int
    start_lengthscale: tuple[float, float, float]  # in cells of the thinned grid
    num_neighbours: int
    ordering: str
    num_inducing: int


def define_flags() -> None:
    """The shared flags, and this study's own."""
    common_flags.define([*large_spatial.MODELS, "all"])
    common_flags.define_num_steps()
    flags.DEFINE_integer("every", None, "One cell of so many. Default: 5; 2 for paper.", 1)
    flags.DEFINE_float("missing", 0.5, "Share of all numbers that is hidden.")
    flags.DEFINE_integer("latent_dim", 3, "Channels of the codes.", 1)
    flags.DEFINE_integer("batch_size", 512, "Places per step.", 1)
    flags.DEFINE_integer("num_neighbours", 20, "Of nearest_neighbours.", 1)
    flags.DEFINE_enum("ordering", "maximin", ["maximin", "coordinate"], "Of nearest_neighbours.")
    flags.DEFINE_integer("num_inducing", 400, "Inducing points of svgp_vae.", 1)


def make_plan(model: str) -> Plan:
    """The plan that the flags describe."""
    from gpflow_bae import inference
    from gpflow_bae.datasets import spe10

    settings = inference.VariationalSettings(
        num_steps=FLAGS.num_steps or {"quick": 4000, "paper": 20_000}[FLAGS.preset],
        learning_rate=5e-3,
        final_learning_rate_fraction=0.02,
        batch_size=FLAGS.batch_size,
    )
    names = ("missing", "latent_dim", "num_neighbours", "ordering", "num_inducing")
    return Plan(
        model=model,
        variational=settings,
        every=FLAGS.every or {"quick": 5, "paper": 2}[FLAGS.preset],
        num_outputs=len(spe10.OUTPUTS),
        start_lengthscale=(3.0, 3.0, 3.0),
        **common_flags.values(*names),
    )


def run(plan: Plan, options: driver.Options, data_dir: Any) -> driver.Outcome:
    """Fit to what is seen, fill what is hidden, and score it."""
    import keras
    import numpy as np

    from experiments.common import scores
    from gpflow_bae import Posterior, encoders, inference
    from gpflow_bae.data import Standardiser, prepare_data
    from gpflow_bae.datasets import spe10
    from gpflow_bae.inference.checkpoints import stopwatch

    table = spe10.load(data_dir, plan.every, plan.missing, options.seed)
    standardiser = Standardiser.fit(table.Y, table.output_names)
    X, Y = table.X[0], standardiser.transform(table.Y)[0]
    seen = np.isfinite(Y).any(1)
    keras.utils.set_random_seed(options.seed)
    started = time.perf_counter()
    encoder = encoders.partial_encoder("indexnet", plan.num_outputs, plan.latent_dim)
    model = large_spatial.build_model(plan, X[seen], encoder)
    data = prepare_data(model, (X[seen], Y[seen]))
    seconds = {"neighbours": time.perf_counter() - started}
    elapsed = stopwatch(options.arguments("fit")["out_dir"])
    losses = inference.fit_variational(model, data, plan.variational, **options.arguments("fit"))
    seconds["variational"] = elapsed()
    memory = large_spatial.gigabytes()
    started = time.perf_counter()
    posterior = Posterior.from_point(model, data)
    mean, variance, density = np.empty(Y.shape), np.empty(Y.shape), np.empty(Y.shape)
    truth = standardiser.transform(table.test_truth)[0]
    for rows, where in ((seen, None), (~seen, X[~seen])):
        if rows.any():
            found = posterior.predict(where, num_codes=16)
            mean[rows], variance[rows] = found.mean, found.variance
            asked = (where, truth[rows])
            density[rows] = posterior.predict_cell_log_density(asked, num_codes=64)
    seconds["prediction"] = time.perf_counter() - started
    density = density[None] + standardiser.log_jacobian(table.test_truth)
    prediction = scores.TablePrediction.gaussian(
        table, mean[None], variance[None], standardiser, density
    )
    return driver.Outcome(
        metrics=scores.score_prediction(table, prediction)
        | {
            "step_ms": 1e3 * seconds["variational"] / plan.variational.num_steps,
            "memory_gb": memory,
        },
        num_parameters=plans.count(model.trainable_parameters),
        curves={"loss": losses.tolist()},
        seconds=seconds,
    )


def runs() -> Iterator[driver.Run]:
    """One model, or both, each in a folder of its own."""
    for name in large_spatial.MODELS if FLAGS.model == "all" else [FLAGS.model]:
        plan = make_plan(name)
        yield driver.Run(
            model=f"spe10/{name}",
            plan=plan,
            execute=lambda options, plan=plan: run(plan, options, FLAGS.data_dir),
            words=["" if FLAGS.every is None else f"every {FLAGS.every}"],
            folder=name if FLAGS.model == "all" else "",
        )


STUDY = driver.Study("priors", "spe10", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
