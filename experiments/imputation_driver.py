"""What the drivers of single tables with missing cells share: flags, initialisations, results."""

from __future__ import annotations

import pathlib
import statistics
import time
from typing import Any

from absl import app, flags

from experiments.common import flags as common_flags
from experiments.common import runs

EXPERIMENT = "imputation"
BASELINES = ("mean", "igp", "gpar")
FLAGS = common_flags.FLAGS

_SAMPLER = common_flags.SAMPLER


def define_flags(latent_dim: int, init_lengthscale: float, num_inducing: int = 64) -> None:
    """The shared flags and those of the published drivers, with a table's own defaults."""
    from gpflow_bae.impute.plans import MODELS, NETS

    common_flags.define([*MODELS, *BASELINES], default_model="sgp_vae")
    flags.DEFINE_enum("pinference_net", "factornet", list(NETS), "Partial inference network.")
    flags.DEFINE_integer("latent_dim", latent_dim, "Latent channels.", lower_bound=1)
    flags.DEFINE_float("init_lengthscale", init_lengthscale, "Lengthscales start here.")
    flags.DEFINE_list("h_dims", ["20"], "Widths of the inference network's hidden layers.")
    flags.DEFINE_list(
        "decoder_dims", ["5", "5"], "Widths of the decoder's hidden layers; empty for a linear one."
    )
    flags.DEFINE_float("noise_start", 0.1, "Standard deviation of standardised noise at the start.")
    flags.DEFINE_integer(
        "num_inducing", num_inducing, "Inducing points, of each layer.", lower_bound=1
    )
    flags.DEFINE_float("period", None, "Periodic kernels, of this period at the start; else SE.")
    flags.DEFINE_integer("batch_size", None, "Tasks per step; all where not given.", lower_bound=1)
    flags.DEFINE_integer("epochs", None, "Adam steps. Default: the preset's.", lower_bound=1)
    flags.DEFINE_float("lr", None, "Learning rate of Adam. Default: the preset's.")
    flags.DEFINE_bool("log_outputs", False, "Model the logarithms of the (positive) outputs.")
    flags.DEFINE_float("weight_prior_scale", 1.0, "Scale of the decoder's weight prior (sampled).")
    flags.DEFINE_float("code_noise_variance", 1e-3, "Variance of codes around the GP (sampled).")
    flags.DEFINE_float(
        "hidden_variance", 0.05, "Variance of a deep prior's hidden layer around its inputs."
    )
    flags.DEFINE_float(
        "nugget", None, "Variance of codes around the GP at the start (variational). Default: none."
    )
    flags.DEFINE_integer(
        "initialisations", 1, "Fits from seeds of their own; the best are reported.", lower_bound=1
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
    flags.DEFINE_integer("validation_fold", 0, "Seed of the cells that are hidden.", lower_bound=0)
    flags.DEFINE_integer("validation_block", 20, "Rows in a hidden block.", lower_bound=1)
    flags.DEFINE_string("variant", "", "A name for this run in the results table.")
    common_flags.define_overrides(_SAMPLER)


def load(name: str) -> tuple[Any, Any]:
    """The table to fit, and one of other tasks to predict; None where the first has test cells."""
    from gpflow_bae.datasets import bouncing_ball, eeg, japan_weather, jura

    if name == "jura":
        return jura.load(FLAGS.data_dir), None
    if name == "eeg":
        return eeg.load_small(FLAGS.data_dir), None
    if name == "eeg_large":
        both = eeg.load_large(FLAGS.data_dir, FLAGS.regime, FLAGS.seed)
        return both.train, both.test
    if name == "japan_weather":
        data = japan_weather.load(FLAGS.data_dir)
        return data.of_year(1980), data.of_year(1981) if FLAGS.test_year == 1981 else None
    if FLAGS.balls == 2:
        return bouncing_ball.two_balls(FLAGS.seed).table, None
    train, test = bouncing_ball.load_one(FLAGS.seed)
    return train.table, bouncing_ball.hide_future(test.table, FLAGS.num_context)


def plan() -> Any:
    """The plan that the flags describe."""
    from experiments.imputation_plans import default_plan

    return default_plan(
        FLAGS.model,
        FLAGS.preset,
        net=FLAGS.pinference_net,
        latent_dim=FLAGS.latent_dim,
        lengthscale=FLAGS.init_lengthscale,
        encoder_widths=tuple(int(w) for w in FLAGS.h_dims if w),
        decoder_widths=tuple(int(w) for w in FLAGS.decoder_dims if w),
        noise_start=FLAGS.noise_start,
        num_inducing=FLAGS.num_inducing,
        period=FLAGS.period,
        log_outputs=FLAGS.log_outputs,
        batch_size=FLAGS.batch_size,
        epochs=FLAGS.epochs,
        learning_rate=FLAGS.lr,
        weight_prior_scale=FLAGS.weight_prior_scale,
        code_noise_variance=FLAGS.code_noise_variance,
        hidden_variance=FLAGS.hidden_variance,
        nugget=FLAGS.nugget,
        sampler=common_flags.overrides(_SAMPLER),
    )


def main(argv: list[str], table_name: str) -> None:
    """Run one model on a table, from one or several initialisations, and write results."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    from gpflow_bae.data import hold_out

    out_dir = pathlib.Path(FLAGS.out_dir)
    baseline = FLAGS.model in BASELINES
    described = {} if baseline else plan().describe()
    keep = FLAGS.keep or FLAGS.initialisations
    if not 1 <= keep <= FLAGS.initialisations:
        raise app.UsageError(
            f"--keep is {keep}; it must lie between 1 and --initialisations, "
            f"{FLAGS.initialisations}."
        )
    validation = None
    if FLAGS.validation_fraction is not None:
        validation = [FLAGS.validation_fraction, FLAGS.validation_fold, FLAGS.validation_block]
    config = {
        "experiment": EXPERIMENT,
        "model": f"{table_name}/{FLAGS.model}",
        "preset": FLAGS.preset,
        "seed": FLAGS.seed,
        "initialisations": FLAGS.initialisations,
        "keep": keep,
        "validation": validation,
        "settings": described,
    }
    if not runs.claim(out_dir, config, FLAGS.resume):
        return
    table, test = load(table_name)
    if FLAGS.validation_fraction is not None:
        test = None
        tested = [n for p, n in enumerate(table.output_names) if table.test_mask[..., p].any()]
        table = hold_out(
            table,
            FLAGS.validation_fraction,
            FLAGS.validation_fold,
            outputs=tested or None,
            block=FLAGS.validation_block,
        )
    started = time.perf_counter()
    if baseline:
        scored = table if test is None else test
        metrics, curves, count, temperature = _run_baseline(table_name, scored), {}, 0, None
    else:
        metrics, curves, count = _run_model(table, test, out_dir, keep)
        temperature = plan().temperature
    words = [
        FLAGS.variant,
        FLAGS.regime if table_name == "eeg_large" else "",
        "" if baseline else FLAGS.pinference_net,
        "" if FLAGS.initialisations == 1 else f"best {keep} of {FLAGS.initialisations}",
        # Its fold is in the command, and belongs to the seed's column.
        "" if validation is None else f"validation, blocks of {FLAGS.validation_block}",
    ]
    runs.finish(
        out_dir,
        table_name,
        config,
        metrics,
        words=words,
        started=started,
        num_parameters=count,
        temperature=temperature,
        curves=curves,
    )


def _run_baseline(table_name: str, table: Any) -> dict[str, float]:
    from experiments.baselines import gpar
    from gpflow_bae.impute import scores
    from gpflow_bae.impute.baselines import independent_gps, mean

    module = {"mean": mean, "igp": independent_gps, "gpar": gpar}[FLAGS.model]
    settings = gpar.SETTINGS.get(table_name, {}) if FLAGS.model == "gpar" else {}
    return scores.score(table, *module.fit_predict(table, seed=FLAGS.seed, **settings))


def _run_model(
    table: Any, test: Any, out_dir: pathlib.Path, keep: int
) -> tuple[dict[str, float], dict[str, list[float]], int]:
    """Scores averaged over the best initialisations, with their standard deviations.

    Beside them those of the best's equal mixture, which is what several fits are good for.
    """
    from experiments import imputation_study as study

    outcomes = []
    for i in range(FLAGS.initialisations):
        folder = out_dir if FLAGS.initialisations == 1 else out_dir / f"initialisation_{i}"
        outcomes.append(
            study.run(
                plan(),
                table,
                test,
                seed=100 * FLAGS.seed + i,
                out_dir=folder,
                resume=FLAGS.resume,
                jit_compile=common_flags.resolve_jit_compile(FLAGS.jit_compile),
            )
        )
    for outcome in outcomes:
        if test is not None and test.input_names == ("frame",):
            outcome.metrics |= _errors_ahead(outcome.mean, test)
    best = sorted(outcomes, key=lambda outcome: outcome.objective)[:keep]
    metrics = {n: statistics.fmean(o.metrics[n] for o in best) for n in best[0].metrics}
    if keep > 1:
        metrics |= {
            f"{n}_deviation": statistics.stdev(o.metrics[n] for o in best)
            for n in best[0].metrics
            if n in ("smse", "mae", "nll")
        }
        mixture = study.mixture_scores(best, table if test is None else test)
        metrics |= {f"{n}_mixture": value for n, value in mixture.items() if n != "rmse"}
    curves = dict(best[0].curves)
    if len(outcomes) > 1:
        curves["objective"] = [o.objective for o in outcomes]
        for name in ("smse", "mae", "nll"):
            curves[name] = [o.metrics[name] for o in outcomes]
    return metrics, curves, best[0].num_parameters


def _errors_ahead(mean: Any, test: Any, steps: int = 10) -> dict[str, float]:
    """Mean absolute errors of the images ``steps`` frames ahead of what is seen of one ball.

    Beside the noisy pixels they are of the image without noise, whose error can reach zero.
    """
    import numpy as np

    from gpflow_bae.datasets import bouncing_ball

    frame = FLAGS.num_context + steps - 1
    clean = bouncing_ball.load_one(FLAGS.seed)[1]
    image = bouncing_ball.render(clean.heights[:, frame], mean.shape[-1], bouncing_ball.ONE_WIDTH)
    return {
        f"mae_{steps}_steps": float(np.abs(mean[:, frame] - image).mean()),
        f"mae_{steps}_steps_noisy": float(np.abs(mean[:, frame] - test.truth[:, frame]).mean()),
    }
