"""The models of the rotated-MNIST experiment, composed from a plan."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from experiments.common import plans
from experiments.rotated_mnist.angles import hide, with_missing_angles
from experiments.rotated_mnist.networks import NUM_PIXELS, conv_decoder, conv_encoder
from gpflow_bae import (
    decoders,
    encoders,
    inducing_variables,
    inference,
    kernels,
    latent_priors,
    likelihoods,
    models,
)
from gpflow_bae.datasets.rotated_mnist import RotatedMNIST
from gpflow_bae.mcmc import SamplingAlgorithm

VARIATIONAL = ("vae", "cvae", "gppvae", "svgp_vae", "deep_svigp")
MODELS = (*VARIATIONAL, "sgp_bae", "bae")


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """All settings that change the outcome of a run, except the seed and the data."""

    model: str
    regime: tuple[tuple[str, int], ...]  # phases: "VAE", "GP" or "joint", and their epochs
    variational: inference.VariationalSettings
    schedule: inference.AmortizedSettings | None = None
    sampler: SamplingAlgorithm | None = None
    latent_dim: int = 16
    object_dim: int = 8
    inducing_per_view: int = 2
    normalize_objects: bool = False
    principal_components: bool = True
    learn_kernel: bool = True
    learn_inducing: bool = True
    learn_objects: bool = True
    clip_encoder: bool = True
    code_noise_variance: float = 1e-5
    learn_code_noise: bool = False
    noise_variance: float = 0.05
    weight_prior_scale: float = 1.0
    start: str = "svgp_vae"  # of sgp_bae's chain; "mode" and "svgp_vae_mode" are the alternatives
    start_epochs: int = 0  # of an SVGP-VAE with the initial q(u) of deep_svigp; 0 for a random q(u)
    mode_epochs: int = 0  # of the fit of a mode near an SVGP-VAE
    parameters: str = "point"  # of svgp_vae; or "mean_field", or "sghmc" on its bound
    point_estimates: tuple[str, ...] = ()  # paths of parameters optimised in the steps of a chain
    num_draws: int = 50  # of mean-field parameters
    num_members: int = 1  # of an ensemble of point estimates
    missing_angles: float = 0.0  # share of the training images with a hidden angle
    calibration_angles: float = 0.0  # a further share, which calibrates the widths of intervals
    angles: str = "bayesian"  # a distribution for each missing angle, or "point"

    @property
    def has_samples(self) -> bool:
        """Whether the posterior has draws of the parameters."""
        return self.sampler is not None or self.parameters != "point"

    @property
    def num_epochs(self) -> int:
        """Number of epochs of all phases."""
        return sum(epochs for _, epochs in self.regime)

    describe_objective = plans.named_objective


def _object_vectors(plan: Plan, data: RotatedMNIST) -> np.ndarray:
    if plan.principal_components:
        return data.object_vectors
    shape = (len(data.object_vectors), plan.object_dim)
    return np.random.default_rng(0).normal(0.0, 1.5, shape)  # as in the published code


def _kernel_and_points(
    plan: Plan, data: RotatedMNIST
) -> tuple[gpflow.kernels.Kernel, gpflow.inducing_variables.InducingPoints]:
    vectors = _object_vectors(plan, data)
    kernel = kernels.ObjectView(
        vectors, object_kernel=kernels.NormalizedLinear() if plan.normalize_objects else None
    )
    if plan.model == "gppvae":
        # Every view with a basis of object vectors spans the kernel, so FITC is exact.
        width = vectors.shape[1]
        scale = float(np.sqrt(np.mean(np.square(vectors))))
        Z = np.concatenate(
            [np.column_stack([np.full(width, a), scale * np.eye(width)]) for a in data.angles]
        )
    else:
        fitted = vectors[np.unique(data.train.X[:, 0].astype(int))]
        Z = inducing_variables.object_view_points(data.angles, fitted, plan.inducing_per_view)
    points = inducing_variables.ObjectViewInducingPoints(Z)
    gpflow.set_trainable(points, plan.learn_inducing and plan.model != "gppvae")
    if not plan.learn_kernel:
        gpflow.set_trainable(kernel.view_kernel, False)
    gpflow.set_trainable(kernel.object_vectors, plan.learn_objects)
    models.set_default_kernel_priors(kernel)  # which the bounds of the other models include too
    if plan.missing_angles:
        drawn = plan.angles == "bayesian" and plan.model in VARIATIONAL
        hidden = hide(data, plan.missing_angles + plan.calibration_angles)
        kernel = with_missing_angles(kernel, hidden, drawn)
    return kernel, points


def start_prior(plan: Plan, model: models.SGPBAE, data: RotatedMNIST) -> latent_priors.TitsiasGP:
    """Return the prior of the warm start of ``sgp_bae``: its kernel, on the published points."""
    # Two points per view, which do not span the kernel. The model's kernels have missing angles.
    own = dataclasses.replace(plan, inducing_per_view=2, learn_inducing=True, missing_angles=0.0)
    _, points = _kernel_and_points(own, data)
    return latent_priors.TitsiasGP(model.latent_prior.kernels, points, model.latent_dim)


def _angle_features(X: tf.Tensor) -> tf.Tensor:
    """Return sine and cosine of the angle, [..., 2]."""
    return tf.concat([tf.sin(X[..., 1:]), tf.cos(X[..., 1:])], -1)


def gaussian_encoder(plan: Plan, num_features: int = 0) -> encoders.GaussianEncoder:
    """Return the convolutional encoder with means and log standard deviations."""
    network = conv_encoder(2 * plan.latent_dim, num_features=num_features)
    return plans.gaussian_encoder(network, plan.clip_encoder)


def build_model(plan: Plan, data: RotatedMNIST) -> Any:
    """Build the model of a plan at its initial values."""
    L = plan.latent_dim
    likelihood = likelihoods.Gaussian(plan.noise_variance)
    if plan.model == "cvae":
        return models.CVAE(
            decoders.KerasDecoder(conv_decoder(L, num_features=2), decoders.normal_prior()),
            gaussian_encoder(plan, 2),
            likelihood,
            L,
            condition=_angle_features,
            condition_dim=2,
        )
    decoder = decoders.KerasDecoder(conv_decoder(L), decoders.normal_prior(plan.weight_prior_scale))
    common: dict[str, Any] = {"decoder": decoder, "likelihood": likelihood, "latent_dim": L}
    if plan.model == "vae":
        return models.VAE(encoder=gaussian_encoder(plan), **common)
    if plan.model == "bae":
        return models.BAE(encoder=_stochastic_encoder(L), **common)
    kernel, points = _kernel_and_points(plan, data)
    if plan.model in ("gppvae", "svgp_vae"):
        kind = models.GPPVAE if plan.model == "gppvae" else models.SVGPVAE
        return kind(kernel, points, encoder=gaussian_encoder(plan), **common)
    if plan.model == "deep_svigp":
        deep = models.DeepSVIGP(kernel, points, num_data=len(data.train.Y), **common)
        # GPflow starts q(u) at the prior, and a decoder of noise is fitted slowly.
        rng = np.random.default_rng(0)
        deep.q_mu.assign(rng.normal(0.0, 1.0, deep.q_mu.shape))
        deep.q_sqrt.assign(0.1 * deep.q_sqrt)
        return deep
    model = models.SGPBAE(
        kernel,
        points,
        encoder=_stochastic_encoder(L),
        code_noise_variance=plan.code_noise_variance,
        inducing_outputs="sampled",
        whitened_codes=True,
        **common,
    )
    gpflow.set_trainable(model.latent_prior.code_noise_variance, plan.learn_code_noise)
    return model


def _stochastic_encoder(latent_dim: int) -> encoders.StochasticEncoder:
    return encoders.StochasticEncoder(conv_encoder(latent_dim, num_planes=2), NUM_PIXELS)


def num_steps(plan: Plan, num_points: int, epochs: int) -> int:
    """Return the number of Adam steps of a number of epochs."""
    return epochs * math.ceil(num_points / (plan.variational.batch_size or num_points))
