"""Fit a model to a table with holes, fill them, and score what was hidden."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.common import driver, plans
from gpflow_bae.data import MultiOutputTable, Standardiser
from gpflow_bae.impute import scores
from gpflow_bae.impute.fitting import NUM_CODES, fit, predict
from gpflow_bae.impute.plans import Plan
from gpflow_bae.posteriors import Posterior

__all__ = ["Outcome", "encoder_only", "mixture_scores", "run", "run_several"]


@dataclasses.dataclass(kw_only=True)
class Outcome(driver.Outcome):
    """What a fit leaves behind, with its predictions in the units of the outputs.

    objective: the training objective per point at the end, in nats: lower is better.
    """

    mean: np.ndarray  # [T, N, P]
    variance: np.ndarray  # [T, N, P], noise included
    objective: float


def encoder_only(
    posterior: Posterior,
    standardiser: Standardiser,
    given: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Predictions from draws of the encoder alone, without the prior; ``given`` as in predict."""
    Y = posterior.data.to_numpy()[1] if given is None else standardiser.transform(given[1])
    return standardiser.inverse_moments(*plans.encode_and_decode(posterior, Y, NUM_CODES, seed))


def run(
    plan: Plan,
    table: MultiOutputTable,
    test: MultiOutputTable | None = None,
    *,
    seed: int,
    **how: Any,
) -> Outcome:
    """Fit, predict and score; the test cells are NaN to all of it but the scores.

    :param test: tasks that the fit does not see, predicted from what is observed of them; None
        scores the test cells of ``table`` itself.
    :param how: fields of :class:`experiments.common.driver.Options`.
    """
    standardiser = Standardiser.fit(table.Y, table.output_names, plan.log_outputs)
    posterior = fit(plan, table, standardiser, seed=seed, **how)
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
    return Outcome(
        metrics=values | plans.chain_temperatures(posterior),
        num_parameters=plans.count(posterior.model.trainable_parameters),
        curves=plans.chain_curves(posterior),
        posterior=posterior,
        arrays={
            "mean": mean,
            "variance": variance,
            "standardiser_mean": standardiser.mean,
            "standardiser_std": standardiser.std,
        },
        mean=mean,
        variance=variance,
        objective=objective,
    )


def run_several(
    plan: Plan,
    table: MultiOutputTable,
    test: MultiOutputTable | None,
    options: driver.Options,
    number: int = 1,
    keep: int = 1,
    more: Callable[[np.ndarray, MultiOutputTable], dict[str, float]] | None = None,
) -> Outcome:
    """The best of several initialisations, with scores averaged over the ``keep`` best.

    Beside them their standard deviations and the scores of the best's equal mixture, which is what
    several fits are good for.

    :param more: further scores, of the predicted means of ``test``.
    """
    outcomes = []
    for i in range(number):
        how = vars(options) | {"seed": 100 * options.seed + i}
        if number > 1 and options.out_dir is not None:
            how["out_dir"] = options.out_dir / f"initialisation_{i}"
        outcomes.append(run(plan, table, test, **how))
        if test is not None and more is not None:
            outcomes[-1].metrics |= more(outcomes[-1].mean, test)
    best = sorted(outcomes, key=lambda outcome: outcome.objective)[:keep]
    metrics = {n: statistics.fmean(o.metrics[n] for o in best) for n in best[0].metrics}
    shown = ("smse", "mae", "nll")
    if keep > 1:
        metrics |= {f"{n}_deviation": statistics.stdev(o.metrics[n] for o in best) for n in shown}
        mixture = mixture_scores(best, table if test is None else test)
        metrics |= {f"{n}_mixture": value for n, value in mixture.items() if n != "rmse"}
    curves = dict(best[0].curves)
    if number > 1:
        curves["objective"] = [o.objective for o in outcomes]
        curves |= {n: [o.metrics[n] for o in outcomes] for n in shown}
    return dataclasses.replace(best[0], metrics=metrics, curves=curves)


def mixture_scores(outcomes: Sequence[Outcome], table: MultiOutputTable) -> dict[str, float]:
    """Scores of the equal mixture of several runs' predictions, by its first two moments."""
    means = np.stack([outcome.mean for outcome in outcomes])
    variance = np.mean([outcome.variance for outcome in outcomes], 0) + means.var(0)
    return scores.score(table, means.mean(0), variance)
