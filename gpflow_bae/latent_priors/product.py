"""Products of independent priors over different latent channels."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import Parameter, TensorType

from ..base import Batch, LatentPosterior
from ..core.annotations import check_arguments
from ..inputs import InputModel
from .base import GaussianLatentPrior, LatentProcess

__all__ = ["ProductPrior", "ProductProcess"]


class ProductProcess(LatentProcess):
    """A product of independent latent processes over consecutive channels of the codes.

    ``ProductProcess([TitsiasGP(kernel, Z, 4), StandardNormal(8)])`` has twelve channels: the first
    four are functions of the inputs, the other eight are independent between points. The first
    model variation that nearby points share, the others variation of single points.
    """

    @check_arguments()
    def __init__(self, parts: Sequence[LatentProcess]):
        """
        :param parts: processes, in the order of their channels.
        :raises TypeError: if ``parts`` is not a sequence of processes.
        :raises ValueError: if ``parts`` is empty, if inputs are completed differently, or if
            several parts have sampled inducing outputs.
        """
        parts = list(parts)
        if not parts:
            raise ValueError("parts has no process; give at least one.")
        super().__init__(sum(part.latent_dim for part in parts))
        self.parts = parts
        if len({id(part.inputs) for part in parts if part.inputs is not None}) > 1:
            raise ValueError(
                "parts have kernels over CompletedInputs with different inputs; give all the same."
            )
        number = sum(p.whitened_inducing is not None for p in parts)
        if number > 1:
            raise ValueError(
                f"{number} parts have sampled inducing outputs; give their channels one prior with "
                "a kernel for each."
            )

    # Properties that engines and models use, combined over the parts.

    @property
    def needs_inputs(self) -> bool:  # type: ignore[override]
        return any(part.needs_inputs for part in self.parts)

    @property
    def draws(self) -> bool:  # type: ignore[override]
        return any(part.draws for part in self.parts)

    @property
    def splits_over_points(self) -> bool:
        return all(part.splits_over_points for part in self.parts)

    @property
    def kernels(self) -> Sequence[gpflow.kernels.Kernel]:
        return [kernel for part in self.parts for kernel in part.kernels]

    @property
    def whitened_inducing(self) -> Parameter | None:
        return next((v for p in self.parts if (v := p.whitened_inducing) is not None), None)

    @property
    def inputs(self) -> InputModel | None:
        return next((v for part in self.parts if (v := part.inputs) is not None), None)

    def check_inputs(self, X: np.ndarray, name: str = "X") -> None:
        for part in self.parts:
            part.check_inputs(X, name)

    @property
    def code_noise(self) -> tf.Tensor:
        """The code noise variance of each channel [L]."""
        return tf.concat(
            [tf.broadcast_to(part.code_noise, [part.latent_dim]) for part in self.parts], 0
        )

    def with_seed(self, seed: TensorType) -> ProductProcess:
        return self._with_parts([part.with_seed(seed) for part in self.parts])

    def seeing(self, batch: Batch) -> ProductProcess:
        return self._with_parts([part.seeing(batch) for part in self.parts])

    def _with_parts(self, parts: list[LatentProcess]) -> ProductProcess:
        if all(new is old for new, old in zip(parts, self.parts, strict=True)):
            return self
        found = copy.copy(self)
        # This bypasses TensorFlow's attribute tracking, whose records the copy shares.
        found.__dict__["parts"] = parts
        return found

    # Splitting and joining of channels.

    def _split(self, *values: TensorType) -> Any:
        """Iterate over the parts with their channels of values [..., L]."""
        sizes = [part.latent_dim for part in self.parts]
        of_parts = zip(*(tf.split(v, sizes, axis=-1) for v in values), strict=True)
        return zip(self.parts, of_parts, strict=True)

    def mean(self, X: TensorType | None) -> tf.Tensor:
        return self._broadcast_parts([part.mean(X) for part in self.parts])

    def marginal_variance(self, X: TensorType | None) -> tf.Tensor:
        return self._broadcast_parts([part.marginal_variance(X) for part in self.parts])

    def _broadcast_parts(self, found: list[tf.Tensor]) -> tf.Tensor:
        """Broadcast the values of each part to its channels, and concatenate: [batch..., N, L]."""
        lead = tf.shape(found[0])[:-1]
        for values in found[1:]:
            lead = tf.broadcast_dynamic_shape(lead, tf.shape(values)[:-1])
        return tf.concat(
            [
                tf.broadcast_to(values, tf.concat([lead, [part.latent_dim]], 0))
                for part, values in zip(self.parts, found, strict=True)
            ],
            -1,
        )

    @check_shapes("mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def condition(
        self, X: TensorType | None, mean: TensorType, variance: TensorType
    ) -> LatentPosterior:
        return _join_posteriors(
            [part.condition(X, *own) for part, own in self._split(mean, variance)]
        )

    def condition_batch(
        self, X: TensorType | None, mean: TensorType, variance: TensorType, point_scale: float
    ) -> LatentPosterior:
        return _join_posteriors(
            [
                part.condition_batch(X, *own, point_scale)
                for part, own in self._split(mean, variance)
            ]
        )

    @inherit_check_shapes
    def draw_codes(
        self,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
        seed: TensorType,
        num_draws: int,
        rows: TensorType | None = None,
    ) -> tf.Tensor:
        found = []
        for number, (part, own) in enumerate(self._split(mean, variance)):
            own_seed = tf.random.fold_in(seed, number, alg="philox")
            found.append(part.draw_codes(X, *own, own_seed, num_draws, rows))
        return tf.concat(found, -1)

    def predict(
        self,
        Xnew: TensorType | None,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        found = [part.predict(Xnew, X, *own) for part, own in self._split(mean, variance)]
        return _join_moments(found, -1)

    def predict_full_cov(
        self,
        Xnew: TensorType,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        found = [part.predict_full_cov(Xnew, X, *own) for part, own in self._split(mean, variance)]
        return _join_moments(found, -3)


class ProductPrior(ProductProcess, GaussianLatentPrior):
    """A :class:`ProductProcess` of priors with densities; its density is their product."""

    @check_arguments()
    def __init__(self, parts: Sequence[LatentProcess]):
        """Arguments and errors as in :class:`ProductProcess`.

        :raises TypeError: for parts without a density, such as TitsiasGP.
        """
        for part in parts:
            if not isinstance(part, GaussianLatentPrior):
                raise TypeError(
                    f"{type(part).__name__} has no density of codes, so a product with it has "
                    "none: take ProductProcess, for variational models, or a SparseGP."
                )
        super().__init__(parts)

    def log_prob(
        self, X: TensorType | None, latents: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        return tf.add_n([part.log_prob(X, *own, noise) for part, own in self._split(latents)])

    def precision_diagonal(
        self, X: TensorType | None, shape: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        shape = tf.convert_to_tensor(shape)
        parts = []
        for part in self.parts:
            own = tf.concat([shape[:-1], [part.latent_dim]], 0)
            parts.append(tf.broadcast_to(part.precision_diagonal(X, own, noise), own))
        return tf.concat(parts, -1)

    def code_covariance(self, X: TensorType) -> tf.Tensor | None:
        """Return the covariance [batch..., L, N, N]; None if a part with inputs has none."""
        found = []
        for part in self.parts:
            covariance = part.code_covariance(X)
            if covariance is None and part.needs_inputs:
                return None
            if covariance is None:
                variance = part.marginal_variance(X)  # broadcasts to [batch..., N, L]
                shape = tf.concat([tf.shape(X)[:-1], [part.latent_dim]], 0)
                covariance = tf.linalg.diag(
                    tf.linalg.matrix_transpose(tf.broadcast_to(variance, shape))
                )
            shape = tf.shape(covariance)
            shape = tf.concat([shape[:-3], [part.latent_dim], shape[-2:]], 0)
            found.append(tf.broadcast_to(covariance, shape))
        return tf.concat(found, -3)

    def given_inducing_outputs(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Return means and variances [batch..., N, L] of codes given sampled inducing outputs.

        Channels of other parts have their prior moments.
        """
        means, variances = [], []
        for part in self.parts:
            shape = tf.concat([tf.shape(X)[:-1], [part.latent_dim]], 0)
            if part.whitened_inducing is not None:
                mean, variance = part.given_inducing_outputs(X)
            else:
                mean, variance = part.mean(X), part.marginal_variance(X)
            means.append(tf.broadcast_to(mean, shape))
            variances.append(tf.broadcast_to(variance, shape))
        return tf.concat(means, -1), tf.concat(variances, -1)


def _join_moments(
    moments: list[tuple[tf.Tensor, tf.Tensor]], axis: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Concatenate the means of all parts, and their variances or covariances along an axis."""
    means, spreads = zip(*moments, strict=True)
    return tf.concat(means, -1), tf.concat(spreads, axis)


def _join_posteriors(parts: list[LatentPosterior]) -> LatentPosterior:
    means, variances, evidences = zip(*parts, strict=True)
    return LatentPosterior(tf.concat(means, -1), tf.concat(variances, -1), tf.add_n(evidences))
