"""Oil flow: compare the stochastic GPLVM with GPflow's collapsed one.

python -m experiments.oil_flow --model=bayesian_gplvm --data_dir=DATA --out_dir=runs/oil

``bayesian_gplvm`` is GPflow's model; its optimum is also scored with our bound. The others are
ours, in full batch or, with --batch_size, in minibatches; --start=bayesian_gplvm begins at GPflow's
optimum instead of principal components, which shows the cost of minibatches alone. ``knn_errors``
is the number of the 1000 points whose nearest neighbour in the two most relevant latent dimensions
has another flow regime.
"""

from __future__ import annotations

import itertools
from typing import Any

from absl import flags

from experiments.common import driver
from experiments.gplvm import command

FLAGS = flags.FLAGS
_REFERENCE = "bayesian_gplvm"
_NUM_BOUNDS = 100  # estimates of a bound, each with one draw of every code


def define_flags() -> None:
    """Define the flags of all GPLVM studies, and those of this one."""
    command.define_flags(
        [_REFERENCE, *command.POSTERIORS],
        model="gaussian",
        latent_dim=5,
        num_inducing=25,
        batch_size=0,
    )
    flags.DEFINE_enum(
        "start",
        "principal_components",
        ["principal_components", _REFERENCE],
        "Where our fit begins: at principal components, or at GPflow's optimum.",
    )
    flags.DEFINE_integer("reference_iterations", 1000, "L-BFGS iterations of GPflow's fit.", 1)


def make_plan() -> Any:
    """Return the plan of the flags."""
    if FLAGS.start == _REFERENCE and FLAGS.model not in (_REFERENCE, "gaussian"):
        raise ValueError(
            f"--start={_REFERENCE} needs --model=gaussian, whose posterior GPflow's optimum is; "
            f"got --model={FLAGS.model}."
        )
    posterior = "gaussian" if FLAGS.model == _REFERENCE else FLAGS.model
    return command.plan(posterior, {"quick": 3000, "paper": 10_000}, noise_start=0.3)


def run(plan: Any, options: driver.Options) -> driver.Outcome:
    """Fit GPflow's model, ours, or ours from GPflow's optimum, and score bound and codes."""
    import numpy as np
    import tensorflow as tf

    from experiments.gplvm import figures, models
    from gpflow_bae.data import prepare_data
    from gpflow_bae.datasets import oil_flow
    from gpflow_bae.posteriors import GPLVMPosterior

    Y, labels = oil_flow.load(FLAGS.data_dir)
    codes = models.principal_codes(Y, plan.latent_dim)
    model = models.build(plan, codes, Y.shape[1], options.seed)
    data = prepare_data(model, (None, Y))
    scores, curves = {}, {}
    if _REFERENCE in (FLAGS.model, FLAGS.start):
        scores["elbo_collapsed"] = _fit_reference(model, Y, FLAGS.reference_iterations)
        _assign_optimal(model, data, Y)
    if FLAGS.model != _REFERENCE:
        curves["loss"] = command.fit(plan, model, (None, Y), options)
        if plan.posterior == "gaussian":
            _assign_optimal(model, data, Y)
    bound = tf.function(lambda seed: model.batch_elbo(data.gather(None), seed), autograph=False)
    bounds = np.array([float(bound(tf.constant([11, i]))) for i in range(_NUM_BOUNDS)])
    posterior = GPLVMPosterior(model, data)
    relevance = model.relevance()
    scores |= {
        "elbo": float(bounds.mean()),
        "elbo_standard_error": float(bounds.std() / np.sqrt(len(bounds))),
        "knn_errors": float(nearest_neighbour_errors(posterior.moments()[0], labels, relevance)),
        "noise": float(np.sqrt(model.likelihood.variance.numpy())),
    }
    print(model.pruning_report())
    return driver.Outcome(
        metrics=scores,
        num_parameters=command.count(model),
        posterior=posterior,
        curves=curves,
        figures={
            "codes": figures.codes(posterior, labels, relevance, oil_flow.REGIMES, "flow regime"),
            **({"loss": figures.losses(curves["loss"])} if "loss" in curves else {}),
        },
    )


def _assign_optimal(model: Any, data: Any, Y: Any) -> None:
    """Set q(v) to its optimum given the Gaussian posteriors of the codes."""
    import numpy as np

    moments = (np.asarray(v)[0] for v in model.guide.moments(data.gather(None)))
    statistics = model.decoder.expected_features(*moments)
    model.decoder.assign_optimal(*statistics, Y, model.likelihood.variance)


def _fit_reference(model: Any, Y: Any, max_iterations: int) -> float:
    """Fit GPflow's model from the same start, and assign its optimum to our model."""
    import gpflow
    import numpy as np

    from gpflow_bae.inference.runs.progress import Progress
    from gpflow_bae.inference.runs.run import report

    encoder = model.guide.encoder
    reference = gpflow.models.BayesianGPLVM(
        Y,
        encoder.mean.numpy(),
        np.exp(2.0 * encoder.log_scale.numpy()),
        model.decoder.kernel,
        inducing_variable=model.decoder.inducing_variable,
    )
    reference.likelihood.variance.assign(model.likelihood.variance.numpy())
    with Progress("L-BFGS", max_iterations, unit="iterations") as shown:
        number = itertools.count(1)

        def show(intermediate_result: Any) -> None:  # SciPy requires this name of the argument
            value = float(intermediate_result.fun)
            shown.update(1, "L-BFGS", {"loss": f"{value / len(Y):.4g}"})
            report("L-BFGS", next(number), {"loss": np.array([value / len(Y)])})

        gpflow.optimizers.Scipy().minimize(
            reference.training_loss,
            reference.trainable_variables,
            options={"maxiter": max_iterations},
            callback=show,
        )
    model.likelihood.variance.assign(reference.likelihood.variance.numpy())
    encoder.mean.assign(reference.X_data_mean.numpy())
    encoder.log_scale.assign(0.5 * np.log(reference.X_data_var.numpy()))
    return float(reference.elbo())


def nearest_neighbour_errors(codes: Any, labels: Any, relevance: Any) -> int:
    """Count points with another label than their neighbour in the two most relevant dimensions."""
    import numpy as np
    from scipy.spatial import cKDTree

    chosen = np.argsort(-relevance)[:2]
    scaled = codes[:, chosen] * np.sqrt(relevance[chosen])
    _, nearest = cKDTree(scaled).query(scaled, k=2)
    return int((labels[nearest[:, 1]] != labels).sum())


STUDY = command.study("oil_flow", define_flags, make_plan, run)

if __name__ == "__main__":
    driver.start(STUDY)
