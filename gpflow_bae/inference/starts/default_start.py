"""The default initialisation of a run."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import keras
import numpy as np

from ...core.keras_module import KerasModule
from ...data import Observations
from ...encoders import GaussianEncoder
from ...encoders.gaussian import BaseGaussianEncoder
from ...latent_priors import GP, DeepSparseGP, SparseGP, TitsiasGP
from ...latent_priors.base import LatentProcess
from ...latent_priors.kernel_prior import KernelLatentPrior
from ...models import BayesianAutoencoder, VariationalAutoencoder
from ..settings import EncoderSettings, VariationalSettings
from .warm_start import WarmStart

__all__ = ["default_start"]

_EXACT_POINTS = 200  # most points of a task fitted under the exact GP: N^3 is still cheap
_POINTS_PER_STEP = 384
_TASKS_PER_STEP = 8  # unless these have more than a thousand points
_MOST_POINTS = 1024
NUM_STEPS = 2000
_DISTILLATION = EncoderSettings(num_steps=1000, batch_size=256)


def default_start(
    model: BayesianAutoencoder | VariationalAutoencoder, data: Observations
) -> WarmStart:
    """Return a variational fit of prior and decoder from the smoothest projections of ``Y``.

    The encoder of the fit is the model's own if that is Gaussian, else a Gaussian one with the
    same layer widths. Adam takes 2000 steps, with a smaller learning rate for wider networks. A
    sparse GP of short tasks is fitted as the exact one, which straightens the latent chart; one
    with sampled inducing outputs, or the last layer of a deep one, as a
    :class:`~gpflow_bae.latent_priors.TitsiasGP`. Minibatches hold about four hundred points, or
    eight tasks of up to 128 points; those under a
    :class:`~gpflow_bae.latent_priors.NearestNeighbourGP` have mean-field codes.
    """
    variational = isinstance(model, VariationalAutoencoder)
    encoder = model.encoder if variational else _gaussian_encoder(model, data.num_outputs)
    settings = VariationalSettings(
        num_steps=NUM_STEPS,
        learning_rate=_learning_rate(encoder, model.decoder),
        prior_learning_rate=1e-2,
        final_learning_rate_fraction=0.05,
        batch_size=_batch_size(model, data),
    )
    # A decoder that also takes features of the inputs cannot be fitted to codes alone, and there
    # are no more linear projections than outputs.
    project = not model.decoder_needs_inputs and model.latent_dim <= data.num_outputs
    if variational:
        project = project and isinstance(model.latent_prior, KernelLatentPrior)
    if model.inputs is not None and model.inputs.needs_observations:
        project = False  # the kernel's inputs depend on the encoder, which is not fitted yet
    return WarmStart(
        encoder,
        settings,
        latent_prior=None if variational else _prior_of_fit(model.latent_prior, data.Y.shape[1]),
        num_initial_steps=200 if project else 0,
        distillation=dataclasses.replace(_DISTILLATION, learning_rate=settings.learning_rate),
    )


def _learning_rate(*networks: Any) -> float:
    """Return Adam's learning rate, from 1e-2 for small networks to 1e-3 for wide ones.

    A step of Adam changes every weight by the same amount, so the output of a unit changes in
    proportion to its number of inputs.
    """
    shapes = [tuple(p.shape) for network in networks for p in network.parameters]
    widest = max((math.prod(shape[:-1]) for shape in shapes if len(shape) > 1), default=1)
    return float(np.clip(1.0 / widest, 1e-3, 1e-2))


def _batch_size(model: Any, data: Observations) -> int | None:
    """Return the number of items of a step, points or tasks; None for all items."""
    if data.axis == 1 and not model.splits_over_points:
        return None
    points_per_item = 1 if data.axis == 1 else int(data.Y.shape[1])
    few = min(_TASKS_PER_STEP, _MOST_POINTS // points_per_item)
    size = max(1, _POINTS_PER_STEP // points_per_item, few)
    return None if size >= data.num_items else size


def _prior_of_fit(prior: Any, num_points: int) -> LatentProcess | None:
    """Return the prior of the fit; None for the model's own.

    :param num_points: number of points of a task.
    """
    if isinstance(prior, DeepSparseGP):
        prior = prior.last_layer
    if not isinstance(prior, SparseGP):
        return None
    if prior.whitened_inducing is not None:
        return TitsiasGP(
            prior.kernels, prior.inducing_variable, prior.latent_dim, prior.mean_function
        )
    if num_points > _EXACT_POINTS:
        return None
    exact = GP(prior.kernels, prior.latent_dim, mean_function=prior.mean_function)
    exact.code_noise_variance = prior.code_noise_variance
    return exact


def _gaussian_encoder(model: BayesianAutoencoder, num_outputs: int) -> BaseGaussianEncoder:
    own = model.encoder
    if isinstance(own, BaseGaussianEncoder):
        return own
    layers: list[Any] = [keras.Input((num_outputs,))]
    for units, activation in _hidden_layers(own):
        layers.append(keras.layers.Dense(units, activation=activation))
    return GaussianEncoder(keras.Sequential([*layers, keras.layers.Dense(2 * model.latent_dim)]))


def _hidden_layers(encoder: Any) -> list[tuple[int, Any]]:
    """Return widths and activations of an encoder's dense layers except the last.

    The default is two layers of 100 units: if an encoder is convolutional, or sums networks of
    single outputs, a dense one suffices for a start.
    """
    found = []
    if isinstance(encoder, KerasModule):
        dense = [v for v in encoder.model.layers if isinstance(v, keras.layers.Dense)]
        found = [(layer.units, layer.activation) for layer in dense[:-1]]
    return found or [(100, "tanh")] * 2
