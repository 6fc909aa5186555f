"""Digits of 14 x 14 pixels, 40 % of them missing: flow and Gaussian posteriors of codes.

python -m experiments.missing_mnist --model=planar --num_layers=20 --preset=paper \\
    --data_dir=DATA --out_dir=runs/missing_mnist

Scores are of the missing pixels: log density per pixel (nats; pixels are grey values in [0, 1])
and root mean squared error. ``paper``: 5000 images; ``quick``: 1000.
"""

from __future__ import annotations

from typing import Any

from absl import flags

from experiments.common import driver
from experiments.gplvm import command

FLAGS = flags.FLAGS
_TEST_DRAWS = 50  # draws of a code


def define_flags() -> None:
    """Define the flags of all GPLVM studies, and those of this one."""
    command.define_flags(
        list(command.POSTERIORS), model="planar", latent_dim=2, num_inducing=50, batch_size=100
    )
    flags.DEFINE_float("missing", 0.4, "Share of the pixels that are hidden.", 0.0, 0.99)


def make_plan() -> Any:
    """Return the plan of the flags."""
    return command.plan(FLAGS.model, {"quick": 2000, "paper": 5000}, noise_start=0.2)


def run(plan: Any, options: driver.Options) -> driver.Outcome:
    """Fit the observed pixels, and score the missing ones."""
    import numpy as np

    from experiments.gplvm import figures, models
    from gpflow_bae import metrics
    from gpflow_bae.data import prepare_data
    from gpflow_bae.datasets import missing_mnist
    from gpflow_bae.posteriors import GPLVMPosterior

    num_images = {"quick": 1000, "paper": 5000}[FLAGS.preset]
    images = missing_mnist.load(FLAGS.data_dir, num_images, FLAGS.missing, options.seed)
    codes = models.principal_codes(images.Y, plan.latent_dim)
    model = models.build(plan, codes, images.Y.shape[1], options.seed)
    losses = command.fit(plan, model, (None, images.Y), options)
    posterior = GPLVMPosterior(model, prepare_data(model, (None, images.Y)))
    rows, columns, truth = images.cells
    density = posterior.predict_log_density(rows, columns, truth, num_draws=_TEST_DRAWS)
    mean, variance = posterior.predict_y(rows, columns, num_draws=_TEST_DRAWS)
    cells = (truth[:, None], mean[:, None])
    return driver.Outcome(
        metrics={
            "log_density_missing": float(density.mean()),
            "rmse": metrics.rmse(*cells),
            "coverage_90": metrics.coverage(*cells, variance[:, None]),
            "elbo_per_row": -float(np.mean(losses[-5:])),
            "noise": float(np.sqrt(model.likelihood.variance.numpy())),
        },
        num_parameters=command.count(model),
        posterior=posterior,
        curves={"loss": losses},
        figures={
            "codes": figures.codes(posterior, images.labels),
            "loss": figures.losses(losses),
            "posteriors": figures.posteriors(posterior),
            "reconstructions": figures.reconstructions(posterior, images),
        },
    )


STUDY = command.study("missing_mnist", define_flags, make_plan, run)

if __name__ == "__main__":
    driver.start(STUDY)
