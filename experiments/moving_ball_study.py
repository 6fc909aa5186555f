"""What the moving-ball driver runs: networks, presets, scores and figures."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow as tf

from experiments.moving_ball_plans import VARIATIONAL, Plan
from experiments.moving_ball_scores import trajectories
from gpflow_bae import (
    decoders,
    encoders,
    inducing_variables,
    inference,
    latent_priors,
    likelihoods,
    metrics,
    models,
    plotting,
)
from gpflow_bae.data import prepare_data
from gpflow_bae.datasets import moving_ball
from gpflow_bae.posteriors import Posterior

EXPERIMENT = "moving_ball"
LATENT_DIM, WIDTH = 2, 500  # two hidden layers of 500 tanh units each (Tran et al. 2023, table 5)


@dataclasses.dataclass
class Outcome:
    """What a run leaves behind."""

    posterior: Posterior
    mean: np.ndarray  # [T, N, 2], recovered test trajectories
    variance: np.ndarray  # [T, N, 2]
    metrics: dict[str, float]
    seconds: dict[str, float]
    curves: dict[str, list[float]]
    num_parameters: int


def _network(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((num_inputs,)),
            keras.layers.Dense(WIDTH, activation="tanh"),
            keras.layers.Dense(WIDTH, activation="tanh"),
            keras.layers.Dense(num_outputs),
        ]
    )


def build_model(plan: Plan, train: moving_ball.MovingBall) -> models.BayesianAutoencoder:
    """The model of a plan, at its initial values."""
    num_pixels = train.Y.shape[-1]
    prior = decoders.fan_in_prior if plan.fan_in_prior else decoders.normal_prior
    common: dict[str, Any] = {
        "decoder": decoders.KerasDecoder(
            _network(LATENT_DIM, num_pixels), prior(plan.weight_prior_scale)
        ),
        "likelihood": likelihoods.Bernoulli(),
        "latent_dim": LATENT_DIM,
    }
    if plan.model in VARIATIONAL:
        common["encoder"] = _network(num_pixels, 2 * LATENT_DIM)
    else:
        common["encoder"] = encoders.StochasticEncoder(_network(2 * num_pixels, LATENT_DIM))
    kind = {
        "vae": models.VAE,
        "bae": models.BAE,
        "gp_vae": models.GPVAE,
        "gp_bae": models.GPBAE,
        "svgp_vae": models.SVGPVAE,
        "sgp_bae": models.SGPBAE,
    }[plan.model]
    if plan.model not in ("vae", "bae"):
        common["kernel"] = gpflow.kernels.SquaredExponential(lengthscales=plan.initial_lengthscale)
    if plan.model in ("svgp_vae", "sgp_bae"):
        common["inducing_variable"] = inducing_variables.k_means(train.X, plan.num_inducing)
    return kind(**common)


def _exact_prior(
    plan: Plan, model: models.BayesianAutoencoder
) -> latent_priors.GaussianLatentPrior | None:
    """The exact GP with the sparse prior's own kernel and code noise, for the warm start."""
    prior = model.latent_prior
    if plan.warm_start_prior == "own" or not isinstance(prior, latent_priors.SparseGP):
        return None
    exact = latent_priors.GP(prior.kernels, prior.latent_dim)
    exact.code_noise_variance = prior.code_noise_variance
    return exact


def run(
    plan: Plan,
    *,
    seed: int,
    out_dir: pathlib.Path | None = None,
    resume: bool = False,
    jit_compile: bool = False,
    max_samples: int | None = None,
    progress: bool = True,
) -> Outcome:
    """Train or sample, score on the test videos, and draw the figures into ``out_dir``."""
    train, test = moving_ball.load(seed)
    keras.utils.set_random_seed(seed)
    model = build_model(plan, train)
    data = (train.X, train.Y)
    options: dict[str, Any] = {"seed": seed, "jit_compile": jit_compile, "progress": progress}
    if not plan.is_sampled:
        posterior = _fit_variational(plan, model, data, **options)
    else:
        posterior = inference.sample_amortized(
            model,
            data,
            plan.sampler,
            warm_start=_warm_start(plan, model, train),
            out_dir=None if out_dir is None else out_dir / "chain",
            resume=resume,
            max_samples=max_samples,
            **options,
        )
    outcome = evaluate(plan, posterior, train, test)
    if out_dir is not None:
        draw_figures(plan, outcome, train, test, out_dir)
    return outcome


def _warm_start(
    plan: Plan, model: models.BayesianAutoencoder, train: moving_ball.MovingBall
) -> inference.WarmStart | None:
    """The variational fit that a chain starts from; a variational model is fitted itself."""
    if plan.model in VARIATIONAL:
        return inference.WarmStart(model.encoder, plan.variational)
    if not plan.warm_start:
        return None
    return inference.WarmStart(
        encoders.GaussianEncoder(_network(train.Y.shape[-1], 2 * LATENT_DIM)),
        plan.variational,
        latent_prior=_exact_prior(plan, model),
        num_encoder_steps=plan.num_warm_encoder_steps,
    )


def _fit_variational(
    plan: Plan,
    model: models.VariationalAutoencoder,
    data: tuple[np.ndarray, np.ndarray],
    **options: Any,
) -> Posterior:
    """A fit alone; under a GP it starts from the smoothest projections, as the chains' does."""
    started = time.perf_counter()
    training_data = prepare_data(model, data)
    if model.needs_inputs:
        start = inference.WarmStart(model.encoder, plan.variational)
        _, losses = start.run(model, training_data, **options)
    else:
        losses = inference.fit_variational(model, data, plan.variational, **options)
    draws = None
    if plan.parameters == "mean_field":
        q = models.MeanFieldParameters(model, num_items=len(data[1]))
        losses = np.append(losses, inference.fit_variational(q, data, plan.variational, **options))
        draws = q.draws(plan.sampler.num_samples, options["seed"])
    return Posterior.from_point(
        model,
        training_data,
        draws,
        seconds={"variational": time.perf_counter() - started},
        warm_start_losses=losses,
    )


def evaluate(
    plan: Plan,
    posterior: Posterior,
    train: moving_ball.MovingBall,
    test: moving_ball.MovingBall,
) -> Outcome:
    """Scores on the test videos; the affine maps never see them but in ``rmse_test_aligned``."""
    # Through the encoder, like the test videos: one map has to serve both.
    on_train = posterior.latent_samples(given=(train.X, train.Y))
    on_test = posterior.latent_samples(given=(test.X, test.Y))
    truth = test.trajectories
    mean, variance = trajectories(on_train, on_test, train.trajectories)
    per_sample = [
        metrics.aligned_trajectory_rmse(m, truth, metrics.fit_affine(t, train.trajectories))
        for t, m in zip(on_train.mean, on_test.mean, strict=True)
    ]
    test_aligned = metrics.aligned_trajectory_rmse(mean, truth)
    scores = {
        "rmse": metrics.aligned_trajectory_rmse(mean, truth, _identity()),
        "rmse_one_map": metrics.aligned_trajectory_rmse(
            on_test.mean.mean(0),
            truth,
            metrics.fit_affine(on_train.mean.mean(0), train.trajectories),
        ),
        "rmse_one_sample": float(np.mean(per_sample)),
        "rmse_test_aligned": test_aligned,
        "sse_test_aligned": test_aligned**2 * truth.size,
        "coverage_90": metrics.coverage(truth, mean, variance, level=0.9),
    }
    train_mean, _ = trajectories(on_train, on_train, train.trajectories)
    scores["rmse_train"] = metrics.aligned_trajectory_rmse(
        train_mean, train.trajectories, _identity()
    )
    for path, values in posterior.hyperparameters().items():
        if values.ndim == 1:
            name = path.rsplit(".", 1)[-1].replace("lengthscales", "lengthscale")
            low, middle, high = np.quantile(values, [0.025, 0.5, 0.975])
            scores |= {f"{name}_q025": low, f"{name}_median": middle, f"{name}_q975": high}
    curves: dict[str, list[float]] = {"rmse_per_sample": [float(v) for v in per_sample]}
    if posterior.history is not None:
        curves["log_density"] = (posterior.history[:, 0] + posterior.history[:, 1]).tolist()
        curves["encoder_loss"] = posterior.history[:, 2].tolist()
    if posterior.warm_start_losses is not None:
        curves["variational_loss"] = posterior.warm_start_losses.tolist()
    return Outcome(
        posterior,
        mean,
        variance,
        {k: float(v) for k, v in scores.items()},
        posterior.seconds,
        curves,
        posterior.model.num_sampled,
    )


def _identity() -> metrics.Affine:
    return metrics.Affine(np.eye(LATENT_DIM), np.zeros(LATENT_DIM), np.zeros(LATENT_DIM))


def draw_figures(
    plan: Plan,
    outcome: Outcome,
    train: moving_ball.MovingBall,
    test: moving_ball.MovingBall,
    out_dir: pathlib.Path,
) -> None:
    """The paper's figures for one run, as PNG files in ``out_dir``, and the arrays behind them."""
    posterior, mean, scale = outcome.posterior, outcome.mean, np.sqrt(outcome.variance)
    arrays = {"truth": test.trajectories, "mean": mean, "variance": outcome.variance}
    figures = {"trajectories": plotting.plot_trajectories(test.trajectories, mean, scale)}
    if "log_density" in outcome.curves:
        rounds = np.arange(1, len(outcome.curves["log_density"]) + 1)
        figures["log_density"] = plotting.plot_training_curve(
            rounds * plan.sampler.num_sampler_steps,
            outcome.curves["log_density"],
            "log density of the chain (nats)",
        )
    samples = posterior.hyperparameters()
    for path, values in samples.items():
        arrays[path.lstrip(".").replace("[", "_").replace("]", "")] = values
        if path.endswith("lengthscales") and len(values) > 1:
            label = plan.describe().get("num_inducing", train.X.shape[1])
            figures["lengthscale"] = plotting.plot_lengthscale_posteriors({label: values}, 2.0)
        if path.endswith(".Z") and len(values) > 1:
            figures["inducing"] = plotting.plot_inducing_posterior(
                values[..., 0], (float(train.X.min()), float(train.X.max()))
            )
    for name, figure in figures.items():
        figure.savefig(out_dir / f"{name}.png", dpi=120)
    np.savez(out_dir / "arrays.npz", **arrays)


def write_tensorboard(outcome: Outcome, out_dir: pathlib.Path) -> None:
    """The curves of a finished run as TensorBoard scalars."""
    writer = tf.summary.create_file_writer(str(out_dir / "tensorboard"))
    with writer.as_default():
        for name, values in outcome.curves.items():
            for step, value in enumerate(values):
                tf.summary.scalar(name, value, step=step)
    writer.close()
