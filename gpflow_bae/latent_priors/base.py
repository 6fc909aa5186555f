"""Base classes of latent priors, with or without kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from ..base import Batch, LatentPosterior
from ..core.annotations import check_arguments
from ..inputs import InputModel
from ..mcmc.noise import standard_noise

__all__ = [
    "LOG_2PI",
    "UNINFORMATIVE_VARIANCE",
    "GaussianLatentPrior",
    "LatentProcess",
    "expected_log_prob",
    "gaussian_log_density",
]

LOG_2PI = float(np.log(2.0 * np.pi))
# A pseudo-observation of this variance changes a posterior by one part in 1e10 for a prior variance
# of 1, and loses no digits in float64 (its log is added and subtracted again in the bound).
UNINFORMATIVE_VARIANCE = 1e10


def gaussian_log_density(residual: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Return log N(residual; 0, variance) elementwise."""
    return -0.5 * (LOG_2PI + tf.math.log(variance) + tf.square(residual) / variance)


class LatentProcess(gpflow.Module, ABC):
    """Base class of processes over codes, conditioned on Gaussian pseudo-observations."""

    needs_inputs = True
    draws = False
    """Whether the density is a Monte Carlo estimate, seeded by :meth:`with_seed`."""
    is_dense = False
    """Whether the density needs covariances between all points of a task."""

    @check_arguments(latent_dim=1)
    def __init__(self, latent_dim: int):
        super().__init__(name=None)
        self.latent_dim = int(latent_dim)

    @abstractmethod
    def condition(
        self, X: TensorType | None, mean: TensorType, variance: TensorType
    ) -> LatentPosterior:
        """Return the marginal posterior of codes given pseudo-observations, and log evidence."""

    def condition_batch(
        self, X: TensorType | None, mean: TensorType, variance: TensorType, point_scale: float
    ) -> LatentPosterior:
        """Apply :meth:`condition` to a minibatch of one in ``point_scale`` points of a task.

        The evidence is the share of these points. It is exact for a prior whose density splits
        over points. A prior that couples points returns an estimate, or needs all points.
        """
        return self.condition(X, mean, variance)

    @check_shapes(
        "mean: [batch..., N, L]",
        "variance: [batch..., N, L]",
        "return: [num_draws, batch..., n, L]",
    )
    def draw_codes(
        self,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
        seed: TensorType,
        num_draws: int,
        rows: TensorType | None = None,
    ) -> tf.Tensor:
        """Draw codes [num_draws, batch..., n, L] given pseudo-observations of all points.

        This class draws each point independently from its marginal (:meth:`condition`).

        :param rows: indices [n] of the points to draw; None for all.
        """
        q = self.condition(X, mean, variance)
        mean, variance = (_rows_of(v, rows) for v in (q.mean, q.variance))
        noise = standard_noise(tf.concat([[num_draws], tf.shape(mean)], 0), seed, mean.dtype)
        return mean + tf.sqrt(variance) * noise

    @property
    def kernels(self) -> Sequence[gpflow.kernels.Kernel]:
        """Kernels over the inputs."""
        return ()

    @property
    def whitened_inducing(self) -> Parameter | None:
        """Whitened inducing outputs that are sampled jointly with the codes, if any."""
        return None

    @property
    def splits_over_points(self) -> bool:
        """Whether the points of one task may be taken in minibatches."""
        return not self.needs_inputs

    @property
    def by_neighbours(self) -> Any:
        """This prior, if its density is a product of conditionals given neighbours, else None.

        Minibatches of points are then possible if they include the codes of their neighbours; see
        :class:`~gpflow_bae.latent_priors.NearestNeighbourGP`, which has the methods for them.
        """
        return None

    @property
    def code_noise(self) -> tf.Tensor:
        """Variance of a code around the latent function that :meth:`predict` returns."""
        return tf.zeros([], gpflow.default_float())

    def with_seed(self, seed: TensorType) -> LatentProcess:
        """Return this prior with its random draws, if any, made from ``seed``."""
        return self

    @property
    def inputs(self) -> InputModel | None:
        """The model of unknown inputs (:mod:`gpflow_bae.inputs`); None if all are known."""
        return None

    def check_inputs(self, X: np.ndarray, name: str = "X") -> None:
        """Raise an error for inputs [..., D] that this prior cannot use at their precision.

        :param name: name of the inputs in error messages.
        :raises ValueError: with the name of the column.
        """
        return None

    def seeing(self, batch: Batch) -> LatentProcess:
        """Return this prior with inputs completed from ``batch``, if they need observations."""
        return self

    def mean(self, X: TensorType | None) -> tf.Tensor:
        """Return the prior mean of each code, which broadcasts to [batch..., N, L]."""
        return tf.zeros([], gpflow.default_float())

    @abstractmethod
    def marginal_variance(self, X: TensorType | None) -> tf.Tensor:
        """Return the prior variance of each code, which broadcasts to [batch..., N, L]."""

    @abstractmethod
    def predict(
        self,
        Xnew: TensorType | None,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Predict the noise-free latent function at ``Xnew`` given pseudo-observations at ``X``."""

    def predict_full_cov(
        self,
        Xnew: TensorType,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Predict as :meth:`predict`, with covariances between points [batch..., L, Nnew, Nnew].

        :raises NotImplementedError: if the prior does not implement them.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no covariances between points; set full_cov=False."
        )


def _rows_of(values: tf.Tensor, rows: TensorType | None) -> tf.Tensor:
    """Return the given rows of values [batch..., N, L], or all."""
    return values if rows is None else tf.gather(values, rows, axis=-2)


class GaussianLatentPrior(LatentProcess):
    """A Gaussian prior over codes: a latent process with a density.

    To write a new one, implement :meth:`condition`, :meth:`predict` and
    :meth:`marginal_variance`; pseudo-observations without noise give the density, so
    :meth:`log_prob` follows.
    """

    def code_covariance(self, X: TensorType) -> tf.Tensor | None:
        """Return the prior covariance [batch..., C, N, N] of each task's codes, noise included.

        C is 1 if channels share a kernel. None if codes are independent, or are Gaussian only
        given other sampled variables.
        """
        return None

    def precision_diagonal(
        self, X: TensorType | None, shape: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        """Return the diagonal of the codes' precision; broadcasts to ``shape = [batch..., N, L]``.

        :param noise: variances [batch..., N, 1] of noise that is added to the codes of points; None
            for none.
        :raises NotImplementedError: if the prior does not implement it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no precision_diagonal, which mean-field codes need."
        )

    @check_shapes("latents: [batch..., N, L]", "noise: [batch..., N, 1]", "return: [batch...]")
    def log_prob(
        self, X: TensorType | None, latents: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        """Return the log density of the codes of each task, in ``default_float()``.

        :param noise: variances [batch..., N, 1] of noise that is added to the codes of points; None
            for none.
        """
        latents = tf.cast(latents, gpflow.default_float())
        total = tf.zeros_like(latents)
        total = total if noise is None else total + noise
        return self.condition(X, latents, total).log_marginal


def expected_log_prob(
    prior: GaussianLatentPrior,
    X: TensorType | None,
    mean: TensorType,
    variance: TensorType,
    noise: TensorType | None = None,
) -> tf.Tensor:
    """Compute E[log p(latents | X)] for independent ``latents ~ N(mean, variance)``: [batch...].

    Casale et al. (2018), eq. 7: the log density is quadratic, so its expectation is its value at
    the mean, less half of the precision's diagonal times the variances.

    :param noise: variances [batch..., N, 1] of noise that is added to the prior's codes; huge ones
        leave points out. None for none.
    """
    quadratic = prior.precision_diagonal(X, tf.shape(mean), noise) * variance
    return prior.log_prob(X, mean, noise) - 0.5 * tf.reduce_sum(quadratic, axis=[-2, -1])
