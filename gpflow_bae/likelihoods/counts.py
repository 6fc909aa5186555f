"""Likelihoods of counts: Poisson, negative binomial, and zero-inflated negative binomial.

The function f is the logarithm of a rate. The expected count is the rate times a known size,
such as the sequencing depth of a cell: in an autoencoder the decoder adds its logarithm
(:class:`~gpflow_bae.decoders.ConditionalDecoder`), in GPflow's models it is a column of X.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from .coefficients import log_coefficient
from .masked import MaskedLikelihood
from .support import COUNTS, Support

__all__ = ["CountLikelihood", "NegativeBinomial", "Poisson", "ZeroInflatedNegativeBinomial"]

tfd = tfp.distributions
# Below this, 1 / dispersion + y loses all digits of y in float32; the density is nearly Poisson.
_MIN_DISPERSION = 1e-6
_MAX_DISPERSION = 1e6  # after the power; almost all counts are 0 at far smaller values


class CountLikelihood(MaskedLikelihood, gpflow.likelihoods.ScalarLikelihood):
    """Base class of likelihoods of counts with rate exp(f), or size * exp(f)."""

    @check_arguments(size_column=0)
    def __init__(self, size_column: int | None = None):
        """
        :param size_column: column of X with sizes, above 0, for GPflow's models; their
            kernels should exclude it (``active_dims``).
        """
        super().__init__()
        self.size_column = size_column

    @property
    def support(self) -> Support:
        return COUNTS

    def _with_size(self, X: TensorType, F: tf.Tensor) -> tf.Tensor:
        if self.size_column is None:
            return F
        size = tf.convert_to_tensor(X)[..., self.size_column, None]
        return F + tf.cast(tf.math.log(size), F.dtype)

    @check_shapes("F: [batch..., N, P]", "return: [batch..., N, P]")
    def draw(self, F: TensorType, seed: TensorType) -> tf.Tensor:
        """Draw counts given ``F``, in its type, from a stateless seed [2]."""
        F = tf.convert_to_tensor(F)
        return self._draw(F, seed)

    def _draw(self, F: tf.Tensor, seed: TensorType) -> tf.Tensor:
        raise NotImplementedError

    @check_shapes(
        "F: [batch..., N, P]",
        "Y: [batch..., N, P]",
        "mask: [batch..., N, P]",
        "return[0]: [batch..., N, P]",
        "return[1]: [batch..., N, P]",
    )
    def rate_moments(
        self, F: TensorType, Y: TensorType, mask: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return means and variances of the Poisson rates of counts given ``Y``, in F's type.

        A negative binomial count is Poisson with a gamma-distributed rate of mean exp(f), so it is
        informative of its rate. A zero of the zero-inflation is not.

        :param mask: True where observed; other rates have their prior.
        """
        F = tf.convert_to_tensor(F)
        return self._rate_moments(F, tf.cast(Y, F.dtype), tf.cast(mask, F.dtype))

    def _rate_moments(
        self, F: tf.Tensor, Y: tf.Tensor, seen: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        raise NotImplementedError

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        F = self._with_size(X, tf.convert_to_tensor(F))
        return self._entry_log_prob(F, tf.cast(Y, F.dtype))

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.moments(self._with_size(X, tf.convert_to_tensor(F)))[0]

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.moments(self._with_size(X, tf.convert_to_tensor(F)))[1]

    def _expected_log_prob(
        self, mean: TensorType, variance: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """Return E[log p(y_np | f_np)] of each entry, f ~ N(mean, variance)."""
        # GPflow's quadrature, with outputs on the last axis, where parameters per output are.
        Y = tf.cast(Y, tf.convert_to_tensor(mean).dtype)
        return self.quadrature(lambda F: self._entry_log_prob(F, Y), mean, variance)


class Poisson(CountLikelihood):
    """A Poisson likelihood with rate exp(f)."""

    def _entry_log_prob(self, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        # Deviance and Stirling remainder avoid the cancellation of y f and log y! for large y.
        return -_deviance(F, Y) - _stirling(Y)

    def _expected_log_prob(
        self, mean: TensorType, variance: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean = tf.convert_to_tensor(mean)
        at_mean = self._entry_log_prob(mean, tf.cast(Y, mean.dtype))
        return at_mean - tf.exp(mean) * tf.math.expm1(0.5 * variance)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean = self._with_size(X, tf.convert_to_tensor(Fmu))
        return tf.reduce_sum(self._expected_log_prob(mean, Fvar, Y), -1)

    def _draw(self, F: tf.Tensor, seed: TensorType) -> tf.Tensor:
        return _poisson(tf.exp(F), seed)

    def _rate_moments(
        self, F: tf.Tensor, Y: tf.Tensor, seen: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.exp(F), tf.zeros_like(F)

    def moments(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        rate = tf.exp(F)
        return rate, rate


class NegativeBinomial(CountLikelihood):
    r"""Negative binomial counts, mean :math:`\mu = e^f` and variance :math:`\mu + \alpha \mu^p`.

    :math:`\alpha` is the dispersion; the limit 0 is Poisson's. The power p is 2 by default;
    with p < 2 (NB-P, Greene 2008) relative overdispersion decreases with the mean, as for genes
    when many cells are counted together, or sequenced deeper.
    """

    @check_arguments(size_column=0)
    def __init__(
        self,
        dispersion: TensorType = 1.0,
        *,
        power: TensorType | None = None,
        prior: Any | None = None,
        power_prior: Any | None = None,
        size_column: int | None = None,
    ):
        """
        :param dispersion: initial dispersion, a scalar or one per output [P]. Fix it
            with ``gpflow.set_trainable(likelihood.dispersion, False)``.
        :param power: initial power p, a scalar or one per output [P], which is trainable; None for
            2, fixed.
        :param prior: prior of the dispersion; default LogNormal(log(dispersion), 1).
        :param power_prior: prior of the power; default Normal(power, 0.5).
        :param size_column: see :class:`CountLikelihood`.
        :raises ValueError: for a dispersion that is not above 1e-6, or not finite, and a power that
            is not finite.
        """
        super().__init__(size_column)
        values = as_numbers(dispersion, "dispersion", gpflow.default_float())
        if values.ndim > 1 or not np.all((values > _MIN_DISPERSION) & np.isfinite(values)):
            raise ValueError(
                f"dispersion must be a number or one per output, finite and above "
                f"{_MIN_DISPERSION}, got {values.tolist()}. Without any, take Poisson."
            )
        if prior is None:
            location = np.log(values)
            prior = tfd.LogNormal(location, np.ones_like(location))
        transform = gpflow.utilities.positive(lower=_MIN_DISPERSION)
        self.dispersion = gpflow.Parameter(values, transform=transform, prior=prior)
        self.power: gpflow.Parameter | None = None
        if power is None:
            return
        values = as_numbers(power, "power", gpflow.default_float())
        if values.ndim > 1 or not np.isfinite(values).all():
            raise ValueError(
                f"power must be a finite number or one per output, got {values.tolist()}."
            )
        if power_prior is None:
            power_prior = tfd.Normal(values, np.full_like(values, 0.5))
        self.power = gpflow.Parameter(values, prior=power_prior)

    def _dispersion_at(self, F: tf.Tensor) -> tf.Tensor:
        """Return the dispersion of the equal variance mu + dispersion mu^2; broadcasts to ``F``."""
        dispersion = tf.cast(self.dispersion, F.dtype)
        if self.power is None:
            return dispersion
        logs = tf.math.log(dispersion) + (tf.cast(self.power, F.dtype) - 2.0) * F
        return tf.exp(tf.clip_by_value(logs, *np.log([_MIN_DISPERSION, _MAX_DISPERSION])))

    def _entry_log_prob(self, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        dispersion = self._dispersion_at(F)
        number = 1.0 / dispersion
        logits = F + tf.math.log(dispersion)
        at_zero = -number * tf.math.softplus(logits)
        return at_zero + log_coefficient(number, Y) - Y * tf.math.softplus(-logits)

    def _draw(self, F: tf.Tensor, seed: TensorType) -> tf.Tensor:
        # Poisson counts with gamma-distributed rates of mean exp(f).
        number = tf.broadcast_to(1.0 / self._dispersion_at(F), tf.shape(F))
        gamma = tf.random.stateless_gamma(tf.shape(F), seed, number, dtype=F.dtype)
        rate = tf.exp(F) * gamma / number
        seed = tf.random.fold_in(seed, 1, alg="philox")
        return _poisson(rate, seed)

    def _rate_moments(
        self, F: tf.Tensor, Y: tf.Tensor, seen: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # Gamma(r + y) / (r / exp(f) + 1) with r = 1 / dispersion, where y is observed.
        number = 1.0 / self._dispersion_at(F)
        rate = number * tf.exp(-F) + seen
        mean = (number + seen * Y) / rate
        return mean, mean / rate

    def moments(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        mean = tf.exp(F)
        return mean, mean + self._dispersion_at(F) * tf.square(mean)


class ZeroInflatedNegativeBinomial(NegativeBinomial):
    r"""A zero-inflated likelihood: 0 with probability :math:`\pi`, else negative binomial."""

    @check_arguments(size_column=0)
    def __init__(
        self,
        dispersion: TensorType = 1.0,
        zero_probability: TensorType = 0.1,
        *,
        power: TensorType | None = None,
        prior: Any | None = None,
        power_prior: Any | None = None,
        zero_prior: Any | None = None,
        size_column: int | None = None,
    ):
        """
        :param zero_probability: initial pi, a scalar or one per output [P].
        :param zero_prior: prior of pi; default Beta(1, 9).
        :raises ValueError: for a probability that is not between 0 and 1.
        """
        super().__init__(
            dispersion,
            power=power,
            prior=prior,
            power_prior=power_prior,
            size_column=size_column,
        )
        values = as_numbers(zero_probability, "zero_probability", gpflow.default_float())
        if values.ndim > 1 or not np.all((values > 0.0) & (values < 1.0)):
            raise ValueError(
                "zero_probability must be a number or one per output, between 0 and 1, got "
                f"{values.tolist()}. Without any, take NegativeBinomial."
            )
        if zero_prior is None:
            one = np.ones_like(values)
            zero_prior = tfd.Beta(one, 9.0 * one)
        transform = tfp.bijectors.Sigmoid()
        self.zero_probability = gpflow.Parameter(values, transform=transform, prior=zero_prior)

    def _entry_log_prob(self, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        counted = super()._entry_log_prob(F, Y)
        probability = tf.cast(self.zero_probability, F.dtype)
        counted += tf.math.log1p(-probability)
        zero = tf.math.log(probability)
        at_zero = tf.maximum(counted, zero) + tf.math.softplus(-tf.abs(counted - zero))
        return tf.where(Y == 0.0, at_zero, counted)

    def _draw(self, F: tf.Tensor, seed: TensorType) -> tf.Tensor:
        counts = super()._draw(F, seed)
        seed = tf.random.fold_in(seed, 2, alg="philox")
        uniform = tf.random.stateless_uniform(tf.shape(F), seed, dtype=F.dtype)
        zero = uniform < tf.cast(self.zero_probability, F.dtype)
        return tf.where(zero, tf.zeros_like(counts), counts)

    def _rate_moments(
        self, F: tf.Tensor, Y: tf.Tensor, seen: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        probability = tf.cast(self.zero_probability, F.dtype)
        of_rate = super()._entry_log_prob(F, tf.zeros_like(F)) + tf.math.log1p(-probability)
        # Posterior probability that a zero comes from the zero-inflation.
        apart = tf.sigmoid(tf.math.log(probability) - of_rate)
        apart = tf.where((Y == 0.0) & (seen > 0.0), apart, tf.zeros_like(F))
        told = super()._rate_moments(F, Y, seen)
        prior = super()._rate_moments(F, Y, tf.zeros_like(F))
        mean = told[0] + apart * (prior[0] - told[0])
        between = apart * (1.0 - apart) * tf.square(prior[0] - told[0])
        return mean, told[1] + apart * (prior[1] - told[1]) + between

    def moments(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = super().moments(F)
        probability = tf.cast(self.zero_probability, mean.dtype)
        kept = 1.0 - probability
        return kept * mean, kept * (variance + probability * tf.square(mean))


def _poisson(rate: tf.Tensor, seed: TensorType) -> tf.Tensor:
    """Draw Poisson counts; NaN for NaN rates, for which TensorFlow's sampler never returns."""
    known = tf.logical_not(tf.math.is_nan(rate))
    draws = tf.random.stateless_poisson(
        tf.shape(rate), seed, tf.where(known, rate, tf.zeros_like(rate)), rate.dtype
    )
    return tf.where(known, draws, rate)


def _deviance(F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """Return half of Poisson's deviance, exp(f) - y + y (log y - f) >= 0."""
    there = Y > 0.0
    safe = tf.where(there, Y, tf.ones_like(Y))
    # y (exp(d) - 1 - d) with d = f - log y is small for rates near the count.
    difference = F - tf.math.log(safe)
    near = safe * (tf.math.expm1(difference) - difference)
    return tf.where(there, near, tf.exp(F))


def _stirling(Y: tf.Tensor) -> tf.Tensor:
    """Return log y! - y log y + y, which grows as log(2 pi y) / 2."""
    there = Y > 0.0
    safe = tf.where(there, Y, tf.ones_like(Y))
    exact = tf.math.lgamma(safe + 1.0) - safe * tf.math.log(safe) + safe
    inverse = 1.0 / safe
    series = 0.5 * tf.math.log(2.0 * np.pi * safe) + inverse * (
        1.0 / 12.0 - tf.square(inverse) / 360.0
    )
    return tf.where(there, tf.where(safe < 20.0, exact, series), tf.zeros_like(Y))
