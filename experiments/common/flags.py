"""Flags of all drivers (docs/design.md, section 6).

They are defined when a command starts, before ``absl.app.run`` parses the command line, and not at
import: absl allows one definition of a flag per process, so tests could not import two studies.
"""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

FLAGS = flags.FLAGS

DATA_DIR_VARIABLE = "GPFLOW_BAE_DATA"

# Settings of the rounds and of the sampler that flags can replace: absl's function, and the help.
SCHEDULE = {
    "burnin": (flags.DEFINE_integer, "SG-MCMC steps before the first sample."),
    "num_samples": (flags.DEFINE_integer, "Posterior samples to keep."),
    "thinning": (flags.DEFINE_integer, "SG-MCMC steps between samples."),
    "codes": (
        flags.DEFINE_string,
        "Codes at the start of a round: carried, or drawn by the encoder (Algorithm 1).",
    ),
    "encoder_loss": (flags.DEFINE_string, "energy, nll or mse (the paper's)."),
}
SAMPLER = {
    "step_size": (
        flags.DEFINE_float,
        "Step size of the sampler, which is kept: where the sampler would search one by the "
        "curvature, that search is off.",
    ),
    "momentum_decay": (flags.DEFINE_float, "Momentum lost per step."),
    "temperature": (flags.DEFINE_float, "Temperature; the posterior is 1."),
}


def define(
    models: Sequence[str], default_model: str | None = None, *, model_flag: str = "model"
) -> None:
    """Define the shared flags.

    --model, --preset, --seed, --out_dir, --data_dir, --resume, --jit_compile, --tensorboard,
    --variant.

    :param models: values of --model, such as ["vae", "sgp_bae", "all"].
    :param default_model: default of --model; the first of ``models`` if None.
    :param model_flag: another name of that flag, such as "method".
    """
    flags.DEFINE_enum(model_flag, default_model or models[0], list(models), "Which system to run.")
    flags.DEFINE_enum(
        "preset",
        "quick",
        ["quick", "paper"],
        "quick: minutes on two CPU cores. paper: the settings of the published experiment.",
    )
    flags.DEFINE_integer("seed", 0, "Seed of the data, the initialisation and the sampler.", 0)
    flags.DEFINE_string(
        "out_dir", None, "Folder for config.json, results.json, figures and checkpoints."
    )
    define_data_dir()
    flags.DEFINE_boolean("resume", False, "Continue an interrupted run in --out_dir.")
    flags.DEFINE_enum(
        "jit_compile",
        "auto",
        ["auto", "true", "false"],
        "Compile with XLA. auto: on where a GPU is visible, off on CPU, where it is slower.",
    )
    flags.DEFINE_boolean("tensorboard", False, "Write TensorBoard scalars under --out_dir.")
    flags.DEFINE_string("variant", "", "A name for this run in the results table.")
    flags.mark_flag_as_required("out_dir")


def define_num_steps() -> None:
    """Define --num_steps, and its published name --epochs."""
    flags.DEFINE_integer(
        "num_steps",
        None,
        "Steps of Adam. Default: the preset's. --epochs is another name of this flag, kept for "
        "published commands.",
        lower_bound=1,
    )
    flags.DEFINE_alias("epochs", "num_steps")


def define_svgp_vae(kappa_squared: float) -> None:
    """Define the flags of SVGP-VAE's objective, encoder and kernel, named as in its released code.

    :param kappa_squared: default of --kappa_squared, as published for the data set.
    """
    flags.DEFINE_boolean("GECO", None, "Train with GECO. Default: as published for the model.")
    flags.DEFINE_float(
        "kappa_squared", kappa_squared, "GECO's tolerated squared error, a mean over all outputs."
    )
    flags.DEFINE_float("alpha", 0.99, "GECO's moving average.")
    flags.DEFINE_float("beta", 1.0, "Weight of the divergence, without GECO.")
    flags.DEFINE_boolean("clip_qs", True, "Clip the encoder's variance to [1e-3, 10].")
    flags.DEFINE_boolean("GP_joint", True, "Learn the kernel's hyperparameters.")


def svgp_vae_objective() -> dict[str, Any]:
    """Return the arguments of :func:`experiments.common.plans.svgp_vae_objective` of the flags."""
    names = {"geco": "GECO", "kappa_squared": "kappa_squared", "smoothing": "alpha", "beta": "beta"}
    return {name: FLAGS[flag].value for name, flag in names.items()}


def define_ablation(models: str) -> None:
    """Define --parameters, --point_decoder and --point_gp: the ablation of Tran et al. (2023).

    :param models: text that names the models to which --parameters applies.
    """
    flags.DEFINE_enum(
        "parameters",
        "point",
        ["point", "mean_field", "sghmc"],
        f"Decoder and hyperparameters of {models}: a point estimate, a Gaussian each (BVAE-VI), or "
        "SGHMC on the bound (BVAE-SGHMC).",
    )
    flags.DEFINE_boolean(
        "point_decoder", False, "Optimise the decoder in the chain's steps (NonBayesDec)."
    )
    flags.DEFINE_boolean("point_gp", False, "Optimise the GP in the chain's steps (NonBayesGP).")


def point_estimates() -> dict[str, tuple[str, ...]]:
    """Return the field of a plan for --point_decoder and --point_gp; empty if both are off."""
    paths = {".decoder": FLAGS.point_decoder, ".latent_prior": FLAGS.point_gp}
    chosen = tuple(path for path, asked in paths.items() if asked)
    return {"point_estimates": chosen} if chosen else {}


def define_data_dir() -> None:
    """Define --data_dir."""
    flags.DEFINE_string(
        "data_dir",
        default_data_dir(),
        f"Folder of the data sets. Defaults to ${DATA_DIR_VARIABLE}, else ~/.cache/gpflow_bae.",
    )
    # The help shows the rule for the folder, not its value on this machine.
    FLAGS["data_dir"].default_as_str = f"${DATA_DIR_VARIABLE} or ~/.cache/gpflow_bae"


def default_data_dir() -> str:
    """Return the environment's GPFLOW_BAE_DATA if set and not empty, else ~/.cache/gpflow_bae."""
    folder = os.environ.get(DATA_DIR_VARIABLE) or "~/.cache/gpflow_bae"
    return str(pathlib.Path(folder).expanduser())


def resolve_jit_compile(value: str) -> bool:
    """Return whether to compile with XLA on this machine, given the value of --jit_compile.

    :param value: "auto", "true" or "false".
    :raises ValueError: for any other value.
    """
    if value == "auto":
        # TensorFlow is slow to import, and --help does not need it.
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"jit_compile is {value!r}; expected 'auto', 'true' or 'false'.")


def define_overrides(table: Mapping[str, tuple[Callable[..., Any], str]]) -> None:
    """Define flags that each replace one setting of the preset when given.

    :param table: absl's function that defines the flag, and its help, by name.
    """
    for name, (define_flag, text) in table.items():
        define_flag(name, None, text + " Default: the preset's.")


def overrides(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of those flags of a table that were given, by name."""
    return {name: FLAGS[name].value for name in table if FLAGS[name].value is not None}


def values(*names: str) -> dict[str, Any]:
    """Return the values of flags by name, for settings with the same names."""
    return {name: FLAGS[name].value for name in names}
