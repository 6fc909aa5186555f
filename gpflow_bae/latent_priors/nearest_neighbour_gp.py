"""The nearest-neighbour (Vecchia) GP prior over codes: cost N m^3 for m neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.mean_functions import MeanFunction

from ..base import LatentPosterior
from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from ..core.linalg import cholesky
from ..data.unequal_tasks import padded_inputs, unequal_lengths
from ..kernels.reading import covariance_of_tasks
from .base import UNINFORMATIVE_VARIANCE, gaussian_log_density
from .gp import GP
from .kernel_prior import KernelLike, channels_first
from .neighbours import Neighbourhoods

__all__ = ["NearestNeighbourGP"]


class NearestNeighbourGP(GP):
    r"""A GP prior in which each code depends on those of m near, earlier points (Vecchia).

    Vecchia (1988), Datta et al. (2016):

    .. math:: p(latents) = \prod_n p(latent_n | latents_{N(n)})

    with the conditionals of :class:`GP` with the same kernel. This is a proper density with a
    sparse precision, and that of ``GP`` if the neighbours of every point are all earlier points.
    Codes have the marginal distributions of ``GP`` up to an error that decreases with m.

    Posterior and predictions (:meth:`condition`, :meth:`predict`) are those of ``GP`` given only
    the m + 1 nearest pseudo-observations (a point's own among them, if it has one), and the
    evidence is the Vecchia density of the pseudo-observations. A model with mean-field codes
    (:class:`~gpflow_bae.guides.MeanFieldGuide`, the default of a variational model under this
    prior) has an exact bound, also in minibatches; one with
    :class:`~gpflow_bae.guides.GaussianGuide` has one up to the omitted neighbours, and needs
    all points in every step. Sampled codes can be in minibatches too: see
    :mod:`gpflow_bae.inference.engines.surroundings` for the method and its cost.

    Dense covariances (``code_covariance``, ``predict_full_cov``) are those of ``GP``, at its cost.
    """

    takes_unknown_inputs = False
    is_dense = False

    @check_arguments(num_neighbours=1)
    def __init__(
        self,
        kernel: KernelLike,
        inputs: TensorType,
        latent_dim: int,
        num_neighbours: int = 20,
        code_noise_variance: float | None = 1e-3,
        mean_function: MeanFunction | None = None,
        *,
        scales: Sequence[float] | None = None,
    ):
        """
        :param inputs: inputs of all points of the data: ``[N, D]``, or ``[T, N, D]`` if each task
            has its own inputs, or a list of ``[N_t, D]`` for tasks of unequal lengths. Neighbours
            are in the same task. Inputs may repeat.
        :param num_neighbours: m; all other points if there are fewer.
        :param scales: length scales [D] of the distances in the search; None for the kernel's
            current lengthscales if it has one for each input, else equal.
        :raises ValueError: for inputs that are not finite or of another shape, for fewer than one
            neighbour, or scales that are not positive.
        """
        super().__init__(kernel, latent_dim, code_noise_variance, mean_function)
        self.num_neighbours = int(num_neighbours)
        X, lengths = _checked(padded_inputs(inputs)), unequal_lengths(inputs)
        self.scales = self._search_scales(scales, X.shape[-1])
        self._neighbourhoods = Neighbourhoods(X, self.scales, self.num_neighbours, lengths)

    def _search_scales(self, scales: Sequence[float] | None, D: int) -> np.ndarray:
        if scales is None:
            found = getattr(self.kernels[0], "lengthscales", None)
            lengths = np.ones(D) if found is None or np.size(found) != D else np.ravel(found)
        else:
            lengths = as_numbers(scales, "scales")
        if lengths.shape != (D,) or not np.all(lengths > 0.0):
            raise ValueError(
                f"scales must be {D} positive lengths, one for each input, got {lengths.tolist()}."
            )
        return lengths

    @property
    def _earlier(self) -> tf.Tensor:
        return self._neighbourhoods.earlier

    def _check_points(self, X: TensorType) -> tf.Tensor:
        """Return ``X`` if these are the inputs that the prior was made for.

        :raises ValueError: for other inputs.
        """
        X = tf.cast(X, gpflow.default_float())
        known, own = self._neighbourhoods.X.shape, tuple(X.shape)
        fits = own[-2:] == known[-2:] and (len(known) == 2 or own == known)
        values = tf.get_static_value(X) if fits else None
        if not fits:
            raise ValueError(
                f"X has shape {own}, and NearestNeighbourGP was made for inputs of shape {known}. "
                "Neighbours belong to points, so it takes all points of all tasks with inputs of "
                "their own together: make a prior of these inputs, and for several such tasks "
                "leave batch_size out."
            )
        if values is not None and not np.allclose(values, self._neighbourhoods.X):
            raise ValueError(
                "X has other values than the inputs that NearestNeighbourGP was made for, in the "
                "same or another order, and its neighbours are those of the latter: make a prior "
                "of X."
            )
        return X

    def _gather(self, values: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        """Gather ``values [batch..., N, K]`` at a table [(T,) N, m]: [batch..., N, m, K]."""
        table = tf.maximum(table, 0)
        if table.shape.rank == 2:
            return tf.gather(values, table, axis=-2)
        tasks = tf.shape(table)[:1]
        values = tf.broadcast_to(values, tf.concat([tasks, tf.shape(values)[-2:]], 0))
        return tf.gather(values, table, axis=1, batch_dims=1)

    def _noise_at(self, noise: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        """Gather noise [batch..., N, K] at a table, huge where that is -1: [batch..., N, m, K]."""
        found = self._gather(noise, table)
        return tf.where(
            (table >= 0)[..., None], found, tf.cast(UNINFORMATIVE_VARIANCE, found.dtype)
        )

    def _covariances(self, places: tf.Tensor) -> tf.Tensor:
        """Return kernel matrices [batch..., C, N, m, m] of ``places [batch..., N, m, D]``."""
        return tf.stack([covariance_of_tasks(k, places) for k in self.kernels], axis=-4)

    def _conditionals(self, X: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return weights [batch..., N, m, K] and variances [..., N, K] given the neighbours.

        :param noise: [batch..., N, K], K = 1 if channels share it, else L.
        """
        table = self._earlier
        own = tf.broadcast_to(tf.range(table.shape[-2])[:, None], [*table.shape[:-1], 1])
        table = tf.concat([table, own], axis=-1)  # itself last
        places, noises = self._gather(X, table), self._gather(noise, table)
        return self._last_given_others(places, noises, table >= 0)

    def _last_given_others(
        self, places: tf.Tensor, noise: tf.Tensor, present: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return weights and variances of the last of m + 1 places given the others.

        :param places: [batch..., N, m + 1, D].
        :param noise: [batch..., N, m + 1, K].
        :param present: [batch..., N, m + 1].
        """
        total = self._covariances(places) + tf.linalg.diag(_channels_out(noise))
        pairs = (present[..., :, None] & present[..., None, :])[..., None, :, :, :]
        # Absent neighbours are independent of all other places.
        total = tf.where(pairs, total, tf.eye(tf.shape(present)[-1], dtype=total.dtype))
        L = cholesky(total, f"K + noise among neighbours ({self._kernel_names()})")
        row = L[..., -1, :-1, None]
        weights = tf.linalg.triangular_solve(L[..., :-1, :-1], row, adjoint=True)[..., 0]
        return _channels_in(weights), channels_first(tf.square(L[..., -1, -1]))

    def _density(self, X: tf.Tensor, values: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """Return the Vecchia log density [batch...] of centred values [batch..., N, L]."""
        weights, variance = self._conditionals(X, noise)
        expected = tf.reduce_sum(weights * self._gather(values, self._earlier), axis=-2)
        return tf.reduce_sum(gaussian_log_density(values - expected, variance), axis=[-2, -1])

    def _noise_of_points(self, noise: TensorType | None) -> tf.Tensor:
        """Return the variance of code noise, and of noise [..., N, 1] added to it: [..., N, 1]."""
        own = tf.fill([self._earlier.shape[-2], 1], self._noise())
        return own if noise is None else own + noise

    @check_shapes(
        "X: [xbatch..., N, D]",
        "latents: [batch..., N, L]",
        "noise: [batch..., N, 1]",
        "return: [batch...]",
    )
    def log_prob(
        self, X: TensorType, latents: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        """Return the Vecchia log density of the codes."""
        X = self._check_points(X)
        latents = self.centred(tf.cast(latents, gpflow.default_float()), X)
        return self._density(X, latents, self._noise_of_points(noise))

    @property
    def by_neighbours(self) -> NearestNeighbourGP:
        return self

    def check_lengths(self, lengths: Sequence[int] | None) -> None:
        """Check that padding of tasks of unequal lengths is no point's neighbour.

        :param lengths: numbers of points of the tasks of data that came as lists.
        :raises ValueError: if the prior was made of inputs without, or of other, lengths.
        """
        own = self._neighbourhoods.lengths
        if lengths is not None and own != lengths:
            raise ValueError(
                f"The data have tasks of {lengths} points, and NearestNeighbourGP was made of "
                f"{'an array of inputs' if own is None else f'tasks of {own}'}: make it of the "
                "same list of inputs, or padding would be neighbours of points."
            )

    def neighbours_of(self, X: TensorType) -> tf.Tensor | None:
        """Return the indices [N, m] of each point's neighbours in a single task, -1 for none.

        :param X: all inputs [1, N, D].
        :return: None if each task has its own neighbours; points then cannot be in minibatches.
        """
        self._check_points(X)
        return self._earlier if self._earlier.shape.rank == 2 else None

    @check_shapes(
        "X: [batch..., F, places, D]",
        "latents: [batch..., F, places, L]",
        "present: [F, places]",
        "variance: [batch..., F, places, L]",
        "return: [batch..., F]",
    )
    def log_conditionals(
        self,
        X: TensorType,
        latents: TensorType,
        present: TensorType,
        variance: TensorType | None = None,
    ) -> tf.Tensor:
        """Return log p(latent | latents of its neighbours) [1, F] of the last of m + 1 points.

        :param X: inputs [1, F, m + 1, D].
        :param latents: their codes [1, F, m + 1, L].
        :param present: [F, m + 1], False where a point has fewer than m neighbours.
        :param variance: variances of independent codes with means ``latents``, over which the
            expectation is taken; None for known codes.
        """
        latents = self.centred(tf.cast(latents, gpflow.default_float()), X)
        noise = tf.fill([*tf.unstack(tf.shape(X)[:-1]), 1], self._noise())
        weights, left = self._last_given_others(X, noise, present)
        expected = tf.reduce_sum(weights * latents[..., :-1, :], axis=-2)
        terms = gaussian_log_density(latents[..., -1, :] - expected, left)
        if variance is not None:  # of the residual
            spread = tf.reduce_sum(tf.square(weights) * variance[..., :-1, :], axis=-2)
            terms -= 0.5 * (variance[..., -1, :] + spread) / left
        return tf.reduce_sum(terms, axis=-1)

    def precision_diagonal(
        self, X: TensorType, shape: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        """Return 1 / v of each point plus w^2 / v of its children, w being its weight in them."""
        weights, variance = self._conditionals(self._check_points(X), self._noise_of_points(noise))
        parts = tf.square(weights) / variance[..., None, :]  # [(T,) N, m, C]
        lead, number = tf.shape(variance)[:-2], tf.shape(variance)[-2]
        tasks = tf.reduce_prod(lead)
        table = tf.broadcast_to(tf.maximum(self._earlier, 0), tf.shape(parts)[:-1])
        table = tf.reshape(table, [tasks, -1]) + number * tf.range(tasks)[:, None]
        from_others = tf.math.unsorted_segment_sum(
            tf.reshape(parts, [-1, parts.shape[-1]]), tf.reshape(table, [-1]), tasks * number
        )
        return 1.0 / variance + tf.reshape(from_others, tf.shape(variance))

    @check_shapes(
        "X: [xbatch..., N, D]",
        "mean: [batch..., N, L]",
        "variance: [batch..., N, L]",
    )
    def condition(self, X: TensorType, mean: TensorType, variance: TensorType) -> LatentPosterior:
        X = self._check_points(X)
        y, total = self.centred(mean, X), variance + self._noise()
        near = self._neighbourhoods.near  # itself first
        covariance = self._covariances(self._gather(X, near))
        noise = _channels_out(self._noise_at(total, near))
        f_mean, explained = _regressed(
            covariance, covariance[..., 0, :], noise, self._gather(y, near)
        )
        # Rounding can make a variance of zero slightly negative.
        f_variance = tf.nn.relu(channels_first(self._variances(X)) - explained)
        # Given the function, a code's mean is between it and the pseudo-observation.
        rest = variance / total
        return LatentPosterior(
            self.shifted(rest * f_mean + (1.0 - rest) * y, X),
            self._noise() * rest + tf.square(rest) * f_variance,
            self._density(X, y, total),
        )

    @check_shapes("mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def predict(
        self, Xnew: TensorType, X: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Predict at ``Xnew`` given the nearest pseudo-observations of the same task."""
        X = self._check_points(X)
        Xnew, y = tf.cast(Xnew, X.dtype), self.centred(mean, X)
        known = X[0] if X.shape.rank == 3 and X.shape[0] == 1 else X
        table = self._nearest_known(Xnew, known)
        near = self._gather(known, table)
        new = tf.broadcast_to(Xnew[..., None, :], tf.shape(near[..., :1, :]))
        places = tf.concat([new, near], axis=-2)
        covariance = self._covariances(places)
        noise = _channels_out(self._noise_at(variance + self._noise(), table))
        f_mean, explained = _regressed(
            covariance[..., 1:, 1:], covariance[..., 0, 1:], noise, self._gather(y, table)
        )
        f_variance = tf.nn.relu(channels_first(self._variances(Xnew)) - explained)
        return self.shifted(f_mean, Xnew), f_variance

    def _nearest_known(self, Xnew: tf.Tensor, known: tf.Tensor) -> tf.Tensor:
        """Return the rows of ``known [(T,) N, D]`` nearest to each of ``Xnew [(T,) Nnew, D]``.

        They are [(T,) Nnew, m + 1], found from all distances, as a TensorFlow graph has no tree; -1
        where a task has fewer rows.
        """
        most = int(self._earlier.shape[-2])
        count = min(self.num_neighbours + 1, most)

        def of_task(task: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
            (new, old), length = (places / self.scales for places in task[:2]), task[2]

            def of_one(x: tf.Tensor) -> tf.Tensor:
                distances = tf.reduce_sum(tf.square(old - x), axis=-1)
                distances = tf.where(tf.range(most) < length, distances, np.inf)
                nearness, found = tf.math.top_k(-distances, count)
                return tf.where(tf.math.is_finite(nearness), found, -1)

            return tf.map_fn(of_one, new, fn_output_signature=tf.int32)

        lengths = self._neighbourhoods.lengths
        if Xnew.shape.rank == 2 and known.shape.rank == 2:
            return of_task((Xnew, known, tf.constant(most)))
        tasks = tf.broadcast_dynamic_shape(tf.shape(Xnew)[:-2], tf.shape(known)[:-2])
        both = (
            tf.broadcast_to(places, tf.concat([tasks, tf.shape(places)[-2:]], 0))
            for places in (Xnew, known)
        )
        own = tf.broadcast_to(most if lengths is None else tf.constant(lengths, tf.int32), tasks)
        return tf.map_fn(of_task, (*both, own), fn_output_signature=tf.int32)


def _regressed(
    covariance: tf.Tensor, cross: tf.Tensor, noise: tf.Tensor, y: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the mean of a function given noisy values, and the variance that they explain.

    :param covariance: covariance between the m places [batch..., C, N, m, m].
    :param cross: covariance with the place to predict [batch..., C, N, m].
    :param noise: [batch..., L, N, m].
    :param y: [batch..., N, m, L].
    :return: both [batch..., N, L].
    """
    L = cholesky(covariance + tf.linalg.diag(noise), "K + noise among the nearest neighbours")
    cross = tf.broadcast_to(cross, tf.shape(L)[:-1])[..., None]
    half = tf.linalg.triangular_solve(L, cross)
    weights = tf.linalg.triangular_solve(L, half, adjoint=True)[..., 0]
    mean = tf.reduce_sum(_channels_in(weights) * y, axis=-2)
    return mean, channels_first(tf.reduce_sum(tf.square(half[..., 0]), axis=-1))


def _checked(inputs: TensorType) -> np.ndarray:
    """Return valid inputs [N, D] or [T, N, D]; [N, D] if all tasks share them."""
    X = as_numbers(inputs, "inputs")
    if X.ndim not in (2, 3) or X.shape[-2] < 1 or X.shape[-1] < 1:
        raise ValueError(f"inputs must have shape [N, D] or [T, N, D], got {X.shape}.")
    if not np.isfinite(X).all():
        raise ValueError("inputs hold NaN or infinity; every point needs a place.")
    return X[0] if X.ndim == 3 and (X == X[:1]).all() else X


def _channels_out(values: tf.Tensor) -> tf.Tensor:
    """Transpose [..., N, m, L] to [..., L, N, m]."""
    rank = values.shape.rank
    return tf.transpose(values, [*range(rank - 3), rank - 1, rank - 3, rank - 2])


def _channels_in(values: tf.Tensor) -> tf.Tensor:
    """Transpose [..., L, N, m] to [..., N, m, L]."""
    rank = values.shape.rank
    return tf.transpose(values, [*range(rank - 3), rank - 2, rank - 1, rank - 3])
