"""Published models: named combinations of latent prior, decoder, likelihood and guide."""

from .autoencoder import Autoencoder
from .bayesian import BayesianAutoencoder, State
from .deep_svigp import DeepSVIGP
from .default_priors import set_default_kernel_priors
from .gp_variational import GPPVAE, GPVAE, SGPVAE, SVGPVAE
from .gplvm import FlowGPLVM, StochasticGPLVM
from .linear_coregionalisation import LinearCoregionalisation, principal_directions
from .mean_field_parameters import MeanFieldParameters
from .sampled import BAE, DSGPBAE, GPBAE, SGPBAE
from .tempered import TemperedBAE
from .variational import CVAE, VAE, VariationalAutoencoder

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
    "Autoencoder",
    "BayesianAutoencoder",
    "DeepSVIGP",
    "FlowGPLVM",
    "LinearCoregionalisation",
    "MeanFieldParameters",
    "State",
    "StochasticGPLVM",
    "TemperedBAE",
    "VariationalAutoencoder",
    "principal_directions",
    "set_default_kernel_priors",
]
