"""A decoder with features of the inputs, and known sizes that multiply rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import keras
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.arguments import kind_of
from ..inputs import Condition
from .keras import KerasDecoder

__all__ = ["ConditionalDecoder"]


class ConditionalDecoder(gpflow.Module):
    r"""A decoder of codes and inputs: F = network(latents, features(X)) + log size(X).

    Features are covariates of a point, such as the batch in which a cell was measured: codes need
    not represent them, and predictions can be for any of their values. A size is the exposure
    of a point (:mod:`count likelihoods <gpflow_bae.likelihoods.counts>`).

    It is for any model with inputs; a CVAE's decoder takes features itself.
    """

    needs_inputs = True

    @check_arguments(condition_dim=0, size_column=0)
    def __init__(
        self,
        decoder: keras.Model | tf.Module,
        condition: Callable[[tf.Tensor], tf.Tensor] | None = None,
        condition_dim: int = 0,
        size_column: int | None = None,
    ):
        """
        :param decoder: Keras model ``[rows, L + condition_dim] -> [rows, P]``, codes first, or a
            :class:`KerasDecoder` with other priors than its default.
        :param condition: function from inputs ``X [..., N, D]`` to features
            ``[..., N, condition_dim]``.
        :param condition_dim: number of features; 0 for none.
        :param size_column: column of X with sizes, above 0; None for none. Kernels over X
            should exclude it (``active_dims``).
        :raises TypeError: for another decoder.
        :raises ValueError: if the decoder has no more inputs than features, or there are neither
            features nor sizes.
        """
        super().__init__(name=None)
        if not isinstance(decoder, gpflow.Module):
            decoder = KerasDecoder(decoder)
        known = hasattr(decoder, "latent_dim") and hasattr(decoder, "output_dim")
        if not known or getattr(decoder, "needs_inputs", False):
            raise TypeError(
                "decoder must be a built keras.Model or one of gpflow_bae.decoders that sees codes "
                f"alone, got {kind_of(decoder)}."
            )
        if (condition is None) != (condition_dim == 0):
            raise ValueError(
                f"condition_dim is {condition_dim}, and condition is {condition}: give both, "
                "features and how many they are, or neither."
            )
        if condition is None and size_column is None:
            raise ValueError(
                "A ConditionalDecoder has features (condition) or sizes (size_column) of the "
                "inputs, and here are neither: take the decoder inside as it is."
            )
        self.decoder: Any = decoder
        if self.decoder.latent_dim <= condition_dim:
            raise ValueError(
                f"decoder takes {self.decoder.latent_dim} inputs per point, of which condition_dim "
                f"= {condition_dim} are features, so none are codes: give its Input shape "
                "(latent_dim + condition_dim,)."
            )
        self._condition = None if condition is None else Condition(condition, condition_dim)
        self.condition_dim, self.size_column = int(condition_dim), size_column

    @property
    def latent_dim(self) -> int:
        """Number of code channels L."""
        return int(self.decoder.latent_dim) - self.condition_dim

    @property
    def output_dim(self) -> int:
        """Number of likelihood parameters P per point."""
        return int(self.decoder.output_dim)

    @check_shapes("latents: [batch..., N, L]", "return: [batch..., N, P]")
    def __call__(self, latents: TensorType, X: TensorType | None = None) -> tf.Tensor:
        """Return likelihood parameters, in the network's precision.

        :param X: inputs that broadcast to [batch..., N, D].
        :raises ValueError: if ``X`` is None.
        """
        if X is None:
            raise ValueError(
                "A ConditionalDecoder sees features or sizes of the inputs: X is needed, got None."
            )
        if self._condition is not None:
            latents = self._condition.join(latents, X)
        F = self.decoder(latents)
        if self.size_column is None:
            return F
        size = tf.convert_to_tensor(X)[..., self.size_column, None]
        return F + tf.cast(tf.math.log(size), F.dtype)
