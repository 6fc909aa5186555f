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

from experiments.moving_ball_scores import trajectories
from gpflow_bae import (
    decoders,
    encoders,
    inducing_variables,
    latent_priors,
    likelihoods,
    metrics,
    models,
    plotting,
    training,
)
from gpflow_bae.datasets import moving_ball
from gpflow_bae.posteriors import Posterior

EXPERIMENT = "moving_ball"
LATENT_DIM, WIDTH = 2, 500  # two hidden layers of 500 tanh units each (Tran et al. 2023, table 5)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that decides the outcome of a run, but the seed."""

    model: str
    num_inducing: int
    warm_start: bool
    fan_in_prior: bool
    weight_prior_scale: float
    variational: training.VariationalSettings
    sampler: training.AmortizedSettings
    initial_lengthscale: float = 1.0
    num_warm_encoder_steps: int = 600
    warm_start_prior: str = "exact"  # or "own": a sparse prior's chart is more bent where it ends

    @classmethod
    def make(
        cls,
        model: str,
        preset: str,
        *,
        num_inducing: int = 10,
        warm_start: bool = True,
        warm_start_prior: str = "exact",
        fan_in_prior: bool | None = None,
        weight_prior_scale: float | None = None,
        num_variational_steps: int | None = None,
        overrides: dict[str, Any] | None = None,
    ) -> Plan:
        """A preset with some settings replaced; the choices are explained in the results page."""
        if preset == "quick":
            steps = 2500 if model == "vae" else 2000  # the chain goes on where the bound stops
            variational = training.VariationalSettings(
                num_steps=steps, batch_size=12, prior_learning_rate=1e-2
            )
            sampler = training.AmortizedSettings(
                burnin=500,
                num_samples=20,
                thinning=50,
                noise="binomial",
                encoder_batch_size=256,
            )
        else:
            steps = 10_000 if model == "vae" else 2000
            variational = training.VariationalSettings(
                num_steps=steps, batch_size=12, prior_learning_rate=1e-2
            )
            sampler = training.AmortizedSettings(noise="binomial", encoder_batch_size=256)
        if num_variational_steps is not None:
            variational = dataclasses.replace(variational, num_steps=num_variational_steps)
        return cls(
            model=model,
            num_inducing=num_inducing,
            warm_start=warm_start,
            warm_start_prior=warm_start_prior,
            fan_in_prior=bool(fan_in_prior),
            weight_prior_scale=1.0 if weight_prior_scale is None else weight_prior_scale,
            variational=variational,
            sampler=dataclasses.replace(sampler, **(overrides or {})),
        )

    @property
    def temperature(self) -> float | None:
        """None for the variational model, which has none."""
        return None if self.model == "vae" else self.sampler.temperature

    @property
    def num_samples(self) -> int:
        """Posterior samples of a complete run."""
        return 1 if self.model == "vae" else self.sampler.num_samples

    def describe(self) -> dict[str, Any]:
        """The settings that matter to this model, as plain values."""
        settings = dataclasses.asdict(self)
        del settings["model"]
        if self.model == "vae":
            del settings["sampler"], settings["warm_start"], settings["num_warm_encoder_steps"]
        if self.model != "sgp_bae":
            del settings["num_inducing"], settings["warm_start_prior"]
        if self.model in ("vae", "bae"):
            del settings["initial_lengthscale"]
        return settings


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
    if plan.model == "vae":
        return models.VAE(encoder=_network(num_pixels, 2 * LATENT_DIM), **common)
    common["encoder"] = encoders.StochasticEncoder(_network(2 * num_pixels, LATENT_DIM))
    if plan.model == "bae":
        return models.BAE(**common)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=plan.initial_lengthscale)
    if plan.model == "gp_bae":
        return models.GPBAE(kernel=kernel, **common)
    Z = inducing_variables.k_means(train.X, plan.num_inducing)
    return models.SGPBAE(kernel=kernel, inducing_variable=Z, **common)


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
    if plan.model == "vae":
        posterior = _fit_vae(plan, model, data, seed, jit_compile, progress)
    else:
        warm_start = None
        if plan.warm_start:
            warm_start = training.WarmStart(
                encoders.GaussianEncoder(_network(train.Y.shape[-1], 2 * LATENT_DIM)),
                plan.variational,
                latent_prior=_exact_prior(plan, model),
                num_encoder_steps=plan.num_warm_encoder_steps,
            )
        posterior = training.sample_amortized(
            model,
            data,
            plan.sampler,
            seed=seed,
            warm_start=warm_start,
            out_dir=None if out_dir is None else out_dir / "chain",
            resume=resume,
            max_samples=max_samples,
            jit_compile=jit_compile,
            progress=progress,
        )
    outcome = evaluate(plan, posterior, train, test)
    if out_dir is not None:
        draw_figures(plan, outcome, train, test, out_dir)
    return outcome


def _fit_vae(
    plan: Plan,
    model: models.VariationalAutoencoder,
    data: tuple[np.ndarray, np.ndarray],
    seed: int,
    jit_compile: bool,
    progress: bool,
) -> Posterior:
    started = time.perf_counter()
    losses = training.fit_variational(
        model, data, plan.variational, seed=seed, jit_compile=jit_compile, progress=progress
    )
    return Posterior.from_point(
        model,
        training.prepare_data(model, data),
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
            label = plan.num_inducing if plan.model == "sgp_bae" else train.X.shape[1]
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
