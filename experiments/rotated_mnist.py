"""Conditional generation of rotated MNIST (Casale 2018; Jazbec et al. 2021; Tran et al. 2023).

python -m experiments.rotated_mnist --model=svgp_vae --preset=quick --seed=0 \
    --data_dir=DATA --out_dir=runs/svgp_vae

The released commands of SVGP-VAE translate one for one: --elbo names the model as they do, and the
other flags have the published names and meanings (docs/rotated_mnist.md has the table). Settings
are chosen with --holdout_view, which makes a test set out of training images alone.
"""

import pathlib
import sys
import time

from absl import app, flags

from experiments.common import flags as common_flags
from experiments.common import results, runs

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

_SAMPLER = common_flags.SAMPLER | {
    "steps_per_batch": (flags.DEFINE_integer, "SG-MCMC steps on one minibatch."),
}


def define_flags() -> None:
    """The shared flags, the published ones, and this driver's own."""
    common_flags.define(MODELS, default_model="svgp_vae")
    flags.DEFINE_enum("elbo", None, ELBOS, "Replaces --model: the name in the released commands.")
    flags.DEFINE_boolean("GECO", None, "Train with GECO. Default: as published for the model.")
    flags.DEFINE_float("kappa_squared", 0.020, "GECO's tolerated squared error per pixel.")
    flags.DEFINE_float("alpha", 0.99, "GECO's moving average.")
    flags.DEFINE_float("beta", 1.0, "Weight of the divergence, without GECO.")
    flags.DEFINE_boolean("clip_qs", True, "Clip the encoder's variance to [1e-3, 10].")
    flags.DEFINE_boolean("GP_joint", True, "Learn the kernel's hyperparameters.")
    flags.DEFINE_boolean("ip_joint", True, "Learn the inducing inputs.")
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
    flags.DEFINE_enum(
        "start",
        "svgp_vae",
        ["svgp_vae", "mode"],
        "Where the chain of sgp_bae starts: an SVGP-VAE with its kernel, or a joint mode.",
    )
    flags.DEFINE_float("weight_prior_scale", 1.0, "Scale of the decoder's weight prior (sampled).")
    flags.DEFINE_float("code_noise_variance", 1e-5, "Variance of codes around the GP (sgp_bae).")
    flags.DEFINE_boolean("learn_code_noise", False, "Sample it, instead of fixing it (sgp_bae).")
    flags.DEFINE_integer(
        "max_samples", None, "Stop and score after this many samples.", lower_bound=1
    )
    flags.DEFINE_string("variant", "", "A name for this run in the results table.")
    common_flags.define_overrides(_SAMPLER)


def main(argv: list[str]) -> None:
    """Run one model, or all of them, and write results and figures."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments import rotated_mnist_plans as plans

    name = FLAGS.model if FLAGS.elbo is None else plans.ELBO_MODELS[FLAGS.elbo]
    models = [m for m in MODELS if m not in ("vae", "bae", "all")] if name == "all" else [name]
    for model in models:
        out_dir = pathlib.Path(FLAGS.out_dir)
        _run(model, out_dir / model if len(models) > 1 else out_dir)


def _regime() -> list[str] | None:
    if FLAGS.nr_epochs is not None:
        return [f"joint-{FLAGS.nr_epochs}"]
    if FLAGS.opt_regime is None:
        return None
    return [word for words in FLAGS.opt_regime for word in words.split()]


def _plan(model: str):
    from experiments import rotated_mnist_plans as plans

    changes = {
        "latent_dim": FLAGS.L,
        "object_dim": FLAGS.M,
        "normalize_objects": FLAGS.object_kernel_normalize,
        "principal_components": FLAGS.PCA,
        "learn_kernel": FLAGS.GP_joint,
        "learn_inducing": FLAGS.ip_joint,
        "learn_objects": FLAGS.ov_joint,
        "clip_encoder": FLAGS.clip_qs,
        "weight_prior_scale": FLAGS.weight_prior_scale,
        "code_noise_variance": FLAGS.code_noise_variance,
        "learn_code_noise": FLAGS.learn_code_noise,
        "start": FLAGS.start,
    }
    if FLAGS.nr_inducing_points is not None:
        changes["inducing_per_view"] = FLAGS.nr_inducing_points
    return plans.make_plan(
        model,
        FLAGS.preset,
        regime=_regime(),
        geco=FLAGS.GECO,
        kappa_squared=FLAGS.kappa_squared,
        smoothing=FLAGS.alpha,
        beta=FLAGS.beta,
        batch_size=FLAGS.batch_size,
        full_batch=FLAGS.elbo == "SVGPVAE_Titsias",
        learning_rate=FLAGS.lr,
        final_learning_rate_fraction=FLAGS.lr_decay,
        natural_gradient_step_size=FLAGS.natural_gradient,
        sampler=common_flags.overrides(_SAMPLER),
        **changes,
    )


def _data():
    from gpflow_bae.datasets import rotated_mnist

    digits = FLAGS.dataset or FLAGS.digits
    digits = "0123456789" if digits == "all" else digits
    if not digits.isdigit():
        raise app.UsageError(f"--digits is {digits!r}; expected digits, such as 36, or all.")
    data = rotated_mnist.load(FLAGS.data_dir, tuple(int(d) for d in digits), num_components=FLAGS.M)
    if FLAGS.holdout_view is not None:
        data = rotated_mnist.hold_out_view(data, FLAGS.holdout_view, share=1.0)
    return data


def _run(model: str, out_dir: pathlib.Path) -> None:
    from experiments import rotated_mnist_figures as figures
    from experiments import rotated_mnist_study as study

    plan = _plan(model)
    config = {
        "experiment": study.EXPERIMENT,
        "model": model,
        "preset": FLAGS.preset,
        "seed": FLAGS.seed,
        "digits": FLAGS.dataset or FLAGS.digits,
        "holdout_view": FLAGS.holdout_view,
        "settings": plan.describe(),
    }
    if not runs.claim(out_dir, config, FLAGS.resume):
        return
    started = time.perf_counter()
    data = _data()
    outcome = study.run(
        plan,
        data,
        seed=FLAGS.seed,
        out_dir=out_dir,
        resume=FLAGS.resume,
        jit_compile=common_flags.resolve_jit_compile(FLAGS.jit_compile),
        max_samples=FLAGS.max_samples,
    )
    found = 1 if outcome.posterior is None else outcome.posterior.num_samples
    complete = found == plan.num_samples
    words = [
        FLAGS.variant,
        "" if FLAGS.holdout_view is None else f"validation view {FLAGS.holdout_view}",
        "" if complete else f"first {found} of {plan.num_samples} samples",
        "" if (FLAGS.dataset or FLAGS.digits) == "3" else f"digits {FLAGS.dataset or FLAGS.digits}",
    ]
    seconds = outcome.seconds | {"total": time.perf_counter() - started}
    figures.draw(outcome, data, out_dir)
    results.write_results(
        out_dir,
        study.EXPERIMENT,
        model,
        FLAGS.preset,
        FLAGS.seed,
        plan.temperature,
        outcome.metrics,
        seconds,
        outcome.num_parameters,
        variant=" ".join(w for w in words if w),
        complete=complete,
        settings=plan.describe(),
        command=runs.command("rotated_mnist", sys.argv[1:]),
        curves=outcome.curves,
    )
    shown = ", ".join(f"{k} {v:.4f}" for k, v in outcome.metrics.items() if "mse" in k)
    print(f"{model}: {shown}, {seconds['total']:.0f} s. Results and figures are in {out_dir}.")


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(common_flags)  # so that --help lists them
    app.run(main)
