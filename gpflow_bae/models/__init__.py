"""The named combinations of prior, decoder, likelihood and encoder."""

from .autoencoder import BayesianAutoencoder, State, set_default_kernel_priors
from .deep_svigp import DeepSVIGP
from .gp_variational import GPPVAE, GPVAE, SGPVAE, SVGPVAE
from .gplvm import FlowGPLVM, StochasticGPLVM
from .mean_field_parameters import MeanFieldParameters
from .sampled import BAE, DSGPBAE, GPBAE, SGPBAE
from .tempered import TemperedBAE
from .variational import CVAE, VAE, MeanFieldAutoencoder, VariationalAutoencoder

__all__ = [
    "BAE",
    "CVAE",
    "DSGPBAE",
    "GPBAE",
    "GPPVAE",
    "GPVAE",
    "SGPBAE",
    "SGPVAE",
    "SVGPVAE",
    "VAE",
    "BayesianAutoencoder",
    "DeepSVIGP",
    "FlowGPLVM",
    "MeanFieldAutoencoder",
    "MeanFieldParameters",
    "State",
    "StochasticGPLVM",
    "TemperedBAE",
    "VariationalAutoencoder",
    "set_default_kernel_priors",
]
