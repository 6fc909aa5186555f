"""Observation likelihoods of a decoder, whose densities omit missing entries.

They are ordinary GPflow likelihoods (``log_prob``, ``conditional_mean``, ... on complete data),
with one more method that takes a mask. Any other scalar GPflow likelihood is wrapped by
:func:`masked`.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from check_shapes.exceptions import ShapeMismatchError
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers, kind_of
from ..core.linalg import sum_of_squares
from .support import FRACTIONS, Support, support_of

__all__ = ["Bernoulli", "Gaussian", "MaskedLikelihood", "masked"]

tfd = tfp.distributions


class MaskedLikelihood(gpflow.Module):
    """A mixin for log densities of the observed entries, in the decoder's precision."""

    def _entry_log_prob(self, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """Return the elementwise log density [batch..., N, P]."""
        raise NotImplementedError

    @check_shapes(
        "F: [batch..., N, P]",
        "Y: [batch..., N, P]",
        "mask: [batch..., N, P]",
        "return: [batch..., N]",
    )
    def masked_log_prob(self, F: TensorType, Y: TensorType, mask: TensorType | None) -> tf.Tensor:
        """Return log p(observed y_n | f_n), the sum over the entries where ``mask`` is True.

        ``Y`` must be finite everywhere (any value where masked): both it and ``F`` are replaced
        at missing entries before the density is computed, so gradients there are zero, never NaN.

        :param mask: True where observed; None if nothing is missing.
        """
        F = tf.convert_to_tensor(F)
        if mask is None:
            return tf.reduce_sum(self._entry_log_prob(F, tf.cast(Y, F.dtype)), -1)
        # One, unlike zero, is in the support of every scalar GPflow likelihood, also of Gamma. An
        # infinite density at a masked entry would make its gradient NaN.
        ones = tf.ones_like(F)
        safe_F, safe_Y = tf.where(mask, F, ones), tf.where(mask, tf.cast(Y, F.dtype), ones)
        entries = self._entry_log_prob(safe_F, safe_Y)
        return tf.reduce_sum(tf.where(mask, entries, tf.zeros_like(entries)), -1)

    @check_shapes("F: [batch..., N, P]", "Y: [batch..., N, P]", "return: [batch..., N, P]")
    def log_prob_of_cells(self, F: TensorType, Y: TensorType) -> tf.Tensor:
        """Return log p(y_np | f_np) of each entry, in the type of ``F``.

        ``Y`` must be finite everywhere; the caller drops the values at missing entries.
        """
        F = tf.convert_to_tensor(F)
        return self._entry_log_prob(F, tf.cast(Y, F.dtype))

    @property
    def _scalar(self) -> Any:
        """The GPflow likelihood of a single output."""
        return self

    @property
    def kind(self) -> str:
        """The kind of the likelihood, in words."""
        return type(self._scalar).__name__

    @property
    def support(self) -> Support | None:
        """The support of an observation; None for all numbers."""
        return support_of(self._scalar)

    def check_outputs(self, num_outputs: int, whose: str = "the decoder") -> None:
        """Check that the likelihood is one of P outputs.

        A parameter of each output, such as ``Gaussian([0.1, 0.2])``, would otherwise be broadcast
        against another number of them, and a density be counted several times.

        :param num_outputs: P.
        :param whose: what has P outputs, in the error message.
        :raises ValueError: if parameters have neither one number nor P.
        """
        one = tf.ones([1, num_outputs], gpflow.default_float())
        try:
            fits = self._entry_log_prob(one, one).shape == one.shape
        except (ValueError, tf.errors.InvalidArgumentError, ShapeMismatchError):
            fits = False
        if not fits:
            shapes = sorted({tuple(p.shape) for p in self.parameters if p.shape.rank})
            raise ValueError(
                f"likelihood {self.kind} has parameters of shape {shapes}, and "
                f"{whose} has {num_outputs} output(s): give it one number for all of them, or one "
                "for each."
            )

    def check_support(
        self,
        Y: np.ndarray,
        mask: np.ndarray | None = None,
        name: str = "Y",
        columns: np.ndarray | None = None,
    ) -> None:
        """Check that observations are in the likelihood's support.

        :param Y: [..., P]; NaN is missing.
        :param mask: True where observed; None for all.
        :param name: name of the observations in the error message.
        :param columns: columns [K] of observations that are single cells [K].
        :raises ValueError: if not, with the value and position of the first.
        """
        if self.support is None:
            return
        seen = ~np.isnan(Y) if mask is None else mask & ~np.isnan(Y)
        wrong = seen & ~self.support.holds(np.where(seen, Y, 1.0))
        if wrong.any():
            place = np.argwhere(wrong)[0]
            raise ValueError(
                f"{name} holds {Y[tuple(place)]:g} (first at {place.tolist()}, "
                f"{np.count_nonzero(wrong)} in all), and the likelihood "
                f"{self.kind} is one of {self.support.words}: take another "
                "likelihood, transform the values, or make NaN of those that are missing."
            )

    @check_shapes(
        "F: [batch..., N, P]", "return[0]: [batch..., N, P]", "return[1]: [batch..., N, P]"
    )
    def moments(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean and variance of y given ``F``, elementwise, in the type of ``F``."""
        raise NotImplementedError


class Gaussian(MaskedLikelihood, gpflow.likelihoods.Gaussian):
    """A Gaussian likelihood y = f + noise, with one noise variance or one for each output."""

    @check_arguments(variance_lower_bound=0)
    def __init__(
        self,
        variance: TensorType = 0.1,
        *,
        variance_lower_bound: float = 1e-6,
        prior: Any | None = None,
    ):
        """
        :param variance: initial noise variance, a scalar or one per output [P].
        :param variance_lower_bound: lower bound of the variance parameter.
        :param prior: prior of the variance; default LogNormal(log(variance), 1).
            Fix the noise with ``gpflow.set_trainable(likelihood.variance, False)``.
        :raises ValueError: for a variance that is not above its bound, or not finite.
        """
        values = as_numbers(variance, "variance", gpflow.default_float())
        if not np.all((values > variance_lower_bound) & np.isfinite(values)):
            raise ValueError(
                f"variance must be finite and above variance_lower_bound = {variance_lower_bound}, "
                f"got {values.tolist()}."
            )
        super().__init__(variance=variance, variance_lower_bound=variance_lower_bound)
        if prior is None:
            location = np.log(values)
            prior = tfd.LogNormal(location, np.ones_like(location))
        self.variance.prior = prior

    def _entry_log_prob(self, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        variance = tf.cast(self.variance, F.dtype)
        return -0.5 * (tf.math.log(2.0 * np.pi * variance) + tf.square(Y - F) / variance)

    @inherit_check_shapes
    def masked_log_prob(self, F: TensorType, Y: TensorType, mask: TensorType | None) -> tf.Tensor:
        F = tf.convert_to_tensor(F)
        variance = tf.cast(self.variance, F.dtype)
        if variance.shape.rank != 0:
            return super().masked_log_prob(F, Y, mask)
        # One variance for all outputs factors out of the sum: half of the passes over [N, P].
        residual = tf.cast(Y, F.dtype) - F
        count = tf.cast(tf.shape(F)[-1], F.dtype)
        if mask is not None:
            residual = tf.where(mask, residual, tf.zeros_like(residual))
            count = tf.reduce_sum(tf.cast(mask, F.dtype), -1)
        squares = sum_of_squares(residual, -1)
        return -0.5 * (count * tf.math.log(2.0 * np.pi * variance) + squares / variance)

    def moments(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        F = tf.convert_to_tensor(F)
        return F, tf.cast(self.variance, F.dtype) * tf.ones_like(F)


@tf.custom_gradient
def _bernoulli_log_prob(F: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, object]:
    """Return the sum over outputs of log Bernoulli(y; sigmoid(f)), with gradient y - sigmoid(f).

    The closed-form gradient saves half of the elementwise passes over [N, P], and the forward
    value is pruned from a compiled sampler step, which does not use it.
    """
    value = -tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=Y, logits=F), -1)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return upstream[..., None] * (Y - tf.sigmoid(F)), None

    return value, gradient


class Bernoulli(MaskedLikelihood, gpflow.likelihoods.Bernoulli):
    """A Bernoulli likelihood of binary observations with logits f: p(y = 1) = sigmoid(f).

    For observations between 0 and 1, such as grey pixels, the log density is minus the
    cross-entropy.
    """

    def __init__(self) -> None:
        super().__init__(invlink=tf.sigmoid)

    @property
    def support(self) -> Support:
        return FRACTIONS

    def _entry_log_prob(self, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return -tf.nn.sigmoid_cross_entropy_with_logits(labels=Y, logits=F)

    @inherit_check_shapes
    def masked_log_prob(self, F: TensorType, Y: TensorType, mask: TensorType | None) -> tf.Tensor:
        if mask is None:
            F = tf.convert_to_tensor(F)
            return _bernoulli_log_prob(F, tf.cast(Y, F.dtype))
        return super().masked_log_prob(F, Y, mask)

    def moments(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        mean = tf.sigmoid(F)
        return mean, mean * (1.0 - mean)


class _Wrapped(MaskedLikelihood):
    """Wrapper of a scalar GPflow likelihood, computed in ``default_float()``."""

    def __init__(self, likelihood: gpflow.likelihoods.ScalarLikelihood):
        super().__init__(name=None)
        self.likelihood = likelihood

    @property
    def _scalar(self) -> Any:
        return self.likelihood

    def _no_inputs(self, F: tf.Tensor) -> tf.Tensor:
        return tf.zeros(tf.concat([tf.shape(F)[:-1], [0]], 0), F.dtype)

    def _entry_log_prob(self, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        F = tf.cast(F, gpflow.default_float())
        return self.likelihood._scalar_log_prob(self._no_inputs(F), F, tf.cast(Y, F.dtype))

    def moments(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        F = tf.cast(F, gpflow.default_float())
        X = self._no_inputs(F)
        return (
            self.likelihood._conditional_mean(X, F),
            self.likelihood._conditional_variance(X, F),
        )


def masked(
    likelihood: gpflow.likelihoods.Likelihood | MaskedLikelihood, name: str = "likelihood"
) -> MaskedLikelihood:
    """Return a masked likelihood: ``likelihood`` itself if it is one, else wrapped.

    :param name: name of the likelihood in error messages.
    :raises TypeError: for a likelihood that does not factorise over outputs, or whose noise is a
        function of inputs.
    """
    if isinstance(likelihood, MaskedLikelihood):
        return likelihood
    scalar = isinstance(likelihood, gpflow.likelihoods.ScalarLikelihood)
    if not scalar or isinstance(likelihood, gpflow.likelihoods.SwitchedLikelihood):
        raise TypeError(
            f"{name} must factorise over outputs, with one function for each and no column of Y "
            "that says which it is of: one of gpflow_bae.likelihoods or a "
            f"gpflow.likelihoods.ScalarLikelihood, got {kind_of(likelihood)}."
        )
    functions = (m for m in likelihood.submodules if isinstance(m, gpflow.functions.Function))
    if not all(isinstance(m, gpflow.functions.Constant) for m in functions):
        raise TypeError(
            f"{name} must not see inputs, and the noise of this {kind_of(likelihood)} is a "
            "function of them. gpflow_bae.likelihoods.Gaussian([0.1] * P) has one variance for "
            "each of P outputs."
        )
    return _Wrapped(likelihood)
