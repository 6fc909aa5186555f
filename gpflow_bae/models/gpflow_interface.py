"""What GPflow's users expect of a model: losses of their own data, and predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from .. import functional
from ..arguments import kind_of
from ..base import Batch
from ..data import as_inputs
from ..data.memory import check_full_cov
from ..data.model_checks import check_support
from ..data.observations import as_observations, check_same_points
from ..decoders import Identity
from ..linalg import cholesky, gaussian_transform
from ..mcmc.noise import standard_noise
from .autoencoder import Autoencoder

__all__ = ["Data", "ExternalDataModel"]

Data: TypeAlias = tuple[TensorType | None, TensorType]

_SEED = (0, 0xE1B0)


def full_output_covariance(variance: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """GPflow's layout of covariances between channels, which are independent.

    :param variance: [..., N, L], or with ``full_cov`` [..., L, N, N].
    :return: [..., N, L, L], or [..., N, L, N, L].
    """
    if not full_cov:
        return tf.linalg.diag(variance)
    rank = variance.shape.rank
    channels_last = tf.transpose(variance, [*range(rank - 3), rank - 2, rank - 1, rank - 3])
    diagonal = tf.linalg.diag(channels_last)  # [..., N, N, L, L]
    return tf.transpose(diagonal, [*range(rank - 3), rank - 3, rank - 1, rank - 2, rank])


def gaussian_draws(
    mean: tf.Tensor, variance: tf.Tensor, num_draws: int, full_cov: bool, seed: Any
) -> tf.Tensor:
    """Draws [num_draws, ..., N, L] of Gaussians.

    :param mean: [..., N, L].
    :param variance: [..., N, L], or covariances of channels [..., N, L, L]; with ``full_cov``
        covariances of points [..., L, N, N].
    """
    shape = tf.concat([[num_draws], tf.shape(mean)], 0)
    noise = standard_noise(shape, tf.convert_to_tensor(seed, tf.int32), mean.dtype)
    if not full_cov:
        return gaussian_transform(mean, variance)(noise)
    jitter = gpflow.default_jitter() * tf.eye(tf.shape(mean)[-2], dtype=mean.dtype)
    factor = cholesky(variance + jitter, "the posterior covariance of the latent function")
    noise = tf.linalg.matrix_transpose(noise)  # [..., L, N]
    factor = tf.broadcast_to(factor, tf.concat([tf.shape(noise), [tf.shape(factor)[-1]]], 0))
    return mean + tf.linalg.matrix_transpose(tf.linalg.matvec(factor, noise))


class ExternalDataModel(
    Autoencoder, gpflow.models.BayesianModel, gpflow.models.ExternalDataTrainingLossMixin
):
    """A variational autoencoder as ``gpflow.models.SVGP`` is one of GPflow's models.

    ``data`` is ``(X, Y)``, inputs ``[N, D]`` and observations ``[N, P]`` of one task, or
    ``[T, N, D]`` and ``[T, N, P]`` of several; ``Y`` is NaN where missing, and ``X`` None for
    models without inputs.
    """

    num_data: int | None = None
    """How many points (tasks, where data have an axis of tasks) there are in all, for minibatches;
    None where ``data`` are always all of them."""

    def elbo(self, data: Data, *, num_draws: int = 8) -> tf.Tensor:
        """The evidence lower bound of all data, in nats, estimated from ``data``.

        The expectation over codes is an average over draws. They are the same in every call, so
        that the bound is a function of the parameters alone, as ``gpflow.optimizers.Scipy`` needs
        it; half of the draws mirror the others, which leaves no error that is linear in the noise.

        :param num_draws: an even number.
        :raises ValueError: for shapes that do not fit the model, minibatches that the prior cannot
            be taken in, or an odd number of draws.
        """
        if num_draws < 2 or num_draws % 2:
            raise ValueError(f"num_draws must be an even number from 2 on, got {num_draws}.")
        return self._estimate(self._batch(data), tf.constant(_SEED, tf.int32), num_draws)

    def maximum_log_likelihood_objective(self, data: Data) -> tf.Tensor:
        """:meth:`elbo`."""
        return self.elbo(data)

    def log_prior_density(self) -> tf.Tensor:
        """Log density of the parameters that have a prior: decoder weights, and what you gave one.

        In unconstrained space, Jacobians included, as in GPflow.
        """
        parameters = [p for p in self.trainable_parameters if p.prior is not None]
        values = [p.unconstrained_variable for p in parameters]
        return functional.log_prior_density(parameters, values)

    def training_loss(self, data: Data) -> tf.Tensor:
        """Negative bound less the log prior of the parameters (MAP), in nats."""
        return self._training_loss(data)

    def training_loss_closure(self, data: Any, *, compile: bool = True) -> Callable[[], tf.Tensor]:
        """A function without arguments that optimisers minimise, as GPflow's models have it.

        :param data: ``(X, Y)``: then the loss is deterministic, see :meth:`elbo`. Or an iterator
            over batches of those (of Y alone, for models without inputs), such as
            ``iter(dataset.shuffle(n).batch(64).repeat())`` of a ``tf.data.Dataset``: then each
            call takes the next batch, and one fresh draw of the codes (``tf.random.set_seed``
            seeds it).
        :param compile: whether to compile it.
        :raises ValueError: for an iterator where ``num_data`` is None, because a batch does not say
            how many points it stands for.
        """
        if isinstance(data, tuple | list):
            pair: Any = data
            self._batch(pair)  # refuses them at once, and not where they are compiled

            def loss() -> tf.Tensor:
                return self.training_loss((data[0], data[1]))

            return tf.function(loss, autograph=False) if compile else loss
        if self.num_data is None:
            raise ValueError(
                "num_data is None, so a batch of the iterator does not say how many points it "
                "stands for: set model.num_data to the number of points (of tasks, where data have "
                "an axis of tasks) of all data."
            )

        def loss_of(*batch: TensorType) -> tf.Tensor:
            X, Y = batch if len(batch) == 2 else (None, *batch)
            seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
            return -(self._estimate(self._batch((X, Y)), seed, 1) + self.log_prior_density())

        if compile:
            spec = getattr(data, "element_spec", None)
            signature = spec if spec is None or isinstance(spec, tuple) else (spec,)
            loss_of = tf.function(loss_of, input_signature=signature, autograph=False)

        def next_loss() -> tf.Tensor:
            batch = next(data)
            batch = batch if isinstance(batch, tuple) else (batch,)
            self._observations(batch[-1])  # refuses them while their values are known
            return loss_of(*batch)

        return next_loss

    def predict_f(
        self,
        Xnew: TensorType | None,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        given: Data | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of the latent function given what the encoder says of ``given``.

        :param Xnew: inputs ``[N', D]`` or ``[T or 1, N', D]``; None for the codes of ``given``.
        :param given: ``(X, Y)`` to condition on, usually the training data.
        :param full_cov: covariances between points.
        :param full_output_cov: covariances between channels, which are diagonal but for priors
            that couple channels; of those at each point alone, without ``full_cov``.
        :return: mean ``[N', L]`` and variance ``[N', L]``, or covariance ``[L, N', N']`` between
            points, ``[N', L, L]`` between channels, ``[N', L, N', L]`` of both; with an axis of
            tasks in front where the arguments have one.
        :raises ValueError: without ``given``, for inputs of another width, and with ``full_cov``
            for a prior without inputs, and for more points than memory has room for.
        """
        if full_output_cov and full_cov:
            self.check_channels_are_apart("full_output_cov=True with full_cov=True")
        batch, Xnew, single = self._prediction_arguments(Xnew, given)
        prior = self.prior_for(batch)
        pseudo = self.guide.pseudo_observations(prior, batch, _SEED)
        if full_cov:
            at: Any = batch.X if Xnew is None else Xnew
            if at is None:
                raise ValueError(
                    f"{self.latent_prior_name} is a prior without inputs, whose codes are no "
                    "function of anything, so points have no covariances: set full_cov=False."
                )
            channels = self.latent_dim if full_output_cov else 1
            check_full_cov(batch.Y.shape[0], self.latent_dim, channels, num_points=at.shape[-2])
            f_mean, f_variance = prior.predict_full_cov(at, batch.X, *pseudo)
            if full_output_cov:
                f_variance = full_output_covariance(f_variance, full_cov)
        elif Xnew is None:
            condition = prior.condition_jointly if full_output_cov else prior.condition
            f_mean, f_variance, _ = condition(batch.X, *pseudo)
        else:
            predict = prior.predict_jointly if full_output_cov else prior.predict
            f_mean, f_variance = predict(Xnew, batch.X, *pseudo)
        return (f_mean[0], f_variance[0]) if single else (f_mean, f_variance)

    def predict_f_samples(
        self,
        Xnew: TensorType | None,
        num_samples: int | None = None,
        full_cov: bool = True,
        *,
        given: Data | None = None,
        seed: int = 0,
    ) -> tf.Tensor:
        """Draws of the latent function ``[num_samples, N', L]``; ``[N', L]`` without a number.

        :param full_cov: whether a draw is a function, or independent at each point.
        """
        if full_cov:
            self.check_channels_are_apart("A draw of the function (full_cov=True)")
        joint = self.latent_prior.couples_channels
        mean, variance = self.predict_f(Xnew, full_cov, joint, given=given)
        if full_cov:
            check_full_cov(
                *mean.shape[:-2], num_samples, self.latent_dim, num_points=mean.shape[-2]
            )
        draws = gaussian_draws(mean, variance, num_samples or 1, full_cov, [seed, 0xF])
        return draws[0] if num_samples is None else draws

    def predict_y(
        self, Xnew: TensorType | None, *, given: Data | None = None, num_draws: int = 64
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of observations at ``Xnew``, ``[N', P]``; arguments as in
        :meth:`predict_f`.

        :param num_draws: of the codes, over which decoder and likelihood are averaged.
        """
        if self.observations_are_gaussian:
            mean, spread = self._codes(Xnew, given)
            joint = spread.shape.rank > mean.shape.rank
            variance = tf.linalg.diag_part(spread) if joint else spread
            return mean, variance + self.likelihood.moments(mean)[1]
        F = self.decode(*self._latent_draws(Xnew, given, num_draws))
        mean, noise = (tf.cast(v, gpflow.default_float()) for v in self.likelihood.moments(F))
        centre, spread = tf.nn.moments(mean, [0])
        return centre, spread + tf.reduce_mean(noise, 0)

    def predict_log_density(
        self, data: Data, *, given: Data | None = None, num_draws: int = 64
    ) -> tf.Tensor:
        """Log density ``[N']`` of each row of ``Ynew``, in nats, of what is observed of it.

        :param data: ``(Xnew, Ynew)``, Ynew NaN where missing.
        :param given, num_draws: as in :meth:`predict_y`.
        """
        Xnew, Ynew = data
        observed, seen = self._observations(Ynew, "Ynew")
        seen = tf.ones_like(observed, tf.bool) if seen is None else seen
        if self.observations_are_gaussian:
            return self.log_density_of_rows(*self._codes(Xnew, given), observed, seen)
        X, latents = self._latent_draws(Xnew, given, num_draws)
        rows = self.log_prob_of_draws(X, latents, observed, seen)
        return tf.reduce_logsumexp(rows, 0) - np.log(num_draws)

    def _codes(self, Xnew: TensorType | None, given: Data | None) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of the codes, noise around the latent function included.

        Covariances of channels [..., N', L, L] in the place of variances where they are coupled.
        """
        prior = self.latent_prior
        joint = prior.couples_channels
        mean, spread = self.predict_f(Xnew, full_output_cov=joint, given=given)
        noise = prior.code_noise_covariance if joint else prior.code_noise
        return mean, spread if Xnew is None else spread + noise

    def _latent_draws(
        self, Xnew: TensorType | None, given: Data | None, num_draws: int
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        """Inputs, and draws of the codes there [num_draws, ..., N', L]; half mirror the others."""
        mean, spread = self._codes(Xnew, given)
        draws = gaussian_draws(mean, spread, (num_draws + 1) // 2, False, _SEED)
        latents = tf.concat([draws, 2.0 * mean - draws], 0)[:num_draws]
        X = (given or (None,))[0] if Xnew is None else Xnew
        return (None if X is None else tf.cast(X, gpflow.default_float())), latents

    def _prediction_arguments(
        self, Xnew: TensorType | None, given: Data | None
    ) -> tuple[Batch, tf.Tensor | None, bool]:
        """Observations, new inputs with an axis of tasks, and whether results go without one."""
        if given is None:
            raise ValueError(
                "given is missing: codes are predicted from observations, so pass "
                "given=(X, Y), usually the training data. gpflow_bae.Posterior.from_point(model, "
                "(X, Y)) remembers them, and needs no given."
            )
        batch = self._observed(given)
        single = len(np.shape(given[1])) == 2
        if Xnew is None:
            return batch, None, single
        single = single and len(np.shape(Xnew)) == 2
        new = as_inputs(Xnew, batch.X, "Xnew", self.inputs)
        known = tf.get_static_value(new)
        if known is not None:
            self.check_inputs(known, "Xnew")
        if self.inputs is not None and tf.executing_eagerly():
            self.inputs.check_known(new, batch.X)
        return batch, new, single

    def _estimate(self, batch: Batch, seed: TensorType, num_draws: int) -> tf.Tensor:
        """The bound of all data from a batch; draws beyond the first are mirrored."""
        q = self.approximate_posterior(batch, seed=seed)
        if isinstance(self.decoder, Identity):
            bound = self.expected_log_likelihood(q, batch) - q.divergence
            return tf.cast(batch.scale, bound.dtype) * bound
        pairs = (num_draws + 1) // 2
        noise = standard_noise(tf.concat([[pairs], tf.shape(q.mean)], 0), seed, q.mean.dtype)
        if num_draws > 1:
            noise = tf.concat([noise, -noise], 0)
        latents = q.draws(noise)
        log_prob = self.log_prob_of_draws(batch.X, latents, batch.Y, batch.mask)
        observed = tf.reduce_sum(log_prob) / num_draws
        return tf.cast(batch.scale, observed.dtype) * (observed - q.divergence)

    def _batch(self, data: Data) -> Batch:
        """``(X, Y)`` as a part of all data, which stands for ``num_data`` items."""
        batch = self._observed(data)
        if self.num_data is None:
            return batch
        single = len(np.shape(data[1])) == 2
        axis = 1 if single else 0
        splits = self.splits_over_points and self.latent_prior.splits_over_points
        if single and not splits and batch.Y.shape[axis] != self.num_data:
            raise ValueError(
                f"{self.latent_prior_name} needs all points of a task at once, so minibatches of "
                "points are wrong. Fit all data at once (num_data=None), or "
                f"{self.splitting_advice}."
            )
        scale = tf.cast(self.num_data, gpflow.default_float())
        scale /= tf.cast(tf.shape(batch.Y)[axis], scale.dtype)
        return batch._replace(scale=scale, point_scale=scale if single else tf.ones_like(scale))

    def _observed(self, data: Data) -> Batch:
        """``(X, Y)`` as the model's own methods take them."""
        if not isinstance(data, tuple | list) or len(data) != 2:
            count = f"{len(data)}" if isinstance(data, tuple | list) else kind_of(data)
            raise ValueError(f"data must be (X, Y), two arrays, got {count}.")
        X, Y = data
        Y, seen = self._observations(Y)
        single = Y.shape.rank == 2
        if single:
            Y, seen = Y[None], None if seen is None else seen[None]
        width = self.decoder.output_dim
        if Y.shape.rank != 3 or Y.shape[-1] not in (None, width):
            raise ValueError(
                f"Y must have shape [N, P] or [T, N, P] with P = {width}, the width of the "
                f"decoder, got {tuple(Y.shape[1:] if single else Y.shape)}."
            )
        if X is None:
            if self.needs_inputs:
                raise ValueError(
                    f"{self.latent_prior_name} is a prior over inputs: X is needed, got None."
                )
        else:
            X = as_inputs(X, inputs=self.inputs)
            check_same_points(X.shape, Y.shape)
            known = tf.get_static_value(X)
            if known is not None:
                self.check_inputs(known)
        return Batch(X, Y, seen)

    def _observations(self, Y: TensorType, name: str = "Y") -> tuple[tf.Tensor, tf.Tensor | None]:
        """Observations with zeros where missing, and which are seen; None where all are."""
        Y, seen = as_observations(Y, name, tf.float32)
        known = tf.get_static_value(Y)
        if known is not None:
            check_support(self, known, None if seen is None else tf.get_static_value(seen), name)
        return Y, seen
