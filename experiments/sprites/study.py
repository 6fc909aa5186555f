"""The runs of the SPRITES driver: training, and scores of poses that were not seen."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

import keras
import numpy as np

from experiments.common import plans
from experiments.common.curves import Curve
from experiments.common.driver import Options, Outcome
from experiments.sprites import figures, scores
from experiments.sprites.frames import Task, first_poses, of_characters, pooled, stream, task
from experiments.sprites.models import (
    Plan,
    build_chain,
    build_model,
    chain_inputs,
    representation_network,
)
from experiments.sprites.plans import num_steps
from experiments.sprites.pretraining import pretrain
from gpflow_bae import inference, latent_priors
from gpflow_bae.datasets import sprites
from gpflow_bae.inference.runs.checkpoints import stopwatch
from gpflow_bae.posteriors import FittedModel, Posterior

CONTEXT_SIZES = (1, 4, 12)  # frames, beside all that there are
NUM_DRAWS = 4  # of the vectors and codes
_BY_CONTEXT = ("mse", "epistemic_variance", "coverage_90")
_STEPS_PER_CALL = 5  # minibatches of floats that are in memory twice: 250 MB each time
_QUICK = 20  # characters of either kind, for the curve


def load(
    data_dir: str | None, num_context: int, num_train: int, num_test: int | None, holdout: int
) -> Task:
    """The frames; arguments as in :func:`~experiments.sprites.frames.task`."""
    assert data_dir is not None
    return task(sprites.load(data_dir, num_context=num_context), num_train, num_test, holdout)


def _curve(plan: Plan, model: Any, data: Task, before: float) -> Curve:
    """The error of some generated frames given few training characters: above the score."""
    few, asked = (np.unique(f.X[:, 0])[:_QUICK] for f in (data.train, data.test))
    context = of_characters(data.context, asked)
    given = [context] if plan.model == "cvae" else [of_characters(data.train, few), context]
    test = first_poses(of_characters(data.test, asked), 10)

    def error() -> float:
        parts = [scores.know(plan, model, data, frames) for frames in given]
        codes = scores.codes_of(plan, model, parts, test.X)
        return scores.score(model, test, codes, 1)["mse"]

    return Curve(error, before, first=20.0)


def run(plan: Plan, data: Task, options: Options, max_samples: int | None = None) -> Outcome:
    """Train or sample, score the frames that are asked for, and draw the figures."""
    keras.utils.set_random_seed(options.seed)
    model, curves, seconds = fit(plan, data, options)
    number = len(curves["variational_loss"]) * _STEPS_PER_CALL
    step_ms = 1e3 * seconds["variational"] / max(1, number)
    if plan.sampler is None:
        metrics, drawn = evaluate(plan, model, data)
        metrics["noise_variance"] = float(model.observation_likelihood.variance.numpy())
        count, found = plans.count(model.trainable_parameters), 1
        posterior: Any = FittedModel(model)
    else:
        posterior = sample(plan, model, data, options, max_samples)
        curves |= plans.chain_curves(posterior)
        seconds |= posterior.seconds
        metrics, drawn = evaluate(plan, model, data, posterior)
        metrics |= plans.chain_temperatures(posterior)
        count, found = posterior.model.sampled.num_scalars, posterior.num_samples
    outcome = Outcome(
        metrics=metrics | {"step_ms": step_ms},
        num_parameters=count,
        curves=curves,
        seconds=seconds,
        posterior=posterior,
        unfinished=plans.unfinished(found, plan.num_samples),
    )
    figures.draw(outcome, drawn)
    if plan.sampler is not None:
        outcome.figures["chain"] = plans.chain_figure(posterior, plan.schedule)
    return outcome


class Fit(NamedTuple):
    """A fitted variational model, its curves, and the seconds of its parts."""

    model: Any
    curves: dict[str, list[float]]
    seconds: dict[str, float]


def fit(plan: Plan, data: Task, options: Options) -> Fit:
    """A variational model; of sgp_bae, the SVGP-VAE that the chain starts from."""
    if plan.model == "sgp_bae":
        plan = dataclasses.replace(plan, model="svgp_vae", schedule=None, sampler=None)
    curves, seconds, network = {}, {}, None
    if plan.pretrain_steps:
        started = time.perf_counter()
        network = representation_network(plan, data.train.Y.shape[1])
        curves["classifier_loss"] = pretrain(
            network,
            data.train,
            plan.pretrain_steps,
            plan.variational.batch_size or 500,
            options.seed,
            kept=None if options.out_dir is None else options.out_dir / "classifier.npz",
        )
        seconds["pretraining"] = time.perf_counter() - started
    model = build_model(plan, data, network)
    found, seconds["variational"] = _fit(plan, model, data, options)
    return Fit(model, curves | found, seconds)


def sample(
    plan: Plan, fitted: Any, data: Task, options: Options, max_samples: int | None
) -> Posterior:
    """A chain from a fitted SVGP-VAE, of some frames of each training character."""
    assert plan.schedule is not None
    seen = first_poses(data.train, plan.chain_frames)
    vectors = scores.character_vectors(fitted, data.train, data.num_characters).mean
    model = build_chain(plan, fitted)
    prior = latent_priors.TitsiasGP(
        model.latent_prior.kernels, model.latent_prior.inducing_variable, plan.latent_dim
    )
    fraction = plan.variational.final_learning_rate_fraction
    settings = dataclasses.replace(
        plan.variational,
        num_steps=plan.chain_start_steps,
        learning_rate=plan.variational.learning_rate * max(fraction, 0.1),
        objective=inference.EvidenceLowerBound(),  # which fits the noise
        prior_on_parameters=True,
        batch_size=min(plan.variational.batch_size or len(seen.X), len(seen.X)),
    )
    start = inference.WarmStart(fitted.encoder, settings, latent_prior=prior, num_initial_steps=0)
    schedule = plan.schedule
    if (schedule.batch_size or 0) >= len(seen.X):  # of few frames all are seen anyway
        schedule = dataclasses.replace(schedule, batch_size=None)
    return inference.sample_amortized(
        model,
        (chain_inputs(seen.X, vectors)[None], sprites.as_float(seen.Y)[None]),
        schedule,
        sampler=plan.sampler,
        warm_start=start,
        max_samples=max_samples,
        **options.arguments("chain"),
    )


def _fit(
    plan: Plan, model: Any, data: Task, options: Options
) -> tuple[dict[str, list[float]], float]:
    """The variational fit: its curves, and its seconds."""
    frames = data.train
    is_network = plan.model == "svgp_vae" and plan.representation == "network"
    if plan.model == "svgp_vae" and not is_network:
        frames = pooled(data.train, data.context)  # or there would be no vectors of its characters
    rows = stream(frames, plan.frames_per_character if is_network else None, options.seed)
    chosen = options.arguments("variational")
    elapsed = stopwatch(chosen["out_dir"])
    curve = _curve(plan, model, data, elapsed())
    settings = dataclasses.replace(plan.variational, num_steps=num_steps(plan, rows.num_points))
    losses = inference.fit_variational(
        model,
        rows,
        settings,
        steps_per_call=_STEPS_PER_CALL,
        checkpoint_every=20,
        callback=curve,
        **chosen,
    )
    plans.assign_tolerance(model, plan.variational.objective)
    seconds = elapsed() - curve.spent
    return {"variational_loss": losses.tolist(), **curve.points}, seconds


def evaluate(
    plan: Plan, model: Any, data: Task, posterior: Posterior | None = None
) -> tuple[dict[str, float], figures.Drawn]:
    """Scores given all context frames and given some of them, and what figures show.

    Learnt vectors are of all context frames, so with them there are no others.

    :param model: the variational one.
    :param posterior: of a chain, which then predicts from the vectors that the model makes.
    """
    most = int(np.unique(data.context.X[:, 0], return_counts=True)[1].max())
    sizes = [n for n in CONTEXT_SIZES if n < most] + [most]
    if plan.model == "svgp_vae" and plan.representation != "network":
        sizes = sizes[-1:]
    metrics: dict[str, float] = {}
    shown = np.linspace(0, len(data.test.X) - 1, min(10, len(data.test.X))).astype(int)
    X, Y = data.test.X[shown], data.test.Y[shown]
    of_training = plan.model == "svgp_vae"  # which tells of the GP, but not of a CVAE's characters
    trained = [scores.know(plan, model, data, data.train)] if of_training else []
    for size in sizes:
        context = first_poses(data.context, size)
        if posterior is not None:
            vectors = scores.character_vectors(model, context, data.num_characters)
            found = scores.score_samples(posterior, data.test, vectors)
            made = scores.generate_samples(posterior, X, vectors)
        else:
            parts = [*trained, scores.know(plan, model, data, context)]
            codes = scores.codes_of(plan, model, parts, data.test.X, NUM_DRAWS)
            found = scores.score(model, data.test, codes, NUM_DRAWS)
            part = scores.Codes(*(v[:, shown] for v in codes))
            made = scores.generate(model, X, part, NUM_DRAWS, 0)
        metrics |= {f"{name}_context_{size}": found[name] for name in _BY_CONTEXT}
    return metrics | found, figures.Drawn(X, sprites.as_float(Y), made)
