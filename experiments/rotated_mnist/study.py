"""The runs of the rotated-MNIST driver: training, sampling and scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np

from experiments.common import plans
from experiments.common.curves import Curve
from experiments.common.driver import Options, Outcome
from experiments.rotated_mnist import angles, figures, scores
from experiments.rotated_mnist.models import (
    Plan,
    build_model,
    gaussian_encoder,
    num_steps,
    start_prior,
)
from gpflow_bae import inference, models
from gpflow_bae.data import prepare_data
from gpflow_bae.datasets import rotated_mnist
from gpflow_bae.datasets.rotated_mnist import RotatedMNIST
from gpflow_bae.inference.runs.checkpoints import stopwatch
from gpflow_bae.posteriors import FittedModel, Posterior, Prediction


def load(
    data_dir: str | None,
    digits: str,
    num_components: int,
    holdout_view: int | None,
    train_share: float = 1.0,
) -> RotatedMNIST:
    """Load the images of some digits, such as "36" or "all".

    :param holdout_view: index of an angle whose training images become the test set; None for the
        test images.
    :param train_share: share of the training images that is kept.
    """
    numbers = tuple(int(d) for d in ("0123456789" if digits == "all" else digits))
    data = rotated_mnist.load(data_dir, numbers, num_components=num_components)
    if holdout_view is not None:
        data = rotated_mnist.hold_out_view(data, holdout_view, share=1.0)
    return rotated_mnist.keep_share(data, train_share) if train_share < 1.0 else data


def _curve(model: Any, data: RotatedMNIST, before: float = 0.0) -> Curve:
    return Curve(lambda: scores.quick_mse(model, data), before)


def run(
    plan: Plan, data: RotatedMNIST, options: Options, max_samples: int | None = None
) -> Outcome:
    """Train or sample, score on the test images, and draw the figures."""
    if plan.missing_angles:
        truth, data = data, angles.hide(data, plan.missing_angles + plan.calibration_angles)
        outcome = _run(plan, data, options, max_samples)
        assert isinstance(outcome.posterior, Posterior)
        outcome.metrics |= angles.scores(outcome.posterior, truth, plan.missing_angles)
        return outcome
    return _run(plan, data, options, max_samples)


def _run(plan: Plan, data: RotatedMNIST, options: Options, max_samples: int | None) -> Outcome:
    keras.utils.set_random_seed(options.seed)
    if plan.sampler is None:
        model, posterior, seconds, curves = _fit(plan, data, options)
        others = [_member(plan, data, options, number) for number in range(1, plan.num_members)]
        seconds["variational"] += sum(member.seconds for member in others)
        predictions = [member.prediction for member in others]
        return _outcome(plan, model, posterior, data, seconds, curves, predictions)
    model = build_model(plan, data)
    posterior, curves = _sample(plan, model, data, options, max_samples)
    return _outcome(plan, model, posterior, data, dict(posterior.seconds), curves)


class Member(NamedTuple):
    """Predictions of the test images by a further member of an ensemble, and its training time."""

    prediction: tuple[Prediction, np.ndarray]
    seconds: float


def _member(plan: Plan, data: RotatedMNIST, options: Options, number: int) -> Member:
    folder = None if options.out_dir is None else options.out_dir / f"member_{number}"
    options = dataclasses.replace(options, seed=options.seed + number, out_dir=folder)
    keras.utils.set_random_seed(options.seed)
    model, _, seconds, _ = _fit(plan, data, options)
    return Member(scores.predict_point(model, data), seconds["variational"])


def _train_arrays(data: RotatedMNIST) -> tuple[np.ndarray, np.ndarray]:
    return data.train.X[None], data.train.Y[None]


class Fit(NamedTuple):
    """A fitted variational model, its posterior (None without an encoder), time and curves."""

    model: Any
    posterior: Posterior | None
    seconds: dict[str, float]
    curves: dict[str, list[float]]


def _fit(plan: Plan, data: RotatedMNIST, options: Options) -> Fit:
    """Fit a variational model in the phases of its plan."""
    losses: list[float] = []
    start = options.arguments("start")
    phases = [options.arguments(f"phase_{number}") for number in range(len(plan.regime))]
    last = options.arguments("mean_field")
    elapsed = stopwatch(*(chosen["out_dir"] for chosen in (start, *phases, last)))
    if plan.start_epochs:
        model = _started_from_svgp_vae(plan, data, start)
    else:
        model = build_model(plan, data)
    curve = _curve(model, data, elapsed()) if plan.model != "vae" else None
    for (regime, epochs), chosen in zip(plan.regime, phases, strict=True):
        if regime != "VAE":
            chosen["callback"] = curve
        losses += _fit_phase(plan, model, data, regime, epochs, chosen)
    draws = None
    if plan.parameters == "mean_field":
        draws, more = _gaussian_parameters(plan, model, data, options)
        losses += more
    else:
        gpflow.set_trainable(model, True)
    plans.assign_tolerance(model, plan.variational.objective)
    seconds = {"variational": elapsed() - (curve.spent if curve else 0.0)}
    curves = {"variational_loss": losses, **(curve.points if curve else {})}
    posterior = None
    if plan.model != "deep_svigp":
        posterior = Posterior.from_point(model, prepare_data(model, _train_arrays(data)), draws)
    return Fit(model, posterior, seconds, curves)


def _gaussian_parameters(
    plan: Plan, model: models.SVGPVAE, data: RotatedMNIST, options: Options
) -> tuple[Any, list[float]]:
    """Fit a Gaussian for each parameter from their values, and return its draws and losses."""
    number = len(data.train.Y)
    q = models.MeanFieldParameters(model, num_items=number)
    settings = dataclasses.replace(
        plan.variational, num_steps=num_steps(plan, number, plan.num_epochs)
    )
    losses = inference.fit_variational(
        q,
        _train_arrays(data),
        settings,
        steps_per_call=num_steps(plan, number, 1),
        checkpoint_every=50,
        **options.arguments("mean_field"),
    )
    return q.draws(plan.num_draws, options.seed), losses.tolist()


def _started_from_svgp_vae(
    plan: Plan, data: RotatedMNIST, options: dict[str, Any]
) -> models.DeepSVIGP:
    """Fit an SVGP-VAE, and return a deep SVIGP with its q(u), prior and decoder."""
    settings = dataclasses.replace(plan.variational, natural_gradient_step_size=None)
    own = dataclasses.replace(plan, model="svgp_vae", variational=settings)
    model = build_model(own, data)
    _fit_phase(own, model, data, "joint", plan.start_epochs, options)
    return models.DeepSVIGP.from_svgp_vae(model, (data.train.X, data.train.Y))


def _fit_phase(
    plan: Plan,
    model: Any,
    data: RotatedMNIST,
    regime: str,
    epochs: int,
    options: dict[str, Any],
) -> list[float]:
    """Fit the networks only ("VAE"), the latent prior only ("GP"), or both ("joint")."""
    number, fixed = len(data.train.Y), []
    settings = dataclasses.replace(plan.variational, num_steps=num_steps(plan, number, epochs))
    fitted = model
    if regime == "VAE":
        fitted = models.VAE(model.decoder, model.encoder, model.likelihood, plan.latent_dim)
    elif regime == "GP":
        networks = (model.decoder, model.encoder, model.likelihood)
        fixed = [p for m in networks for p in m.parameters if p.trainable]
        rates = {"learning_rate": 1e-2, "prior_learning_rate": 1e-2}  # as published
        settings = dataclasses.replace(settings, **rates)
    for parameter in fixed:
        gpflow.set_trainable(parameter, False)
    losses = inference.fit_variational(
        fitted,
        _train_arrays(data),
        settings,
        steps_per_call=num_steps(plan, number, 1),  # an epoch, after which a snapshot is taken
        checkpoint_every=50,
        **options,
    )
    for parameter in fixed:
        gpflow.set_trainable(parameter, True)
    return losses.tolist()


def _sample(
    plan: Plan,
    model: models.BayesianAutoencoder,
    data: RotatedMNIST,
    options: Options,
    max_samples: int | None,
) -> tuple[Posterior, dict[str, list[float]]]:
    """Run the warm start and the chain, and return the posterior and the curves of both."""
    settings = dataclasses.replace(
        plan.variational, num_steps=num_steps(plan, len(data.train.Y), plan.num_epochs)
    )
    encoder, prior, curve = gaussian_encoder(plan), None, None
    warm_start: inference.WarmStart | inference.PriorMeanStart
    if plan.model == "svgp_vae":  # the chain samples its bound, after a fit
        curve = _curve(model, data)
        warm_start = inference.WarmStart(
            model.encoder, settings, num_initial_steps=0, callback=curve
        )
    elif plan.model == "sgp_bae" and plan.start == "mode":
        curve = _curve(model, data)
        warm_start = inference.PriorMeanStart(settings, callback=curve)
    else:
        if plan.model == "sgp_bae":
            prior = start_prior(plan, model, data)
            fitted = models.VariationalAutoencoder(prior, model.decoder, encoder, model.likelihood)
            curve = _curve(fitted, data)
        warm_start = inference.WarmStart(
            encoder, settings, latent_prior=prior, num_initial_steps=0, callback=curve
        )
        if plan.start == "svgp_vae_mode":
            steps = num_steps(plan, len(data.train.Y), plan.mode_epochs)
            settings = dataclasses.replace(
                settings, num_steps=steps, objective=inference.EvidenceLowerBound()
            )
            first = dataclasses.replace(
                warm_start, distillation=dataclasses.replace(warm_start.distillation, num_steps=0)
            )
            warm_start = inference.PriorMeanStart(settings, first=first)
    schedule = plan.schedule
    assert schedule is not None
    if (schedule.batch_size or 0) >= len(data.train.Y):  # a minibatch would have all images
        schedule = dataclasses.replace(schedule, batch_size=None, gradients="minibatch")
    posterior = inference.sample_amortized(
        model,
        _train_arrays(data),
        schedule,
        sampler=plan.sampler,
        warm_start=warm_start,
        max_samples=max_samples,
        point_estimates=plan.point_estimates,
        **options.arguments("chain"),
    )
    return posterior, plans.chain_curves(posterior) | (curve.points if curve else {})


def _outcome(
    plan: Plan,
    model: Any,
    posterior: Posterior | None,
    data: RotatedMNIST,
    seconds: dict[str, float],
    curves: dict[str, list[float]],
    others: Sequence[tuple[Prediction, np.ndarray]] = (),
) -> Outcome:
    """Score the predictions, draw the figures, and return the outcome of a run.

    :param others: predictions of the other members of an ensemble.
    """
    values: dict[str, float] = {}
    prediction, one_draw = None, None
    if plan.model not in ("vae", "bae"):
        if not plan.has_samples:
            prediction, log_density = scores.mixture([scores.predict_point(model, data), *others])
        else:
            assert posterior is not None
            images, how = data.test, {"num_codes": scores.NUM_CODES}
            prediction = posterior.predict(images.X[None], **how)
            pair = (images.X[None], images.Y[None])
            log_density = posterior.predict_cell_log_density(pair, **how)
            if plan.sampler is not None:
                curves |= _along_the_chain(plan, posterior, data, curves)
        values = scores.test_scores(prediction, log_density, data.test.Y)
        one_draw = scores.decode_one_draw(plan, model, posterior, data)
        values["mse_one_draw"] = scores.mean_squared_error(one_draw, data.test.Y)
    if posterior is not None and plan.model != "cvae":
        values["mse_validation_reconstruction"] = scores.reconstruction_error(posterior, data)
    if not plan.has_samples:
        count, found = plans.count(model.trainable_parameters), 1
        values["noise_variance"] = float(model.observation_likelihood.variance.numpy())
    else:
        assert posterior is not None
        count, found = model.sampled.num_scalars, posterior.num_samples
        for path, samples in posterior.hyperparameters().items():
            if samples.ndim == 1:
                values[_short_name(path) + "_median"] = float(np.median(samples))
        if plan.sampler is not None:
            values |= plans.chain_temperatures(posterior)
    outcome = Outcome(
        metrics=values,
        num_parameters=count,
        curves=curves,
        seconds=seconds,
        posterior=posterior,
        unfinished=plans.unfinished(found, plan.num_samples),
    )
    figures.draw(outcome, data, prediction, one_draw, model)
    if posterior is None:
        outcome.posterior = FittedModel(model)
    elif plan.sampler is not None:
        outcome.figures["chain"] = plans.chain_figure(posterior, plan.schedule)
    return outcome


def _along_the_chain(
    plan: Plan, posterior: Posterior, data: RotatedMNIST, curves: dict[str, list[float]]
) -> dict[str, list[float]]:
    """Return the test error of the running average over samples, against the run's total time."""
    assert plan.schedule is not None
    means = [
        posterior.select([s]).predict(data.test.X[None], num_codes=2).mean[0]
        for s in range(posterior.num_samples)
    ]
    errors = [scores.mean_squared_error(m, data.test.Y) for m in means]
    total = np.cumsum(means, axis=0) / np.arange(1, len(means) + 1)[:, None, None]
    averaged = [scores.mean_squared_error(m, data.test.Y) for m in total]
    rounds = plan.schedule.burnin_rounds + plan.schedule.rounds_per_sample * np.arange(
        1, len(means) + 1
    )
    share = rounds / rounds[-1]
    clock = posterior.seconds["warm_start"] + posterior.seconds["sampling"] * share
    return {
        "seconds": [*curves.get("seconds", []), *clock.tolist()],
        "mse": [*curves.get("mse", []), *averaged],
        "mse_per_sample": errors,
        "noise_variance": posterior.hyperparameters()[".likelihood.variance"].tolist(),
    }


def _short_name(path: str) -> str:
    """Return a parameter's name; for a variance, with the name of its module before it."""
    *_, room, name = path.split(".")
    return f"{room}_{name}" if name == "variance" else name
