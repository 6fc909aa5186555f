"""The models of the SPRITES experiment, composed from a plan."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import gpflow
import numpy as np
import tensorflow as tf

from experiments.common import plans
from experiments.sprites.frames import Task, pooled
from experiments.sprites.networks import conv_decoder, conv_encoder
from experiments.sprites.published import (
    published_decoder,
    published_encoder,
    published_representation,
)
from gpflow_bae import (
    decoders,
    encoders,
    inference,
    inputs,
    kernels,
    latent_priors,
    likelihoods,
    models,
)
from gpflow_bae.datasets.sprites import Frames
from gpflow_bae.mcmc import SamplingAlgorithm


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a run, but the seed and the data."""

    model: str
    num_epochs: int
    variational: inference.VariationalSettings
    schedule: inference.AmortizedSettings | None = None
    sampler: SamplingAlgorithm | None = None
    networks: Literal["ours", "published"] = "ours"
    representation: str = "network"  # of a character: a network of its frames, or "gplvm"
    pooling: Literal["mean", "sum", "gaussian"] = "mean"
    frames_per_character: int = 10  # that come together in a minibatch
    pretrain_steps: int = 0  # of the representation network, as a classifier
    latent_dim: int = 64
    character_dim: int = 16
    pose_dim: int = 6
    learn_kernel: bool = True
    clip_encoder: bool = True
    noise_variance: float = 0.02
    encoder_filters: int = 32
    representation_filters: int = 16
    decoder_filters: int = 32
    weight_prior_scale: float = 1.0
    code_noise_variance: float = 1e-5  # of a chain
    chain_frames: int = 10  # of each training character, that the chain sees
    chain_start_steps: int = 100  # of Adam on the bound, from the SVGP-VAE to where a chain starts

    describe_objective = plans.named_objective


def mean_frames(frames: Frames, column: int, number: int) -> np.ndarray:
    """The mean frame [number, P] of each id of a column, of one without frames that of all."""
    ids = frames.X[:, column].astype(int)
    mean = np.zeros((number, frames.Y.shape[1]), np.float32)
    found = np.unique(ids)
    for i in found:
        mean[i] = frames.Y[ids == i].mean(0) / 256.0
    mean[np.setdiff1d(np.arange(number), found)] = mean[found].mean(0)
    return mean


def _principal_components(mean: np.ndarray, width: int, seed: int) -> np.ndarray:
    """Coordinates [number, width] along the widest directions, of unit mean square each.

    Where there are fewer of them, random numbers make up for the rest.
    """
    centred = mean - mean.mean(0)
    # Of the rows' products: the frames have ten times as many pixels as there are rows.
    values, directions = np.linalg.eigh((centred @ centred.T).astype(float))
    left, values = directions[:, ::-1], values[::-1]
    kept = int((values[:width] > 1e-6 * values[0]).sum())
    rest = np.random.default_rng([seed, 0xCA]).standard_normal((len(mean), width - kept))
    return np.concatenate([left[:, :kept] * np.sqrt(len(mean)), rest], 1)


def pose_kernel(plan: Plan, data: Task) -> inputs.CompletedInputs:
    """A kernel of [pose id, character vector...], whose inducing points are of both vectors."""
    split, total = plan.character_dim, plan.character_dim + plan.pose_dim
    linear = kernels.NormalizedLinear
    base = linear(active_dims=list(range(split))) * linear(active_dims=list(range(split, total)))
    gpflow.set_trainable(base.kernels[1].variance, False)  # one scale is enough
    if not plan.learn_kernel:
        gpflow.set_trainable(base, False)
    models.set_default_kernel_priors(base)
    mean = mean_frames(data.train, 1, data.num_poses)
    poses = inputs.LearntVectors(_principal_components(mean, plan.pose_dim, 1), column=0)
    return inputs.CompletedInputs(base, poses)


def _inducing_points(plan: Plan) -> Any:
    """Pairs of a character's and a pose's vector [M, character_dim + pose_dim].

    The kernel has rank M = character_dim * pose_dim: all pairs of unit vectors span it, wherever
    vectors go, so that the points stay where they are.
    """
    C, D = plan.character_dim, plan.pose_dim
    Z = np.concatenate([np.repeat(np.eye(C), D, 0), np.tile(np.eye(D), (C, 1))], 1)
    points = gpflow.inducing_variables.InducingPoints(Z)
    gpflow.set_trainable(points, False)
    return points


def representation_network(plan: Plan, num_pixels: int) -> Any:
    """The Keras model, whose outputs are pooled."""
    width = plan.character_dim
    outputs = 2 * width if plan.pooling == "gaussian" else width
    if plan.networks == "published":
        return published_representation(num_pixels, outputs)
    return conv_encoder(num_pixels, outputs, plan.representation_filters)


def _encoder_network(plan: Plan, num_pixels: int, num_outputs: int, num_features: int) -> Any:
    build = published_encoder if plan.networks == "published" else conv_encoder
    return build(num_pixels, num_outputs, plan.encoder_filters, num_features=num_features)


def _decoder_network(plan: Plan, num_inputs: int, num_pixels: int) -> Any:
    build = published_decoder if plan.networks == "published" else conv_decoder
    return build(num_inputs, num_pixels, plan.decoder_filters)


def gaussian_encoder(
    plan: Plan, num_pixels: int, num_features: int = 0
) -> encoders.GaussianEncoder:
    """The convolutional encoder with means and log standard deviations."""
    network = _encoder_network(plan, num_pixels, 2 * plan.latent_dim, num_features)
    return plans.gaussian_encoder(network, plan.clip_encoder)


def build_model(plan: Plan, data: Task, network: Any = None) -> Any:
    """The variational model of a plan, at its initial values.

    :param network: the representation network, if it is there already.
    """
    L, P = plan.latent_dim, data.train.Y.shape[1]
    likelihood = likelihoods.Gaussian(plan.noise_variance)
    if plan.model == "cvae":
        number = data.num_poses
        return models.CVAE(
            decoders.KerasDecoder(_decoder_network(plan, L + number, P), decoders.normal_prior()),
            gaussian_encoder(plan, P, number),
            likelihood,
            L,
            condition=lambda X: tf.one_hot(tf.cast(tf.round(X[..., 1]), tf.int32), number),
            condition_dim=number,
        )
    characters: inputs.InputModel
    if plan.representation == "network":
        network = representation_network(plan, P) if network is None else network
        characters = inputs.RepresentationNetwork(network, plan.pooling)
    else:
        mean = mean_frames(pooled(data.train, data.context), 0, data.num_characters)
        characters = inputs.LearntVectors(_principal_components(mean, plan.character_dim, 0))
    kernel = pose_kernel(plan, data)
    decoder = decoders.KerasDecoder(
        _decoder_network(plan, L, P), decoders.normal_prior(plan.weight_prior_scale)
    )
    return models.SVGPVAE(
        inputs.CompletedInputs(kernel, characters),
        _inducing_points(plan),
        decoder,
        gaussian_encoder(plan, P),
        likelihood,
        L,
    )


def with_known_vectors(model: models.SVGPVAE, vectors: np.ndarray) -> latent_priors.TitsiasGP:
    """The model's prior, sharing its parameters, with characters' vectors that are known.

    :param vectors: [num_characters, character_dim], finite.
    """
    prior = model.latent_prior
    poses = prior.kernels[0].kernel
    kernel = inputs.CompletedInputs(poses, inputs.LearntVectors(vectors))
    return latent_priors.TitsiasGP(kernel, prior.inducing_variable, prior.latent_dim)


def build_chain(plan: Plan, fitted: models.SVGPVAE) -> models.SGPBAE:
    """The model of a chain, from a fitted SVGP-VAE: inputs are [pose id, character vector...].

    The vectors are what the representation network made of frames, and stay as they are.
    """
    L, P = plan.latent_dim, fitted.decoder.output_dim
    network = _encoder_network(plan, P, L, L)  # with as much noise as there are channels
    model = models.SGPBAE(
        fitted.latent_prior.kernels[0].kernel,
        fitted.latent_prior.inducing_variable,
        fitted.decoder,
        encoders.StochasticEncoder(network, L),
        fitted.likelihood,
        L,
        code_noise_variance=plan.code_noise_variance,
        inducing_outputs="sampled",
        whitened_codes=True,
    )
    gpflow.set_trainable(model.latent_prior.code_noise_variance, False)
    return model


def chain_inputs(X: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Inputs of a chain, of frames [N, 2] of characters whose vectors are known."""
    return np.concatenate([X[:, 1:], vectors[X[:, 0].astype(int)]], 1)
