"""The runs of the moving-ball driver: networks, fits, chains and scores."""

from __future__ import annotations

import time
from typing import Any

import gpflow
import keras
import numpy as np

from experiments.common import plans
from experiments.common.driver import Options, Outcome
from experiments.moving_ball import figures
from experiments.moving_ball.networks import network
from experiments.moving_ball.plans import SPARSE, VARIATIONAL, Plan
from experiments.moving_ball.scores import convergence, trajectories
from gpflow_bae import (
    decoders,
    encoders,
    inducing_variables,
    inference,
    latent_priors,
    likelihoods,
    metrics,
    models,
)
from gpflow_bae.data import prepare_data
from gpflow_bae.datasets import moving_ball
from gpflow_bae.posteriors import Posterior

LATENT_DIM = 2
_WARP_VARIANCE = 0.05  # of hidden layers around their inputs, in squared frames, at the start


def _network(plan: Plan, num_inputs: int, num_outputs: int) -> keras.Model:
    dtype = "mixed_bfloat16" if plan.network_dtype == "bfloat16" else plan.network_dtype
    return network(num_inputs, num_outputs, dtype)


def _decoder(plan: Plan, network: keras.Model) -> decoders.KerasDecoder:
    prior = decoders.fan_in_prior if plan.weight_prior == "fan_in" else decoders.normal_prior
    scale = plan.weight_prior_scale
    by_layer = prior(scale) if isinstance(scale, float) else [prior(s) for s in scale]
    return decoders.KerasDecoder(network, by_layer)


def build_model(plan: Plan, train: moving_ball.MovingBall) -> models.BayesianAutoencoder:
    """The model of a plan, at its initial values."""
    num_pixels = train.Y.shape[-1]
    common: dict[str, Any] = {
        "decoder": _decoder(plan, _network(plan, LATENT_DIM, num_pixels)),
        "likelihood": likelihoods.Bernoulli(),
        "latent_dim": LATENT_DIM,
    }
    if plan.model in VARIATIONAL:
        common["encoder"] = _network(plan, num_pixels, 2 * LATENT_DIM)
    else:
        common["encoder"] = encoders.StochasticEncoder(_network(plan, 2 * num_pixels, LATENT_DIM))
    kind = {
        "vae": models.VAE,
        "bae": models.BAE,
        "gp_vae": models.GPVAE,
        "gp_bae": models.GPBAE,
        "svgp_vae": models.SVGPVAE,
        "sgp_bae": models.SGPBAE,
        "dsgp_bae": models.DSGPBAE,
    }[plan.model]
    if plan.model not in ("vae", "bae"):
        kernel = gpflow.kernels.SquaredExponential(lengthscales=plan.initial_lengthscale)
        models.set_default_kernel_priors(kernel)  # the peers' bounds have them too
        common["kernel"] = kernel
    if plan.model not in SPARSE:
        return kind(**common)
    Z = inducing_variables.k_means(train.X, plan.num_inducing)
    if plan.model != "dsgp_bae":
        return kind(inducing_variable=Z, **common)
    hidden = []
    for _ in range(plan.num_layers - 1):
        warp = gpflow.kernels.SquaredExponential(_WARP_VARIANCE, plan.initial_lengthscale)
        models.set_default_kernel_priors(warp, variance=_WARP_VARIANCE)
        hidden.append(warp)
    kernels = [*hidden, common.pop("kernel")]
    points = [Z.copy() for _ in kernels]
    return models.DSGPBAE(kernels, points, inducing_outputs="integrated", **common)


def _exact_prior(
    plan: Plan, model: models.BayesianAutoencoder
) -> latent_priors.GaussianLatentPrior | None:
    """The exact GP with the sparse prior's own kernel and code noise, for the warm start."""
    prior = model.latent_prior
    if isinstance(prior, latent_priors.DeepSparseGP):
        prior = prior.last_layer
    if plan.warm_start_prior == "own" or not isinstance(prior, latent_priors.SparseGP):
        return None
    exact = latent_priors.GP(prior.kernels, prior.latent_dim)
    exact.code_noise_variance = prior.code_noise_variance
    return exact


def run(plan: Plan, options: Options, max_samples: int | None = None) -> Outcome:
    """Train or sample, score on the test videos, and draw the figures."""
    train, test = moving_ball.load(options.seed)
    keras.utils.set_random_seed(options.seed)
    model = build_model(plan, train)
    data = (train.X, train.Y)
    if not plan.is_sampled:
        posterior = _fit_variational(plan, model, data, **options.arguments())
    else:
        posterior = inference.sample_amortized(
            model,
            data,
            plan.schedule,
            sampler=plan.sampler,
            num_chains=plan.num_chains,
            warm_start=_warm_start(plan, model, train),
            max_samples=max_samples,
            point_estimates=plan.point_estimates,
            **options.arguments("chain"),
        )
    return evaluate(plan, posterior, train, test)


def _warm_start(
    plan: Plan, model: models.BayesianAutoencoder, train: moving_ball.MovingBall
) -> inference.WarmStart | None:
    """The variational fit that a chain starts from; a variational model is fitted itself."""
    if plan.model in VARIATIONAL:
        return inference.WarmStart(model.encoder, plan.variational)
    if not plan.warm_start:
        return None
    return inference.WarmStart(
        encoders.GaussianEncoder(_network(plan, train.Y.shape[-1], 2 * LATENT_DIM)),
        plan.variational,
        latent_prior=_exact_prior(plan, model),
        distillation=inference.EncoderSettings(
            batch_size=256, num_steps=plan.num_warm_encoder_steps
        ),
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
        draws = q.draws(plan.schedule.num_samples, options["seed"])
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
        "rmse": _rmse(mean, truth),
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
    scores["rmse_train"] = _rmse(train_mean, train.trajectories)
    for path, values in posterior.hyperparameters().items():
        if values.ndim == 1:
            name = path.rsplit(".", 1)[-1].replace("lengthscales", "lengthscale")
            low, middle, high = np.quantile(values, [0.025, 0.5, 0.975])
            scores |= {f"{name}_q025": low, f"{name}_median": middle, f"{name}_q975": high}
    curves = {"rmse_per_sample": [float(v) for v in per_sample], **plans.chain_curves(posterior)}
    outcome = Outcome(
        metrics={k: float(v) for k, v in scores.items()}
        | plans.chain_temperatures(posterior)
        | convergence(posterior),
        num_parameters=posterior.model.sampled.num_scalars,
        curves=curves,
        seconds=posterior.seconds,
        posterior=posterior,
        unfinished=plans.unfinished(posterior.num_samples, plan.num_samples),
        arrays={"truth": truth, "mean": mean, "variance": variance},
    )
    figures.draw(plan, outcome, train.X)
    return outcome


def _rmse(mean: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((truth - mean) ** 2)))
