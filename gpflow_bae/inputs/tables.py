"""Tables of unknown numbers, with values or variational distributions."""

from __future__ import annotations

from typing import Any, Literal

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.utilities import positive

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers, check_positive
from ..core.linalg import gather_rows
from ..mcmc.noise import standard_noise
from .circle import UniformOnCircle

__all__ = ["InputTable", "check_prior"]

tfd = tfp.distributions
tfb = tfp.bijectors

_MIN_SCALE = 1e-4  # least scale of a Gaussian, relative to the prior's standard deviation
_NUM_PERIODS = 3  # number of periods on either side in the density of a wrapped Gaussian
_SUPPORT_SCALE = 8.0  # standard deviations within which a prior must have a density


class InputTable(gpflow.Module):
    r"""A table of R rows of W unknown numbers, with one prior p for each number.

    - ``q="point"``: values, which are optimised (with the prior in the loss, depending on the
      settings) or sampled by a chain.
    - ``q="gaussian"``: independent Gaussians, whose divergence from the prior is added to the
      bound; with a ``flow`` they are transformed by it. On a circle Gaussians are wrapped.
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
        :param initial: initial values or means [R, W].
        :param prior: a scalar TFP distribution with a density on the whole line, or
            :class:`UniformOnCircle`.
        :param initial_scale: initial standard deviation of Gaussians, relative to the prior's.
        :param flow: a bijector over rows [..., W], such as those of
            :mod:`gpflow_bae.bijectors`.
        :raises ValueError: for a table that is not finite, a flow without Gaussians or on a circle,
            and a prior with bounded support.
        :raises TypeError: for a prior that is not a distribution, or a flow that is not a bijector.
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
        least = _MIN_SCALE * width
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
        """Reset the scales, if any, of rows, given by a mask [R], to their initial value."""
        if self.values is None:
            new = np.where(rows[:, None], self._initial_scale, self.scale.numpy())
            self.scale.assign(new)

    def distance(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return absolute differences, on a circle along the shorter arc."""
        apart = np.abs(first - second)
        if isinstance(self.prior, UniformOnCircle):
            apart = np.mod(apart, self.prior.period)
            apart = np.minimum(apart, self.prior.period - apart)
        return apart

    @property
    def has_density(self) -> bool:
        """Whether rows have variational distributions."""
        return self.values is None

    @check_shapes("rows: [batch...]", "return: [batch..., W]")
    def at(self, rows: TensorType, seed: TensorType | None = None) -> tf.Tensor:
        """Return the values of some rows, or draws of them (means without a seed).

        With equal seeds a row has the same draw in every call.
        """
        if self.values is not None:
            return gather_rows(tf.convert_to_tensor(self.values), rows)
        table, _ = self._draw(seed)
        return gather_rows(table, rows)

    @check_shapes("return: [R, W]")
    def draw(self, seed: TensorType | None = None) -> tf.Tensor:
        """Return the values of all rows, or a draw of them (means without a seed)."""
        if self.values is not None:
            return tf.convert_to_tensor(self.values)
        return self._draw(seed)[0]

    def _draw(self, seed: TensorType | None) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a draw of all rows, and the Gaussian draw [R, W] before the flow."""
        base = tf.convert_to_tensor(self.mean)
        if seed is not None:
            seed = tf.convert_to_tensor(seed, tf.int32)
            base += self.scale * standard_noise(tf.shape(base), seed, base.dtype)
        if self.flow is None:
            return base, base
        return self.flow.forward(tf.identity(base)), base

    @check_shapes("return: [R]")
    def divergences(self, seed: TensorType | None) -> tf.Tensor:
        """Return KL[q || prior] of each row in nats, for circles and flows estimated by one draw.

        :param seed: the same as for :meth:`at`.
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
            turns = prior.period * tf.range(-_NUM_PERIODS, _NUM_PERIODS + 1, dtype=base.dtype)
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
    """Check that a prior is a scalar distribution on the whole line.

    :raises ValueError: if it is not scalar, or has a bounded support, which chains would leave.
    :raises TypeError: if it is not a distribution.
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
    ends = tf.constant(
        [middle - _SUPPORT_SCALE * width, middle + _SUPPORT_SCALE * width], prior.dtype
    )
    inside = np.isfinite(prior.log_prob(ends).numpy()).all()
    if hasattr(prior, "experimental_default_event_space_bijector"):
        # Some distributions return finite densities outside of their support.
        onto = prior.experimental_default_event_space_bijector()
        onto = onto.forward(middle + 1e6 * (ends - middle))
        inside = inside and onto[0] < ends[0] and onto[1] > ends[1]
    if not inside:
        raise ValueError(
            f"prior {prior.name} has no density at {ends.numpy().tolist()}; an unknown input needs "
            "a prior on the whole line, or a period: take logarithms of what is positive."
        )
