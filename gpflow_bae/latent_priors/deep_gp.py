"""The deep sparse GP prior over codes, with sampled hidden layers and a closed-form last layer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Literal

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
    r"""A deep GP prior of sparse GP layers, whose hidden layers have sampled inducing outputs.

    Each hidden layer outputs one reparameterised draw of each point, and the last layer is the FITC
    conditional of :class:`SparseGP` (Tran et al. 2023; linear mean functions as in Salimbeni and
    Deisenroth 2017). With :math:`h^0_n = x_n`, draws :math:`e^l_n \sim N(0, I)`, whitened inducing
    outputs :math:`\nu_l \sim N(0, I)` and :math:`v_l(h) = k_l(h, h) - |\phi_l(h)|^2`,

    .. math::
        h^l_n = h^{l-1}_n W_l + \phi_l(h^{l-1}_n)^T \nu_l + v_l(h^{l-1}_n)^{1/2} e^l_n, \\
        latent_n | h_n, \nu \sim N(\phi(h_n)^T \nu, v(h_n) + \sigma^2)

    with :math:`h_n` the last hidden layer and :math:`\phi, \nu, v` those of the last layer.

    With ``inducing_outputs="sampled"``, for one long task, the last layer's :math:`\nu` is sampled
    too; given all of them the points are independent, so points can be taken in minibatches. With
    "integrated", for many short tasks, tasks share the hidden layers' :math:`\nu_l`, and each has
    its own :math:`\nu` in the last layer, integrated out as in :class:`SparseGP`.

    **The target density.** The draws e come from a seed (:meth:`with_seed`), which the engine
    changes in every step. The gradient is then unbiased for that of the expected log density,

    .. math:: \sum_n E_e \log p(latent_n | h_n(e)) \le \sum_n \log E_e \, p(latent_n | h_n(e)),

    (with the codes of a task for those of a point, if :math:`\nu` is integrated out) and small
    steps leave the exponential of the left-hand side invariant, not the model's own
    density on the right. If the last layer's variance v does not change with h, the left is
    :math:`\log N(latent; E m, v) - Var[m] / (2 v)`: the codes lack the variance of the mean m over
    hidden draws, and the last term favours hidden layers of small variance. The two sides are equal
    if hidden layers have no variance (inducing inputs on the data). ``num_draws`` K > 1 puts
    the logarithm of the average of K draws on the left (Burda et al. 2016), whose gap closes as
    1 / K. With whitened codes (:class:`~gpflow_bae.models.BayesianAutoencoder`) the same
    average is over log p(Y | codes(residuals, e)); that is another target, and has one draw.

    Predictions and :meth:`condition` average densities over draws, not their logarithms; with
    "integrated" they weigh each draw by the evidence of the task's pseudo-observations. Without
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
        inducing_outputs: Literal["integrated", "sampled"] = "sampled",
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
        :param inducing_outputs: of the last layer: "sampled" for one long task, "integrated" for
            many short ones.
        :raises ValueError: if numbers or widths of layers disagree.
        """
        super().__init__(latent_dim)
        self.num_draws, self.num_prediction_draws = int(num_draws), int(num_prediction_draws)
        self._seed: TensorType | None = None
        self.hidden_layers, self.last_layer = make_layers(
            kernels,
            inducing_variables,
            latent_dim,
            hidden_dims,
            code_noise_variance,
            inducing_outputs,
        )

    @property
    def kernels(self) -> list[gpflow.kernels.Kernel]:
        """The kernels of all layers."""
        return [k for layer in (*self.hidden_layers, self.last_layer) for k in layer.kernels]

    def check_inputs(self, X: np.ndarray, name: str = "X") -> None:
        first, *_ = (*self.hidden_layers, self.last_layer)
        first.check_inputs(X, name)

    @property
    def whitened_inducing(self) -> Parameter | None:
        """Whitened inducing outputs [L, M] of the last layer; None if they are integrated out."""
        return self.last_layer.whitened_inducing

    @property
    def splits_over_points(self) -> bool:
        """True if all inducing outputs are sampled: given them the points are independent."""
        return self.last_layer.splits_over_points

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

    def _draw_for(self, X: TensorType | None, num_draws: int, like: TensorType) -> tf.Tensor:
        """Return :meth:`_draw` with as many leading dimensions as codes ``like`` of each draw."""
        hidden = self._draw(X, num_draws)
        missing = len(like.shape) + 1 - len(hidden.shape)
        shape = tf.concat([tf.shape(hidden)[:1], [1] * missing, tf.shape(hidden)[1:]], 0)
        return tf.reshape(hidden, shape)

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

        :raises ValueError: for inputs of several tasks, or integrated inducing outputs.
        """
        if self.whitened_inducing is None:
            raise ValueError('DeepSparseGP has inducing_outputs="integrated"; it needs "sampled".')
        hidden = self._draw(X, 1)[0]
        _check_one_task("inputs X", hidden)
        return self.last_layer.given_inducing_outputs(hidden)

    @check_shapes("latents: [batch..., N, L]", "noise: [batch..., N, 1]", "return: [batch...]")
    def log_prob(
        self, X: TensorType | None, latents: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        """Return the log of the codes' density averaged over draws, of each point or of each task.

        Points are independent with sampled inducing outputs, and their logarithms are added.

        :raises ValueError: for codes of several tasks with sampled inducing outputs.
        """
        latents = tf.cast(latents, gpflow.default_float())
        integrated = self.whitened_inducing is None
        if not integrated:
            _check_one_task("codes", latents)
        hidden = self._draw_for(X, self.num_draws, latents)
        if hidden.shape[0] == 1:
            return self.last_layer.log_prob(hidden[0], latents, noise)
        if integrated:
            each = _for_each(hidden, latents)
            noise = None if noise is None else _for_each(hidden, noise)
            return _log_average(self.last_layer.log_prob(hidden, each, noise))
        mean, variance = self.last_layer.given_inducing_outputs(hidden)
        variance = variance if noise is None else variance + noise
        return tf.reduce_sum(_log_average(_point_log_density(latents - mean, variance)), -1)

    @check_shapes("X: [xbatch..., N, D]", "mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def condition(
        self, X: TensorType | None, mean: TensorType, variance: TensorType
    ) -> LatentPosterior:
        """Return the posterior of codes given pseudo-observations.

        It is a mixture of one Gaussian per hidden draw, weighted by the density of the
        pseudo-observations given that draw: of a point's own with sampled inducing outputs, of all
        those of a task with integrated ones. Its mean and variance are returned.
        """
        hidden = self._draw_for(X, self.num_prediction_draws, mean)
        mean, variance = _for_each(hidden, mean), _for_each(hidden, variance)
        q = self.last_layer.condition(hidden, mean, variance)
        if self.whitened_inducing is None:
            log_density = q.log_marginal[..., None]
        else:
            explained, own = self.last_layer.given_inducing_outputs(hidden)
            log_density = _point_log_density(mean - explained, own + variance)  # [S, batch..., N]
        moments = _mixture(log_density, q.mean, q.variance)
        return LatentPosterior(*moments, tf.reduce_sum(_log_average(log_density), -1))

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

        Given sampled inducing outputs the prediction does not depend on ``X`` and the
        pseudo-observations, which only give the number of tasks. With integrated ones each draw is
        conditioned on the task's pseudo-observations, and weighted by their density.
        """
        if self.whitened_inducing is None:
            hidden = self._draw_for(X, self.num_prediction_draws, mean)
            new_hidden = self._draw_for(Xnew, self.num_prediction_draws, mean)
            pseudo = hidden, _for_each(hidden, mean), _for_each(hidden, variance)
            evidence = self.last_layer.inducing_posterior(*pseudo).log_marginal
            return _mixture(evidence[..., None], *self.last_layer.predict(new_hidden, *pseudo))
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


def _for_each(hidden: tf.Tensor, values: TensorType) -> tf.Tensor:
    """Return values [batch..., N, L] for each draw of hidden layers, [draws, batch..., N, L]."""
    return tf.broadcast_to(values, tf.concat([tf.shape(hidden)[:1], tf.shape(values)], 0))


def _mixture(
    log_density: tf.Tensor, means: tf.Tensor, variances: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and variance [batch..., N, L] of a mixture of one Gaussian per draw.

    :param log_density: [draws, batch..., N or 1], of which the weights are the softmax over draws.
    """
    weights = tf.nn.softmax(log_density, axis=0)[..., None]
    mean = tf.reduce_sum(weights * means, 0)
    return mean, tf.reduce_sum(weights * (variances + tf.square(means - mean)), 0)


def _log_average(log_density: tf.Tensor) -> tf.Tensor:
    """Return the log of the average of densities over the draws, [draws, ...] to [...]."""
    count = tf.cast(tf.shape(log_density)[0], log_density.dtype)
    return tf.reduce_logsumexp(log_density, 0) - tf.math.log(count)


def _check_one_task(what: str, values: TensorType) -> None:
    lead = tuple(values.shape[:-2])
    if any(n is not None and n > 1 for n in lead):
        raise ValueError(
            "DeepSparseGP has one set of sampled inducing outputs, for one long task; got "
            f"{what} of {lead[0] if len(lead) == 1 else lead} tasks. For many tasks set "
            'inducing_outputs="integrated".'
        )
