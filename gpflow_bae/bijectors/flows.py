"""Normalising flows: chains of maps R^D -> R^D with GPflow parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow as tf
from tensorflow_probability import bijectors as tfb

from ..core.annotations import check_arguments
from .elementwise import AffineMap, ElementwiseMap, SplineMap
from .layers import AutoregressiveLayer, CouplingLayer
from .networks import AutoregressiveNetwork, DenseNetwork
from .planar import Planar
from .radial import Radial

__all__ = [
    "NEAR_IDENTITY",
    "check_flow",
    "inverse_autoregressive_flow",
    "neural_spline_flow",
    "planar_flow",
    "radial_flow",
    "real_nvp_flow",
]

_WIDTHS = (32, 32)
#: Initial standard deviation of the translation of a planar map. With 0.1, a chain of fifty maps
#: would be far from the identity, and would spoil good initial codes.
NEAR_IDENTITY = 0.01


def _generator(event_dim: int, num_layers: int, seed: int, least_dim: int = 1) -> Any:
    for name, value, least in (("event_dim", event_dim, least_dim), ("num_layers", num_layers, 1)):
        if value < least:
            raise ValueError(f"{name} of this flow must be at least {least}, got {value}.")
    return np.random.default_rng(seed)


def _chain(layers: Sequence[tfb.Bijector]) -> tfb.Bijector:
    """Return the composition of layers, the first applied first (``tfb.Chain`` has it last)."""
    return tfb.Chain(list(reversed(layers)))


@check_arguments(event_dim=1, num_layers=1, seed=0)
def planar_flow(event_dim: int, num_layers: int = 20, seed: int = 0) -> tfb.Bijector:
    """Return a composition of planar maps, as in the GPLVF paper (20, 30 or 50 of them)."""
    rng = _generator(event_dim, num_layers, seed)
    return _chain([Planar.random(event_dim, rng, NEAR_IDENTITY) for _ in range(num_layers)])


@check_arguments(event_dim=1, num_layers=1, seed=0)
def radial_flow(event_dim: int, num_layers: int = 20, seed: int = 0) -> tfb.Bijector:
    """Return a composition of radial maps."""
    rng = _generator(event_dim, num_layers, seed)
    return _chain([Radial.random(event_dim, rng, NEAR_IDENTITY) for _ in range(num_layers)])


def _reversal(event_dim: int) -> tfb.Bijector:
    return tfb.Permute(np.arange(event_dim)[::-1].astype(np.int32))


def _with_reversals(layers: Sequence[tfb.Bijector], event_dim: int) -> tfb.Bijector:
    """Compose layers with reversals of the components between them, and the original order last.

    A flow that ended in reversed order would not start near the identity, and would undo a fit
    made without it.
    """
    chain: list[tfb.Bijector] = []
    for i, layer in enumerate(layers):
        chain += [layer] if i == 0 else [_reversal(event_dim), layer]
    if len(layers) % 2 == 0:
        chain.append(_reversal(event_dim))
    return _chain(chain)


def _coupling_layers(
    event_dim: int,
    num_layers: int,
    hidden_widths: Sequence[int],
    seed: int,
    elementwise: ElementwiseMap,
) -> tfb.Bijector:
    rng = _generator(event_dim, num_layers, seed, 2)
    kept = event_dim // 2
    outputs = elementwise.num_parameters * (event_dim - kept)
    layers = [
        CouplingLayer(DenseNetwork(kept, hidden_widths, outputs, rng), kept, elementwise)
        for _ in range(num_layers)
    ]
    return _with_reversals(layers, event_dim)


@check_arguments(event_dim=1, num_layers=1, seed=0, hidden_widths=1)
def real_nvp_flow(
    event_dim: int,
    num_layers: int = 6,
    hidden_widths: Sequence[int] = _WIDTHS,
    seed: int = 0,
) -> tfb.Bijector:
    """Return affine coupling layers (Dinh et al. 2017), for at least two components."""
    return _coupling_layers(event_dim, num_layers, hidden_widths, seed, AffineMap())


@check_arguments(event_dim=1, num_layers=1, seed=0, hidden_widths=1)
def inverse_autoregressive_flow(
    event_dim: int,
    num_layers: int = 4,
    hidden_widths: Sequence[int] = _WIDTHS,
    seed: int = 0,
) -> tfb.Bijector:
    """Return inverse affine autoregressive maps, of a draw and its density in one pass.

    They are those of Kingma et al. (2016). The inverse takes D passes.
    """
    rng = _generator(event_dim, num_layers, seed)
    elementwise = AffineMap()
    layers = [
        tfb.Invert(
            AutoregressiveLayer(
                AutoregressiveNetwork(event_dim, elementwise.num_parameters, hidden_widths, rng),
                elementwise,
            )
        )
        for _ in range(num_layers)
    ]
    return _with_reversals(layers, event_dim)


@check_arguments(event_dim=1, num_layers=1, seed=0, num_bins=1, hidden_widths=1)
def neural_spline_flow(
    event_dim: int,
    num_layers: int = 4,
    num_bins: int = 8,
    bound: float = 5.0,
    hidden_widths: Sequence[int] = _WIDTHS,
    seed: int = 0,
) -> tfb.Bijector:
    """Return rational-quadratic coupling splines (Durkan et al. 2019), at least two components.

    :param num_bins: number of bins of each spline on [-bound, bound]; outside it is the identity.
    """
    elementwise = SplineMap(num_bins, float(bound))
    return _coupling_layers(event_dim, num_layers, hidden_widths, seed, elementwise)


def check_flow(flow: Any, event_dim: int) -> None:
    """Check that ``flow`` is a trainable flow of ``event_dim`` latent dimensions.

    :raises TypeError: if it is not a TFP bijector, or contains a Keras network, whose weights
        GPflow would not train.
    :raises ValueError: if it does not map R^event_dim to itself.
    """
    if not isinstance(flow, tfb.Bijector):
        raise TypeError(
            "flow must be a tfp.bijectors.Bijector, for example "
            f"gpflow_bae.bijectors.planar_flow(...), got {type(flow).__name__}."
        )
    held = [*flow.submodules, *tf.nest.flatten(_arguments(flow))]
    for part in held:
        foreign = any(c.__module__.split(".")[0] == "tf_keras" for c in type(part).__mro__)
        if foreign or isinstance(part, keras.layers.Layer):
            raise TypeError(
                f"flow holds the Keras layer {type(part).__name__}, whose weights would not be "
                "trained. Use the networks of gpflow_bae.bijectors, or a tf.Module with "
                "gpflow.Parameter s."
            )
    try:
        image = flow.forward(tf.zeros([1, event_dim], gpflow.default_float()))
        shape = tuple(image.shape)
    except Exception as error:
        raise ValueError(
            f"flow does not take points of {event_dim} dimensions ({error}); build it with "
            f"event_dim={event_dim}."
        ) from error
    if shape != (1, event_dim):
        raise ValueError(
            f"flow takes points of {event_dim} dimensions to points of {shape[-1]}; it must keep "
            "their number."
        )


def _arguments(bijector: tfb.Bijector) -> list[Any]:
    """Return the constructor arguments of a bijector and of those in it."""
    values = []
    for part in [bijector, *bijector.submodules]:
        if isinstance(part, tfb.Bijector):
            values += [v for v in part.parameters.values() if v is not None]
    return values
