"""Public calls with arguments that are right, by name, for the fuzz to put wrong ones among."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import gpflow
import keras
import numpy as np

from gpflow_bae import (
    bijectors,
    data,
    datasets,
    decoders,
    diagnostics,
    encoders,
    guides,
    inducing_variables,
    inference,
    kernels,
    latent_priors,
    likelihoods,
    mcmc,
    metrics,
    models,
    posteriors,
)
from tests.serving import small_posteriors
from tests.serving.small_posteriors import L, P

N, M = 6, 3
Call = tuple[Callable[..., Any], Callable[[], Mapping[str, Any]]]


@functools.cache
def network(num_inputs: int, num_outputs: int) -> keras.Model:
    return small_posteriors.network(num_inputs, num_outputs)


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential()


def inputs(count: int = N) -> np.ndarray:
    return np.linspace(-1.0, 1.0, count)[:, None]


def outputs() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((N, P))


def free() -> encoders.FreeFormEncoder:
    return encoders.FreeFormEncoder(1, N, L)


def parts(encoder_inputs: int = P, encoder_outputs: int = 2 * L) -> dict[str, Any]:
    return {
        "decoder": network(L, P),
        "encoder": network(encoder_inputs, encoder_outputs),
        "likelihood": likelihoods.Gaussian(0.3),
        "latent_dim": L,
    }


def with_gp(**others: Any) -> dict[str, Any]:
    return {"kernel": kernel(), "mean_function": None, **others}


def sparse(**others: Any) -> dict[str, Any]:
    return with_gp(inducing_variable=inputs(M), **others)


PRIORS: dict[str, Call] = {
    "StandardNormal": (latent_priors.StandardNormal, lambda: {"latent_dim": L}),
    "GP": (latent_priors.GP, lambda: with_gp(latent_dim=L, code_noise_variance=0.1)),
    "MarkovGP": (
        latent_priors.MarkovGP,
        lambda: (
            {**with_gp(latent_dim=L, code_noise_variance=0.1, parallel=True)}
            | {"kernel": gpflow.kernels.Matern32()}
        ),
    ),
    "SparseGP": (
        latent_priors.SparseGP,
        lambda: sparse(latent_dim=L, code_noise_variance=0.1, inducing_outputs="sampled"),
    ),
    "TitsiasGP": (latent_priors.TitsiasGP, lambda: sparse(latent_dim=L)),
    "LinearMixture": (
        latent_priors.LinearMixture,
        lambda: sparse(mixing=np.eye(L), nugget="full", nugget_variance=0.1),
    ),
    "NearestNeighbourGP": (
        latent_priors.NearestNeighbourGP,
        lambda: with_gp(
            inputs=inputs(),
            latent_dim=L,
            num_neighbours=2,
            code_noise_variance=0.1,
            ordering="maximin",
            scales=[1.0],
        ),
    ),
    "DeepSparseGP": (
        latent_priors.DeepSparseGP,
        lambda: {
            "kernels": [kernel(), kernel()],
            "inducing_variables": inputs(M),
            "latent_dim": L,
            "hidden_dims": None,
            "code_noise_variance": 0.1,
            "num_draws": 1,
            "num_prediction_draws": 2,
        },
    ),
}
NETWORKS: dict[str, Call] = {
    "KerasDecoder": (
        decoders.KerasDecoder,
        lambda: {"model": network(L, P), "weight_prior": decoders.normal_prior(1.0)},
    ),
    "HierarchicalDecoder": (
        decoders.HierarchicalDecoder,
        lambda: {"model": network(L, P), "concentration": 1.0, "rate": 1.0},
    ),
    "Identity": (decoders.Identity, lambda: {"num_outputs": P}),
    "GPDecoder": (
        decoders.GPDecoder,
        lambda: {
            "kernel": kernel(),
            "inducing_variable": np.zeros((M, L)),
            "output_dim": P,
            "q_diag": False,
        },
    ),
    "normal_prior": (decoders.normal_prior, lambda: {"scale": 1.0}),
    "fan_in_prior": (decoders.fan_in_prior, lambda: {"scale": 1.0}),
    "FreeFormEncoder": (
        encoders.FreeFormEncoder,
        lambda: {
            "num_tasks": 1,
            "num_points": N,
            "latent_dim": L,
            "initial_mean": np.zeros((1, N, L)),
            "initial_variance": 0.1,
            "min_variance": 1e-6,
            "max_variance": 1e3,
            "seed": 0,
        },
    ),
    "GaussianEncoder": (
        encoders.GaussianEncoder,
        lambda: {
            "model": network(P, 2 * L),
            "min_variance": 1e-6,
            "max_variance": 1e3,
            "takes_mask": False,
        },
    ),
    "RankOneEncoder": (
        encoders.RankOneEncoder,
        lambda: {
            "model": encoders.rank_one_factor_net(P, L, (2,)),
            "latent_dim": L,
            "min_variance": 1e-6,
            "max_variance": 1e3,
        },
    ),
    "SiteEncoder": (
        encoders.SiteEncoder,
        lambda: {"num_tasks": 1, "num_points": N, "latent_dim": L, "full": True},
    ),
    "StochasticEncoder": (
        encoders.StochasticEncoder,
        lambda: {"model": network(2 * P, L), "noise_dim": P, "takes_mask": False},
    ),
    "partial_encoder": (
        encoders.partial_encoder,
        lambda: {
            "kind": "pointnet",
            "num_outputs": P,
            "latent_dim": L,
            "hidden": (2,),
            "activation": "relu",
            "stochastic": False,
            "noise_dim": None,
            "initial_variance": 0.1,
            "min_variance": 1e-6,
            "max_variance": 1e3,
        },
    ),
    "AmortizedPlanarGuide": (
        guides.AmortizedPlanarGuide,
        lambda: {
            "encoder": free(),
            "num_outputs": P,
            "num_layers": 2,
            "hidden_widths": (2,),
            "seed": 0,
        },
    ),
    "FlowGuide": (
        guides.FlowGuide,
        lambda: {"encoder": free(), "flow": bijectors.planar_flow(L, 2)},
    ),
    "GaussianGuide": (guides.GaussianGuide, lambda: {"encoder": free()}),
    "SiteGuide": (
        guides.SiteGuide,
        lambda: {"encoder": encoders.SiteEncoder(1, N, L), "num_draws": None},
    ),
    "planar_flow": (
        bijectors.planar_flow,
        lambda: {"event_dim": L, "num_layers": 2, "seed": 0},
    ),
    "radial_flow": (
        bijectors.radial_flow,
        lambda: {"event_dim": L, "num_layers": 2, "seed": 0},
    ),
    "real_nvp_flow": (
        bijectors.real_nvp_flow,
        lambda: {"event_dim": L, "num_layers": 2, "hidden_widths": (2,), "seed": 0},
    ),
    "masked_autoregressive_flow": (
        bijectors.masked_autoregressive_flow,
        lambda: {"event_dim": L, "num_layers": 2, "hidden_widths": (2,), "seed": 0},
    ),
    "neural_spline_flow": (
        bijectors.neural_spline_flow,
        lambda: {
            "event_dim": L,
            "num_layers": 2,
            "num_bins": 3,
            "bound": 5.0,
            "hidden_widths": (2,),
            "seed": 0,
        },
    ),
    "Gaussian": (
        likelihoods.Gaussian,
        lambda: {"variance": 0.1, "variance_lower_bound": 1e-6},
    ),
    "masked": (likelihoods.masked, lambda: {"likelihood": gpflow.likelihoods.Poisson()}),
    "DecoderLikelihood": (
        likelihoods.DecoderLikelihood,
        lambda: {
            "decoder": decoders.KerasDecoder(network(L, P)),
            "likelihood": gpflow.likelihoods.Gaussian(),
            "num_draws": 2,
            "seed": 0,
        },
    ),
    "NormalizedLinear": (
        kernels.NormalizedLinear,
        lambda: {"variance": 1.0, "active_dims": [0]},
    ),
    "ObjectView": (
        kernels.ObjectView,
        lambda: {"object_vectors": np.eye(2), "view_kernel": kernel(), "object_kernel": None},
    ),
    "as_inducing_points": (
        inducing_variables.as_inducing_points,
        lambda: {"inducing_variable": inputs(M)},
    ),
    "k_means": (
        inducing_variables.k_means,
        lambda: {"X": inputs(), "num_inducing": M, "seed": 0},
    ),
    "uniform": (
        inducing_variables.uniform,
        lambda: {"Z": inputs(M), "low": [-2.0], "high": [2.0]},
    ),
    "object_view_points": (
        inducing_variables.object_view_points,
        lambda: {
            "views": np.arange(4.0),
            "object_vectors": np.eye(4),
            "num_per_view": 1,
            "seed": 0,
        },
    ),
}
MODELS: dict[str, Call] = {
    "BAE": (models.BAE, lambda: parts(2 * P, L)),
    "GPBAE": (models.GPBAE, lambda: with_gp(**parts(2 * P, L), code_noise_variance=0.1)),
    "SGPBAE": (
        models.SGPBAE,
        lambda: sparse(
            **parts(2 * P, L),
            code_noise_variance=0.1,
            inducing_outputs="integrated",
            whitened_codes=False,
        ),
    ),
    "DSGPBAE": (
        models.DSGPBAE,
        lambda: {
            "kernels": [kernel(), kernel()],
            "inducing_variables": inputs(M),
            **parts(2 * P, L),
            "hidden_dims": [1],
            "num_draws": 1,
        },
    ),
    "VAE": (models.VAE, lambda: {**parts(), "num_data": N}),
    "CVAE": (
        models.CVAE,
        lambda: {
            **parts(P + 1),
            "decoder": network(L + 1, P),
            "condition": None,
            "condition_dim": 1,
        },
    ),
    "GPVAE": (models.GPVAE, lambda: with_gp(**parts(), num_data=N)),
    "SVGPVAE": (models.SVGPVAE, lambda: sparse(**parts(), num_data=N)),
    "SGPVAE": (models.SGPVAE, lambda: sparse(**parts(), num_data=N)),
    "GPPVAE": (
        models.GPPVAE,
        lambda: {
            "kernel": kernel(),
            "inducing_variable": inputs(M),
            **parts(),
            "code_noise_variance": 0.1,
        },
    ),
    "CoupledSGPVAE": (
        models.CoupledSGPVAE,
        lambda: sparse(
            **{**parts(), "encoder": encoders.SiteEncoder(1, N, L)},
            nugget="full",
            nugget_variance=0.1,
        ),
    ),
    "LinearSGPVAE": (
        models.LinearSGPVAE,
        lambda: sparse(
            mixing=np.ones((P, L)),
            likelihood=likelihoods.Gaussian(0.3),
            nugget="diagonal",
            nugget_variance=0.1,
        ),
    ),
    "DeepSVIGP": (
        models.DeepSVIGP,
        lambda: {
            "kernel": kernel(),
            "inducing_variable": inputs(M),
            "decoder": network(L, P),
            "likelihood": gpflow.likelihoods.Gaussian(),
            "latent_dim": L,
            "num_data": N,
            "num_draws": 2,
        },
    ),
    "StochasticGPLVM": (
        models.StochasticGPLVM,
        lambda: {
            "guide": free(),
            "kernel": kernel(),
            "inducing_variable": np.zeros((M, L)),
            "likelihood": gpflow.likelihoods.Gaussian(),
            "output_dim": P,
            "num_draws": 1,
            "q_diag": False,
        },
    ),
    "FlowGPLVM": (
        models.FlowGPLVM,
        lambda: {
            "encoder": free(),
            "kernel": kernel(),
            "inducing_variable": np.zeros((M, L)),
            "likelihood": gpflow.likelihoods.Gaussian(),
            "output_dim": P,
            "flow": bijectors.planar_flow(L, 2),
        },
    ),
    "TemperedBAE": (
        models.TemperedBAE,
        lambda: {
            "encoder": network(P, L),
            "decoder": network(L, P),
            "weight_prior": decoders.normal_prior(1.0),
            "noise_variance": 0.01,
        },
    ),
}
SAMPLERS: dict[str, Call] = {
    "sghmc": (
        mcmc.sghmc.build,
        lambda: {
            "step_size": 0.01,
            "momentum_decay": 0.05,
            "temperature": 1.0,
            "noise": "gaussian",
            "integrator": "euler",
        },
    ),
    "adaptive_sghmc": (
        mcmc.adaptive_sghmc.build,
        lambda: {
            "step_size": 0.01,
            "momentum_decay": 0.05,
            "temperature": 1.0,
            "noise": "gaussian",
            "subtract_gradient_noise": False,
            "jitter": 1e-6,
            "integrator": "euler",
        },
    ),
    "sgld": (
        mcmc.sgld.build,
        lambda: {"step_size": 0.01, "temperature": 1.0, "noise": "gaussian"},
    ),
    "preconditioned_sgld": (
        mcmc.preconditioned_sgld.build,
        lambda: {"step_size": 0.01, "gradient_decay": 0.9, "jitter": 1e-5},
    ),
    "sgnht": (mcmc.sgnht.build, lambda: {"step_size": 0.01, "momentum_decay": 0.1}),
    "mclmc": (mcmc.mclmc.build, lambda: {"step_size": 0.01, "momentum_decay": 0.1}),
    "hmc": (mcmc.hmc.build, lambda: {"step_size": 0.01, "max_leapfrog_steps": 3}),
    "langevin": (
        mcmc.langevin.build,
        lambda: {"noise_scale": 0.1, "learning_rate": 0.1, "gradient_probability": 0.5},
    ),
    "random_walk": (mcmc.random_walk.build, lambda: {"noise_scale": 0.1}),
    "cyclical": (
        mcmc.schedules.cyclical,
        lambda: {
            "cycle_length": 10,
            "initial_step_size": 0.1,
            "exploration_fraction": 0.5,
            "temperature": 1.0,
        },
    ),
    "geometric_ladder": (
        mcmc.schedules.geometric_ladder,
        lambda: {"num_replicas": 3, "max_temperature": 2.0},
    ),
    "check_ladder": (mcmc.schedules.check_ladder, lambda: {"temperatures": [1.0, 2.0]}),
    "from_curvature": (
        mcmc.step_size.from_curvature,
        lambda: {"sampler": mcmc.sghmc.build(), "fraction": 0.5, "every": 2},
    ),
    "from_energy_variance": (
        mcmc.energy_variance.from_energy_variance,
        lambda: {"sampler": mcmc.mclmc.build(0.01, 0.1), "desired": 0.5, "every": 2},
    ),
}
SETTINGS: dict[str, Call] = {
    "VariationalSettings": (
        inference.VariationalSettings,
        lambda: vars(inference.VariationalSettings()),
    ),
    "AmortizedSettings": (
        inference.AmortizedSettings,
        lambda: vars(inference.AmortizedSettings()),
    ),
    "TemperedSettings": (
        inference.TemperedSettings,
        lambda: vars(inference.TemperedSettings()),
    ),
    "EvidenceLowerBound": (inference.EvidenceLowerBound, lambda: {"beta": 1.0}),
    "GECO": (inference.GECO, lambda: vars(inference.GECO())),
    "WarmStart": (
        inference.WarmStart,
        lambda: vars(inference.WarmStart(encoders.GaussianEncoder(network(P, 2 * L)))),
    ),
    "PriorMeanStart": (inference.PriorMeanStart, lambda: vars(inference.PriorMeanStart())),
    "EvidenceStart": (inference.EvidenceStart, lambda: vars(inference.EvidenceStart())),
    "ModeStart": (inference.ModeStart, lambda: vars(inference.ModeStart())),
    "amortized_preset": (inference.amortized_preset, lambda: {"name": "quick"}),
}
ONES = np.ones((2, N, P))
ARRAYS: dict[str, Call] = {
    "rmse": (metrics.rmse, lambda: {"truth": outputs(), "prediction": outputs()}),
    "mae": (metrics.mae, lambda: {"truth": outputs(), "prediction": outputs()}),
    "smse": (metrics.smse, lambda: {"truth": outputs(), "prediction": outputs()}),
    "nll": (
        metrics.nll,
        lambda: {"truth": outputs(), "mean": outputs(), "variance": ONES[0]},
    ),
    "nll_from_log_density": (
        metrics.nll_from_log_density,
        lambda: {"truth": outputs(), "log_density": ONES[0]},
    ),
    "coverage": (
        metrics.coverage,
        lambda: {"truth": outputs(), "mean": outputs(), "variance": ONES[0], "level": 0.9},
    ),
    "coverage_from_intervals": (
        metrics.coverage_from_intervals,
        lambda: {"truth": outputs(), "lower": outputs() - 1, "upper": outputs() + 1},
    ),
    "coverage_from_samples": (
        metrics.coverage_from_samples,
        lambda: {"truth": outputs(), "samples": np.stack(3 * [outputs()]), "level": 0.9},
    ),
    "fit_affine": (
        metrics.fit_affine,
        lambda: {"source": np.eye(N)[:, :2], "target": outputs()[:, :2]},
    ),
    "aligned_trajectory_rmse": (
        metrics.aligned_trajectory_rmse,
        lambda: {"latents": ONES, "truth": np.stack(2 * [outputs()]), "affine": None},
    ),
    "effective_sample_size": (
        diagnostics.effective_sample_size,
        lambda: {"values": np.random.default_rng(0).normal(size=(2, 8, 3)), "method": "bulk"},
    ),
    "rank_normalised_rhat": (
        diagnostics.rank_normalised_rhat,
        lambda: {"values": np.random.default_rng(0).normal(size=(2, 8, 3))},
    ),
    "function_space_diagnostics": (
        diagnostics.function_space_diagnostics,
        lambda: {
            "predictions": np.random.default_rng(0).normal(size=(2, 8, 3)),
            "max_outputs": 2,
            "seed": 0,
        },
    ),
    "weight_space_diagnostics": (
        diagnostics.weight_space_diagnostics,
        lambda: {
            "samples": {"w": np.random.default_rng(0).normal(size=(2, 8, 3))},
            "max_outputs": 2,
            "seed": 0,
        },
    ),
    "stacking_weights": (
        diagnostics.stacking_weights,
        lambda: {"log_density": -ONES[0], "tolerance": 1e-8, "max_iterations": 100},
    ),
    "mask_missing": (data.mask_missing, lambda: {"Y": ONES}),
    "as_inputs": (data.as_inputs, lambda: {"X": inputs()}),
    "pad_tasks": (
        data.pad_tasks,
        lambda: {"arrays": [outputs(), outputs()[:3]], "is_input": True},
    ),
    "hold_out": (
        data.hold_out,
        lambda: {
            "table": data.MultiOutputTable(inputs()[None], outputs()[None]),
            "fraction": 0.3,
            "seed": 0,
            "outputs": None,
            "block": 1,
        },
    ),
    "Standardiser.fit": (
        data.Standardiser.fit,
        lambda: {"Y": outputs()[None], "log_outputs": False},
    ),
    "Bank": (
        posteriors.Bank,
        lambda: {
            "parameters": {"w": ONES},
            "encoder": {"v": ONES},
            "latents": np.ones((2, N, 1, 3, L)),
            "model": "BAE",
            "temperature": 1.0,
            "trace": {"loss": ONES},
        },
    ),
    "moving_ball": (
        datasets.moving_ball.generate,
        lambda: {
            "seed": 0,
            "num_videos": 1,
            "num_frames": 2,
            "lengthscale": 2.0,
            "image_size": 4,
            "scale": 1.0,
            "radius": 1.0,
        },
    ),
    "one_ball": (
        datasets.bouncing_ball.one_ball,
        lambda: {
            "seed": 0,
            "num_sequences": 1,
            "num_frames": 2,
            "num_pixels": 3,
            "period": 3.0,
            "width": 0.1,
            "noise": 0.1,
        },
    ),
}
