"""Rows of unknown numbers, each a value or a distribution."""

from __future__ import annotations

from typing import Any, Literal

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.utilities import positive

from ..core.arguments import as_numbers, check_arguments, check_positive
from ..core.linalg import gather_rows
from ..mcmc.noise import standard_noise
from .circle import UniformOnCircle

__all__ = ["InputTable", "check_prior"]

tfd = tfp.distributions
tfb = tfp.bijectors

_LEAST_SCALE = 1e-4  # of a Gaussian, as a share of the prior's standard deviation
_TURNS = 3  # of a circle, on either side, whose densities are added up
_REACH = 8.0  # standard deviations within which a prior must have a density


class InputTable(gpflow.Module):
    r"""R rows of W unknown numbers, with one prior p for each number.

    - ``q="point"``: values. A fit finds one of each (with the prior in the loss where the settings
      say so), and a chain samples them.
    - ``q="gaussian"``: independent Gaussians, whose divergence from the prior joins the bound; with
      a ``flow`` its image of those. On a circle the Gaussian is wrapped around it.
    """

    @check_arguments()
    def __init__(
        self,
        initial: TensorType,
        prior: Any,
        q: Literal["point", "gaussian"] = "point",
        initial_scale: float = 0.3,
        flow: tfp.bijectors.Bijector | None = None,
    ):
        """
        :param initial: values, or means, at the start [R, W].
        :param prior: a TFP distribution of single numbers, with a density on the whole line, or
            :class:`UniformOnCircle`.
        :param initial_scale: standard deviation of Gaussians at the start, as a share of the
            prior's.
        :param flow: a bijector over rows [..., W], such as those of
            :mod:`gpflow_bae.bijectors`.
        :raises ValueError: for a table that is not finite, a flow without Gaussians or on a circle,
            and a prior without a density somewhere.
        :raises TypeError: for a prior that is no distribution, and a flow that is no bijector.
        """
        super().__init__(name=None)
        start = as_numbers(initial, "initial", gpflow.default_float())
        if start.ndim != 2 or not np.isfinite(start).all():
            raise ValueError(f"initial must be a finite table [R, W], got shape {start.shape}.")
        check_positive(initial_scale=initial_scale)
        circular = isinstance(prior, UniformOnCircle)
        if not circular:
            check_prior(prior)
        if flow is not None and not isinstance(flow, tfb.Bijector):
            raise TypeError(
                "flow must be a TFP bijector over rows, such as gpflow_bae.bijectors.planar_flow "
                f"makes, got {type(flow).__name__}."
            )
        if flow is not None and (q != "gaussian" or circular):
            raise ValueError(
                'flow is of Gaussians on the line: it goes with q="gaussian", and with no period. '
                "Leave it out."
            )
        self.prior, self.flow = prior, flow
        self.values: Parameter | None = None
        self.mean: Parameter | None = None
        if q == "point":
            self.values = Parameter(start, prior=prior)
            return
        width = float(prior.stddev())
        least = _LEAST_SCALE * width
        self._initial_scale = initial_scale * width
        self.mean = Parameter(start)
        self.scale = Parameter(
            np.full(start.shape, self._initial_scale), transform=positive(lower=least)
        )

    @property
    def location(self) -> Parameter:
        """The values, or the Gaussians' means [R, W]."""
        return self.mean if self.values is None else self.values  # type: ignore[return-value]

    def reset_scale(self, rows: np.ndarray) -> None:
        """Give some rows ([R], truth values) the width that they started with, if they have any."""
        if self.values is None:
            new = np.where(rows[:, None], self._initial_scale, self.scale.numpy())
            self.scale.assign(new)

    def distance(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """How far numbers are from each other, the short way round on a circle."""
        apart = np.abs(first - second)
        if isinstance(self.prior, UniformOnCircle):
            apart = np.mod(apart, self.prior.period)
            apart = np.minimum(apart, self.prior.period - apart)
        return apart

    @property
    def has_density(self) -> bool:
        """Whether rows have distributions of their own."""
        return self.values is None

    @check_shapes("rows: [batch...]", "return: [batch..., W]")
    def at(self, rows: TensorType, seed: TensorType | None = None) -> tf.Tensor:
        """Numbers of some rows; draws of them from a seed, where they have distributions.

        The draw of a row is the same wherever it is asked for.
        """
        if self.values is not None:
            return gather_rows(tf.convert_to_tensor(self.values), rows)
        table, _ = self._draw(seed)
        return gather_rows(table, rows)

    @check_shapes("return: [R, W]")
    def draw(self, seed: TensorType | None = None) -> tf.Tensor:
        """All rows: values, or a draw of their distributions (their means without a seed)."""
        if self.values is not None:
            return tf.convert_to_tensor(self.values)
        return self._draw(seed)[0]

    def _draw(self, seed: TensorType | None) -> tuple[tf.Tensor, tf.Tensor]:
        """A draw of all rows, and the Gaussians' [R, W] that the flow was given."""
        base = tf.convert_to_tensor(self.mean)
        if seed is not None:
            seed = tf.convert_to_tensor(seed, tf.int32)
            base += self.scale * standard_noise(tf.shape(base), seed, base.dtype)
        if self.flow is None:
            return base, base
        return self.flow.forward(tf.identity(base)), base

    @check_shapes("return: [R]")
    def divergences(self, seed: TensorType | None) -> tf.Tensor:
        """KL[q || prior] of each row, in nats; of circles and flows an estimate with one draw.

        :param seed: of :meth:`at`.
        """
        if self.values is not None:
            return tf.zeros([self.values.shape[0]], gpflow.default_float())
        mean, scale = (tf.convert_to_tensor(v) for v in (self.mean, self.scale))
        prior = self.prior
        if self.flow is None and isinstance(prior, tfd.Normal):
            ratio = scale / prior.scale
            found = 0.5 * (tf.square(ratio) + tf.square((mean - prior.loc) / prior.scale) - 1.0)
            return tf.reduce_sum(found - tf.math.log(ratio), -1)
        x, base = self._draw(seed)
        if isinstance(prior, UniformOnCircle):
            turns = prior.period * tf.range(-_TURNS, _TURNS + 1, dtype=base.dtype)
            density = tf.reduce_logsumexp(
                tfd.Normal(mean[..., None], scale[..., None]).log_prob(base[..., None] + turns), -1
            )
        else:
            density = tfd.Normal(mean, scale).log_prob(base)
        log_q = tf.reduce_sum(density, -1)
        if self.flow is not None:
            log_q -= self.flow.forward_log_det_jacobian(tf.identity(base), event_ndims=1)
        return log_q - tf.reduce_sum(prior.log_prob(x), -1)


def check_prior(prior: Any) -> None:
    """Refuse a prior that ends somewhere: gradients and random walks would leave it.

    :raises ValueError: saying so.
    :raises TypeError: for what is no distribution.
    """
    if not isinstance(prior, tfd.Distribution):
        raise TypeError(
            "prior of unknown inputs must be a TFP distribution of single numbers, such as "
            f"tfp.distributions.Normal(loc, scale), got {type(prior).__name__}."
        )
    middle, width = (np.asarray(v, float) for v in (prior.mean(), prior.stddev()))
    if middle.ndim or not np.isfinite([middle, width]).all():
        raise ValueError(
            "prior must be a distribution of single numbers with a mean and a standard deviation, "
            f"got {prior}."
        )
    ends = tf.constant([middle - _REACH * width, middle + _REACH * width], prior.dtype)
    inside = np.isfinite(prior.log_prob(ends).numpy()).all()
    if hasattr(prior, "experimental_default_event_space_bijector"):
        # Some have finite numbers for a density where they have none.
        onto = prior.experimental_default_event_space_bijector()
        onto = onto.forward(middle + 1e6 * (ends - middle))
        inside = inside and onto[0] < ends[0] and onto[1] > ends[1]
    if not inside:
        raise ValueError(
            f"prior {prior.name} has no density at {ends.numpy().tolist()}; an unknown input needs "
            "a prior on the whole line, or a period: take logarithms of what is positive."
        )
