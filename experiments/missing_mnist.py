"""Digits at 14 x 14 with 40 % of the pixels missing: what a flow adds to a Gaussian posterior.

python -m experiments.missing_mnist --model=planar --num_layers=20 --preset=paper \\
    --data_dir=DATA --out_dir=runs/missing_mnist

Scores are of the missing pixels: log density per pixel (nats; pixels are grey values in [0, 1])
and root mean squared error. ``paper``: 5000 images; ``quick``: 1000.
"""

from __future__ import annotations

import pathlib
from typing import Any

from absl import app, flags

from experiments import gplvm_driver as driver
from experiments.common import flags as common_flags

FLAGS = common_flags.FLAGS


def _plan() -> Any:
    steps = {"quick": 2000, "paper": 5000}[FLAGS.preset]
    return driver.plan(FLAGS.model, steps, noise_start=0.2)


def _run(out_dir: pathlib.Path, plan: Any) -> Any:
    import numpy as np

    from experiments import gplvm_figures, gplvm_models
    from gpflow_bae import metrics
    from gpflow_bae.data import prepare_data
    from gpflow_bae.datasets import missing_mnist
    from gpflow_bae.posteriors import GPLVMPosterior

    num_images = {"quick": 1000, "paper": 5000}[FLAGS.preset]
    images = missing_mnist.load(FLAGS.data_dir, num_images, FLAGS.missing, FLAGS.seed)
    codes = gplvm_models.principal_codes(images.Y, plan.latent_dim)
    model = gplvm_models.build(plan, codes, images.Y.shape[1], FLAGS.seed)
    losses = driver.fit(plan, model, (None, images.Y), out_dir)
    data = prepare_data(model, (None, images.Y))
    posterior = GPLVMPosterior(model, data)
    rows, columns, truth = images.cells
    density = posterior.predict_log_density(rows, columns, truth, num_draws=FLAGS.num_test_draws)
    mean, variance = posterior.predict_y(rows, columns, num_draws=FLAGS.num_test_draws)
    inside = np.abs(truth - mean) < 1.6448536 * np.sqrt(variance)
    scores = {
        "log_density_missing": float(density.mean()),
        "rmse": float(metrics.rmse(truth[:, None], mean[:, None])),
        "coverage_90": float(inside.mean()),
        "elbo_per_row": -float(np.mean(losses[-5:])),
        "noise": float(np.sqrt(model.likelihood.variance.numpy())),
    }
    gplvm_figures.codes(out_dir / "codes.png", posterior, images.labels)
    gplvm_figures.posteriors(out_dir / "posteriors.png", posterior)
    gplvm_figures.reconstructions(out_dir / "reconstructions.png", posterior, images)
    return scores, {"loss": losses}, driver.count_parameters(model)


if __name__ == "__main__":
    from experiments.gplvm_models import POSTERIORS

    driver.define_flags(
        list(POSTERIORS),
        model="planar",
        latent_dim=2,
        num_inducing=50,
        batch_size=100,
        learning_rate=0.01,
    )
    flags.DEFINE_float("missing", 0.4, "Share of the pixels that are hidden.", 0.0, 0.99)
    flags.DEFINE_integer("num_test_draws", 50, "Draws of a code in its log density.", 1)
    for module in (driver, common_flags):  # so that --help lists them
        flags.adopt_module_key_flags(module)
    app.run(lambda argv: driver.main(argv, "missing_mnist", _run, _plan))
