"""What the SPRITES driver runs: training, and scores of poses that were not seen."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import keras
import numpy as np

from experiments.common import plans
from experiments.common.driver import Options, Outcome
from experiments.sprites import figures, scores
from experiments.sprites.frames import Task, first_poses, of_characters, pooled, stream, task
from experiments.sprites.models import Plan, build_model, representation_network
from experiments.sprites.plans import num_steps
from experiments.sprites.pretraining import pretrain
from gpflow_bae import inference
from gpflow_bae.datasets import sprites
from gpflow_bae.inference.checkpoints import stopwatch
from gpflow_bae.posteriors import FittedModel

CONTEXT_SIZES = (1, 4, 12)  # frames, beside all that there are
NUM_DRAWS = 4  # of the codes
_STEPS_PER_CALL = 5  # minibatches of floats that are in memory twice: 250 MB each time
_QUICK = 20  # characters of either kind, for the curve


def load(
    data_dir: str | None, num_context: int, num_train: int, num_test: int | None, holdout: int
) -> Task:
    """The frames; arguments as in :func:`~experiments.sprites.frames.task`."""
    assert data_dir is not None
    return task(sprites.load(data_dir, num_context=num_context), num_train, num_test, holdout)


class Curve:
    """Error of some generated frames against seconds of training, evaluations left out.

    For figures, never for choices; given few training characters, so it is above the score.
    """

    def __init__(self, plan: Plan, model: Any, data: Task, before: float = 0.0):
        """
        :param before: seconds of training so far.
        """
        self._plan, self._model, self._data = plan, model, data
        few, asked = (np.unique(f.X[:, 0])[:_QUICK] for f in (data.train, data.test))
        context = of_characters(data.context, asked)
        self._given = scores.known(plan, data, of_characters(data.train, few), context)
        self._test = first_poses(of_characters(data.test, asked), 10)
        self._started, self._next = time.perf_counter() - before, max(20.0, 1.15 * before)
        self.spent = 0.0  # seconds of evaluations
        self.points: dict[str, list[float]] = {"seconds": [], "mse": []}

    def __call__(self, step: int, loss: float) -> None:
        """Record a point if it is time for one."""
        now = time.perf_counter()
        elapsed = now - self._started - self.spent
        if elapsed < self._next:
            return
        codes = scores.codes_of(self._plan, self._model, self._data, self._given, self._test.X)
        found = scores.score(self._model, self._test, codes, 1)
        self.points["seconds"].append(elapsed)
        self.points["mse"].append(found["mse"])
        self._next = elapsed * 1.15
        self.spent += time.perf_counter() - now


def run(plan: Plan, data: Task, options: Options) -> Outcome:
    """Train, score the frames that are asked for, and draw the figures."""
    keras.utils.set_random_seed(options.seed)
    curves: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    network = None
    if plan.pretrain_steps:
        started = time.perf_counter()
        network = representation_network(plan, data.train.Y.shape[1])
        curves["classifier_loss"] = pretrain(
            network,
            data.train,
            plan.pretrain_steps,
            plan.variational.batch_size or 500,
            plan.pretrain_learning_rate,
            options.seed,
        )
        seconds["pretraining"] = time.perf_counter() - started
    model = build_model(plan, data, network)
    found, seconds["variational"] = fit(plan, model, data, options)
    curves |= found
    number = len(curves["variational_loss"]) * _STEPS_PER_CALL
    metrics, drawn = evaluate(plan, model, data)
    metrics["step_ms"] = 1e3 * seconds["variational"] / max(1, number)
    metrics["noise_variance"] = float(model.observation_likelihood.variance.numpy())
    outcome = Outcome(
        metrics=metrics,
        num_parameters=plans.count(model.trainable_parameters),
        curves=curves,
        seconds=seconds,
        posterior=FittedModel(model),
    )
    figures.draw(outcome, drawn)
    return outcome


def fit(
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
    curve = Curve(plan, model, data, elapsed())
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
    objective = plan.variational.objective
    if isinstance(objective, inference.GECO):
        # GECO fits no noise; predictive variances take what it tolerates.
        model.observation_likelihood.variance.assign(objective.tolerance)
    seconds = elapsed() - curve.spent
    return {"variational_loss": losses.tolist(), **curve.points}, seconds


def evaluate(plan: Plan, model: Any, data: Task) -> tuple[dict[str, float], figures.Drawn]:
    """Scores given all context frames and given some of them, and what figures show.

    Learnt vectors are of all context frames, so with them there are no others.
    """
    most = int(np.unique(data.context.X[:, 0], return_counts=True)[1].max())
    sizes = [n for n in CONTEXT_SIZES if n < most] + [most]
    if plan.model == "svgp_vae" and plan.representation != "network":
        sizes = sizes[-1:]
    metrics: dict[str, float] = {}
    for size in sizes:
        given = scores.known(plan, data, data.train, first_poses(data.context, size))
        codes = scores.codes_of(plan, model, data, given, data.test.X)
        found = scores.score(model, data.test, codes, NUM_DRAWS)
        metrics |= {f"{name}_context_{size}": found[name] for name in ("mse", "epistemic_variance")}
    metrics |= found
    shown = np.linspace(0, len(data.test.X) - 1, min(10, len(data.test.X))).astype(int)
    part = scores.Codes(*(v[shown] for v in codes))
    made = scores.generate(model, data.test.X[shown], part, NUM_DRAWS, 0)
    truth = sprites.as_float(data.test.Y[shown])
    return metrics, figures.Drawn(data.test.X[shown], truth, made)
