"""The moving ball: latent trajectories from pixels (Jazbec et al. 2021; Tran et al. 2023).

python -m experiments.moving_ball --model=sgp_bae --preset=quick --num_inducing=10 --seed=0 \
    --out_dir=runs/sgp_bae

The data are generated. Scores are those of docs/design.md, section 6: ``rmse`` maps codes to the
true trajectories with an affine map fitted on the training videos.
"""

from collections.abc import Iterator

from absl import app, flags

from experiments.common import driver
from experiments.common import flags as common_flags

MODELS = ["vae", "gp_vae", "svgp_vae", "bae", "gp_bae", "sgp_bae", "dsgp_bae", "all"]
FLAGS = common_flags.FLAGS

# Flags that replace one setting of the preset when given; None keeps the preset's.
_SCHEDULE = common_flags.SCHEDULE | {
    "batch_size": (flags.DEFINE_integer, "Videos per round; all where not given."),
}


def define_flags() -> None:
    """The shared flags and this driver's own."""
    common_flags.define(MODELS, default_model="sgp_bae")
    flags.DEFINE_enum(
        "protocol",
        "fixed",
        ["fixed", "fresh"],
        "fixed: 35 training videos (Tran et al. 2023). fresh: 35 new ones in every step of Adam, a "
        "known kernel, 350 test videos (Jazbec et al. 2021); of vae, gp_vae and svgp_vae.",
    )
    flags.DEFINE_integer(
        "num_inducing",
        None,
        "Inducing points M of sparse priors. Default: 10; 15 with --protocol=fresh.",
        2,
    )
    flags.DEFINE_integer("num_layers", 3, "Layers of the prior of dsgp_bae.", 1)
    flags.DEFINE_integer("num_test", None, "Test videos of --protocol=fresh. Default: 350.", 35)
    flags.DEFINE_boolean("GP_joint", False, "Learn the lengthscales (--protocol=fresh).")
    flags.DEFINE_boolean("ip_joint", False, "Learn the inducing inputs (--protocol=fresh).")
    flags.DEFINE_float("ip_min", 1.0, "Inducing inputs start from this frame, of 1 to 30 (fresh).")
    flags.DEFINE_float("ip_max", 30.0, "Inducing inputs start up to this frame (fresh).")
    flags.DEFINE_boolean("warm_start", True, "Fit prior and decoder variationally before sampling.")
    flags.DEFINE_enum(
        "warm_start_prior",
        "exact",
        ["exact", "own"],
        "Prior that sgp_bae's warm start is fitted under: the exact GP, or its own sparse one.",
    )
    common_flags.define_ablation("a variational model")
    flags.DEFINE_integer(
        "num_variational_steps",
        None,
        "Adam steps of a variational model, or of the warm start. Default: the preset's.",
        lower_bound=1,
    )
    flags.DEFINE_alias("num_steps", "num_variational_steps")
    flags.DEFINE_enum(
        "weight_prior",
        None,
        ["normal", "fan_in"],
        "Of the decoder: N(0, scale^2) or N(0, scale^2 / fan-in). Default: fan_in with scales of "
        "2,3,20 for chains of sghmc, else normal.",
    )
    flags.DEFINE_enum(
        "sampler",
        None,
        ["sghmc", "adaptive_sghmc"],
        "sghmc: BAOAB steps in coordinates of the priors, as large as the curvature allows, with "
        "moves along the scale of codes and for kernels. adaptive_sghmc, as published. "
        "Default: sghmc where the posterior of everything is sampled.",
    )
    flags.DEFINE_integer("num_chains", 1, "Chains, each from a start of its own.", 1)
    flags.DEFINE_enum(
        "network_dtype",
        "float32",
        ["float32", "bfloat16"],
        "What networks compute in; their weights, and all else, keep their precision.",
    )
    flags.DEFINE_list(
        "weight_prior_scale",
        None,
        "Scale of the decoder's weight prior, or one for each of its three layers: 2,3,20. "
        "Default: the prior's, or 1 where --weight_prior is given.",
    )
    flags.DEFINE_integer(
        "max_samples",
        None,
        "Stop and score after this many samples; --resume without it goes on from there.",
        lower_bound=1,
    )
    common_flags.define_overrides(_SCHEDULE | common_flags.SAMPLER)


def _scales() -> float | tuple[float, ...] | None:
    if FLAGS.weight_prior_scale is None:
        return None
    try:
        scales = tuple(float(text) for text in FLAGS.weight_prior_scale)
    except ValueError:
        scales = ()
    if len(scales) not in (1, 3) or not all(s > 0 for s in scales):
        raise app.UsageError(
            "--weight_prior_scale is a positive number, or three of them (one for each layer, with "
            f"commas), got {','.join(FLAGS.weight_prior_scale)!r}."
        )
    return scales if len(scales) > 1 else scales[0]


def _fresh_run() -> driver.Run:
    from experiments.moving_ball import fresh

    starts = {"first_inducing": FLAGS.ip_min - 1.0, "last_inducing": FLAGS.ip_max - 1.0}
    plan = fresh.make_plan(
        FLAGS.model,
        FLAGS.preset,
        FLAGS.num_variational_steps,
        FLAGS.num_test,
        num_inducing=FLAGS.num_inducing or 15,
        learn_kernel=FLAGS.GP_joint,
        learn_inducing=FLAGS.ip_joint,
        **starts,
    )
    has_starts = (FLAGS.ip_min, FLAGS.ip_max) != (1.0, 30.0)
    return driver.Run(
        model=FLAGS.model,
        plan=plan,
        execute=lambda options: fresh.run(plan, options),
        words=[
            "fresh videos",
            f"M = {plan.num_inducing}" if FLAGS.model == "svgp_vae" else "",
            "learnt lengthscale" if plan.learn_kernel else "",
            "learnt inducing inputs" if plan.learn_inducing else "",
            f"from {FLAGS.ip_min:g} to {FLAGS.ip_max:g}" if has_starts else "",
        ],
    )


def runs() -> Iterator[driver.Run]:
    """One model, or all of them, each in a folder of its own."""
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments.moving_ball import plans, study

    if FLAGS.protocol == "fresh":
        yield _fresh_run()
        return
    schedule = common_flags.overrides(_SCHEDULE)
    every = [m for m in MODELS if m not in ("dsgp_bae", "all")]
    for model in every if FLAGS.model == "all" else [FLAGS.model]:
        plan = plans.make_plan(
            model,
            FLAGS.preset,
            schedule=schedule,
            sampler_name=FLAGS.sampler,
            sampler=common_flags.overrides(common_flags.SAMPLER),
            weight_prior=FLAGS.weight_prior,
            weight_prior_scale=_scales(),
            num_inducing=FLAGS.num_inducing or 10,
            **common_flags.point_estimates(),
            **common_flags.values(
                "warm_start",
                "warm_start_prior",
                "num_chains",
                "num_variational_steps",
                "parameters",
                "network_dtype",
                "num_layers",
            ),
        )
        is_other = plan.is_sampled and FLAGS.sampler not in (None, plans.default_sampler(model))
        yield driver.Run(
            model=model,
            plan=plan,
            execute=lambda options, plan=plan: study.run(plan, options, FLAGS.max_samples),
            # Rows of one variant are averaged, and samplers are not one; --variant says more.
            words=[
                "" if FLAGS.variant or not is_other else FLAGS.sampler,
                "" if FLAGS.variant or plan.network_dtype == "float32" else plan.network_dtype,
            ],
            folder=model if FLAGS.model == "all" else "",
        )


STUDY = driver.Study("moving_ball", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
