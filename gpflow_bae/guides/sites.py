"""Free Gaussian factors of codes, moved by natural gradients: conjugate-computation inference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType

from ..arguments import check_arguments, kind_of
from ..base import Batch
from ..encoders import Encoder, SiteEncoder
from ..latent_priors.base import LatentProcess
from ..likelihoods import MaskedLikelihood
from ..mcmc.noise import standard_noise
from .gaussian import CodePosterior, GaussianGuide, JointCodePosterior

__all__ = ["SiteGuide"]

Decode = Callable[[tf.Tensor], tf.Tensor]


class SiteGuide(GaussianGuide):
    r"""The prior times a Gaussian site for each point, found by natural gradients.

    .. math:: q(latents) \propto p(latents | X) \prod_n \exp(r_n^T z_n - z_n^T \Lambda_n z_n / 2)

    is the form that the best Gaussian has whatever decoder and likelihood are (Opper and Archambeau
    2009). A natural gradient step of size :math:`\rho` on the bound is, with
    :math:`g_n = \nabla \log p(y_n | z_n)`,

    .. math::
        \Lambda_n &\leftarrow (1 - \rho) \Lambda_n + \rho G_n, \\
        r_n &\leftarrow (1 - \rho) r_n + \rho (E_q[g_n] + G_n E_q[z_n])

    where :math:`G_n = -E_q[\nabla^2 \log p(y_n | z_n)]` (Khan and Lin 2017; Chang et al. 2020;
    Wilkinson et al. 2023). Here it is its Gauss-Newton part :math:`E_q[J^T F J]`, with J the
    Jacobian of the decoder and F the negative second derivatives of the log likelihood in what the
    decoder returns, where those are positive: a precision whatever the decoder. Missing outputs
    are in neither. What is left out, the decoder's own curvature times residuals, is zero for a
    linear decoder; with a Gaussian likelihood one step with :math:`\rho = 1` then is the exact
    posterior, and the bound the evidence. At a fixed point the bound is stationary in the means of
    q; in its covariances, up to what Gauss-Newton leaves out. Where residuals stay large that is
    not small, and the bound can end below that of a :class:`~gpflow_bae.encoders.FreeFormEncoder`
    that Adam fits.

    Expectations are cubature of the third degree, at the 2 L points
    :math:`m \pm \sqrt{L} S^{1/2} e_l` (exact for linear decoders), or averages over draws. An
    update takes as many evaluations of the decoder, one after another, and to each of them L + 1
    passes backwards, in memory of T N P L numbers.

    :func:`~gpflow_bae.inference.fit_variational` takes an update before each step of Adam on the
    other parameters.
    """

    rows_are = "the site of a training point; other rows of the same task are not looked at"
    encoder: SiteEncoder  # type: ignore[assignment]

    @check_arguments(num_draws=1)
    def __init__(self, encoder: SiteEncoder, num_draws: int | None = None):
        """
        :param num_draws: an even number of draws of the codes, half of which mirror the others, in
            the place of cubature: cheaper where L is large.
        :raises TypeError: for another encoder.
        :raises ValueError: for an odd number of draws.
        """
        super().__init__(encoder)
        if num_draws is not None and (num_draws < 2 or num_draws % 2):
            raise ValueError(f"num_draws must be an even number from 2 on, got {num_draws}.")
        self.num_draws = num_draws
        self.needs_projections = encoder.full

    def _check_encoder(self, encoder: Encoder) -> None:
        if not isinstance(encoder, SiteEncoder):
            raise TypeError(
                "encoder must be a SiteEncoder, which holds what a SiteGuide moves, got "
                f"{kind_of(encoder)}."
            )

    @property
    def sites(self) -> tuple[Parameter, ...]:
        return self.encoder.target, self.encoder.root

    def encode(self, batch: Batch) -> tuple[tf.Tensor, ...]:
        """Sites of the training data as pseudo-observations, see :class:`SiteEncoder`."""
        return self.moments(batch)

    def splits_over_points(self, prior: LatentProcess) -> bool:
        """Only where points are independent: the moments of q at a point are of all sites."""
        return not prior.needs_inputs

    def update_sites(
        self,
        prior: LatentProcess,
        decode: Decode,
        likelihood: MaskedLikelihood,
        batch: Batch,
        seed: TensorType,
        step_size: TensorType,
    ) -> None:
        """One natural gradient step of the sites of a batch; all others stay as they are.

        :param decode: codes [T, N, L] to likelihood parameters [T, N, P].
        :param seed: of draws, where there are any.
        :param step_size: rho, in (0, 1].
        """
        q = self.posterior(prior, batch)
        latents = q.draws(self._standard_points(q, seed))
        gradient, curvature = expected_derivatives(
            decode, likelihood, batch, latents, self.encoder.full
        )
        curved = tf.linalg.matvec(curvature, q.mean) if self.encoder.full else curvature * q.mean
        linear, precision = self.encoder.natural_parameters(batch.indices)
        rho = tf.cast(step_size, linear.dtype)
        self.encoder.assign(
            (1.0 - rho) * linear + rho * (gradient + curved),
            (1.0 - rho) * precision + rho * curvature,
            batch.indices,
        )

    def _standard_points(
        self, q: CodePosterior | JointCodePosterior, seed: TensorType
    ) -> tf.Tensor:
        """Points [K, T or 1, N or 1, L] with the first moments of standard normals."""
        if self.num_draws is not None:
            shape = tf.concat([[self.num_draws // 2], tf.shape(q.mean)], 0)
            points = standard_noise(shape, seed, q.mean.dtype)
        else:
            axes = np.sqrt(self.latent_dim) * np.eye(self.latent_dim)
            points = tf.constant(axes[:, None, None], q.mean.dtype)
        return tf.concat([points, -points], 0)


def expected_derivatives(
    decode: Decode, likelihood: MaskedLikelihood, batch: Batch, latents: tf.Tensor, full: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Averages over ``latents [K, T, N, L]`` of the log likelihood's gradient, and of J^T F J.

    :return: [T, N, L], and [T, N, L, L], or where not ``full`` its diagonals [T, N, L].
    """
    count, dtype = latents.shape[0], latents.dtype

    def add(
        i: tf.Tensor, gradient: tf.Tensor, curvature: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        F, J = _jacobian(decode, latents[i])
        slope, curve = _of_outputs(likelihood, batch, tf.cast(F, dtype))
        J = tf.cast(J, dtype)
        gradient += tf.linalg.matvec(J, slope, transpose_a=True)
        weighted = J * curve[..., None]
        curvature += (
            tf.matmul(J, weighted, transpose_a=True) if full else tf.reduce_sum(J * weighted, -2)
        )
        return i + 1, gradient, curvature

    zeros = tf.zeros_like(latents[0])
    start = (tf.constant(0), zeros, tf.linalg.diag(zeros) if full else zeros)
    # One after another: the Jacobians at all points at once may be more than memory.
    _, gradient, curvature = tf.while_loop(
        lambda i, *_: i < count, add, start, parallel_iterations=1
    )
    return gradient / count, curvature / count


def _jacobian(decode: Decode, codes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """F [T, N, P] at ``codes [T, N, L]``, and dF/dcodes [T, N, P, L].

    The vector-Jacobian product is linear in the vector, and its derivative by that is the
    Jacobian's transpose: L backward passes, where one for each output would be P. It asks of a
    layer's gradient only to have one itself, as convolutions do in every kind of loop.
    """
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(codes)
            F = decode(codes)
        vector = tf.zeros_like(F)
        outer.watch(vector)
        product = inner.gradient(F, codes, vector, unconnected_gradients="zero")
        channels = tf.unstack(product, axis=-1)
    columns = [outer.gradient(v, vector, unconnected_gradients="zero") for v in channels]
    return F, tf.stack(columns, -1)


def _of_outputs(
    likelihood: MaskedLikelihood, batch: Batch, F: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """First derivatives of log p(y | F) by each output, and second ones with their sign turned.

    Zero where missing; where the density is not log-concave, second ones are cut at zero.
    """
    with tf.GradientTape(watch_accessed_variables=False) as second:
        second.watch(F)
        with tf.GradientTape(watch_accessed_variables=False) as first:
            first.watch(F)
            log_prob = likelihood.masked_log_prob(F, batch.Y, batch.mask)
        slope = first.gradient(log_prob, F)
    # Outputs are independent given F, so the gradient of the sum of slopes is each one's own.
    curve = second.gradient(slope, F, unconnected_gradients="zero")
    return slope, tf.maximum(-curve, 0.0)
