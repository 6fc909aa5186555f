"""The commands of all tables with missing cells: flags, plan, and fits from several seeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from absl import flags

from experiments.common import driver
from experiments.common import flags as common_flags
from experiments.imputation import tables

BASELINES = ("mean", "igp", "gpar")
FLAGS = common_flags.FLAGS


def start(name: str) -> None:
    """Run the command of a table."""
    driver.start(study(name))


def study(name: str) -> driver.Study:
    """Return the command of a table, ``python -m experiments.<name>``."""
    return driver.Study("imputation", lambda: define_flags(name), lambda: runs(name))


def define_flags(name: str) -> None:
    """Define the shared flags and those of the published drivers, with a table's defaults."""
    table = tables.TABLES[name]
    common_flags.define([*tables.MODELS, *BASELINES], default_model="sgp_vae")
    flags.DEFINE_enum(
        "pinference_net",
        None,
        list(tables.NETS),
        "Partial inference network; free for codes of their own, which start from a network's. "
        "Default: factornet; zeros for sampled models of --preset=paper.",
    )
    flags.DEFINE_enum(
        "free_from",
        None,
        [net for net in tables.NETS if net != "free"],
        "The network whose fit free-form codes start from. Default: indexnet; the published one "
        "with --preset=paper.",
    )
    flags.DEFINE_integer("latent_dim", table.latent_dim, "Latent channels.", 1)
    flags.DEFINE_float("init_lengthscale", table.init_lengthscale, "Lengthscales start here.")
    flags.DEFINE_list(
        "h_dims", None, "Widths of the inference network's hidden layers. Default: the preset's."
    )
    flags.DEFINE_list(
        "decoder_dims",
        None,
        "Widths of the decoder's hidden layers; empty for a linear one. Default: the preset's.",
    )
    flags.DEFINE_float(
        "noise_start",
        None,
        "Standard deviation of standardised noise at the start. Default: 0.1; that of the released "
        "code, which fixes it, for sampled models of Jura with --preset=paper.",
    )
    flags.DEFINE_integer(
        "num_inducing",
        None if table.published else table.num_inducing,
        "Inducing points, of each layer. Default: the preset's.",
        1,
    )
    flags.DEFINE_list(
        "period",
        None,
        "Periodic kernels, of this period at the start, or of several (80,50), which the channels "
        "have in turn. Default: none.",
    )
    flags.DEFINE_integer(
        "batch_size", None, "Tasks per step of Adam. Default: the preset's; all in most.", 1
    )
    common_flags.define_num_steps()
    flags.DEFINE_float("lr", None, "Learning rate of Adam. Default: the preset's.")
    flags.DEFINE_bool("log_outputs", False, "Model the logarithms of the (positive) outputs.")
    flags.DEFINE_float("code_noise_variance", 1e-3, "Variance of codes around the GP (sampled).")
    flags.DEFINE_integer(
        "num_layers", None, "Layers of a deep prior. Default: 2; 3 with --preset=paper.", 1
    )
    flags.DEFINE_float(
        "hidden_variance", 0.05, "Variance of a deep prior's hidden layers around their inputs."
    )
    flags.DEFINE_float(
        "nugget", None, "Variance of codes around the GP at the start (variational). Default: none."
    )
    flags.DEFINE_integer(
        "initialisations", 1, "Fits from seeds of their own; the best are reported.", 1
    )
    flags.DEFINE_integer(
        "keep",
        None,
        "How many of them are averaged, by their training objective (published: 10 of 15).",
    )
    flags.DEFINE_float(
        "validation_fraction",
        None,
        "Score this share of the observed cells, hidden in blocks, instead of the test cells: for "
        "choosing settings.",
    )
    flags.DEFINE_integer("validation_fold", 0, "Seed of the cells that are hidden.", 0)
    flags.DEFINE_integer("validation_block", 20, "Rows in a hidden block.", 1)
    flags.DEFINE_enum(
        "sampler",
        None,
        ["adaptive_sghmc", "sghmc"],
        "Of sgp_bae. sghmc keeps temperature 1: all rows in every step, in coordinates of the "
        "priors. Default: adaptive_sghmc, as published.",
    )
    common_flags.define_overrides(common_flags.SCHEDULE | common_flags.SAMPLER)
    tables.define_flags(name)


def plan(name: str) -> Any:
    """Return the plan of the flags of a table."""
    from experiments.imputation.plans import default_plan

    table = tables.TABLES[name]
    inducing = FLAGS.num_inducing
    if inducing is None and FLAGS.preset != "paper":
        inducing = table.num_inducing
    return default_plan(
        FLAGS.model,
        FLAGS.preset,
        table.published,
        net=FLAGS.pinference_net,
        lengthscale=FLAGS.init_lengthscale,
        encoder_widths=_widths(FLAGS.h_dims),
        decoder_widths=_widths(FLAGS.decoder_dims),
        num_inducing=inducing,
        learning_rate=FLAGS.lr,
        schedule=common_flags.overrides(common_flags.SCHEDULE),
        sampler=common_flags.overrides(common_flags.SAMPLER)
        | ({} if FLAGS.sampler is None else {"name": FLAGS.sampler}),
        period=_period(),
        **common_flags.values(
            "free_from",
            "latent_dim",
            "noise_start",
            "log_outputs",
            "batch_size",
            "num_steps",
            "code_noise_variance",
            "num_layers",
            "hidden_variance",
            "nugget",
        ),
    )


def _widths(words: list[str] | None) -> tuple[int, ...] | None:
    return None if words is None else tuple(int(w) for w in words if w)


def _period() -> float | tuple[float, ...] | None:
    if FLAGS.period is None:
        return None
    try:
        periods = tuple(float(word) for word in FLAGS.period)
    except ValueError:
        periods = ()
    if not periods or not all(0 < period < float("inf") for period in periods):
        raise ValueError(
            f"--period is {','.join(FLAGS.period)!r}; expected positive numbers, such as 80,50."
        )
    return periods if len(periods) > 1 else periods[0]


def runs(name: str) -> Iterator[driver.Run]:
    """Generate the run of a model or baseline on a table, with one or several initialisations."""
    number, keep = FLAGS.initialisations, FLAGS.keep or FLAGS.initialisations
    if not 1 <= keep <= number:
        raise ValueError(
            f"--keep is {keep}; it must lie between 1 and --initialisations, {number}."
        )
    validation = None
    if FLAGS.validation_fraction is not None:
        validation = [FLAGS.validation_fraction, FLAGS.validation_fold, FLAGS.validation_block]
    is_baseline = FLAGS.model in BASELINES
    planned = None if is_baseline else plan(name)

    def execute(options: driver.Options) -> driver.Outcome:
        from experiments.imputation import run_figures, study

        table, test = tables.load(name)
        if validation is not None:
            table, test = _hide(table, *validation), None
        if is_baseline:
            return _run_baseline(name, table if test is None else test)
        more = tables.errors_ahead if name == "bouncing_ball" and test is not None else None
        outcome = study.run_several(planned, table, test, options, number, keep, more)
        scored = table if test is None else test
        outcome.figures |= run_figures.draw(name, scored, outcome.prediction)
        if "mae_ahead" in outcome.curves:
            outcome.figures["ahead"] = run_figures.ahead(outcome.curves["mae_ahead"])
            outcome.films["film"] = run_figures.film(scored, outcome.prediction.mean)
        outcome.figures |= run_figures.fit(planned, outcome.posterior)
        return outcome

    yield driver.Run(
        model=f"{name}/{FLAGS.model}",
        plan=planned,
        execute=execute,
        more={"initialisations": number, "keep": keep, "validation": validation},
        words=[
            FLAGS.regime if name == "eeg_large" else "",
            "" if planned is None else planned.net,
            _layers(planned) if FLAGS.model == "dsgp_bae" else "",
            "sghmc" if FLAGS.sampler == "sghmc" else "",
            _codes(planned),
            "" if number == 1 else f"best {keep} of {number}",
            # The fold is in the command, and belongs to the seed's column.
            "" if validation is None else f"validation, blocks of {FLAGS.validation_block}",
        ],
    )


def _layers(planned: Any) -> str:
    # A part of the variant's name, as stored results of two layers lack this setting.
    return "" if planned.num_layers == 2 else f"{planned.num_layers} layers"


def _codes(planned: Any) -> str:
    schedule = None if planned is None else planned.schedule
    return "codes drawn" if schedule is not None and schedule.codes == "encoder" else ""


def _hide(table: Any, fraction: float, fold: int, block: int) -> Any:
    from gpflow_bae.data import hold_out

    tested = [n for p, n in enumerate(table.output_names) if table.test_mask[..., p].any()]
    return hold_out(table, fraction, fold, outputs=tested or None, block=block)


def _run_baseline(name: str, table: Any) -> driver.Outcome:
    from experiments.baselines import gpar, independent_gps, mean
    from experiments.common import scores
    from experiments.imputation import run_figures

    if FLAGS.model == "gpar":
        settings = gpar.SETTINGS.get(name, {})
        prediction = gpar.predict(table, seed=FLAGS.seed, **settings)
    else:
        module = {"mean": mean, "igp": independent_gps}[FLAGS.model]
        moments = module.fit_predict(table, seed=FLAGS.seed)
        prediction = scores.TablePrediction.gaussian(table, *moments)
    return driver.Outcome(
        metrics=scores.score_prediction(table, prediction),
        num_parameters=0,
        figures=run_figures.draw(name, table, prediction),
    )
