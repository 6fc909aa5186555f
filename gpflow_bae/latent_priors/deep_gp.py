"""The deep sparse GP prior over codes, with sampled hidden layers and a closed-form last layer."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from ..base import LatentPosterior
from ..core.annotations import check_arguments
from ..mcmc import noise as stateless
from .base import GaussianLatentPrior, gaussian_log_density
from .deep_layers import InducingLike, make_layers
from .kernel_prior import KernelLike

__all__ = ["DeepSparseGP"]


class DeepSparseGP(GaussianLatentPrior):
    r"""A deep GP prior of sparse GP layers with sampled inducing outputs, for one long task.

    Each hidden layer outputs one reparameterised draw of each point, and the last layer is the FITC
    conditional of :class:`SparseGP` (Tran et al. 2023; linear mean functions as in Salimbeni and
    Deisenroth 2017). With :math:`h^0_n = x_n`, draws :math:`e^l_n \sim N(0, I)`, whitened inducing
    outputs :math:`\nu_l \sim N(0, I)` and :math:`v_l(h) = k_l(h, h) - |\phi_l(h)|^2`,

    .. math::
        h^l_n = h^{l-1}_n W_l + \phi_l(h^{l-1}_n)^T \nu_l + v_l(h^{l-1}_n)^{1/2} e^l_n, \\
        latent_n | h_n, \nu \sim N(\phi(h_n)^T \nu, v(h_n) + \sigma^2)

    with :math:`h_n` the last hidden layer and :math:`\phi, \nu, v` those of the last layer.

    Given the :math:`\nu` the points are independent, so points can be taken in minibatches.

    **The target density.** The draws e come from a seed (:meth:`with_seed`), which the engine
    changes in every step. The gradient is then unbiased for that of the expected log density,

    .. math:: \sum_n E_e \log p(latent_n | h_n(e)) \le \sum_n \log E_e \, p(latent_n | h_n(e)),

    and small steps leave the exponential of the left-hand side invariant, not the model's own
    density on the right. If the last layer's variance v does not change with h, the left is
    :math:`\log N(latent; E m, v) - Var[m] / (2 v)`: the codes lack the variance of the mean m over
    hidden draws, and the last term favours hidden layers of small variance. The two sides are equal
    if hidden layers have no variance (inducing inputs on the data). ``num_draws`` K > 1 puts
    the logarithm of the average of K draws on the left (Burda et al. 2016), whose gap closes as
    1 / K. With whitened codes (:class:`~gpflow_bae.models.BayesianAutoencoder`) the same
    average is over log p(Y | codes(residuals, e)); that is another target, and has one draw.

    Predictions and :meth:`condition` average densities over draws, not their logarithms. Without
    :meth:`with_seed` draws come from one fixed seed.
    """

    draws = True

    @check_arguments(num_draws=1, num_prediction_draws=1)
    def __init__(
        self,
        kernels: Sequence[KernelLike],
        inducing_variables: Sequence[InducingLike] | InducingLike,
        latent_dim: int,
        hidden_dims: Sequence[int] | None = None,
        code_noise_variance: float = 1e-3,
        num_draws: int = 1,
        num_prediction_draws: int = 16,
    ):
        """
        :param kernels: for each layer one GPflow kernel, or a sequence with one for each of its
            outputs; the last layer's outputs are the L channels of the codes.
        :param inducing_variables: for each layer GPflow inducing points or an array [M, D_l] in the
            space of that layer's inputs; arrays get a uniform prior over a box, which in deeper
            layers is wider by three prior standard deviations of the hidden functions. A single
            array [M, D] is the first layer's; the linear mean functions map it to the others.
        :param hidden_dims: widths of the hidden layers, one fewer than there are layers; None for
            the width of X in all of them. Mean functions are the identity if the width stays,
            pad with zeros if it grows, and project on the principal components of the layer's
            inducing inputs if it shrinks.
        :param code_noise_variance: variance of the codes around the last layer, as in
            :class:`SparseGP`.
        :param num_draws: draws of the hidden layers in one evaluation of :meth:`log_prob`; the
            paper uses one.
        :param num_prediction_draws: draws in :meth:`predict`, :meth:`condition` and
            :meth:`marginal_variance`.
        :raises ValueError: if numbers or widths of layers disagree.
        """
        super().__init__(latent_dim)
        self.num_draws, self.num_prediction_draws = int(num_draws), int(num_prediction_draws)
        self._seed: TensorType | None = None
        self.hidden_layers, self.last_layer = make_layers(
            kernels, inducing_variables, latent_dim, hidden_dims, code_noise_variance
        )

    @property
    def kernels(self) -> list[gpflow.kernels.Kernel]:
        """The kernels of all layers."""
        return [k for layer in (*self.hidden_layers, self.last_layer) for k in layer.kernels]

    def check_inputs(self, X: np.ndarray, name: str = "X") -> None:
        first, *_ = (*self.hidden_layers, self.last_layer)
        first.check_inputs(X, name)

    @property
    def whitened_inducing(self) -> Parameter:
        """Whitened inducing outputs [L, M] of the last layer."""
        return self.last_layer.whitened_inducing

    @property
    def splits_over_points(self) -> bool:
        """True: given the inducing outputs of all layers the points are independent."""
        return True

    @property
    def code_noise(self) -> tf.Tensor:
        return self.last_layer.code_noise

    def with_seed(self, seed: TensorType) -> DeepSparseGP:
        """Return this prior with its hidden draws made from ``seed``."""
        seeded = copy.copy(self)
        seeded._seed = seed
        return seeded

    def propagate(self, X: TensorType, noise: Sequence[TensorType]) -> tf.Tensor:
        """Compute inputs of the last layer [draws..., batch..., N, D_L] from those of the first.

        :param X: [batch..., N, D].
        :param noise: standard normal e of each hidden layer [draws..., batch..., N, width].
        """
        hidden = tf.convert_to_tensor(X)
        for layer, e in zip(self.hidden_layers, noise, strict=True):
            mean, variance = layer.given_inducing_outputs(hidden)
            # The jitter, which is part of the prior, keeps the root's gradient finite.
            hidden = mean + tf.sqrt(variance + gpflow.default_jitter()) * e
        return hidden

    def _draw(self, X: TensorType | None, num_draws: int) -> tf.Tensor:
        """Draw the last layer's inputs [num_draws (1 without hidden layers), batch..., N, D_L]."""
        if X is None:
            raise ValueError("DeepSparseGP is a prior over inputs: X is needed, got None.")
        X = tf.cast(tf.convert_to_tensor(X), gpflow.default_float())
        width = self.hidden_layers[0].mean_weights.shape[0] if self.hidden_layers else X.shape[-1]
        if X.shape[-1] != width:
            raise ValueError(
                f"X must have the {width} columns of the first layer's inducing inputs, got "
                f"{X.shape[-1]}."
            )
        return self.propagate(X[None], self._hidden_noise(X, num_draws))

    def _hidden_noise(self, X: tf.Tensor, num_draws: int) -> list[tf.Tensor]:
        """Draw standard normals [num_draws, batch..., N, width] for each hidden layer."""
        if not self.hidden_layers:
            return []
        seed = tf.constant([0, 0xDEE9], tf.int32) if self._seed is None else self._seed
        seeds = tf.unstack(stateless.split(seed, len(self.hidden_layers)))
        rows = X.shape[:-1] if X.shape.is_fully_defined() else tf.unstack(tf.shape(X)[:-1])
        shapes = [(num_draws, *rows, layer.latent_dim) for layer in self.hidden_layers]
        return [
            stateless.standard_noise(
                shape if X.shape.is_fully_defined() else tf.stack(shape), s, X.dtype
            )
            for shape, s in zip(shapes, seeds, strict=True)
        ]

    @check_shapes("X: [batch..., N, D]")
    def given_inducing_outputs(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean and variance [batch..., N, L] of codes given one draw of the hidden layers.

        :raises ValueError: for inputs of several tasks.
        """
        hidden = self._draw(X, 1)[0]
        _check_one_task("inputs X", hidden)
        return self.last_layer.given_inducing_outputs(hidden)

    @check_shapes("latents: [batch..., N, L]", "noise: [batch..., N, 1]", "return: [batch...]")
    def log_prob(
        self, X: TensorType | None, latents: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        """Return the sum over points of the log of the codes' density averaged over draws.

        :raises ValueError: for codes of several tasks.
        """
        latents = tf.cast(latents, gpflow.default_float())
        _check_one_task("codes", latents)
        hidden = self._draw(X, self.num_draws)
        if hidden.shape[0] == 1:
            return self.last_layer.log_prob(hidden[0], latents, noise)
        mean, variance = self.last_layer.given_inducing_outputs(hidden)
        variance = variance if noise is None else variance + noise
        return tf.reduce_sum(_log_average(_point_log_density(latents - mean, variance)), -1)

    @check_shapes("X: [xbatch..., N, D]", "mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def condition(
        self, X: TensorType | None, mean: TensorType, variance: TensorType
    ) -> LatentPosterior:
        """Return the posterior of each point's codes given its own pseudo-observation.

        It is a mixture of one Gaussian per hidden draw, weighted by the density of the
        pseudo-observation given that draw; its mean and variance are returned.
        """
        explained, own = self.last_layer.given_inducing_outputs(
            self._draw(X, self.num_prediction_draws)
        )
        log_density = _point_log_density(mean - explained, own + variance)  # [S, batch..., N]
        weights = tf.nn.softmax(log_density, axis=0)[..., None]
        gain = own / (own + variance)
        means = explained + gain * (mean - explained)
        posterior_mean = tf.reduce_sum(weights * means, 0)
        spread = tf.square(means - posterior_mean)
        posterior_variance = tf.reduce_sum(weights * ((1.0 - gain) * own + spread), 0)
        log_marginal = tf.reduce_sum(_log_average(log_density), -1)
        return LatentPosterior(posterior_mean, posterior_variance, log_marginal)

    def condition_batch(
        self, X: TensorType | None, mean: TensorType, variance: TensorType, point_scale: float
    ) -> LatentPosterior:
        """Raise an error: the posterior is a mixture, and the variational bound needs a Gaussian.

        :raises NotImplementedError: always.
        """
        raise NotImplementedError(
            "DeepSparseGP has no variational bound; start a chain with inference.PriorMeanStart, "
            "or with inference.WarmStart(latent_prior=...) under a shallow prior."
        )

    def marginal_variance(self, X: TensorType | None) -> tf.Tensor:
        """Return the prior variance of each code, averaged over the hidden draws."""
        hidden = self._draw(X, self.num_prediction_draws)
        return tf.reduce_mean(self.last_layer.marginal_variance(hidden), 0)

    @check_shapes("mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def predict(
        self,
        Xnew: TensorType | None,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Predict at ``Xnew`` by the last layer's moments over hidden draws (total variance).

        Given the sampled inducing outputs the prediction does not depend on ``X`` and the
        pseudo-observations, which only give the number of tasks.
        """
        hidden = self._draw(Xnew, self.num_prediction_draws)
        means, variances = self.last_layer.given_inducing_outputs(hidden)
        # No Bessel correction: the noise of this mean is in the variance over posterior samples.
        new_mean, spread = tf.nn.moments(means, axes=[0])
        new_variance = tf.reduce_mean(variances - self.code_noise, 0) + spread
        lead = tf.broadcast_dynamic_shape(tf.shape(mean)[:-2], tf.shape(new_mean)[:-2])
        shape = tf.concat([lead, tf.shape(new_mean)[-2:]], 0)
        return tf.broadcast_to(new_mean, shape), tf.broadcast_to(new_variance, shape)


def _point_log_density(residual: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Return log N(residual; 0, variance) [..., N, L], summed over the channels: [..., N]."""
    return tf.reduce_sum(gaussian_log_density(residual, variance), -1)


def _log_average(log_density: tf.Tensor) -> tf.Tensor:
    """Return the log of the average of densities over the draws, [draws, ...] to [...]."""
    count = tf.cast(tf.shape(log_density)[0], log_density.dtype)
    return tf.reduce_logsumexp(log_density, 0) - tf.math.log(count)


def _check_one_task(what: str, values: TensorType) -> None:
    lead = tuple(values.shape[:-2])
    if any(n is not None and n > 1 for n in lead):
        raise ValueError(
            "DeepSparseGP has one set of sampled inducing outputs, for one long task; got "
            f"{what} of {lead[0] if len(lead) == 1 else lead} tasks. For many tasks take SparseGP "
            'with inducing_outputs="integrated".'
        )
