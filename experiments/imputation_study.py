"""Fit a model to a table with holes, fill them, and score what was hidden."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from experiments.baselines import scores
from experiments.imputation_plans import Plan, build_model, gaussian_encoder
from gpflow_bae import inference, latent_priors, models
from gpflow_bae.data import MultiOutputTable, Standardiser, prepare_data
from gpflow_bae.posteriors import Posterior

__all__ = ["Outcome", "encoder_only", "fit", "mixture_scores", "predict", "run"]

NUM_CODES = 20  # draws of the codes for each posterior sample


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


def fit(
    plan: Plan,
    table: MultiOutputTable,
    standardiser: Standardiser,
    *,
    seed: int,
    out_dir: pathlib.Path | None = None,
    resume: bool = False,
    jit_compile: bool = False,
    progress: bool = True,
) -> Posterior:
    """The posterior of a plan's model, given what is observed of a table."""
    keras.utils.set_random_seed(seed)
    model = build_model(plan, table)
    data = (table.X, standardiser.transform(table.Y))
    options: dict[str, Any] = {"seed": seed, "jit_compile": jit_compile, "progress": progress}
    if plan.sampler is None:
        started = time.perf_counter()
        losses = inference.fit_variational(
            model,
            data,
            plan.variational,
            out_dir=None if out_dir is None else out_dir / "fit",
            resume=resume,
            **options,
        )
        return Posterior.from_point(
            model,
            prepare_data(model, data),
            seconds={"variational": time.perf_counter() - started},
            warm_start_losses=losses,
        )
    return inference.sample_amortized(
        model,
        data,
        plan.sampler,
        warm_start=_warm_start(plan, model, table),
        out_dir=None if out_dir is None else out_dir / "chain",
        resume=resume,
        **options,
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
