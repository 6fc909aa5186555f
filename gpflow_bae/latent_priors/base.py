"""What every latent prior offers, with kernels or without."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from ..base import Batch, LatentPosterior
from ..core.arguments import check_arguments
from ..inputs import InputModel
from ..mcmc.noise import standard_noise

__all__ = [
    "LOG_2PI",
    "GaussianLatentPrior",
    "LatentProcess",
    "NeighbourConditionals",
    "expected_log_prob",
    "gaussian_log_density",
]

LOG_2PI = float(np.log(2.0 * np.pi))


def gaussian_log_density(residual: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Elementwise log N(residual; 0, variance)."""
    return -0.5 * (LOG_2PI + tf.math.log(variance) + tf.square(residual) / variance)


class LatentProcess(gpflow.Module, ABC):
    """Codes as a function of inputs, given Gaussian pseudo-observations of them."""

    needs_inputs = True
    draws = False
    """Whether the density is an estimate with random draws of its own (:meth:`with_seed`)."""

    @check_arguments(latent_dim=1)
    def __init__(self, latent_dim: int):
        super().__init__(name=None)
        self.latent_dim = int(latent_dim)

    @abstractmethod
    def condition(
        self, X: TensorType | None, mean: TensorType, variance: TensorType
    ) -> LatentPosterior:
        """Marginal posterior of the codes given pseudo-observations, and their evidence."""

    def condition_batch(
        self, X: TensorType | None, mean: TensorType, variance: TensorType, point_scale: float
    ) -> LatentPosterior:
        """:meth:`condition` where only one in ``point_scale`` points of the task is there.

        The evidence is then the share of these points. Exact for a prior whose density splits
        over points; one that couples them estimates, or must see all of them.
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
        """Draws of the codes [num_draws, batch..., n, L] given pseudo-observations of all points.

        Of this class from their marginals (:meth:`condition`), each point apart.

        :param rows: which points [n]; None for all.
        """
        q = self.condition(X, mean, variance)
        mean, variance = (_rows_of(v, rows) for v in (q.mean, q.variance))
        noise = standard_noise(tf.concat([[num_draws], tf.shape(mean)], 0), seed, mean.dtype)
        return mean + tf.sqrt(variance) * noise

    @property
    def kernels(self) -> Sequence[gpflow.kernels.Kernel]:
        """Kernels over the inputs, whose parameters have priors of their own."""
        return ()

    @property
    def whitened_inducing(self) -> Parameter | None:
        """Inducing outputs that are sampled beside the codes, if any."""
        return None

    @property
    def splits_over_points(self) -> bool:
        """Whether the points of one task may be taken in minibatches."""
        return not self.needs_inputs

    @property
    def by_neighbours(self) -> NeighbourConditionals | None:
        """This prior as a product of conditionals given a few other points, if it is one.

        Codes may then be taken in minibatches of points that bring those of their neighbours.
        """
        return None

    def num_matrix_entries(self, num_points: int) -> int:
        """Numbers in the matrices that a density over so many points of a task cannot do without;
        0 where they are few.
        """
        return 0

    @property
    def code_noise(self) -> tf.Tensor:
        """Variance of a code around the latent function that :meth:`predict` returns."""
        return tf.zeros([], gpflow.default_float())

    def with_seed(self, seed: TensorType) -> LatentProcess:
        """This prior with the random draws that it makes, if any, made from ``seed``."""
        return self

    @property
    def inputs(self) -> InputModel | None:
        """What completes the inputs, where they are not known (:mod:`gpflow_bae.inputs`)."""
        return None

    def check_inputs(self, X: np.ndarray, name: str = "X") -> None:
        """Refuse inputs [..., D] that this prior cannot read, or not with their digits.

        :param name: what the error calls them.
        :raises ValueError: naming the column.
        """
        return None

    def seeing(self, batch: Batch) -> LatentProcess:
        """This prior where inputs are completed from observations, which are those of ``batch``."""
        return self

    def mean(self, X: TensorType | None) -> tf.Tensor:
        """Prior mean of each code; broadcasts to [batch..., N, L]."""
        return tf.zeros([], gpflow.default_float())

    @abstractmethod
    def marginal_variance(self, X: TensorType | None) -> tf.Tensor:
        """Prior variance of each code; broadcasts to [batch..., N, L]."""

    @abstractmethod
    def predict(
        self,
        Xnew: TensorType | None,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Noise-free latent function at ``Xnew`` given pseudo-observations at ``X``."""

    def predict_full_cov(
        self,
        Xnew: TensorType,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """:meth:`predict` with covariances between points, [batch..., L, Nnew, Nnew].

        :raises NotImplementedError: for a prior that does not offer them.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no covariances between points; set full_cov=False."
        )


def _rows_of(values: tf.Tensor, rows: TensorType | None) -> tf.Tensor:
    """Some points of values [batch..., N, L], or all."""
    return values if rows is None else tf.gather(values, rows, axis=-2)


class GaussianLatentPrior(LatentProcess):
    """A Gaussian prior over codes: a process with a density.

    To write a new one, implement :meth:`condition`, :meth:`predict` and
    :meth:`marginal_variance`; pseudo-observations without noise give the density, so
    :meth:`log_prob` follows.
    """

    def code_covariance(self, X: TensorType) -> tf.Tensor | None:
        """Prior covariance of the codes of each task: [batch..., C, N, N], noise included.

        C is 1 where channels share a kernel. None for a prior whose codes are independent, or that
        has none without more that is sampled.
        """
        return None

    def precision_diagonal(self, X: TensorType | None, shape: TensorType) -> tf.Tensor:
        """Diagonal of the precision of the codes; broadcasts to ``shape = [batch..., N, L]``.

        :raises NotImplementedError: for a prior that does not offer it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no precision_diagonal, which mean-field codes need."
        )

    @check_shapes("latents: [batch..., N, L]", "return: [batch...]")
    def log_prob(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Log density of the codes of each task, in ``default_float()``."""
        latents = tf.cast(latents, gpflow.default_float())
        return self.condition(X, latents, tf.zeros_like(latents)).log_marginal


def expected_log_prob(
    prior: GaussianLatentPrior, X: TensorType | None, mean: TensorType, variance: TensorType
) -> tf.Tensor:
    """Compute E[log p(latents | X)] for independent ``latents ~ N(mean, variance)``: [batch...].

    Casale et al. (2018), eq. 7: the density is quadratic, so its expectation is the density at
    the mean, less half of the precision's diagonal times the variances.
    """
    quadratic = prior.precision_diagonal(X, tf.shape(mean)) * variance
    return prior.log_prob(X, mean) - 0.5 * tf.reduce_sum(quadratic, axis=[-2, -1])


class NeighbourConditionals(ABC):
    """A density that is a product of conditionals, of each point given a few others (Vecchia)."""

    @abstractmethod
    def neighbours_of(self, X: TensorType) -> tf.Tensor | None:
        """Return which points [N, m] those of a single task are conditioned on, -1 for none.

        :param X: all inputs [1, N, D].
        :return: None where tasks have neighbours of their own, whose points cannot be split.
        """

    @abstractmethod
    def log_conditionals(
        self, X: TensorType, latents: TensorType, present: TensorType
    ) -> tf.Tensor:
        """Return log p(latent | latents of its neighbours) of the last of m + 1 points: [1, F].

        :param X: inputs [1, F, m + 1, D].
        :param latents: their codes [1, F, m + 1, L].
        :param present: [F, m + 1], False where there are fewer neighbours than m.
        """

    @abstractmethod
    def expected_log_conditionals(
        self,
        points: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
        neighbours: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
        present: tf.Tensor,
    ) -> tf.Tensor:
        """Return E[log p(latent | latents of its neighbours)] of some points, summed: [1].

        For independent codes with a mean and a variance.

        :param points: inputs [1, B, D], means and variances [1, B, L].
        :param neighbours: the same of m neighbours of each, [1, B m, ...].
        :param present: [B, m], False where there are fewer than m.
        """
