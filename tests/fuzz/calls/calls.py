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
    decoders,
    encoders,
    guides,
    inducing_variables,
    kernels,
    latent_priors,
    likelihoods,
    models,
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
            {**with_gp(latent_dim=L, code_noise_variance=0.1)}
            | {"kernel": gpflow.kernels.Matern32()}
        ),
    ),
    "SparseGP": (
        latent_priors.SparseGP,
        lambda: sparse(latent_dim=L, code_noise_variance=0.1, inducing_outputs="sampled"),
    ),
    "TitsiasGP": (latent_priors.TitsiasGP, lambda: sparse(latent_dim=L)),
    "NearestNeighbourGP": (
        latent_priors.NearestNeighbourGP,
        lambda: with_gp(
            inputs=inputs(),
            latent_dim=L,
            num_neighbours=2,
            code_noise_variance=0.1,
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
    "ByColumn": (likelihoods.ByColumn, lambda: {"parts": [(likelihoods.Gaussian(), [0, 1, 2])]}),
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
    "Categorical": (kernels.Categorical, lambda: {"active_dims": [0]}),
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
    "LinearCoregionalisation": (
        models.LinearCoregionalisation,
        lambda: {
            "kernels": [kernel()],
            "decoder": np.ones((P, L)),
            "scales": np.ones((2, L)),
            "noise_variance": 0.1,
            "deviation": 0.5,
        },
    ),
    "principal_directions": (
        models.principal_directions,
        lambda: {"Y": outputs(), "latent_dim": L},
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
