"""Conditional generation of rotated MNIST (Casale 2018; Jazbec et al. 2021; Tran et al. 2023).

python -m experiments.rotated_mnist --model=svgp_vae --preset=quick --seed=0 \
    --data_dir=DATA --out_dir=runs/svgp_vae

The released commands of SVGP-VAE have direct equivalents: --elbo takes their names of models, and
the other flags have the published names and meanings (docs/rotated_mnist.md has the table).
Settings are chosen with --holdout_view, which makes a test set of training images.
"""

from collections.abc import Iterator
from typing import Any

from absl import app, flags

from experiments.common import driver
from experiments.common import flags as common_flags

MODELS = ["cvae", "gppvae", "svgp_vae", "deep_svigp", "sgp_bae", "bae", "vae", "all"]
ELBOS = [
    "VAE",
    "CVAE",
    "SVGPVAE_Hensman",
    "SVGPVAE_Titsias",
    "GPVAE_Casale",
    "SVIGP_Hensman",
]
FLAGS = common_flags.FLAGS

_SCHEDULE = common_flags.SCHEDULE | {
    "steps_per_batch": (flags.DEFINE_integer, "SG-MCMC steps on one minibatch."),
    "gradients": (flags.DEFINE_string, "Of a chain: minibatch, or control_variates."),
}


def define_flags() -> None:
    """Define the shared flags, the published ones, and this driver's own."""
    common_flags.define(MODELS, default_model="svgp_vae")
    flags.DEFINE_enum("elbo", None, ELBOS, "Replaces --model: the name in the released commands.")
    common_flags.define_svgp_vae(kappa_squared=0.020)
    flags.DEFINE_boolean(
        "ip_joint",
        None,
        "Learn the inducing inputs. Default: yes, but for a chain of sghmc, where they span "
        "the kernel wherever they are.",
    )
    flags.DEFINE_boolean("ov_joint", True, "Learn the object vectors.")
    flags.DEFINE_boolean("PCA", True, "Start the object vectors at principal components.")
    flags.DEFINE_boolean("object_kernel_normalize", False, "Normalise the object kernel.")
    flags.DEFINE_multi_string(
        "opt_regime",
        None,
        "Phases and their epochs, such as VAE-100 GP-100; the flag may be repeated, or hold "
        "several words. Default: the preset's.",
    )
    flags.DEFINE_integer("nr_epochs", None, "Epochs, instead of --opt_regime.", lower_bound=1)
    flags.DEFINE_integer("nr_inducing_points", None, "Inducing points per angle.", lower_bound=1)
    flags.DEFINE_integer("batch_size", None, "Images per step.", lower_bound=1)
    flags.DEFINE_integer(
        "chain_batch_size",
        None,
        "Images per step of a chain; 0 for all, at a step size that the chain finds. Default: 512.",
        lower_bound=0,
    )
    flags.DEFINE_float("lr", 4e-3, "Learning rate of Adam (published: 1e-3, which did not decay).")
    flags.DEFINE_float("lr_decay", 0.02, "It decays to this fraction along a cosine; 1 for none.")
    flags.DEFINE_float("natural_gradient", None, "Step size of natural gradients (deep_svigp).")
    flags.DEFINE_integer("L", 16, "Latent channels.", lower_bound=1)
    flags.DEFINE_integer("M", 8, "Width of the object vectors.", lower_bound=1)
    flags.DEFINE_string("digits", "3", "Which digits, such as 36 or all.")
    flags.DEFINE_string("dataset", None, "The same, as the released commands call it.")
    flags.DEFINE_integer(
        "holdout_view",
        None,
        "Test on training images at this index of an angle, kept from training, instead of on the "
        "test images: for choosing settings.",
    )
    flags.DEFINE_float(
        "missing_angle_fraction",
        0.0,
        "Share of the training images whose angle is hidden from the model, which infers it "
        "(svgp_vae, gppvae, sgp_bae).",
        0.0,
        1.0,
    )
    flags.DEFINE_enum(
        "missing_angles",
        "bayesian",
        ["bayesian", "point"],
        "How: a Gaussian for each (of a chain: sampled values), or one value for each.",
    )
    flags.DEFINE_float(
        "calibration_angle_fraction",
        0.0,
        "A further share of the training images whose angles are hidden: intervals of the others "
        "are scaled such that those of these hold them.",
        0.0,
        1.0,
    )
    flags.DEFINE_float("train_share", 1.0, "Share of the training images that is kept.", 0.0, 1.0)
    flags.DEFINE_enum(
        "sampler",
        None,
        ["sghmc", "adaptive_sghmc"],
        "sghmc: BAOAB steps in coordinates of the Fisher information, on minibatches with control "
        "variates against their heat. adaptive_sghmc, as published: minibatches, which heat the "
        "chain. Default: sghmc, but for bae.",
    )
    flags.DEFINE_enum(
        "start",
        None,
        ["svgp_vae", "mode", "svgp_vae_mode"],
        "Where the chain of sgp_bae starts: an SVGP-VAE with its kernel, a joint mode, or a joint "
        "mode near an SVGP-VAE. Default: the last for sghmc, the first for adaptive_sghmc.",
    )
    flags.DEFINE_integer(
        "mode_epochs", None, "Epochs towards a mode near an SVGP-VAE. Default: the preset's.", 1
    )
    flags.DEFINE_integer(
        "start_epochs",
        None,
        "Epochs of an SVGP-VAE whose q(u), kernel and decoder deep_svigp starts from; 0 for a q(u) "
        "at random. Default: the preset's.",
        0,
    )
    common_flags.define_ablation("svgp_vae")
    flags.DEFINE_float("weight_prior_scale", 1.0, "Scale of the decoder's weight prior (sampled).")
    flags.DEFINE_float("code_noise_variance", 1e-5, "Variance of codes around the GP (sgp_bae).")
    flags.DEFINE_boolean("learn_code_noise", False, "Sample it, instead of fixing it (sgp_bae).")
    flags.DEFINE_integer(
        "num_members", 1, "Fits of a variational model, with a seed each, that predict together.", 1
    )
    flags.DEFINE_integer("max_samples", None, "Stop and score after this many samples.", 1)
    common_flags.define_overrides(_SCHEDULE | common_flags.SAMPLER)


def _regime() -> list[str] | None:
    if FLAGS.nr_epochs is not None:
        return [f"joint-{FLAGS.nr_epochs}"]
    if FLAGS.opt_regime is None:
        return None
    return [word for words in FLAGS.opt_regime for word in words.split()]


def _plan(model: str) -> Any:
    from experiments.rotated_mnist import plans

    if FLAGS.num_members > 1 and model not in ("cvae", "gppvae", "svgp_vae"):
        raise app.UsageError(
            f"--num_members={FLAGS.num_members} is for fits that predict from an angle alone: cvae,"
            f" gppvae and svgp_vae, not {model}."
        )

    published = {
        "latent_dim": "L",
        "object_dim": "M",
        "normalize_objects": "object_kernel_normalize",
        "principal_components": "PCA",
        "learn_kernel": "GP_joint",
        "learn_objects": "ov_joint",
        "clip_encoder": "clip_qs",
    }
    changes = {field: FLAGS[flag].value for field, flag in published.items()}
    own = ("weight_prior_scale", "code_noise_variance", "learn_code_noise", "num_members")
    changes |= common_flags.values(*own)
    if FLAGS.missing_angle_fraction:
        if model not in ("svgp_vae", "gppvae", "sgp_bae"):
            raise app.UsageError(
                f"--missing_angle_fraction={FLAGS.missing_angle_fraction:g} is for models with a "
                f"prior given angles: svgp_vae, gppvae and sgp_bae, not {model}."
            )
        if model == "sgp_bae" and FLAGS.missing_angles == "point":
            raise app.UsageError(
                "--missing_angles=point is of a fit; the chain of sgp_bae samples."
            )
        changes["missing_angles"] = FLAGS.missing_angle_fraction
        if FLAGS.calibration_angle_fraction and FLAGS.missing_angles == "point":
            raise app.UsageError(
                "--calibration_angle_fraction is of intervals, and --missing_angles=point has none."
            )
        changes["angles"] = FLAGS.missing_angles
        changes["calibration_angles"] = FLAGS.calibration_angle_fraction
    elif FLAGS.calibration_angle_fraction:
        raise app.UsageError("--calibration_angle_fraction goes with --missing_angle_fraction.")
    if FLAGS.nr_inducing_points is not None:
        changes["inducing_per_view"] = FLAGS.nr_inducing_points
    if FLAGS.mode_epochs is not None:
        changes["mode_epochs"] = FLAGS.mode_epochs
    if FLAGS.start_epochs is not None:
        if model != "deep_svigp":
            raise app.UsageError(f"--start_epochs is of deep_svigp, not of {model}.")
        changes["start_epochs"] = FLAGS.start_epochs
    if FLAGS.ip_joint is not None:
        changes["learn_inducing"] = FLAGS.ip_joint
    return plans.make_plan(
        model,
        FLAGS.preset,
        sampler_name=FLAGS.sampler,
        start=FLAGS.start,
        regime=_regime(),
        objective=plans.make_objective(
            model, FLAGS.parameters, **common_flags.svgp_vae_objective()
        ),
        batch_size=FLAGS.batch_size,
        chain_batch_size=FLAGS.chain_batch_size,
        fit={
            "learning_rate": FLAGS.lr,
            "final_learning_rate_fraction": FLAGS.lr_decay,
            "natural_gradient_step_size": FLAGS.natural_gradient,
        }
        | ({"batch_size": None} if FLAGS.elbo == "SVGPVAE_Titsias" else {}),
        schedule=common_flags.overrides(_SCHEDULE),
        parameters=FLAGS.parameters,
        sampler=common_flags.overrides(common_flags.SAMPLER),
        **common_flags.point_estimates(),
        **changes,
    )


def _data() -> Any:
    from experiments.rotated_mnist import study

    return study.load(FLAGS.data_dir, _digits(), FLAGS.M, FLAGS.holdout_view, _share())


def _digits() -> str:
    digits = FLAGS.dataset or FLAGS.digits
    if digits != "all" and not digits.isdigit():
        raise app.UsageError(f"--digits is {digits!r}; expected digits, such as 36, or all.")
    return digits


def _share() -> float:
    if not FLAGS.train_share > 0:
        raise app.UsageError(f"--train_share is {FLAGS.train_share:g}; expected more than 0.")
    return FLAGS.train_share


def _missing_angles() -> str:
    share = FLAGS.missing_angle_fraction
    more = FLAGS.calibration_angle_fraction
    calibrated = f" calibrated by {more:g}" if more else ""
    return "" if not share else f"angles missing {share:g} {FLAGS.missing_angles}{calibrated}"


def runs() -> Iterator[driver.Run]:
    """Generate the run of one model, or the runs of all models, each in its own folder."""
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments.rotated_mnist import plans, study

    name = FLAGS.model if FLAGS.elbo is None else plans.ELBO_MODELS[FLAGS.elbo]
    view, digits, share = FLAGS.holdout_view, _digits(), _share()
    for model in [m for m in MODELS if m not in ("vae", "bae", "all")] if name == "all" else [name]:
        plan = _plan(model)
        default = plans.default_sampler(model, **common_flags.point_estimates())
        sampled = plan.sampler is not None and FLAGS.sampler not in (None, default)
        yield driver.Run(
            model=model,
            plan=plan,
            execute=lambda options, plan=plan: study.run(plan, _data(), options, FLAGS.max_samples),
            more={"digits": digits, "holdout_view": view}
            | ({} if share == 1.0 else {"train_share": share}),
            words=[
                _missing_angles(),
                "code noise learnt" if FLAGS.learn_code_noise else "",
                "" if view is None else f"validation view {view}",
                "" if digits == "3" else f"digits {digits}",
                "" if share == 1.0 else f"train_share={share:g}",
                "" if FLAGS.num_members == 1 else f"ensemble of {FLAGS.num_members}",
                # Results of one variant are averaged, so samplers need different variants.
                "" if FLAGS.variant or not sampled else FLAGS.sampler,
            ],
            folder=model if name == "all" else "",
        )


STUDY = driver.Study("rotated_mnist", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
