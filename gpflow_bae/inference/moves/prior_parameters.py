"""A move of kernel parameters, code noise and inducing inputs given the codes."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ...base import Batch
from ...models import BayesianAutoencoder
from .base import Moved
from .sliced import SlicedParameters

__all__ = ["PriorParameters"]


class PriorParameters(SlicedParameters):
    """Slice sampling of the parameters of the prior over codes, given the codes.

    The conditional density does not contain the decoder, so it is cheap compared to a step of the
    chain. Sampled inducing outputs are updated by the sampler, and conditioned on here.
    """

    name = "prior_parameters"

    def __init__(self, model: BayesianAutoencoder):
        super().__init__(model)
        prior = model.latent_prior
        self._check_codes()
        if prior.draws:
            raise self._refuse(
                f"{model.latent_prior_name} estimates its density with fresh draws, and a slice "
                "needs its values."
            )
        kept = {id(p) for p in prior.parameters}
        if prior.inputs is not None:  # UnknownInputs updates these entry by entry
            kept -= {id(p) for p in prior.inputs.parameters}
        if prior.whitened_inducing is not None:
            kept -= {id(prior.whitened_inducing)}
        self._numbers = [i for i, p in enumerate(self.sampled.parameters) if id(p) in kept]
        if not self._numbers:
            raise self._refuse(f"its {model.latent_prior_name} has no parameter that is sampled.")

    def _log_likelihood(
        self, state: Moved, batch: Batch
    ) -> Callable[[tuple[tf.Tensor, ...]], tf.Tensor]:
        return lambda parameters: self._log_prior_of_codes(parameters, state.codes, batch.X)
