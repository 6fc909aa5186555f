"""Poses of characters that were never trained on (SPRITES of Jazbec et al. 2021).

python -m experiments.sprites --model=svgp_vae --preset=quick --seed=0 \
    --data_dir=DATA --out_dir=runs/sprites

--elbo names the model as the released command of SVGP-VAE does, and flags that both have mean the
same. Settings are chosen with --holdout_characters, which asks for poses of training characters
that are kept from training.
"""

from collections.abc import Iterator
from typing import Any

from absl import app, flags

from experiments.common import driver
from experiments.common import flags as common_flags

MODELS = ["svgp_vae", "cvae", "sgp_bae", "all"]
FLAGS = common_flags.FLAGS

_SCHEDULE = {name: value for name, value in common_flags.SCHEDULE.items() if name != "encoder_loss"}


def define_flags() -> None:
    """The shared flags, the published ones, and this driver's own."""
    common_flags.define(MODELS)
    flags.DEFINE_enum(
        "elbo",
        None,
        ["SVGPVAE_Hensman", "CVAE"],
        "Replaces --model: the name in the released commands.",
    )
    flags.DEFINE_enum(
        "networks",
        "ours",
        ["ours", "published"],
        "Networks of all models. published: those of Jazbec et al. (2021), with their pooling, "
        "width of the poses' vectors, learning rate and epochs of pretraining where other flags "
        "do not say otherwise.",
    )
    flags.DEFINE_enum(
        "representation",
        "network",
        ["network", "gplvm"],
        "How characters' vectors are known: a network of their frames, or learnt ones, for which "
        "the context of test characters is trained on, too.",
    )
    flags.DEFINE_enum(
        "pooling",
        None,
        ["mean", "sum", "gaussian"],
        "Of the representation network's outputs; gaussian for vectors with a distribution. "
        "Default: mean; sum with the published networks. The kernel sees directions of vectors "
        "alone, so that mean and sum are one.",
    )
    flags.DEFINE_integer(
        "pretrain_steps",
        None,
        "Steps in which the representation network first learns to tell characters apart; 0 for "
        "none. Default: the preset's.",
        0,
    )
    common_flags.define_svgp_vae(kappa_squared=0.0075)
    flags.DEFINE_integer("L", 64, "Latent channels.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 500, "Frames per step.", lower_bound=1)
    flags.DEFINE_integer(
        "frames_per_character",
        None,
        "How many of a character come together in a minibatch, where a network pools over them. "
        "Default: 10; all 50 with the published networks.",
        lower_bound=1,
    )
    flags.DEFINE_integer("nr_epochs", None, "Epochs. Default: the preset's.", lower_bound=1)
    flags.DEFINE_float(
        "lr", None, "Learning rate of Adam. Default: 0.002; 0.001 with the published networks."
    )
    flags.DEFINE_float(
        "lr_decay",
        None,
        "It decays to this fraction along a cosine; 1 for none. Default: 0.02; 1 with the "
        "published networks.",
    )
    flags.DEFINE_integer(
        "chain_frames", 10, "Frames of each training character that the chain sees (sgp_bae).", 1
    )
    flags.DEFINE_integer("max_samples", None, "Stop and score after this many samples.", 1)
    common_flags.define_overrides(_SCHEDULE | common_flags.SAMPLER)
    flags.DEFINE_integer("N_context", 36, "Frames that are seen of each test character.", 1, 36)
    flags.DEFINE_integer("num_train", 1000, "Training characters, the first ones.", 2, 1000)
    flags.DEFINE_integer("num_test", 296, "Test characters, the first ones.", 1, 296)
    flags.DEFINE_integer(
        "holdout_characters",
        0,
        "Test on so many of the training characters, kept from training, instead: for choosing "
        "settings.",
        lower_bound=0,
    )


def _plan(model: str) -> Any:
    from experiments.sprites import plans

    published = {"latent_dim": "L", "learn_kernel": "GP_joint", "clip_encoder": "clip_qs"}
    changes = {field: FLAGS[flag].value for field, flag in published.items()}
    changes |= common_flags.values("representation", "chain_frames")
    changes |= common_flags.overrides(dict.fromkeys(("pooling", "frames_per_character")))
    rates = {"learning_rate": FLAGS.lr, "final_learning_rate_fraction": FLAGS.lr_decay}
    if model == "cvae":
        if FLAGS["representation"].present and FLAGS.model != "all":
            raise app.UsageError(
                "--representation is of svgp_vae; cvae has no vectors of characters."
            )
        changes["representation"] = "network"
    return plans.make_plan(
        model,
        FLAGS.preset,
        networks=FLAGS.networks,
        objective=plans.make_objective(model, **common_flags.svgp_vae_objective()),
        num_epochs=FLAGS.nr_epochs,
        batch_size=FLAGS.batch_size,
        fit={name: value for name, value in rates.items() if value is not None},
        schedule=common_flags.overrides(_SCHEDULE),
        sampler=common_flags.overrides(common_flags.SAMPLER),
        pretrain_steps=FLAGS.pretrain_steps,
        **changes,
    )


def _data() -> Any:
    from experiments.sprites import study

    return study.load(
        FLAGS.data_dir,
        FLAGS.N_context,
        FLAGS.num_train,
        FLAGS.num_test,
        FLAGS.holdout_characters,
    )


def runs() -> Iterator[driver.Run]:
    """One model, or all of them, each in a folder of its own."""
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments.sprites import plans, study

    name = FLAGS.model if FLAGS.elbo is None else plans.ELBO_MODELS[FLAGS.elbo]
    if not FLAGS.holdout_characters < FLAGS.num_train:
        raise app.UsageError(
            f"--holdout_characters={FLAGS.holdout_characters} of the {FLAGS.num_train} training "
            "characters leave none to train on."
        )
    defaults = {"N_context": 36, "num_train": 1000, "num_test": 296}
    changed = {
        flag: FLAGS[flag].value for flag, value in defaults.items() if FLAGS[flag].value != value
    }
    for model in [m for m in MODELS if m != "all"] if name == "all" else [name]:
        plan = _plan(model)
        yield driver.Run(
            model=model,
            plan=plan,
            execute=lambda options, plan=plan: study.run(plan, _data(), options, FLAGS.max_samples),
            more={"holdout_characters": FLAGS.holdout_characters} | changed,
            words=[
                "" if model == "cvae" or plan.representation == "network" else "gplvm",
                "" if FLAGS.networks == "ours" else "published networks",
                f"pooling={plan.pooling}" if plan.pooling == "gaussian" else "",
                "" if FLAGS.GECO is None else "GECO" if FLAGS.GECO else "bound",
                f"validation on {FLAGS.holdout_characters}" if FLAGS.holdout_characters else "",
                *(f"{flag}={value}" for flag, value in changed.items()),
            ],
            folder=model if name == "all" else "",
        )


STUDY = driver.Study("sprites", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
