"""Samplers over structures of tensors: they know neither GPflow models nor Keras.

A module per algorithm with ``State``, ``init`` and ``update``, and a thin
``tfp.mcmc.TransitionKernel`` over each. :mod:`gpflow_bae.mcmc.types` has what all share.
"""

from gpflow_bae.mcmc import adaptive_sghmc, kernels, noise, sghmc, types
from gpflow_bae.mcmc.kernels import SGHMC, AdaptiveSGHMC

__all__ = [
    "SGHMC",
    "AdaptiveSGHMC",
    "adaptive_sghmc",
    "kernels",
    "noise",
    "sghmc",
    "types",
]
