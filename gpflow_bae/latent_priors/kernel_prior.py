"""Base class of priors with one kernel for all latent channels, or one for each.

An axis of length C holds the kernels: C = 1 if all channels share one kernel (then the L
channels are right-hand sides of the same solve), C = L otherwise.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType
from gpflow.functions import MeanFunction
from gpflow.utilities import positive

from ..base import Batch
from ..core.annotations import check_arguments
from ..core.arguments import kind_of
from ..inputs import CompletedInputs, InputModel
from ..kernels.reading import check_kernel_inputs, covariance_of_points, covariance_of_tasks
from .base import LatentProcess

__all__ = ["KernelLatentPrior", "KernelLike", "as_kernels", "channels_first", "check_known_inputs"]

tfd = tfp.distributions

KernelLike: TypeAlias = gpflow.kernels.Kernel | Sequence[gpflow.kernels.Kernel]

_MIN_NOISE = 1e-6


def as_kernels(kernel: KernelLike) -> list[gpflow.kernels.Kernel]:
    """Return a list of kernels, from one for all channels or one for each.

    :raises TypeError: for objects other than kernels, and for kernels that mix channels.
    """
    if isinstance(kernel, gpflow.kernels.SharedIndependent):
        return [kernel.kernel]
    if isinstance(kernel, gpflow.kernels.SeparateIndependent):
        return list(kernel.kernels)
    if isinstance(kernel, gpflow.kernels.MultioutputKernel):
        raise TypeError(
            f"kernel is a {type(kernel).__name__}, which mixes the latent channels; here channels "
            "are independent, and it is the decoder that mixes them. Pass its latent kernels as a "
            "list (kernel.latent_kernels), and let a first dense layer of the decoder, without "
            "activation, do what its W does."
        )
    one = isinstance(kernel, gpflow.kernels.Kernel) or not np.iterable(kernel)
    kernels = [kernel] if one else list(kernel)
    for found in kernels:
        if not isinstance(found, gpflow.kernels.Kernel):
            raise TypeError(
                f"kernel must be a GPflow kernel or a list of them, got {kind_of(found)}."
            )
    return kernels


class KernelLatentPrior(LatentProcess):
    """Base class of the GP priors: kernels, mean function, code noise and channel layout."""

    kernels: Sequence[gpflow.kernels.Kernel] = ()
    takes_unknown_inputs = True
    """Whether kernels that complete unknown inputs (:class:`CompletedInputs`) are allowed."""
    takes_distances = True
    """Whether kernels compute distances, whose rounding error grows with inputs far from zero."""

    @check_arguments(latent_dim=1)
    def __init__(
        self,
        kernel: KernelLike,
        latent_dim: int,
        code_noise_variance: float | None = 1e-3,
        mean_function: MeanFunction | None = None,
    ):
        """
        :param kernel: one GPflow kernel for all channels, a sequence of L kernels, or GPflow's
            ``SharedIndependent`` or ``SeparateIndependent``.
        :param mean_function: prior mean of the codes, ``[..., N, D]`` to ``[..., N, L]`` (or
            ``[..., N, 1]`` for all channels), as in GPflow; None for zero.
        :param code_noise_variance: variance of the codes around the latent function (sigma^2 of
            the design page); sampled under LogNormal(log(value), 1) unless set not trainable.
            None if the codes are the latent function.
        """
        super().__init__(latent_dim)
        kernels = as_kernels(kernel)
        self.mean_function = mean_function
        if len(kernels) not in (1, latent_dim):
            raise ValueError(
                f"kernel must be one kernel, or one for each of the {latent_dim} latent "
                f"channels; got {len(kernels)}."
            )
        _check_same_inputs(kernels)
        if not self.takes_unknown_inputs:
            check_known_inputs(kernels, type(self).__name__)
        self.kernels = kernels
        self.code_noise_variance = None
        if code_noise_variance is None:
            return
        if not _MIN_NOISE < code_noise_variance < np.inf:
            raise ValueError(
                f"code_noise_variance must be above {_MIN_NOISE}, below which covariances cannot "
                f"be factorised, or None for none; got {code_noise_variance}."
            )
        self.code_noise_variance = Parameter(
            code_noise_variance,
            transform=positive(lower=_MIN_NOISE),
            prior=tfd.LogNormal(
                gpflow.utilities.to_default_float(np.log(float(code_noise_variance))),
                gpflow.utilities.to_default_float(1.0),
            ),
        )

    def check_inputs(self, X: np.ndarray, name: str = "X") -> None:
        kernel = self.kernels[0]
        while isinstance(kernel, CompletedInputs):  # the same for all kernels
            X, kernel = kernel.inputs.known(X), kernel.kernel
        check_kernel_inputs(self._kernels_inside, X, name, distances=self.takes_distances)

    @property
    def _kernels_inside(self) -> list[gpflow.kernels.Kernel]:
        """The kernels without input completion; inducing points are in their input space."""
        found = []
        for kernel in self.kernels:
            while isinstance(kernel, CompletedInputs):
                kernel = kernel.kernel
            found.append(kernel)
        return found

    @property
    def inputs(self) -> InputModel | None:
        """The input model of kernels that are :class:`CompletedInputs`, else None."""
        kernel = self.kernels[0]
        return kernel.inputs if isinstance(kernel, CompletedInputs) else None

    @property
    def draws(self) -> bool:  # type: ignore[override]
        """Whether inputs have distributions, so that densities are estimated by draws of them."""
        return self.inputs is not None and self.inputs.draws

    def with_seed(self, seed: TensorType) -> KernelLatentPrior:
        if self.inputs is None or not self.inputs.draws:
            return self
        return self._with_inputs(self.inputs.with_seed(seed))

    def seeing(self, batch: Batch) -> KernelLatentPrior:
        if self.inputs is None or not self.inputs.needs_observations:
            return self
        return self._with_inputs(self.inputs.seeing(batch.X, batch.Y, batch.mask))

    def _with_inputs(self, inputs: InputModel) -> KernelLatentPrior:
        """Return a copy whose kernels complete inputs by another input model."""
        found = copy.copy(self)
        # This bypasses TensorFlow's attribute tracking, whose records the copy shares.
        found.__dict__["kernels"] = kernels = [copy.copy(kernel) for kernel in self.kernels]
        for kernel in kernels:
            kernel.__dict__["inputs"] = inputs
        return found

    def centred(self, codes: TensorType, X: TensorType | None) -> TensorType:
        """Return codes [batch..., N, L] less the prior's mean at ``X``."""
        return codes if self.mean_function is None else codes - self.mean(X)

    def shifted(self, codes: TensorType, X: TensorType | None) -> TensorType:
        """Return codes [batch..., N, L] plus the prior's mean, the inverse of :meth:`centred`."""
        return codes if self.mean_function is None else codes + self.mean(X)

    def mean(self, X: TensorType | None) -> tf.Tensor:
        if self.mean_function is None:
            return super().mean(X)
        return self.mean_function(X if self.inputs is None else self.inputs.complete(X))

    @property
    def code_noise(self) -> tf.Tensor:
        """The code noise variance; zero if the codes are the latent function."""
        if self.code_noise_variance is None:
            return tf.zeros([], gpflow.default_float())
        return tf.convert_to_tensor(self.code_noise_variance)

    @property
    def shares_kernel(self) -> bool:
        """Whether all channels share one kernel (C = 1)."""
        return len(self.kernels) == 1

    def _covariance(self, X: TensorType) -> tf.Tensor:
        """Return the kernel matrices [batch..., C, N, N]."""
        return tf.stack([covariance_of_tasks(k, X) for k in self.kernels], axis=-3)

    def _cross_covariance(self, X: TensorType, Xnew: TensorType) -> tf.Tensor:
        """Return K(X, Xnew) of each task [batch..., C, N, Nnew]; GPflow would pair all tasks."""
        num_points = tf.shape(X)[-2]
        lead = tf.broadcast_dynamic_shape(tf.shape(X)[:-2], tf.shape(Xnew)[:-2])
        parts = [tf.broadcast_to(v, tf.concat([lead, tf.shape(v)[-2:]], 0)) for v in (X, Xnew)]
        joint = self._covariance(tf.concat(parts, axis=-2))
        return joint[..., :num_points, num_points:]

    def _variances(self, X: TensorType) -> tf.Tensor:
        """Return the kernels' variances [batch..., C, N]."""
        variances = [
            covariance_of_points(k, functools.partial(k, full_cov=False), X) for k in self.kernels
        ]
        return tf.stack(variances, axis=-2)

    def marginal_variance(self, X: TensorType | None) -> tf.Tensor:
        return channels_first(self._variances(X)) + self.code_noise

    def _kernel_names(self) -> str:
        return ", ".join(type(k).__name__ for k in self.kernels)


def check_known_inputs(kernels: Sequence[gpflow.kernels.Kernel], name: str) -> None:
    """Raise an error for kernels that complete their inputs, for priors that need known inputs.

    :param name: name of the prior in the error message.
    :raises ValueError: with the priors that accept such kernels.
    """
    if any(isinstance(kernel, CompletedInputs) for kernel in kernels):
        raise ValueError(
            f"{name} needs inputs that are known, and its kernel completes them (CompletedInputs): "
            "take GP, SparseGP or TitsiasGP."
        )


def _check_same_inputs(kernels: Sequence[gpflow.kernels.Kernel]) -> None:
    """Raise an error if channels complete their inputs differently: a point has one input."""
    found = {id(k.inputs) if isinstance(k, CompletedInputs) else None for k in kernels}
    if len(found) > 1:
        raise ValueError(
            "kernel is a list of which some complete their inputs and others do not, or by other "
            "tables: give each channel CompletedInputs(kernel, inputs) with the same inputs."
        )


def channels_first(values: TensorType) -> tf.Tensor:
    """Transpose [..., N, L] to [..., L, N]."""
    return tf.linalg.matrix_transpose(values)
