"""Mean-field variational inference for the parameters of a variational autoencoder."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.utilities import positive

from ..base import Batch, Snapshot, VariationalModel, VariationalTerms
from ..core.annotations import check_arguments
from ..latent_priors.base import LOG_2PI
from ..mcmc.noise import standard_noise
from .default_priors import check_priors, set_default_likelihood_priors, set_default_priors
from .variational import VariationalAutoencoder

__all__ = ["MeanFieldParameters"]


def _of_model(name: str) -> Any:
    return property(lambda self: getattr(self.model, name), doc=f"``{name}`` of the model.")


class MeanFieldParameters(gpflow.Module, VariationalModel):
    r"""A variational model with q(parameters) = prod_i N(m_i, s_i^2) in unconstrained space.

    .. math:: ELBO = E_q[ELBO_{model}(parameters)] - KL[q(parameters) || p(parameters)],

    with one draw of the parameters for each batch ("Bayes by backprop", Blundell et al. 2015;
    BVAE-VI in appendix F of Tran et al. 2023). ``fit_variational`` fits it like the model itself.
    """

    @check_arguments()
    def __init__(self, model: VariationalAutoencoder, num_items: int, initial_scale: float = 1e-2):
        """
        :param model: its present values are the initial means. Parameters without a prior get the
            default one, if there is one, because every parameter needs a prior here.
        :param num_items: number of tasks of the data (or of points of a single task), which
            determines a batch's share of the KL.
        :param initial_scale: initial value of every s_i.
        :raises ValueError: if ``initial_scale`` or ``num_items`` is not positive.
        """
        super().__init__(name=None)
        if initial_scale <= 0 or num_items <= 0:
            raise ValueError(
                "initial_scale and num_items must be positive, got "
                f"{initial_scale} and {num_items}."
            )
        set_default_priors(model.latent_prior)
        set_default_likelihood_priors(model.likelihood)
        check_priors(model)
        self.model, self.num_items = model, int(num_items)
        values = model.sampled.values()
        self.means = [gpflow.Parameter(v, dtype=v.dtype) for v in values]
        self.scales = [
            gpflow.Parameter(tf.fill(v.shape, initial_scale), transform=positive(), dtype=v.dtype)
            for v in values
        ]

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables of means, scales and the encoder; the model's own parameters are drawn."""
        own = [p.unconstrained_variable for p in [*self.means, *self.scales]]
        return (*own, *self.model.amortized.variables)

    # What concerns data is as in the model, at its values when q was constructed.
    needs_inputs = _of_model("needs_inputs")
    inputs = _of_model("inputs")
    splits_over_points = _of_model("splits_over_points")
    latent_prior = _of_model("latent_prior")
    latent_prior_name = _of_model("latent_prior_name")
    decoder = _of_model("decoder")
    observation_likelihood = _of_model("observation_likelihood")
    check_inputs = _of_model("check_inputs")
    snapshot = _of_model("snapshot")

    @property
    def latent_prior_variables(self) -> tuple[tf.Variable, ...]:
        """Variables of the means of the latent prior's parameters."""
        of_prior = {id(p) for p in self.model.latent_prior.parameters}
        return tuple(
            mean.unconstrained_variable
            for parameter, mean in zip(self.model.sampled.parameters, self.means, strict=True)
            if id(parameter) in of_prior
        )

    def divergence(self, values: list[tf.Tensor]) -> tf.Tensor:
        """Return -H[q] - log p(values), whose expectation under q is KL[q || p], in nats."""
        entropy = tf.add_n(
            [
                tf.reduce_sum(tf.cast(tf.math.log(scale) + 0.5 * (1.0 + LOG_2PI), tf.float64))
                for scale in self.scales
            ]
        )
        log_prior = self.model.sampled.log_prior(values)
        return -entropy - tf.cast(log_prior, tf.float64)

    def draw(self, seed: TensorType) -> list[tf.Tensor]:
        """Draw the unconstrained parameters once, in the order of ``model.sampled.paths``."""
        draws = []
        for i, (mean, scale) in enumerate(zip(self.means, self.scales, strict=True)):
            mean, scale = tf.convert_to_tensor(mean), tf.convert_to_tensor(scale)
            part = tf.random.fold_in(seed, i, alg="philox")
            draws.append(mean + scale * standard_noise(tf.shape(mean), part, mean.dtype))
        return draws

    def draws(self, num_samples: int, seed: int) -> list[np.ndarray]:
        """Draw the unconstrained parameters [S, ...], in the layout of a posterior bank."""
        base = tf.constant([seed, 0x4D1], tf.int32)
        found = [self.draw(tf.random.fold_in(base, s, alg="philox")) for s in range(num_samples)]
        return [np.stack([v.numpy() for v in values]) for values in zip(*found, strict=True)]

    def terms(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> VariationalTerms:
        """Return the terms of the bound for a batch, with one draw of parameters and codes."""
        seeds = tf.unstack(tf.random.split(seed, alg="philox"))
        values = self.draw(seeds[0])
        terms = self.model.bind(values).terms(batch, seeds[1], snapshot)
        items = self.num_items / batch.scale  # for streams, whose points have no indices
        if batch.indices is not None:
            items = batch.indices.shape[0]
        divergence = self.divergence(values) * (items / self.num_items)
        return terms._replace(divergence=terms.divergence + divergence)
