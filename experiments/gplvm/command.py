"""The flags, the plan and the fit that the commands of the GPLVM studies share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from absl import flags

from experiments.common import driver
from experiments.common import flags as common_flags

FLAGS = common_flags.FLAGS
POSTERIORS = ("gaussian", "planar", "radial", "real_nvp", "iaf", "spline", "conditional_planar")


def define_flags(models: list[str], **defaults: Any) -> None:
    """The shared flags and those of a plan, with a study's own defaults."""
    common_flags.define(models, default_model=defaults["model"])
    flags.DEFINE_integer(
        "num_layers", None, "Layers of the flow. Default: 20 planar, else its own."
    )
    flags.DEFINE_integer("latent_dim", defaults["latent_dim"], "Latent dimensions.", 1)
    flags.DEFINE_integer("num_inducing", defaults["num_inducing"], "Inducing points.", 1)
    flags.DEFINE_integer("batch_size", defaults["batch_size"], "Rows per step; 0 for all.", 0)
    flags.DEFINE_integer("num_steps", None, "Adam steps. Default: the preset's.", 1)
    flags.DEFINE_integer(
        "gaussian_steps", 0, "Adam steps of a Gaussian fit before the flow joins; 0 for none.", 0
    )
    flags.DEFINE_integer(
        "num_draws", 1, "Draws of each code in a step; 0 for expectations in closed form.", 0
    )
    flags.DEFINE_integer(
        "relocations", 0, "How often codes may go elsewhere in the (Gaussian) fit.", 0
    )
    flags.DEFINE_float("code_variance", 0.1, "Of each code at the start.")
    flags.DEFINE_float(
        "natural_gradients", None, "Step size of natural gradients on q(v). Default: Adam."
    )
    flags.DEFINE_float("learning_rate", 0.01, "Of Adam.")
    flags.DEFINE_float("row_learning_rate", None, "Of codes, in minibatches. Default: as all.")
    flags.DEFINE_float(
        "flow_learning_rate", None, "Of the flow and q(v) after gaussian_steps. Default: as all."
    )


def plan(posterior: str, num_steps: dict[str, int], **changes: Any) -> Any:
    """The plan that the flags describe.

    :param num_steps: Adam steps of each preset.
    :raises ValueError: for a rate of the flow that nothing would use, or that is not positive.
    """
    from experiments.gplvm.models import Plan
    from gpflow_bae import inference

    settings = inference.VariationalSettings(
        num_steps=FLAGS.num_steps or num_steps[FLAGS.preset],
        learning_rate=FLAGS.learning_rate,
        batch_size=(FLAGS.batch_size or None, None),
        final_learning_rate_fraction=0.05,
        natural_gradient_step_size=FLAGS.natural_gradients,
        row_learning_rate=FLAGS.row_learning_rate,
        relocations=FLAGS.relocations,
    )
    own = ("num_layers", "latent_dim", "num_inducing", "gaussian_steps", "code_variance")
    changes |= common_flags.values(*own, "flow_learning_rate")
    made = Plan(posterior, settings=settings, num_draws=FLAGS.num_draws or None, **changes)
    if made.flow_learning_rate is not None:
        if not made.gaussian_steps:
            raise ValueError(
                "--flow_learning_rate is of the steps after those of --gaussian_steps, which is 0: "
                "set both, or --learning_rate alone."
            )
        flow_settings(made)  # refuses a rate now, and not after the Gaussian fit
    return made


def fit(planned: Any, model: Any, data: Any, options: driver.Options) -> list[float]:
    """Loss per row of each block of steps, with checkpoints and resumption."""
    from experiments.gplvm.models import put_flow
    from gpflow_bae import inference

    def run(settings: Any, folder: str) -> list[float]:
        chosen = options.arguments(folder)
        return inference.fit_variational(
            model, data, settings, steps_per_call=100, **chosen
        ).tolist()

    settings, first = planned.settings, planned.gaussian_steps
    if not first:
        return run(settings, "fit")
    gaussian = dataclasses.replace(settings, num_steps=first, final_learning_rate_fraction=1.0)
    losses = run(gaussian, "gaussian_fit")
    put_flow(planned, model, options.seed)
    return losses + run(flow_settings(planned), "fit")


def flow_settings(planned: Any) -> Any:
    """Settings of a flow's fit after the Gaussian one; kernel and codes keep their rates."""
    settings = planned.settings
    rate, of_flow = settings.learning_rate, planned.flow_learning_rate
    return dataclasses.replace(
        settings,
        relocations=0,
        learning_rate=rate if of_flow is None else of_flow,
        prior_learning_rate=rate,
        row_learning_rate=settings.row_learning_rate or rate,
    )


def study(
    name: str,
    define: Callable[[], None],
    make_plan: Callable[[], Any],
    run: Callable[[Any, driver.Options], driver.Outcome],
    words: Callable[[Any], list[str]] = lambda planned: [],
) -> driver.Study:
    """The command of a study, ``python -m experiments.<name>``: one run of one model.

    :param run: Of the plan and the options.
    :param words: What of a plan tells its row from others.
    """

    def runs() -> Iterator[driver.Run]:
        planned, layers = make_plan(), FLAGS.num_layers
        yield driver.Run(
            model=f"{name}/{FLAGS.model}",
            plan=planned,
            execute=lambda options: run(planned, options),
            words=["" if layers is None else f"{layers} layers", *words(planned)],
        )

    return driver.Study("gplvm", define, runs)


def count(model: Any) -> int:
    """Trainable numbers, codes included."""
    from experiments.common import plans

    return plans.count(model.trainable_variables)
