"""GPflow's interface of models with external data: bounds, training losses and predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..base import Batch
from ..core import functional
from ..core.linalg import cholesky
from ..data import as_inputs, as_pair
from ..data.memory import check_full_cov
from ..data.model_checks import SPLITTING_ADVICE, check_support
from ..data.observations import as_observations, check_has_rows, check_same_points
from ..data.unequal_tasks import TaskRows, check_same_lengths, rows_at, rows_of
from ..mcmc.noise import standard_noise
from .autoencoder import Autoencoder

__all__ = ["Data", "ExternalDataModel"]

Data: TypeAlias = tuple[TensorType | None, TensorType]

_SEED = (0, 0xE1B0)


def full_output_covariance(variance: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """Return covariances between independent channels in GPflow's layout.

    :param variance: [..., N, L], or with ``full_cov`` [..., L, N, N].
    :return: [..., N, L, L], or [..., N, L, N, L].
    """
    if not full_cov:
        return tf.linalg.diag(variance)
    rank = variance.shape.rank
    channels_last = tf.transpose(variance, [*range(rank - 3), rank - 2, rank - 1, rank - 3])
    diagonal = tf.linalg.diag(channels_last)  # [..., N, N, L, L]
    return tf.transpose(diagonal, [*range(rank - 3), rank - 3, rank - 1, rank - 2, rank])


def covariance_rows(full_cov: bool, full_output_cov: bool) -> tuple[int, ...]:
    """Return the axes of points of variances [T, N, L], or of covariances in GPflow's layout."""
    if not full_cov:
        return (1,)
    return (1, 3) if full_output_cov else (2, 3)


def gaussian_draws(
    mean: tf.Tensor, variance: tf.Tensor, num_draws: int, full_cov: bool, seed: Any
) -> tf.Tensor:
    """Draw [num_draws, ..., N, L] from Gaussians.

    :param mean: [..., N, L].
    :param variance: [..., N, L]; with ``full_cov`` covariances between points [..., L, N, N].
    """
    shape = tf.concat([[num_draws], tf.shape(mean)], 0)
    noise = standard_noise(shape, tf.convert_to_tensor(seed, tf.int32), mean.dtype)
    if not full_cov:
        return mean + tf.sqrt(variance) * noise
    jitter = gpflow.default_jitter() * tf.eye(tf.shape(mean)[-2], dtype=mean.dtype)
    factor = cholesky(variance + jitter, "the posterior covariance of the latent function")
    noise = tf.linalg.matrix_transpose(noise)  # [..., L, N]
    factor = tf.broadcast_to(factor, tf.concat([tf.shape(noise), [tf.shape(factor)[-1]]], 0))
    return mean + tf.linalg.matrix_transpose(tf.linalg.matvec(factor, noise))


class ExternalDataModel(
    Autoencoder, gpflow.models.BayesianModel, gpflow.models.ExternalDataTrainingLossMixin
):
    """A variational autoencoder with the interface of ``gpflow.models.SVGP``.

    ``data`` is ``(X, Y)``, inputs ``[N, D]`` and observations ``[N, P]`` of one task, or
    ``[T, N, D]`` and ``[T, N, P]`` of several; lists of arrays ``[N_t, D]`` and ``[N_t, P]`` if
    tasks have unequal lengths, and predictions for these are NaN in rows that a task does not have.
    ``Y`` is NaN where missing, and ``X`` None for models without inputs. A column that is missing
    in all rows adds nothing to a bound or density, because test data and minibatches may have such
    columns; fits refuse it, for nothing would determine its part of the decoder. Data without rows
    are refused.
    """

    num_data: int | None = None
    """Total number of points (of tasks, if data have a task axis), for minibatches; None if
    ``data`` are always complete."""

    def elbo(self, data: Data, *, num_draws: int = 8) -> tf.Tensor:
        """Return the evidence lower bound of all data, in nats, estimated from ``data``.

        The expectation over codes is an average over draws. They are the same in every call, so
        the bound is a deterministic function of the parameters, as ``gpflow.optimizers.Scipy``
        needs. Draws are antithetic pairs, which cancel the error that is linear in the noise.

        :param num_draws: an even number.
        :raises ValueError: for shapes that do not fit the model, minibatches of points under a
            prior that needs all of them, or an odd number of draws.
        """
        if num_draws < 2 or num_draws % 2:
            raise ValueError(f"num_draws must be an even number from 2 on, got {num_draws}.")
        return self._estimate(self._batch(data), tf.constant(_SEED, tf.int32), num_draws)

    def maximum_log_likelihood_objective(self, data: Data) -> tf.Tensor:
        """Return :meth:`elbo`."""
        return self.elbo(data)

    def log_prior_density(self) -> tf.Tensor:
        """Return the log prior density of all trainable parameters with a prior.

        In unconstrained space, Jacobians included, as in GPflow.
        """
        parameters = [p for p in self.trainable_parameters if p.prior is not None]
        values = [p.unconstrained_variable for p in parameters]
        return functional.log_prior_density(parameters, values)

    def training_loss(self, data: Data) -> tf.Tensor:
        """Return minus the bound and the log prior of the parameters (MAP), in nats."""
        return self._training_loss(data)

    def training_loss_closure(self, data: Any, *, compile: bool = True) -> Callable[[], tf.Tensor]:
        """Return a function without arguments for optimisers to minimise, as in GPflow.

        :param data: ``(X, Y)``, for which the loss is deterministic, see :meth:`elbo`. Or an
            iterator over batches of those (of Y alone, for models without inputs), such as
            ``iter(dataset.shuffle(n).batch(64).repeat())`` of a ``tf.data.Dataset``: each call
            takes the next batch and one new draw of the codes (seeded by ``tf.random.set_seed``).
        :param compile: whether to compile it.
        :raises ValueError: for an iterator if ``num_data`` is None, because the scale of a batch
            is then unknown.
        """
        if isinstance(data, tuple | list):
            pair = as_pair(data)
            self._batch(pair)  # raises errors now, instead of in the compiled call

            def loss() -> tf.Tensor:
                return self.training_loss(pair)

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
            self._observations(batch[-1])  # checks values, which are symbolic in the compiled call
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
        """Return the mean and variance of the latent function given the encoded ``given``.

        :param Xnew: inputs ``[N', D]`` or ``[T or 1, N', D]``, or a list of ``[N'_t, D]``; None for
            the codes of ``given``.
        :param given: ``(X, Y)`` to condition on, usually the training data.
        :param full_cov: return covariances between points.
        :param full_output_cov: return covariances between channels, which are diagonal.
        :return: mean ``[N', L]`` and variance ``[N', L]``, or covariance ``[L, N', N']`` between
            points, ``[N', L, L]`` between channels, ``[N', L, N', L]`` of both; with a leading
            task axis if the arguments have one.
        :raises ValueError: without ``given``, for inputs of another width, and with ``full_cov``
            for a prior without inputs or covariances that do not fit memory.
        """
        mean, variance, _, rows = self._function(Xnew, given, full_cov, full_output_cov)
        axes = covariance_rows(full_cov, full_output_cov)
        return rows.of(mean), rows.of(variance, *axes, tasks=0)

    def _function(
        self,
        Xnew: TensorType | None,
        given: Data | None,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None, TaskRows]:
        """Return moments as :meth:`predict_f`, inputs there, and the tasks and rows of results.

        Moments and inputs always have a task axis, and rows of padding.
        """
        batch, Xnew, rows = self._prediction_arguments(Xnew, given)
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
        elif Xnew is None:
            f_mean, f_variance, _ = prior.condition(batch.X, *pseudo)
            spread = self.guide.spread(batch)
            f_variance = f_variance if spread is None else f_variance + spread
        else:
            f_mean, f_variance = prior.predict(Xnew, batch.X, *pseudo)
        if full_output_cov:
            f_variance = full_output_covariance(f_variance, full_cov)
        return f_mean, f_variance, batch.X if Xnew is None else Xnew, rows

    def predict_f_samples(
        self,
        Xnew: TensorType | None,
        num_samples: int | None = None,
        full_cov: bool = True,
        *,
        given: Data | None = None,
        seed: int = 0,
    ) -> tf.Tensor:
        """Draw the latent function ``[num_samples, N', L]``; ``[N', L]`` without ``num_samples``.

        :param full_cov: whether points are drawn jointly, or independently.
        """
        mean, variance, _, rows = self._function(Xnew, given, full_cov)
        if full_cov:
            check_full_cov(
                *mean.shape[:-2], num_samples, self.latent_dim, num_points=mean.shape[-2]
            )
        draws = rows.of(gaussian_draws(mean, variance, num_samples or 1, full_cov, [seed, 0xF]))
        return draws[0] if num_samples is None else draws

    def predict_y(
        self, Xnew: TensorType | None, *, given: Data | None = None, num_draws: int = 64
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the mean and variance ``[N', P]`` of observations at ``Xnew``.

        Arguments as in :meth:`predict_f`.

        :param num_draws: draws of the codes that decoder and likelihood are averaged over.
        """
        X, latents, rows = self._latent_draws(Xnew, given, num_draws)
        F = self.decode(X, latents)
        mean, noise = (tf.cast(v, gpflow.default_float()) for v in self.likelihood.moments(F))
        centre, spread = tf.nn.moments(mean, [0])
        return rows.of(centre), rows.of(spread + tf.reduce_mean(noise, 0))

    def predict_log_density(
        self, data: Data, *, given: Data | None = None, num_draws: int = 64
    ) -> tf.Tensor:
        """Return the log density ``[N']`` of the observed entries of each row, in nats.

        :param data: ``(Xnew, Ynew)``, Ynew NaN where missing.
        :param given, num_draws: as in :meth:`predict_y`.
        """
        observed, seen = self._observations(as_pair(data)[1], "Ynew")
        seen = tf.ones_like(observed, tf.bool) if seen is None else seen
        X, latents, rows = self._latent_draws(data[0], given, num_draws)
        check_same_lengths(data, rows)
        densities = self.log_prob_of_draws(X, latents, observed, seen)
        return rows.of(tf.reduce_logsumexp(densities, 0) - np.log(num_draws), -1)

    def _latent_draws(
        self, Xnew: TensorType | None, given: Data | None, num_draws: int
    ) -> tuple[tf.Tensor | None, tf.Tensor, TaskRows]:
        """Return inputs, antithetic draws of the codes there [num_draws, T, N', L], and the tasks
        and rows of results. Draws have code noise.
        """
        mean, variance, X, rows = self._function(Xnew, given)
        variance = variance if Xnew is None else variance + self.latent_prior.code_noise
        draws = gaussian_draws(mean, variance, (num_draws + 1) // 2, False, _SEED)
        latents = tf.concat([draws, 2.0 * mean - draws], 0)[:num_draws]
        return X, latents, rows

    def _prediction_arguments(
        self, Xnew: TensorType | None, given: Data | None
    ) -> tuple[Batch, tf.Tensor | None, TaskRows]:
        """Return observations, new inputs with a task axis, and the tasks and rows of results."""
        if given is None:
            raise ValueError(
                "given is missing: codes are predicted from observations, so pass "
                "given=(X, Y), usually the training data. gpflow_bae.Posterior.from_point(model, "
                "(X, Y)) remembers them, and needs no given."
            )
        batch = self._observed(as_pair(given, "given"))
        Xnew, rows = rows_at(Xnew, rows_of(given[1]))
        if Xnew is None:
            return batch, None, rows
        new = as_inputs(Xnew, batch.X, "Xnew", self.inputs)
        known = tf.get_static_value(new)
        if known is not None:
            self.check_inputs(known, "Xnew")
        if self.inputs is not None and tf.executing_eagerly():
            self.inputs.check_known(new, batch.X)
        return batch, new, rows

    def _estimate(self, batch: Batch, seed: TensorType, num_draws: int) -> tf.Tensor:
        """Estimate the bound of all data from a batch; several draws are antithetic pairs."""
        q = self.approximate_posterior(batch, seed=seed)
        pairs = (num_draws + 1) // 2
        noise = standard_noise(tf.concat([[pairs], tf.shape(q.mean)], 0), seed, q.mean.dtype)
        if num_draws > 1:
            noise = tf.concat([noise, -noise], 0)
        latents = q.draws(noise)
        log_prob = self.log_prob_of_draws(batch.X, latents, batch.Y, batch.mask)
        observed = tf.reduce_sum(log_prob) / num_draws
        return tf.cast(batch.scale, observed.dtype) * (observed - q.divergence)

    def _batch(self, data: Data) -> Batch:
        """Convert ``(X, Y)`` to a batch that is scaled to ``num_data`` items."""
        data = as_pair(data)
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
                f"{SPLITTING_ADVICE}."
            )
        scale = tf.cast(self.num_data, gpflow.default_float())
        scale /= tf.cast(tf.shape(batch.Y)[axis], scale.dtype)
        return batch._replace(scale=scale, point_scale=scale if single else tf.ones_like(scale))

    def _observed(self, data: Data) -> Batch:
        """Check ``(X, Y)`` and convert them to a batch with a task axis."""
        X, Y = as_pair(data)
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
        check_has_rows(Y.shape[1:] if single else Y.shape)
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
        """Return observations with zeros where missing, and their mask; None if complete."""
        Y, seen = as_observations(Y, name, tf.float32)
        known = tf.get_static_value(Y)
        if known is not None:
            check_support(self, known, None if seen is None else tf.get_static_value(seen), name)
        return Y, seen
