"""Fit a model to a table with missing cells, fill them, and score hidden cells."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.common import driver, plans, scores
from experiments.imputation import fitting
from experiments.imputation.fitting import NUM_CODES, fit
from experiments.imputation.plans import Plan
from gpflow_bae.data import MultiOutputTable, Standardiser
from gpflow_bae.posteriors import Posterior

SHOWN = ("smse", "mae", "nll", "nll_moments")  # scores of additional predictions


@dataclasses.dataclass(kw_only=True)
class Outcome(driver.Outcome):
    """The outcome of a fit, with its predictions in the units of the outputs.

    objective: the negative bound per point, in nats, of all data (of a chain, of its start).
    """

    prediction: scores.TablePrediction
    objective: float


def encoder_only(
    posterior: Posterior,
    standardiser: Standardiser,
    given: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return moments of standardised outputs, given draws of the encoder without the prior.

    :param given: as in :func:`.fitting.predict`.
    """
    Y = posterior.data.to_numpy()[1] if given is None else standardiser.transform(given[1])
    return plans.encode_and_decode(posterior, Y, NUM_CODES, seed)


def predict(
    posterior: Posterior,
    standardiser: Standardiser,
    table: MultiOutputTable,
    given: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
    **how: Any,
) -> scores.TablePrediction:
    """Predict a table, with the density of the mixture over the posterior's samples.

    :param table: the table to predict, with its truth.
    :param given, how: as in :func:`.fitting.predict`.
    """
    arguments = (posterior, standardiser)
    moments = fitting.predict(*arguments, given, seed, **how)
    density = fitting.cell_log_density(*arguments, table.test_truth, given, seed, **how)
    return scores.TablePrediction.gaussian(table, *moments, standardiser, density)


def run(
    plan: Plan,
    table: MultiOutputTable,
    test: MultiOutputTable | None = None,
    *,
    seed: int,
    **how: Any,
) -> Outcome:
    """Fit, predict and score; only the scores use the values of the test cells.

    :param test: tasks that the fit does not use, predicted from their observed cells; None scores
        the test cells of ``table`` itself.
    :param how: fields of :class:`experiments.common.driver.Options`.
    """
    standardiser = Standardiser.fit(table.Y, table.output_names, plan.log_outputs)
    posterior = fit(plan, table, standardiser, seed=seed, **how)
    given = None if test is None else (test.X, test.Y)
    scored = table if test is None else test
    prediction = predict(posterior, standardiser, scored, given, seed)
    values = scores.score_prediction(scored, prediction)
    if plan.sampler is not None and given is None:
        chain = predict(posterior, standardiser, scored, seed=seed, codes_of_chain=True)
        values |= _scores_of(scored, chain, "codes_of_chain", SHOWN)
    if plan.net != "free":  # free-form codes exist for training rows only
        moments = encoder_only(posterior, standardiser, given, seed)
        alone = scores.TablePrediction.gaussian(scored, *moments, standardiser)
        # This prediction has moments only, without the density of the mixture.
        values |= _scores_of(scored, alone, "encoder_only", [n for n in SHOWN if n != "nll"])
    return Outcome(
        metrics=values | plans.chain_temperatures(posterior),
        num_parameters=plans.count(posterior.model.trainable_parameters),
        curves=plans.chain_curves(posterior),
        posterior=posterior,
        arrays={
            "mean": prediction.mean,
            "variance": prediction.variance,
            "standardiser_mean": standardiser.mean,
            "standardiser_std": standardiser.std,
        },
        prediction=prediction,
        objective=_objective(plan, posterior, (table.X, standardiser.transform(table.Y))),
    )


def _objective(plan: Plan, posterior: Any, data: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the negative bound of all data by 100 draws, as published, or that of the start."""
    if plan.schedule is None:
        return -float(posterior.model.elbo(data, num_draws=100)) / posterior.data.num_seen
    losses = posterior.warm_start_losses
    return float("nan") if losses is None else float(np.mean(losses[-len(losses) // 10 :]))


def run_several(
    plan: Plan,
    table: MultiOutputTable,
    test: MultiOutputTable | None,
    options: driver.Options,
    number: int = 1,
    keep: int = 1,
    more: Callable[[np.ndarray, MultiOutputTable], tuple[dict[str, float], dict[str, list[float]]]]
    | None = None,
) -> Outcome:
    """Return the best of several initialisations, with scores averaged over the ``keep`` best.

    Standard deviations of the scores, and scores of the equal mixture of the ``keep`` best, are
    added.

    :param more: returns further scores and curves of the predicted means of ``test``.
    """
    outcomes = []
    for i in range(number):
        how = vars(options) | {"seed": 100 * options.seed + i}
        if number > 1 and options.out_dir is not None:
            how["out_dir"] = options.out_dir / f"initialisation_{i}"
        outcomes.append(run(plan, table, test, **how))
        if test is not None and more is not None:
            scored, curves = more(outcomes[-1].prediction.mean, test)
            outcomes[-1].metrics |= scored
            outcomes[-1].curves |= curves
    best = sorted(outcomes, key=lambda outcome: outcome.objective)[:keep]
    metrics = {n: statistics.fmean(o.metrics[n] for o in best) for n in best[0].metrics}
    if keep > 1:
        metrics |= {f"{n}_deviation": statistics.stdev(o.metrics[n] for o in best) for n in SHOWN}
        mixture = mixture_scores(best, table if test is None else test)
        metrics |= {f"{n}_mixture": value for n, value in mixture.items() if n != "rmse"}
    curves = dict(best[0].curves)
    if number > 1:
        curves["objective"] = [o.objective for o in outcomes]
        curves |= {n: [o.metrics[n] for o in outcomes] for n in SHOWN}
    return dataclasses.replace(best[0], metrics=metrics, curves=curves)


def mixture_scores(outcomes: Sequence[Outcome], table: MultiOutputTable) -> dict[str, float]:
    """Return the scores of the equal mixture of several runs' predictions."""
    mixture = scores.TablePrediction.mixture([outcome.prediction for outcome in outcomes])
    return scores.score_prediction(table, mixture)


def _scores_of(
    table: MultiOutputTable, prediction: scores.TablePrediction, words: str, names: Sequence[str]
) -> dict[str, float]:
    """Return some scores of another prediction of the same posterior, with a suffix ``words``."""
    found = scores.score_prediction(table, prediction)
    return {f"{name}_{words}": found[name] for name in names}
