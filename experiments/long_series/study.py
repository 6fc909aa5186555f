"""Fit a model to series with holes, fill them, and score what was hidden."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np

from experiments.common import driver, plans, results
from experiments.long_series import figures, made
from gpflow_bae import (
    Posterior,
    encoders,
    inference,
    latent_priors,
    likelihoods,
    metrics,
    models,
)
from gpflow_bae.data import prepare_data
from gpflow_bae.datasets import healing_mnist
from gpflow_bae.inference.runs.checkpoints import run_directory, stopwatch

__all__ = ["Holes", "Plan", "build_model", "healing_plan", "made_plan", "run", "score"]

_NUM_CODES = 32  # draws of the codes in a prediction
_PROBE = 5  # steps that are timed, after as many that are not


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a run, but the seed; None where it does not apply."""

    model: str
    series: str
    variational: inference.VariationalSettings  # less its steps where there are seconds
    seconds: float | None
    latent_dim: int
    width: int  # of the hidden layers
    num_inducing: int | None
    num_points: int | None = None
    noise: float | None = None
    num_train: int | None = None
    num_test: int | None = None
    flips: float | None = None
    missing: float | None = None


def made_plan(
    model: str,
    num_points: int,
    noise: float,
    *,
    seconds: float | None = None,
    num_steps: int | None = None,
    batch_size: int | None = None,
    num_inducing: int | None = None,
) -> Plan:
    """For one series of known truth; all of it is in a step, but for svgp_vae's."""
    splits = model == "svgp_vae"
    size = min(batch_size or 512, num_points) if splits else None
    return Plan(
        model=model,
        series="made",
        variational=_settings(num_steps or 2000, 1e-2, size),
        seconds=seconds,
        latent_dim=len(made.LENGTHSCALES),
        width=64,
        num_inducing=(num_inducing or max(200, num_points // 200)) if splits else None,
        num_points=num_points,
        noise=noise,
    )


def healing_plan(
    model: str,
    num_train: int,
    num_test: int,
    flips: float,
    missing: float,
    *,
    seconds: float | None = None,
    num_steps: int | None = None,
    batch_size: int | None = None,
    num_inducing: int | None = None,
) -> Plan:
    """For turning digits, in minibatches of sequences."""
    return Plan(
        model=model,
        series="healing_mnist",
        variational=_settings(num_steps or 4000, 1e-3, min(batch_size or 32, num_train)),
        seconds=seconds,
        latent_dim=16,
        width=256,
        num_inducing=(num_inducing or 5) if model == "svgp_vae" else None,
        num_train=num_train,
        num_test=num_test,
        flips=flips,
        missing=missing,
    )


def _settings(num_steps: int, rate: float, batch_size: int | None) -> inference.VariationalSettings:
    return inference.VariationalSettings(
        num_steps=num_steps,
        learning_rate=rate,
        prior_learning_rate=1e-2,
        final_learning_rate_fraction=0.05,
        batch_size=batch_size,
    )


class Holes(NamedTuple):
    """What a model is fitted to, what it then fills, and what was there.

    fitted: X [N, 1] or [T, N, 1], and Y [N, P] or [T, N, P], NaN where hidden.
    given: the same of other series, which are filled; None where those of the fit are.
    hidden: of what is filled, the hidden cells as they would have been seen; NaN elsewhere.
    truth: of what is filled, without noise.
    flips: share of binary outputs that show the other value; None for outputs with Gaussian noise.
    """

    fitted: tuple[np.ndarray, np.ndarray]
    given: tuple[np.ndarray, np.ndarray] | None
    hidden: np.ndarray
    truth: np.ndarray
    flips: float | None

    @property
    def filled(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and outputs of what is filled."""
        return self.fitted if self.given is None else self.given


def load(plan: Plan, seed: int, data_dir: str) -> Holes:
    """The series of a plan, with their holes."""
    if plan.series == "made":
        series = made.make(plan.num_points, plan.noise, seed)
        hidden = np.where(np.isnan(series.Y), series.complete, np.nan)
        return Holes((series.X, series.Y), None, hidden, series.truth, None)
    train, test = healing_mnist.load(
        data_dir,
        plan.num_train,
        plan.num_test,
        flips=plan.flips,
        missing=plan.missing,
        seed=seed,
    )
    hidden = np.where(np.isnan(test.Y), test.complete, np.nan)
    return Holes((train.X, train.Y), (test.X, test.Y), hidden, test.truth, plan.flips)


def build_model(plan: Plan, X: np.ndarray, num_outputs: int) -> models.VariationalAutoencoder:
    """An autoencoder under one of the priors over time.

    :param X: of the fit, for inducing points evenly over its times.
    """
    L, P, kernels = plan.latent_dim, num_outputs, gpflow.kernels

    def network(inputs: int, outputs: int) -> keras.Model:
        dense = keras.layers.Dense
        return keras.Sequential([keras.Input((inputs,)), dense(plan.width, "tanh"), dense(outputs)])

    decoder = network(L, P)
    if plan.series == "made":
        # Lengthscales begin at twice the truth's; the encoder is told which cells it sees.
        kinds = (kernels.Matern32, kernels.Matern52)
        kernel: Any = [
            k(lengthscales=2.0 * s) for k, s in zip(kinds, made.LENGTHSCALES, strict=True)
        ]
        encoder = encoders.GaussianEncoder(network(2 * P, 2 * L), takes_mask=True)
        likelihood: Any = likelihoods.Gaussian(0.5)
    else:
        # The digit stays what it is while it turns. Frames are there or are missing, all of them.
        kernel = kernels.Matern32(lengthscales=3.0) + kernels.Constant()
        encoder = encoders.GaussianEncoder(network(P, 2 * L))
        likelihood = likelihoods.Bernoulli()
    if plan.model == "svgp_vae":
        inducing = np.linspace(X.min(), X.max(), plan.num_inducing)[:, None]
        return models.SVGPVAE(kernel, inducing, decoder, encoder, likelihood, latent_dim=L)
    if plan.model == "gp_vae":
        return models.GPVAE(kernel, decoder, encoder, likelihood, latent_dim=L)
    prior = latent_priors.MarkovGP(kernel, L, code_noise_variance=None)  # as GPVAE has it
    return models.VariationalAutoencoder(prior, decoder, encoder, likelihood)


def run(plan: Plan, options: driver.Options, data_dir: str) -> driver.Outcome:
    """Make or read the series, fit, fill and score."""
    holes = load(plan, options.seed, data_dir)
    X, Y = holes.fitted
    seconds: dict[str, float] = {}
    settings = plan.variational
    if plan.seconds is not None:
        started = time.perf_counter()
        num_steps = _steps_within(plan, holes, options)
        settings = dataclasses.replace(settings, num_steps=num_steps)
        seconds["probe"] = time.perf_counter() - started
    folder = None if options.out_dir is None else options.out_dir / "fit"
    elapsed = stopwatch(folder)
    keras.utils.set_random_seed(options.seed)
    model = build_model(plan, X, Y.shape[-1])
    data = prepare_data(model, holes.fitted, settings.batch_size)
    start = inference.WarmStart(
        model.encoder, settings, encoder_learning_rate=settings.learning_rate
    )
    record = {"start": start.describe(), "seed": options.seed, "data": data.describe()}
    with run_directory(folder, record, options.resume) as directory:
        _, losses = start.run(model, data, directory=directory, **options.arguments())
    seconds["variational"] = elapsed()
    started = time.perf_counter()
    posterior = Posterior.from_point(model, data)
    mean, variance = posterior.predict_y(None, holes.given, num_codes=_NUM_CODES)
    density = posterior.predict_cell_log_density(
        (None, holes.hidden), given=holes.given, num_codes=_NUM_CODES
    )
    seconds["prediction"] = time.perf_counter() - started
    scores = score(holes, mean, variance, density)
    scores |= {
        "num_steps": float(settings.num_steps),
        "step_ms": 1e3 * seconds["variational"] / settings.num_steps,
    }
    draw = figures.series if holes.flips is None else figures.sequences
    return driver.Outcome(
        metrics=scores,
        num_parameters=plans.count(model.trainable_parameters),
        curves={"loss": losses.tolist()},
        seconds=seconds,
        figures={"filled": draw(*holes.filled, holes.truth, mean, variance)},
    )


def _steps_within(plan: Plan, holes: Holes, options: driver.Options) -> int:
    """How many steps take the plan's seconds, by the time of a few: whole calls of fifty.

    A run that is resumed has the number that it was started with.
    """
    found = None if options.out_dir is None else options.out_dir / "num_steps.json"
    if found is not None and options.resume and found.exists():
        return int(json.loads(found.read_text()))
    X, Y = holes.fitted
    model = build_model(plan, X, Y.shape[-1])
    times: list[float] = []
    inference.fit_variational(
        model,
        holes.fitted,
        dataclasses.replace(plan.variational, num_steps=2 * _PROBE),
        steps_per_call=_PROBE,
        **options.arguments() | {"progress": False},
        callback=lambda *_: times.append(time.perf_counter()),
    )
    step = (times[1] - times[0]) / _PROBE
    num_steps = max(1, round(plan.seconds / step / 50)) * 50
    if found is not None:
        results.write_json(found, num_steps)
    return num_steps


def score(
    holes: Holes, mean: np.ndarray, variance: np.ndarray, density: np.ndarray
) -> dict[str, float]:
    """Scores of the hidden cells, all of them together.

    :param mean, variance: of what is filled, noise included.
    :param density: log densities of the hidden cells, NaN elsewhere.
    """
    X, Y = holes.filled
    hidden = holes.hidden
    truth = np.where(np.isnan(hidden), np.nan, holes.truth)
    in_gaps = np.where(np.isnan(Y).all(-1, keepdims=True), truth, np.nan)
    clean = mean
    if holes.flips is not None:  # p of a flipped pixel is flips + (1 - 2 flips) p of the pixel
        clean = np.clip((mean - holes.flips) / (1.0 - 2.0 * holes.flips), 0.0, 1.0)
    seen = np.where(np.isnan(hidden), np.nan, variance)
    z = (hidden - mean) / np.sqrt(seen)
    scores = {
        "rmse": _rmse(hidden, mean),
        "nll": -float(np.nanmean(density)),
        "nll_moments": float(0.5 * np.nanmean(np.log(2.0 * np.pi * seen) + z**2)),
        "rmse_truth": _rmse(truth, clean),
        "rmse_interpolated": _rmse(hidden, interpolated(X, Y)),
    }
    if holes.flips is None:
        scores["coverage_90"] = metrics.coverage(hidden, mean, variance)
    if not np.isnan(in_gaps).all():
        scores["rmse_truth_gaps"] = _rmse(in_gaps, clean)
    return scores


def _rmse(truth: np.ndarray, prediction: np.ndarray) -> float:
    """Over all cells whose truth is not NaN."""
    return float(np.sqrt(np.nanmean((truth - prediction) ** 2)))


def interpolated(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """``Y`` with straight lines over its holes, output by output, and level ends."""
    times = X[..., 0].reshape(-1, Y.shape[-2])
    filled = Y.reshape(-1, *Y.shape[-2:]).astype(np.float64)
    for t, rows in zip(times, filled, strict=True):
        for column in rows.T:
            seen = ~np.isnan(column)
            if seen.any():
                column[~seen] = np.interp(t[~seen], t[seen], column[seen])
    return filled.reshape(Y.shape)
