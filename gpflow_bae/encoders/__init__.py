"""Maps from observations to codes, or to distributions over them."""

from .gaussian import GaussianEncoder
from .stochastic import StochasticEncoder

__all__ = ["GaussianEncoder", "StochasticEncoder"]
