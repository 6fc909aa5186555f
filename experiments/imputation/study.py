"""Fit a model to a table with holes, fill them, and score what was hidden."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from experiments.baselines import scores
from experiments.common import driver, plans
from experiments.imputation.plans import Plan, build_model, gaussian_encoder
from gpflow_bae import inference, latent_priors, models
from gpflow_bae.data import prepare_data
from gpflow_bae.datasets.multi_output import MultiOutputTable, Standardiser
from gpflow_bae.posteriors import Posterior

__all__ = ["Outcome", "encoder_only", "fit", "mixture_scores", "predict", "run", "run_several"]

NUM_CODES = 20  # draws of the codes for each posterior sample


@dataclasses.dataclass(kw_only=True)
class Outcome(driver.Outcome):
    """What a fit leaves behind, with its predictions in the units of the outputs.

    objective: the training objective per point at the end, in nats: lower is better.
    """

    mean: np.ndarray  # [T, N, P]
    variance: np.ndarray  # [T, N, P], noise included
    objective: float


def fit(plan: Plan, table: MultiOutputTable, standardiser: Standardiser, **how: Any) -> Posterior:
    """The posterior of a plan's model, given what is observed of a table.

    :param how: fields of :class:`experiments.common.driver.Options`.
    """
    options = driver.Options(**how)
    keras.utils.set_random_seed(options.seed)
    model = build_model(plan, table)
    data = (table.X, standardiser.transform(table.Y))
    if plan.sampler is None:
        started = time.perf_counter()
        losses = inference.fit_variational(
            model, data, plan.variational, **options.arguments("fit")
        )
        return Posterior.from_point(
            model,
            prepare_data(model, data),
            seconds={"variational": time.perf_counter() - started},
            warm_start_losses=losses,
        )
    warm_start = _warm_start(plan, model, table)
    return inference.sample_amortized(
        model, data, plan.sampler, warm_start=warm_start, **options.arguments("chain")
    )


def _warm_start(plan: Plan, model: Any, table: MultiOutputTable) -> inference.WarmStart:
    prior = None
    if isinstance(model, models.DSGPBAE):
        # Hidden layers start as identities: the last one alone is what the deep model starts as.
        last = model.latent_prior.last_layer
        prior = latent_priors.SparseGP(
            last.kernels, last.inducing_variable, last.latent_dim, plan.code_noise_variance
        )
    return inference.WarmStart(gaussian_encoder(plan, table), plan.variational, latent_prior=prior)


def predict(
    posterior: Posterior,
    standardiser: Standardiser,
    given: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
    *,
    codes_of_chain: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances [T, N, P] at all cells, given what is observed and the prior.

    :param given: ``(X, Y)`` of other tasks, in their own units; None for the training table.
    :param codes_of_chain: for the training table of a sampled model, whether its codes are those
        of the chain. Else the encoder's pseudo-observations, conditioned on the GP, give them, as
        for any other table: in chains of this length codes move too little to be averaged over.
    """
    if given is not None:
        given = (given[0], standardiser.transform(given[1]))
    elif posterior.latents is not None and not codes_of_chain:
        given = (posterior.X, _observed(posterior))
    prediction = posterior.predict(None, given, num_codes=NUM_CODES, seed=seed)
    return standardiser.inverse_moments(prediction.mean, prediction.variance)


def encoder_only(
    posterior: Posterior,
    standardiser: Standardiser,
    given: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Predictions from draws of the encoder alone, without the prior; ``given`` as in predict."""
    Y = _observed(posterior) if given is None else standardiser.transform(given[1])
    return standardiser.inverse_moments(*plans.encode_and_decode(posterior, Y, NUM_CODES, seed))


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
    **how: Any,
) -> Outcome:
    """Fit, predict and score; the test cells are NaN to all of it but the scores.

    :param test: tasks that the fit does not see, predicted from what is observed of them; None
        scores the test cells of ``table`` itself.
    :param how: as in :func:`fit`.
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
        metrics=values,
        num_parameters=plans.count(posterior.model.trainable_parameters),
        curves=plans.chain_curves(posterior),
        posterior=posterior,
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
        how = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
        how["seed"] = 100 * options.seed + i
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
