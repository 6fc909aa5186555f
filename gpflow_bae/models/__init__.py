"""The named combinations of prior, decoder, likelihood and encoder."""

from .autoencoder import BayesianAutoencoder, State, set_default_kernel_priors
from .deep_svigp import DeepSVIGP
from .gp_variational import GPPVAE, GPVAE, SVGPVAE
from .sampled import BAE, GPBAE, SGPBAE
from .tempered import TemperedBAE
from .variational import CVAE, VAE, MeanFieldAutoencoder, VariationalAutoencoder

__all__ = [
    "BAE",
    "CVAE",
    "GPBAE",
    "GPPVAE",
    "GPVAE",
    "SGPBAE",
    "SVGPVAE",
    "VAE",
    "BayesianAutoencoder",
    "DeepSVIGP",
    "MeanFieldAutoencoder",
    "State",
    "TemperedBAE",
    "VariationalAutoencoder",
    "set_default_kernel_priors",
]
