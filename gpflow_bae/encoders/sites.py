"""A Gaussian factor of its own for the code of every point of the training data."""

from __future__ import annotations

from typing import Any, NoReturn

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from ..arguments import check_arguments
from .base import Encoder
from .free import check_training_rows, rows_of

__all__ = ["SiteEncoder"]


class SiteEncoder(Encoder):
    r"""For each point of the training data a free Gaussian factor of its code, a site,

    .. math:: t_n(z) = \exp(r_n^T z - z^T \Lambda_n z / 2),

    with a precision :math:`\Lambda_n` [L, L], positive semidefinite, and a linear term
    :math:`r_n` [L]. It looks at no observation: :class:`~gpflow_bae.guides.SiteGuide` moves the
    sites by natural gradients, so they know nothing of other data than those of the fit.

    Held, and handed to a prior, are L projections of the code with unit noise: the site is
    :math:`N(t_n | A_n z, I)` with :math:`A_n^T A_n = \Lambda_n` and :math:`A_n^T t_n = r_n`, so
    that whatever A and t are, it is a site. Sites begin as ones that say nothing.
    """

    takes_indices = True
    least_precision = 1e-10
    """Of a site along any direction: it changes a posterior by one part in 1e10, and a linear term
    in a direction that likelihoods do not curve in still has a place."""

    @check_arguments(num_tasks=1, num_points=1, latent_dim=1)
    def __init__(self, num_tasks: int, num_points: int, latent_dim: int, full: bool = True):
        """
        :param num_tasks, num_points: T and N of the training data; T = 1 for a single task.
        :param full: whether precisions are full matrices, for priors that take projections of codes
            (:class:`~gpflow_bae.latent_priors.LinearMixture`); else they are diagonal, an ordinary
            pseudo-observation of each channel, for every prior.
        :raises ValueError: for sizes below 1.
        """
        super().__init__(name=None)
        for name, size in zip(
            ("num_tasks", "num_points", "latent_dim"),
            (num_tasks, num_points, latent_dim),
            strict=True,
        ):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}.")
        self.latent_dim, self.full = int(latent_dim), bool(full)
        # Items (tasks, or points of a single task) come first, as in a FreeFormEncoder.
        self._single_task = num_tasks == 1
        lead = (num_points,) if self._single_task else (num_tasks, num_points)
        diagonal = np.full(latent_dim, np.sqrt(self.least_precision), gpflow.default_float())
        root = np.diag(diagonal) if full else diagonal
        self.target = Parameter(np.zeros((*lead, latent_dim)))
        self.root = Parameter(np.broadcast_to(root, (*lead, *root.shape)).copy())

    def _held(self, indices: TensorType | None) -> tuple[tf.Tensor, tf.Tensor]:
        target, root = rows_of(self.target, indices), rows_of(self.root, indices)
        return (target[None], root[None]) if self._single_task else (target, root)

    @check_shapes("Y: [batch..., N, P]", "mask: [batch..., N, P]", "indices: [B]")
    def __call__(
        self,
        Y: TensorType,
        mask: TensorType | None = None,
        indices: TensorType | None = None,
        **side: Any,
    ) -> tuple[tf.Tensor, ...]:
        """Pseudo-observations of the training data, in ``default_float()``.

        Means and variances [T, N, L], and what they are of, [T, N, L, L]; where precisions are
        diagonal they are of the channels themselves.

        :param Y: only its shape matters.
        :param indices: which tasks (points, where there is a single task) ``Y`` holds; None for
            all of them.
        :raises ValueError: if ``Y`` is not as large as that.
        """
        target, root = self._held(indices)
        check_training_rows("A SiteEncoder has sites", target, Y, indices)
        if self.full:
            return target, tf.ones_like(target), root
        return target / root, 1.0 / tf.square(root)

    def natural_parameters(self, indices: TensorType | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Linear terms r [T, N, L] and precisions [T, N, L, L], [T, N, L] where diagonal."""
        target, root = self._held(indices)
        if not self.full:
            return root * target, tf.square(root)
        linear = tf.linalg.matvec(root, target, transpose_a=True)
        return linear, tf.matmul(root, root, transpose_a=True)

    def assign(
        self, linear: TensorType, precision: TensorType, indices: TensorType | None = None
    ) -> None:
        """Replace sites by those of these natural parameters, the others stay as they are.

        :param linear, precision: as :meth:`natural_parameters` returns them. Eigenvalues below
            ``least_precision`` become that.
        """
        least = tf.cast(self.least_precision, precision.dtype)
        if self.full:
            scale, directions = tf.linalg.eigh(precision)
            scale = tf.sqrt(tf.maximum(scale, least))
            root = scale[..., :, None] * tf.linalg.matrix_transpose(directions)
            target = tf.linalg.matvec(directions, linear, transpose_a=True) / scale
        else:
            root = tf.sqrt(tf.maximum(precision, least))
            target = linear / root
        for parameter, value in ((self.target, target), (self.root, root)):
            value = value[0] if self._single_task else value
            if indices is None:
                parameter.assign(value)
            else:
                parameter.unconstrained_variable.scatter_update(tf.IndexedSlices(value, indices))

    def sample(self, Y: TensorType, seed: TensorType, **side: Any) -> NoReturn:
        """Refused: see the class.

        :raises NotImplementedError: always.
        """
        raise NotImplementedError(
            "The sites of a SiteEncoder are no distribution of codes before a prior joins them: "
            "take predict_latent or reconstruct of a posterior, which put the prior in."
        )
