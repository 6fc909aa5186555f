"""Channels that go together: mixtures of latent GPs, conditioned on all channels at once."""

from __future__ import annotations

from typing import Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.functions import MeanFunction

from ..arguments import as_numbers, check_arguments
from ..base import JointLatentPosterior, LatentPosterior
from ..linalg import cholesky
from .base import LOG_2PI, GaussianLatentPrior
from .inducing import InducingLatentPrior, weighted_codes
from .kernel_prior import KernelLike, channels_first

__all__ = ["LinearMixture"]

tfd = tfp.distributions

_checked = check_shapes(
    "X: [xbatch..., N, D]",
    "mean: [batch..., N, L]",
    "variance: [batch..., N, L]",
)


class _Coupled(NamedTuple):
    """Posterior of the whitened inducing outputs of all functions together.

    Of F functions with M features each; what belongs to points is [..., N, ...].
    """

    mean: tf.Tensor  # [..., F, M]
    covariance: tf.Tensor  # [..., F, M, F, M]
    log_marginal: tf.Tensor  # [...]
    own: tf.Tensor  # [..., N, L, L], E: covariance of a code given the inducing outputs
    factor: tf.Tensor  # [..., N, L, L], chol V, where V = E + diag(s)


class LinearMixture(InducingLatentPrior, GaussianLatentPrior):
    r"""The linear model of coregionalisation as a prior over codes.

    .. math:: latent(x_n) = W f(x_n) + c_n, \quad f_q \sim GP(0, k_q), \quad c_n \sim N(0, C)

    with F functions, W [L, F], and a covariance C of what channels share at one point alone, the
    nugget (Goovaerts 1997; Alvarez et al. 2012, section 4). A pseudo-observation of one channel
    says something of the code along one direction :math:`w_l`, that is of all functions at once:
    together those of a point have the precision :math:`\sum_l w_l w_l^T / s_{nl}^2`, a full matrix,
    where priors with independent channels take a diagonal.

    The functions are sparse as in :class:`SparseGP` (FITC): given inducing outputs, codes have the
    covariance :math:`E_n = W D_n W^T + C`, with D_n the variance that the features leave. With
    pseudo-noise :math:`S_n` and :math:`V_n = E_n + S_n` the precision of the whitened inducing
    outputs of all functions is

    .. math:: I + \sum_n \Phi_n W^T V_n^{-1} W \Phi_n^T

    and so is found at cost :math:`N L^3 + N F^2 M^2 + (F M)^3`, in memory of N F^2 M numbers, for
    each task; with the inducing points at the data the prior is exact.

    Below :class:`~gpflow_bae.decoders.Identity` and a Gaussian likelihood, with the observations
    themselves as pseudo-observations (:class:`~gpflow_bae.encoders.LikelihoodEncoder`), the bound
    is the evidence: a GP autoencoder with a linear decoder, its codes integrated out.
    """

    couples_channels = True

    @check_arguments()
    def __init__(
        self,
        kernel: KernelLike,
        inducing_variable: gpflow.inducing_variables.InducingPoints | TensorType,
        mixing: TensorType,
        nugget: Literal["full", "diagonal"] = "full",
        nugget_variance: float = 1e-3,
        mean_function: MeanFunction | None = None,
    ):
        """
        :param kernel: one GPflow kernel for all functions, or one for each. Mixing and variances
            scale the same thing: fix ``kernel.variance`` where both are fitted.
        :param inducing_variable: GPflow inducing points, or an array [M, D].
        :param mixing: W at the start [L, F], a row for each code channel. Sampled under N(0, 1).
        :param nugget: ``"full"``, a covariance between channels; ``"diagonal"``, a variance each.
        :param nugget_variance: C at the start is that many times I. Entries of its root are sampled
            under N(0, 1).
        :raises ValueError: for a mixing that is no matrix or not finite, and other numbers of
            kernels than 1 or F.
        """
        start = as_numbers(mixing, "mixing", gpflow.default_float())
        if start.ndim != 2 or not start.size or not np.isfinite(start).all():
            raise ValueError(
                "mixing must be a finite matrix [L, F], a row for each code channel and a column "
                f"for each function, got shape {start.shape}."
            )
        if nugget not in ("full", "diagonal"):
            raise ValueError(f'nugget must be "full" or "diagonal", got {nugget!r}.')
        if not 0 < nugget_variance < np.inf:
            words = "finite" if nugget_variance == np.inf else "positive"
            raise ValueError(f"nugget_variance must be {words}, got {nugget_variance}.")
        num_channels, self.num_functions = start.shape
        super().__init__(kernel, inducing_variable, self.num_functions, None, mean_function)
        self.latent_dim = num_channels
        zero, one = (gpflow.utilities.to_default_float(v) for v in (0.0, 1.0))
        self.mixing = Parameter(start, prior=tfd.Normal(zero, one))
        root = np.sqrt(float(nugget_variance)) * np.eye(num_channels)
        self.nugget_root = (
            Parameter(
                root,
                transform=gpflow.utilities.triangular(),
                prior=tfd.Normal(zero, one),
                prior_on="unconstrained",  # of its entries; there are none above the diagonal
            )
            if nugget == "full"
            else Parameter(np.diagonal(root), prior=tfd.Normal(zero, one))
        )

    @property
    def nugget(self) -> tf.Tensor:
        """C [L, L], with the jitter that keeps it positive definite."""
        root = tf.convert_to_tensor(self.nugget_root)
        root = root if root.shape.rank == 2 else tf.linalg.diag(root)
        eye = tf.eye(self.latent_dim, dtype=root.dtype)
        return tf.matmul(root, root, transpose_b=True) + gpflow.default_jitter() * eye

    @property
    def code_noise(self) -> tf.Tensor:
        """Variance of each channel of a code around the mixed functions [L]."""
        return tf.linalg.diag_part(self.nugget)

    @property
    def code_noise_covariance(self) -> tf.Tensor:
        """:attr:`code_noise` of all channels of a point together [L, L]."""
        return self.nugget

    def marginal_variance(self, X: TensorType) -> tf.Tensor:
        mixed = tf.matmul(self._of_functions(X), tf.square(self.mixing), transpose_b=True)
        return mixed + self.code_noise

    def _of_functions(self, X: TensorType) -> tf.Tensor:
        """Prior variances of the functions [..., N, F]."""
        variances = channels_first(self._variances(X))
        return tf.broadcast_to(
            variances, tf.concat([tf.shape(variances)[:-1], [self.num_functions]], 0)
        )

    def _features_of_functions(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Features [..., F, M, N], and the variance that they leave [..., N, F]."""
        features, left = self._features(X)
        lead = tf.concat([tf.shape(features)[:-3], [self.num_functions]], 0)
        features = tf.broadcast_to(features, tf.concat([lead, tf.shape(features)[-2:]], 0))
        left = tf.broadcast_to(left, tf.concat([lead, tf.shape(left)[-1:]], 0))
        return features, channels_first(left)

    def _given(
        self,
        X: TensorType,
        features: tf.Tensor,
        left: tf.Tensor,
        mean: TensorType,
        noise: TensorType,
    ) -> _Coupled:
        """Pseudo-observations ``mean [..., N, L]`` regressed on all features."""
        W = tf.convert_to_tensor(self.mixing)
        own = tf.matmul(W * left[..., None, :], W, transpose_b=True) + self.nugget
        target = self.centred(mean, X)
        V = cholesky(
            own + tf.linalg.diag(noise),
            "the codes' covariance given inducing outputs of a mixture",
        )
        own = tf.broadcast_to(own, self._like(V, own))
        solved = tf.linalg.triangular_solve(V, tf.broadcast_to(W, self._like(V, W)))
        residual = tf.linalg.triangular_solve(V, target[..., None])
        # Each point's precision of the functions, [..., N, F, F], and its linear term [..., N, F].
        precision = tf.matmul(solved, solved, transpose_a=True)
        linear = tf.matmul(solved, residual, transpose_a=True)[..., 0]

        count, width = self.num_functions, self.num_inducing
        pairs = tf.einsum("...nfg->...fgn", precision)  # [..., F, F, N]
        scaled = features[..., :, None, :, :] * pairs[..., None, :]  # [..., F, F, M, N]
        blocks = tf.matmul(scaled, features[..., None, :, :, :], transpose_b=True)
        joined = tf.einsum("...fgmk->...fmgk", blocks)
        lead = tf.shape(joined)[:-4]
        flat = tf.reshape(joined, tf.concat([lead, [count * width, count * width]], 0))
        eye = tf.eye(count * width, dtype=flat.dtype)
        names = f"the precision of the mixed latent GPs ({self._kernel_names()})"
        factor = cholesky(flat + eye, names)
        projected = tf.linalg.matvec(features, channels_first(linear))  # [..., F, M]
        projected = tf.reshape(projected, tf.concat([lead, [count * width, 1]], 0))
        half = tf.linalg.triangular_solve(factor, projected)
        mean = tf.linalg.triangular_solve(factor, half, adjoint=True)
        inverse = tf.linalg.cholesky_solve(factor, tf.broadcast_to(eye, tf.shape(factor)))

        log_marginal = -0.5 * tf.reduce_sum(tf.square(residual), [-3, -2, -1])
        log_marginal -= tf.reduce_sum(tf.math.log(tf.linalg.diag_part(V)), [-2, -1])
        log_marginal -= 0.5 * LOG_2PI * tf.cast(tf.reduce_prod(tf.shape(target)[-2:]), V.dtype)
        log_marginal += 0.5 * tf.reduce_sum(tf.square(half), [-2, -1])
        log_marginal -= tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), -1)
        return _Coupled(
            tf.reshape(mean, tf.concat([lead, [count, width]], 0)),
            tf.reshape(inverse, tf.concat([lead, [count, width, count, width]], 0)),
            log_marginal,
            own,
            V,
        )

    @staticmethod
    def _like(lead: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
        """Shape of ``matrix`` for each of what comes before the last two axes of ``lead``."""
        return tf.concat([tf.shape(lead)[:-2], tf.shape(matrix)[-2:]], 0)

    @staticmethod
    def _spread_of(covariance: tf.Tensor, one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        """Covariances [..., F, F, N] of the features' parts of functions at each point."""
        carried = tf.einsum("...fmgk,...gkn->...fgmn", covariance, other)
        return tf.reduce_sum(carried * one[..., :, None, :, :], -2)

    @_checked
    def condition(
        self,
        X: TensorType,
        mean: TensorType,
        variance: TensorType,
    ) -> LatentPosterior:
        """Marginals of each channel, and the evidence of the pseudo-observations of all of them."""
        q = self.condition_jointly(X, mean, variance)
        return LatentPosterior(q.mean, tf.linalg.diag_part(q.covariance), q.log_marginal)

    @_checked
    def condition_jointly(
        self,
        X: TensorType,
        mean: TensorType,
        variance: TensorType,
    ) -> JointLatentPosterior:
        """:meth:`condition` with the covariances of channels at each point."""
        features, left = self._features_of_functions(X)
        given = self._given(X, features, left, mean, variance)
        W, own = tf.convert_to_tensor(self.mixing), given.own
        functions = weighted_codes(features, given.mean)  # [..., N, F]
        explained = tf.matmul(functions, W, transpose_b=True)
        # A code given the inducing outputs mixes what is observed of it with what they explain:
        # its mean moves by E V^-1 = I - S V^-1 of the difference, and keeps E V^-1 S.
        gain = tf.linalg.cholesky_solve(given.factor, tf.linalg.diag(variance))
        kept, target = tf.linalg.matrix_transpose(gain), self.centred(mean, X)
        code = self.shifted(target - tf.linalg.matvec(kept, target - explained), X)
        covariance = tf.matmul(own, gain)
        spread = tf.einsum("...fgn->...nfg", self._spread_of(given.covariance, features, features))
        carried = tf.matmul(kept, tf.broadcast_to(W, self._like(kept, W)))
        covariance += tf.matmul(tf.matmul(carried, spread), carried, transpose_b=True)
        return JointLatentPosterior(code, covariance, given.log_marginal)

    @_checked
    def predict(
        self,
        Xnew: TensorType,
        X: TensorType,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        new_mean, covariance = self.predict_jointly(Xnew, X, mean, variance)
        return new_mean, tf.linalg.diag_part(covariance)

    @_checked
    def predict_jointly(
        self,
        Xnew: TensorType,
        X: TensorType,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """:meth:`predict` with covariances of channels at each point, [batch..., Nnew, L, L]."""
        given = self._given(X, *self._features_of_functions(X), mean, variance)
        features, left = self._features_of_functions(Xnew)
        W = tf.convert_to_tensor(self.mixing)
        functions = weighted_codes(features, given.mean)
        new_mean = tf.matmul(functions, W, transpose_b=True)
        spread = tf.einsum("...fgn->...nfg", self._spread_of(given.covariance, features, features))
        spread += tf.linalg.diag(left)
        return self.shifted(new_mean, Xnew), tf.einsum("lf,...nfg,kg->...nlk", W, spread, W)

    @_checked
    def predict_full_cov(
        self,
        Xnew: TensorType,
        X: TensorType,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """With covariances of each channel between points, [batch..., L, Nnew, Nnew]."""
        given = self._given(X, *self._features_of_functions(X), mean, variance)
        new_mean, _ = self.predict(Xnew, X, mean, variance)
        features, _ = self._features_of_functions(Xnew)
        W = tf.convert_to_tensor(self.mixing)
        # Each channel's own feature: its row of W times those of all functions.
        mixed = tf.einsum("lf,...fmn->...lfmn", W, features)
        carried = tf.einsum("...fmgk,...lgkn->...lfmn", given.covariance, mixed)
        covariance = tf.einsum("...lfmn,...lfmp->...lnp", mixed, carried)
        prior = self._covariance(Xnew)
        left = prior - tf.matmul(features, features, transpose_a=True)  # [..., F, N, N]
        return new_mean, covariance + tf.einsum("lf,...fnp->...lnp", tf.square(W), left)

    def _residual_noise(self, left: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError(
            "The functions of a LinearMixture have one posterior together, and channels none of "
            "their own; use condition or predict."
        )
