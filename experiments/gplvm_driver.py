"""What the drivers of the GPLVM studies share: flags, the plan, the fit, the record."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable
from typing import Any

from absl import app, flags

from experiments.common import flags as common_flags
from experiments.common import runs

EXPERIMENT = "gplvm"
FLAGS = common_flags.FLAGS


def define_flags(models: list[str], **defaults: Any) -> None:
    """The shared flags and those of a plan, with a study's own defaults."""
    common_flags.define(models, default_model=defaults["model"])
    flags.DEFINE_integer(
        "num_layers", None, "Layers of the flow. Default: 20 planar, else its own."
    )
    flags.DEFINE_integer("latent_dim", defaults["latent_dim"], "Latent dimensions.", 1)
    flags.DEFINE_integer("num_inducing", defaults["num_inducing"], "Inducing points.", 1)
    flags.DEFINE_integer("batch_size", defaults["batch_size"], "Rows per step; 0 for all.", 0)
    flags.DEFINE_integer("num_columns", None, "Columns per step. Default: all.", 1)
    flags.DEFINE_integer("num_steps", None, "Adam steps. Default: the preset's.", 1)
    flags.DEFINE_integer(
        "gaussian_steps", 0, "Adam steps of a Gaussian fit before the flow joins; 0 for none.", 0
    )
    flags.DEFINE_integer("num_draws", 1, "Draws of each code in a step.", 1)
    flags.DEFINE_float(
        "natural_gradients", None, "Step size of natural gradients on q(v). Default: Adam."
    )
    flags.DEFINE_float("learning_rate", defaults["learning_rate"], "Of Adam.")
    flags.DEFINE_string("variant", "", "A name for this run in the results table.")


def plan(posterior: str, num_steps: int, **changes: Any) -> Any:
    """The plan that the flags describe."""
    from experiments.gplvm_models import Plan
    from gpflow_bae import inference

    settings = inference.VariationalSettings(
        num_steps=FLAGS.num_steps or num_steps,
        learning_rate=FLAGS.learning_rate,
        batch_size=FLAGS.batch_size or None,
        num_columns=FLAGS.num_columns,
        final_learning_rate_fraction=0.05,
        natural_gradient_step_size=FLAGS.natural_gradients,
    )
    return Plan(
        posterior,
        num_layers=FLAGS.num_layers,
        latent_dim=FLAGS.latent_dim,
        num_inducing=FLAGS.num_inducing,
        num_draws=FLAGS.num_draws,
        gaussian_steps=FLAGS.gaussian_steps,
        settings=settings,
        **changes,
    )


def fit(the_plan: Any, model: Any, data: Any, out_dir: pathlib.Path) -> list[float]:
    """Loss per row of each block of steps, with checkpoints and resumption."""
    from experiments.gplvm_models import put_flow
    from gpflow_bae import inference

    def run(settings: Any, folder: str) -> list[float]:
        losses = inference.fit_variational(
            model,
            data,
            settings,
            seed=FLAGS.seed,
            out_dir=out_dir / folder,
            resume=FLAGS.resume,
            steps_per_call=100,
            jit_compile=common_flags.resolve_jit_compile(FLAGS.jit_compile),
        )
        return losses.tolist()

    settings, first = the_plan.settings, the_plan.gaussian_steps
    if not first:
        return run(settings, "fit")
    losses = run(
        dataclasses.replace(settings, num_steps=first, final_learning_rate_fraction=1.0),
        "gaussian_fit",
    )
    put_flow(the_plan, model, FLAGS.seed)
    return losses + run(settings, "fit")


def main(
    argv: list[str],
    study: str,
    run: Callable[[pathlib.Path, Any], tuple[dict[str, float], dict[str, list[float]], int]],
    make_plan: Callable[[], Any],
) -> None:
    """Run one study and write its record.

    :param run: of the run's folder and plan: metrics, curves and the number of parameters.
    """
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    out_dir = pathlib.Path(FLAGS.out_dir)
    the_plan = make_plan()
    described = the_plan.describe()
    config = {
        "experiment": EXPERIMENT,
        "model": f"{study}/{FLAGS.model}",
        "preset": FLAGS.preset,
        "seed": FLAGS.seed,
        "settings": described,
    }
    if not runs.claim(out_dir, config, FLAGS.resume):
        return
    started = time.perf_counter()
    metrics, curves, count = run(out_dir, the_plan)
    words = [FLAGS.variant, "" if FLAGS.num_layers is None else f"{FLAGS.num_layers} layers"]
    runs.finish(
        out_dir,
        study,
        config,
        metrics,
        words=words,
        started=started,
        num_parameters=count,
        curves=curves,
    )


def count_parameters(model: Any) -> int:
    """Trainable numbers, codes included."""
    import numpy as np

    return sum(int(np.prod(v.shape)) for v in model.trainable_variables)
