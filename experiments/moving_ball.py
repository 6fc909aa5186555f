"""The moving ball: latent trajectories from pixels (Jazbec et al. 2021; Tran et al. 2023).

python -m experiments.moving_ball --model=sgp_bae --preset=quick --num_inducing=10 --seed=0 \
    --out_dir=runs/sgp_bae

The data are generated. Scores are those of docs/design.md, section 6: ``rmse`` maps codes to the
true trajectories with an affine map fitted on the training videos.
"""

import pathlib
import sys
import time

from absl import app, flags

from experiments.common import flags as common_flags
from experiments.common import results, runs

MODELS = ["vae", "gp_vae", "svgp_vae", "bae", "gp_bae", "sgp_bae", "all"]
FLAGS = common_flags.FLAGS

# Flags that replace one setting of the preset when given; None keeps the preset's.
_OVERRIDES = common_flags.SAMPLER | {
    "codes": (flags.DEFINE_string, "encoder (Algorithm 1) or carried."),
    "noise": (flags.DEFINE_string, "gaussian or binomial increments."),
    "batch_size": (flags.DEFINE_integer, "Videos per round; all where not given."),
}


def define_flags() -> None:
    """The shared flags and this driver's own."""
    common_flags.define(MODELS, default_model="sgp_bae")
    flags.DEFINE_integer(
        "num_inducing", 10, "Inducing points M of sgp_bae and svgp_vae.", lower_bound=2
    )
    flags.DEFINE_boolean("warm_start", True, "Fit prior and decoder variationally before sampling.")
    flags.DEFINE_enum(
        "warm_start_prior",
        "exact",
        ["exact", "own"],
        "Prior that sgp_bae's warm start is fitted under: the exact GP, or its own sparse one.",
    )
    flags.DEFINE_enum(
        "parameters",
        "point",
        ["point", "mean_field", "sghmc"],
        "Decoder and hyperparameters of a variational model: a point estimate, a Gaussian each "
        "(BVAE-VI), or SGHMC on the bound (BVAE-SGHMC).",
    )
    flags.DEFINE_boolean(
        "point_decoder", False, "Optimise the decoder in the chain's steps (NonBayesDec)."
    )
    flags.DEFINE_boolean("point_gp", False, "Optimise the GP in the chain's steps (NonBayesGP).")
    flags.DEFINE_integer(
        "num_variational_steps",
        None,
        "Adam steps of a variational model, or of the warm start. Default: the preset's.",
        lower_bound=1,
    )
    flags.DEFINE_boolean(
        "fan_in_prior", None, "Scale the decoder's weight prior by fan-in; else N(0, scale^2)."
    )
    flags.DEFINE_float("weight_prior_scale", None, "Scale of the decoder's weight prior.")
    flags.DEFINE_integer(
        "max_samples",
        None,
        "Stop and score after this many samples; --resume without it goes on from there.",
        lower_bound=1,
    )
    flags.DEFINE_string("variant", "", "A name for this run in the results table.")
    common_flags.define_overrides(_OVERRIDES)


def main(argv: list[str]) -> None:
    """Run one model, or all of them, and write results and figures."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    models = MODELS[:-1] if FLAGS.model == "all" else [FLAGS.model]
    for model in models:
        out_dir = pathlib.Path(FLAGS.out_dir)
        _run(model, out_dir / model if len(models) > 1 else out_dir)


def _run(name: str, out_dir: pathlib.Path) -> None:
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments import moving_ball_study as study
    from experiments.moving_ball_plans import Plan

    overrides = common_flags.overrides(_OVERRIDES)
    points = {".decoder": FLAGS.point_decoder, ".latent_prior": FLAGS.point_gp}
    if any(points.values()):
        overrides["point_estimates"] = tuple(path for path, chosen in points.items() if chosen)
    plan = Plan.make(
        name,
        FLAGS.preset,
        num_inducing=FLAGS.num_inducing,
        warm_start=FLAGS.warm_start,
        warm_start_prior=FLAGS.warm_start_prior,
        fan_in_prior=FLAGS.fan_in_prior,
        weight_prior_scale=FLAGS.weight_prior_scale,
        num_variational_steps=FLAGS.num_variational_steps,
        parameters=FLAGS.parameters,
        overrides=overrides,
    )
    config = {
        "experiment": study.EXPERIMENT,
        "model": name,
        "preset": FLAGS.preset,
        "seed": FLAGS.seed,
        "settings": plan.describe(),
    }
    if not runs.claim(out_dir, config, FLAGS.resume):
        return
    started = time.perf_counter()
    outcome = study.run(
        plan,
        seed=FLAGS.seed,
        out_dir=out_dir,
        resume=FLAGS.resume,
        jit_compile=common_flags.resolve_jit_compile(FLAGS.jit_compile),
        max_samples=FLAGS.max_samples,
    )
    planned = plan.num_samples
    complete = outcome.posterior.num_samples == planned
    variant = FLAGS.variant
    if not complete:
        variant = f"{variant} first {outcome.posterior.num_samples} of {planned} samples".strip()
    seconds = outcome.seconds | {"total": time.perf_counter() - started}
    results.write_results(
        out_dir,
        study.EXPERIMENT,
        name,
        FLAGS.preset,
        FLAGS.seed,
        plan.temperature,
        outcome.metrics,
        seconds,
        outcome.num_parameters,
        variant=variant,
        complete=complete,
        settings=plan.describe(),
        command=runs.command("moving_ball", sys.argv[1:]),
        curves=outcome.curves,
    )
    if FLAGS.tensorboard:
        study.write_tensorboard(outcome, out_dir)
    shown = ", ".join(f"{k} {v:.3f}" for k, v in outcome.metrics.items() if "rmse" in k)
    print(f"{name}: {shown}, {seconds['total']:.0f} s. Results and figures are in {out_dir}.")


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(common_flags)  # so that --help lists them
    app.run(main)
