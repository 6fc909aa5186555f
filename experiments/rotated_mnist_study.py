"""What the rotated-MNIST driver runs: training, sampling and scores."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np

from experiments import rotated_mnist_scores as scores
from experiments.rotated_mnist_models import (
    Plan,
    build_model,
    gaussian_encoder,
    num_steps,
    seed_networks,
    start_prior,
)
from gpflow_bae import inference, models
from gpflow_bae.data import prepare_data
from gpflow_bae.datasets.rotated_mnist import RotatedMNIST
from gpflow_bae.posteriors import Posterior, Prediction

EXPERIMENT = "rotated_mnist"


@dataclasses.dataclass
class Outcome:
    """What a run leaves behind."""

    model: Any
    posterior: Posterior | None
    prediction: Prediction | None  # of the test images, [1, N, P]; None without a prior over X
    one_draw: np.ndarray | None  # [N, P], decoded from a single draw
    metrics: dict[str, float]
    seconds: dict[str, float]
    curves: dict[str, list[float]]
    num_parameters: int


class Curve:
    """Test error against seconds of training, evaluations left out; for figures, never for choices.

    Evaluated at a growing distance, since it falls fast at first.
    """

    def __init__(self, evaluate: Callable[[], float]):
        self._evaluate = evaluate
        self._started, self._spent = time.perf_counter(), 0.0
        self._next = 1.0
        self.seconds: list[float] = []
        self.mse: list[float] = []

    def __call__(self, step: int, loss: float) -> None:
        """Record a point if it is time for one."""
        now = time.perf_counter()
        elapsed = now - self._started - self._spent
        if elapsed < self._next:
            return
        self.seconds.append(elapsed)
        self.mse.append(self._evaluate())
        self._next = elapsed * 1.15
        self._spent += time.perf_counter() - now


def run(
    plan: Plan,
    data: RotatedMNIST,
    *,
    seed: int,
    out_dir: pathlib.Path | None = None,
    resume: bool = False,
    jit_compile: bool = False,
    max_samples: int | None = None,
    progress: bool = True,
) -> Outcome:
    """Train or sample, and score on the test images."""
    seed_networks(seed)
    model = build_model(plan, data)
    options: dict[str, Any] = {
        "seed": seed,
        "jit_compile": jit_compile,
        "progress": progress,
        "resume": resume,
    }
    if plan.sampler is None:
        return _run_variational(plan, model, data, out_dir, options)
    return _run_sampled(plan, model, data, out_dir, max_samples, options)


def _train_arrays(data: RotatedMNIST) -> tuple[np.ndarray, np.ndarray]:
    return data.train.X[None], data.train.Y[None]


def _fit(
    plan: Plan,
    model: Any,
    data: RotatedMNIST,
    epochs: int,
    out_dir: pathlib.Path | None,
    options: dict[str, Any],
    **changes: Any,
) -> np.ndarray:
    settings = dataclasses.replace(
        plan.variational, num_steps=num_steps(plan, len(data.train.Y), epochs), **changes
    )
    per_call = num_steps(plan, len(data.train.Y), 1)  # an epoch, after which a snapshot is new
    return inference.fit_variational(
        model,
        _train_arrays(data),
        settings,
        steps_per_call=per_call,
        out_dir=out_dir,
        checkpoint_every=50,
        **options,
    )


def _run_variational(
    plan: Plan,
    model: Any,
    data: RotatedMNIST,
    out_dir: pathlib.Path | None,
    options: dict[str, Any],
) -> Outcome:
    started = time.perf_counter()
    losses: list[float] = []
    curve = Curve(lambda: scores.quick_mse(model, data)) if plan.model != "vae" else None
    for number, (regime, epochs) in enumerate(plan.regime):
        folder = None if out_dir is None else out_dir / f"phase_{number}"
        losses += _run_phase(plan, model, data, regime, epochs, folder, curve, options)
    gpflow.set_trainable(model, True)
    _use_geco_noise(plan, model, data)
    seconds = {"variational": time.perf_counter() - started - (curve._spent if curve else 0.0)}
    curves = {"variational_loss": losses}
    if curve is not None:
        curves |= {"seconds": curve.seconds, "mse": curve.mse}
    posterior = None
    if plan.model != "deep_svigp":
        prepared = prepare_data(model, _train_arrays(data))
        posterior = Posterior.from_point(model, prepared)
    return _outcome(plan, model, posterior, data, seconds, curves)


def _run_phase(
    plan: Plan,
    model: Any,
    data: RotatedMNIST,
    regime: str,
    epochs: int,
    out_dir: pathlib.Path | None,
    curve: Curve | None,
    options: dict[str, Any],
) -> list[float]:
    """One phase: the networks alone, the latent prior alone, or both."""
    if regime == "VAE":
        networks = models.VAE(model.decoder, model.encoder, model.likelihood, plan.latent_dim)
        return _fit(plan, networks, data, epochs, out_dir, options).tolist()
    options = options | {"callback": curve}
    if regime == "joint":
        return _fit(plan, model, data, epochs, out_dir, options).tolist()
    fixed = [p for m in (model.decoder, model.encoder, model.likelihood) for p in m.parameters]
    fixed = [p for p in fixed if p.trainable]
    for parameter in fixed:
        gpflow.set_trainable(parameter, False)
    changes = {"learning_rate": 1e-2, "prior_learning_rate": 1e-2}  # as published
    losses = _fit(plan, model, data, epochs, out_dir, options, **changes)
    for parameter in fixed:
        gpflow.set_trainable(parameter, True)
    return losses.tolist()


def _use_geco_noise(plan: Plan, model: Any, data: RotatedMNIST) -> None:
    """GECO fits no noise; predictive variances take what it tolerates."""
    objective = plan.variational.objective
    if isinstance(objective, inference.GECO):
        model.observation_likelihood.variance.assign(objective.tolerance)


def _run_sampled(
    plan: Plan,
    model: models.BayesianAutoencoder,
    data: RotatedMNIST,
    out_dir: pathlib.Path | None,
    max_samples: int | None,
    options: dict[str, Any],
) -> Outcome:
    arrays = _train_arrays(data)
    curve = None
    settings = dataclasses.replace(
        plan.variational, num_steps=num_steps(plan, len(data.train.Y), plan.num_epochs)
    )
    encoder, prior = gaussian_encoder(plan), None
    warm_start: inference.WarmStart | inference.PriorMeanStart
    if plan.model == "sgp_bae" and plan.start == "mode":
        curve = Curve(lambda: scores.quick_mse(model, data))
        warm_start = inference.PriorMeanStart(settings, callback=curve)
    else:
        if plan.model == "sgp_bae":
            prior = start_prior(plan, model, data)
            fitted = models.VariationalAutoencoder(prior, model.decoder, encoder, model.likelihood)
            curve = Curve(lambda: scores.quick_mse(fitted, data))
        warm_start = inference.WarmStart(
            encoder, settings, latent_prior=prior, num_initial_steps=0, callback=curve
        )
    posterior = inference.sample_amortized(
        model,
        arrays,
        plan.sampler,
        warm_start=warm_start,
        out_dir=None if out_dir is None else out_dir / "chain",
        max_samples=max_samples,
        **options,
    )
    curves: dict[str, list[float]] = {}
    if posterior.history is not None:
        curves["log_density"] = (posterior.history[:, 0] + posterior.history[:, 1]).tolist()
        curves["encoder_loss"] = posterior.history[:, 2].tolist()
    if posterior.warm_start_losses is not None:
        curves["variational_loss"] = posterior.warm_start_losses.tolist()
    if curve is not None:
        curves |= {"seconds": curve.seconds, "mse": curve.mse}
    return _outcome(plan, model, posterior, data, posterior.seconds, curves)


def _outcome(
    plan: Plan,
    model: Any,
    posterior: Posterior | None,
    data: RotatedMNIST,
    seconds: dict[str, float],
    curves: dict[str, list[float]],
) -> Outcome:
    values: dict[str, float] = {}
    prediction, one_draw = None, None
    if plan.model not in ("vae", "bae"):
        if plan.sampler is None:
            prediction = scores.predict_point(model, data)
        else:
            assert posterior is not None
            prediction = posterior.predict(data.test.X[None], num_codes=scores.NUM_CODES)
            curves |= _along_the_chain(plan, posterior, data, curves)
        values = scores.test_scores(prediction, data.test.Y)
        one_draw = scores.decode_one_draw(plan, model, posterior, data)
        values["mse_one_draw"] = scores.mean_squared_error(one_draw, data.test.Y)
    if posterior is not None and plan.model != "cvae":
        values["mse_validation_reconstruction"] = scores.reconstruction_error(posterior, data)
    count = sum(int(np.prod(p.shape)) for p in model.trainable_parameters)
    if plan.sampler is not None:
        count = model.num_sampled
        assert posterior is not None
        for path, samples in posterior.hyperparameters().items():
            if samples.ndim == 1:
                values[_short(path) + "_median"] = float(np.median(samples))
    else:
        values["noise_variance"] = float(model.observation_likelihood.variance.numpy())
    return Outcome(
        model, posterior, prediction, one_draw, values, dict(seconds), curves, int(count)
    )


def _along_the_chain(
    plan: Plan, posterior: Posterior, data: RotatedMNIST, curves: dict[str, list[float]]
) -> dict[str, list[float]]:
    """Test error of the running average over samples, on the clock of the whole run."""
    assert plan.sampler is not None
    means = [
        posterior.select([s]).predict(data.test.X[None], num_codes=2).mean[0]
        for s in range(posterior.num_samples)
    ]
    errors = [scores.mean_squared_error(m, data.test.Y) for m in means]
    total = np.cumsum(means, axis=0) / np.arange(1, len(means) + 1)[:, None, None]
    averaged = [scores.mean_squared_error(m, data.test.Y) for m in total]
    rounds = plan.sampler.burnin_rounds + plan.sampler.rounds_per_sample * np.arange(
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


def _short(path: str) -> str:
    """A parameter's own name, with the room before it where that alone says too little."""
    *_, room, name = path.split(".")
    return f"{room}_{name}" if name == "variance" else name
