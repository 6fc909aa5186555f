"""Right arguments, as in ``calls``, of what counts take: likelihoods, sizes, channels of kinds."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from gpflow_bae import decoders, latent_priors, likelihoods
from gpflow_bae import inputs as unknown
from tests.fuzz.calls.calls import Call, inputs, kernel, network
from tests.serving.small_posteriors import L, P

COUNTS: dict[str, Call] = {
    "Poisson": (likelihoods.Poisson, lambda: {"size_column": 0}),
    "NegativeBinomial": (
        likelihoods.NegativeBinomial,
        lambda: {
            "dispersion": np.full(P, 0.5),
            "power": np.full(P, 1.5),
            "prior": None,
            "power_prior": None,
            "size_column": None,
        },
    ),
    "ZeroInflatedNegativeBinomial": (
        likelihoods.ZeroInflatedNegativeBinomial,
        lambda: {
            "dispersion": 0.5,
            "zero_probability": np.full(P, 0.1),
            "power": 2.0,
            "prior": None,
            "power_prior": None,
            "zero_prior": None,
            "size_column": None,
        },
    ),
    "ConditionalDecoder": (
        decoders.ConditionalDecoder,
        lambda: {
            "decoder": network(L + 1, P),
            "condition": tf.identity,
            "condition_dim": 1,
            "size_column": 0,
        },
    ),
    "Condition": (unknown.Condition, lambda: {"features": tf.identity, "num_features": 1}),
    "ProductPrior": (
        latent_priors.ProductPrior,
        lambda: {"parts": [latent_priors.GP(kernel(), 1, 0.1), latent_priors.StandardNormal(1)]},
    ),
    "ProductProcess": (
        latent_priors.ProductProcess,
        lambda: {
            "parts": [
                latent_priors.TitsiasGP(kernel(), inputs(2), 1),
                latent_priors.StandardNormal(1),
            ]
        },
    ),
}
