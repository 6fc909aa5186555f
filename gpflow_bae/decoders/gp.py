"""A sparse GP as the decoder of a latent variable model: one function for every output."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import covariances
from gpflow.base import Parameter, TensorType
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.utilities import positive, triangular

from ..core.annotations import check_arguments
from ..core.linalg import cholesky
from ..inducing_variables import as_inducing_variables
from .biases import Biases

__all__ = ["GPDecoder"]


class GPDecoder(gpflow.Module):
    r"""The sparse GP decoder of a GPLVM with an uncollapsed bound: f_p ~ GP(m_p, k), p = 1..P.

    f_p(x) = m_p(x) + \phi(x)^T v_p + residual, where \phi(x) = chol(K_ZZ)^{-1} k(Z, x), m_p is
    the mean function, and whitened inducing outputs have q(v_p) = N(mu_p, S_p) (Hensman et al.
    2013; Lalchand et al. 2022). Outputs share kernel and inducing inputs, so the features of a
    point are computed once for all of them.
    """

    @check_arguments(output_dim=1)
    def __init__(
        self,
        kernel: gpflow.kernels.Kernel,
        inducing_variable: InducingVariables | TensorType,
        output_dim: int,
        q_diag: bool = False,
        mean_function: MeanFunction | None = None,
    ):
        """
        :param kernel: any GPflow kernel over the codes.
        :param inducing_variable: GPflow inducing variables, or an array [M, L].
        :param output_dim: number of outputs P.
        :param q_diag: whether S_p is diagonal, with [M, P] numbers instead of [P, M, M].
        :param mean_function: any GPflow mean function with one output or P, such as
            :class:`~gpflow_bae.decoders.Biases`; None for zero.
        """
        super().__init__()
        self.kernel, self.mean_function = kernel, mean_function
        self.inducing_variable = as_inducing_variables(inducing_variable)
        self.output_dim, self.q_diag = int(output_dim), bool(q_diag)
        M = int(self.inducing_variable.num_inducing)
        self.num_inducing = M
        float_type = gpflow.default_float()
        self.q_mu = Parameter(np.zeros((M, output_dim)), dtype=float_type)
        if q_diag:
            self.q_sqrt = Parameter(
                np.ones((M, output_dim)), transform=positive(), dtype=float_type
            )
        else:
            roots = np.tile(np.eye(M), (output_dim, 1, 1))
            self.q_sqrt = Parameter(roots, transform=triangular(), dtype=float_type)

    @check_shapes("latents: [batch..., L]", "return[0]: [batch..., M]", "return[1]: [batch...]")
    def features(self, latents: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the features phi, and the residual variance ``k(x, x) - phi^T phi``."""
        latents = tf.convert_to_tensor(latents)
        lead = tf.shape(latents)[:-1]
        rows = tf.reshape(latents, [-1, latents.shape[-1]])
        Kzx = covariances.Kuf(self.inducing_variable, self.kernel, rows)
        phi = tf.linalg.triangular_solve(self._root(), Kzx)  # [M, rows]
        left = self.kernel(rows, full_cov=False) - tf.reduce_sum(tf.square(phi), 0)
        left = tf.maximum(left, tf.zeros_like(left))  # rounding errors for codes at Z
        phi = tf.reshape(tf.transpose(phi), tf.concat([lead, [self.num_inducing]], 0))
        return phi, tf.reshape(left, lead)

    def moments(
        self, latents: TensorType, columns: TensorType | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return marginal means and variances of f at codes.

        :param latents: [S, B, L], S draws of the codes of B points.
        :param columns: output indices, [E] for all points or [B, E] for each; None for all
            outputs.
        :return: two tensors [S, B, P or E].
        """
        return self.moments_of_features(latents, *self.features(latents), columns)

    def moments_of_features(
        self, latents: TensorType, phi: tf.Tensor, left: tf.Tensor, columns: TensorType | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Compute :meth:`moments` from the features ``phi [S, B, M]`` and ``left [S, B]``."""
        mean, variance = self._process_moments(phi, left, columns)
        if self.mean_function is not None:
            mean += _mean_of_cells(self.mean_function, latents, columns)
        return mean, variance

    def _process_moments(
        self, phi: tf.Tensor, left: tf.Tensor, columns: TensorType | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if columns is None or columns.shape.rank == 1:
            q_mu, q_sqrt = self._q_of(columns)
            mean = tf.linalg.matmul(phi, q_mu)
            if self.q_diag:
                spread = tf.linalg.matmul(tf.square(phi), tf.square(q_sqrt))
            else:
                # [P, S * B, M]: a batched product, without the transposes of an einsum.
                rows = tf.reshape(phi, [-1, self.num_inducing])
                projected = tf.linalg.matmul(rows[None], q_sqrt)
                spread = tf.transpose(tf.reduce_sum(tf.square(projected), -1))
                spread = tf.reshape(spread, tf.shape(mean))
            return mean, left[..., None] + spread
        means = tf.gather(tf.transpose(self.q_mu), columns)  # [B, E, M]
        mean = tf.einsum("sbm,bem->sbe", phi, means)
        if self.q_diag:
            roots = tf.gather(tf.transpose(self.q_sqrt), columns)
            spread = tf.einsum("sbm,bem->sbe", tf.square(phi), tf.square(roots))
        else:
            roots = tf.gather(self.q_sqrt, columns)  # [B, E, M, M]
            projected = tf.einsum("sbm,bemk->sbek", phi, roots)
            spread = tf.reduce_sum(tf.square(projected), -1)
        return mean, left[..., None] + spread

    def _q_of(self, columns: TensorType | None) -> tuple[tf.Tensor, tf.Tensor]:
        q_mu, q_sqrt = tf.convert_to_tensor(self.q_mu), tf.convert_to_tensor(self.q_sqrt)
        if columns is None:
            return q_mu, q_sqrt
        return tf.gather(q_mu, columns, axis=1), tf.gather(
            q_sqrt, columns, axis=1 if self.q_diag else 0
        )

    def prior_kl(self, columns: TensorType | None = None) -> tf.Tensor:
        """Return KL[q(v) || N(0, I)] in nats, summed over outputs ``columns [E]`` (None: all)."""
        return gpflow.kullback_leiblers.gauss_kl(*self._q_of(columns), None)

    def expected_moments(
        self, mean: TensorType, variance: TensorType, columns: TensorType | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        r"""Return E[f_p(x_n)] and E[f_p(x_n)^2] for x_n ~ N(mean_n, diag(variance_n)) and q(v).

        They have a closed form, as in :meth:`expected_features`:
        :math:`E[f_p^2] = E[k(x, x)] + tr(E[\phi \phi^T] (\mu_p \mu_p^T + S_p - I))`.

        :param mean, variance: [N, L].
        :param columns: output indices [E]; None for all.
        :return: two tensors [N, P or E].
        :raises ValueError: with a mean function, whose expectations have no closed form here.
        """
        if self.mean_function is not None:
            raise ValueError("Expectations are known for a process of mean zero alone.")
        pX = gpflow.probability_distributions.DiagonalGaussian(mean, variance)
        pair = (self.kernel, self.inducing_variable)
        psi0 = gpflow.expectations.expectation(pX, self.kernel)
        psi1 = gpflow.expectations.expectation(pX, pair)
        psi2 = gpflow.expectations.expectation(pX, pair, pair)
        q_mu, q_sqrt = self._q_of(columns)
        # S - I + mu mu^T for each output, in the basis of k(Z, .) instead of phi.
        means = tf.transpose(q_mu)[..., None]  # [P, M, 1]
        roots = tf.linalg.diag(tf.transpose(q_sqrt)) if self.q_diag else q_sqrt
        eye = tf.eye(self.num_inducing, dtype=roots.dtype)
        weights = tf.matmul(roots, roots, transpose_b=True) - eye
        weights += tf.matmul(means, means, transpose_b=True)
        root = tf.broadcast_to(self._root(), tf.shape(weights))
        half = tf.linalg.triangular_solve(root, weights, adjoint=True)
        weights = tf.linalg.triangular_solve(root, tf.linalg.matrix_transpose(half), adjoint=True)
        first = tf.matmul(psi1, tf.linalg.triangular_solve(self._root(), q_mu, adjoint=True))
        M2 = self.num_inducing**2
        second = tf.matmul(
            tf.reshape(psi2, [-1, M2]), tf.reshape(weights, [-1, M2]), transpose_b=True
        )
        return first, second + psi0[:, None]

    @check_shapes(
        "mean: [N, L]",
        "variance: [N, L]",
        "return[0]: [N, M]",
        "return[1]: [M, M]",
    )
    def expected_features(
        self, mean: TensorType, variance: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return E[phi(x_n)] and sum_n E[phi(x_n) phi(x_n)^T], x_n ~ N(mean_n, diag(variance_n)).

        They are GPflow's kernel expectations, which some kernels have in closed form (squared
        exponential, linear, and their sums and products over separate dimensions).
        """
        pX = gpflow.probability_distributions.DiagonalGaussian(mean, variance)
        pair = (self.kernel, self.inducing_variable)
        psi1 = gpflow.expectations.expectation(pX, pair)
        psi2 = tf.reduce_sum(gpflow.expectations.expectation(pX, pair, pair), 0)
        root = self._root()
        half = tf.linalg.triangular_solve(root, psi2)
        second = tf.linalg.triangular_solve(root, tf.transpose(half))
        return tf.transpose(tf.linalg.triangular_solve(root, tf.transpose(psi1))), second

    def _root(self) -> tf.Tensor:
        jitter = gpflow.default_jitter()
        Kzz = covariances.Kuu(self.inducing_variable, self.kernel, jitter=jitter)
        return cholesky(Kzz, f"K(Z, Z) of the GP decoder ({type(self.kernel).__name__})")

    @check_shapes("first: [N, M]", "second: [M, M]", "Y: [N, P]")
    def assign_optimal(
        self, first: TensorType, second: TensorType, Y: TensorType, noise_variance: TensorType
    ) -> None:
        r"""Set q(v) to its optimum under Gaussian noise (Titsias and Lawrence 2010).

        S^{-1} = I + second / noise and m_p = S first^T y_p / noise; the uncollapsed bound then
        equals the collapsed one.

        :param first: E_q[phi(x_n)].
        :param second: sum_n E_q[phi(x_n) phi(x_n)^T].
        :param Y: complete observations.
        :raises ValueError: with ``q_diag``, as the optimum is not diagonal, or a mean function.
        """
        if self.mean_function is not None:
            raise ValueError("The optimal q(v) is known for a process of mean zero alone.")
        if self.q_diag:
            raise ValueError("The optimal q(v) has full covariances; build with q_diag=False.")
        noise = tf.cast(noise_variance, gpflow.default_float())
        eye = tf.eye(self.num_inducing, dtype=gpflow.default_float())
        root = cholesky(eye + second / noise, "I + sum of E[phi phi^T] / noise")
        target = tf.linalg.matmul(first, tf.cast(Y, gpflow.default_float()), transpose_a=True)
        self.q_mu.assign(tf.linalg.cholesky_solve(root, target) / noise)
        covariance = tf.linalg.cholesky_solve(root, eye)
        factor = cholesky(covariance, "the covariance of the optimal q(v)")
        self.q_sqrt.assign(tf.tile(factor[None], [self.output_dim, 1, 1]))


def _mean_of_cells(
    mean_function: MeanFunction, latents: TensorType, columns: TensorType | None
) -> tf.Tensor:
    """Evaluate a mean function at codes [S, B, L] and columns: [S, B, P or E]."""
    if isinstance(mean_function, Biases):
        return mean_function.of_columns(latents, columns)
    everything = mean_function(latents)
    if columns is None or everything.shape[-1] == 1:
        return everything
    if columns.shape.rank == 1:
        return tf.gather(everything, columns, axis=-1)
    own = tf.tile(columns[None], [tf.shape(latents)[0], 1, 1])
    return tf.gather(everything, own, axis=-1, batch_dims=2)
