"""Fit a model to a table with holes, fill them, and score what was hidden."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_bae.data import MultiOutputTable, Standardiser
from gpflow_bae.impute import scores
from gpflow_bae.impute.fitting import NUM_CODES, fit, predict
from gpflow_bae.impute.plans import Plan
from gpflow_bae.posteriors import Posterior

__all__ = ["Outcome", "encoder_only", "mixture_scores", "run"]


@dataclasses.dataclass
class Outcome:
    """What a run leaves behind."""

    posterior: Posterior
    standardiser: Standardiser
    mean: np.ndarray  # [T, N, P], in the units of the outputs
    variance: np.ndarray  # [T, N, P], noise included
    metrics: dict[str, float]
    objective: float  # the training objective per point at the end, in nats: lower is better
    seconds: dict[str, float]
    curves: dict[str, list[float]]
    num_parameters: int


def encoder_only(
    posterior: Posterior,
    standardiser: Standardiser,
    given: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Predictions from draws of the encoder alone, without the prior; ``given`` as in predict."""
    Y = _observed(posterior) if given is None else standardiser.transform(given[1])
    draws = posterior.encode(Y, num_draws=NUM_CODES, seed=seed)
    means, noises = [], []
    for s in range(posterior.num_samples):
        bound = posterior.model.bind([tf.constant(v[s]) for v in posterior.parameters])
        for codes in draws[s]:
            y_mean, y_noise = bound.likelihood.moments(bound.decode(None, tf.constant(codes)))
            means.append(y_mean.numpy())
            noises.append(y_noise.numpy())
    mean, variance = np.mean(means, 0), np.var(means, 0) + np.mean(noises, 0)
    return standardiser.inverse_moments(mean, variance)


def _observed(posterior: Posterior) -> np.ndarray:
    """Training data [T, N, P], NaN where missing."""
    Y = np.asarray(posterior.Y)
    return Y if posterior.mask is None else np.where(posterior.mask, Y, np.nan)


def run(
    plan: Plan,
    table: MultiOutputTable,
    test: MultiOutputTable | None = None,
    *,
    seed: int,
    **options: Any,
) -> Outcome:
    """Fit, predict and score; the test cells are NaN to all of it but the scores.

    :param test: tasks that the fit does not see, predicted from what is observed of them; None
        scores the test cells of ``table`` itself.
    """
    standardiser = Standardiser.fit(table.Y, table.output_names, plan.log_outputs)
    posterior = fit(plan, table, standardiser, seed=seed, **options)
    given = None if test is None else (test.X, test.Y)
    scored = table if test is None else test
    mean, variance = predict(posterior, standardiser, given, seed)
    values = scores.score(scored, mean, variance)
    beside = {}
    if plan.net != "free":
        beside["encoder_only"] = encoder_only(posterior, standardiser, given, seed)
    if plan.sampler is not None and given is None:
        beside["codes_of_chain"] = predict(posterior, standardiser, None, seed, codes_of_chain=True)
    for words, moments in beside.items():
        other = scores.score(scored, *moments)
        values |= {f"{name}_{words}": other[name] for name in ("smse", "mae", "nll")}
    losses = posterior.warm_start_losses
    objective = float("nan") if losses is None else float(np.mean(losses[-len(losses) // 10 :]))
    curves: dict[str, list[float]] = {}
    if losses is not None:
        curves["variational_loss"] = losses.tolist()
    if posterior.history is not None:
        curves["log_density"] = (posterior.history[:, 0] + posterior.history[:, 1]).tolist()
    count = sum(int(np.prod(p.shape)) for p in posterior.model.trainable_parameters)
    return Outcome(
        posterior,
        standardiser,
        mean,
        variance,
        values,
        objective,
        dict(posterior.seconds),
        curves,
        count,
    )


def mixture_scores(outcomes: Sequence[Outcome], table: MultiOutputTable) -> dict[str, float]:
    """Scores of the equal mixture of several runs' predictions, by its first two moments."""
    means = np.stack([outcome.mean for outcome in outcomes])
    variance = np.mean([outcome.variance for outcome in outcomes], 0) + means.var(0)
    return scores.score(table, means.mean(0), variance)
