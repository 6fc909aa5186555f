"""The named combinations of prior, decoder, likelihood and encoder."""

from .autoencoder import BayesianAutoencoder, State, set_default_kernel_priors
from .sampled import BAE, GPBAE, SGPBAE
from .tempered import TemperedBAE
from .variational import VAE, VariationalAutoencoder

__all__ = [
    "BAE",
    "GPBAE",
    "SGPBAE",
    "VAE",
    "BayesianAutoencoder",
    "State",
    "TemperedBAE",
    "VariationalAutoencoder",
    "set_default_kernel_priors",
]
