"""Samplers over structures of tensors: they know neither GPflow models nor Keras.

A module per algorithm with ``State``, ``init`` and ``update``, and ``build``, which makes a
:class:`SamplingAlgorithm` of them: what engines and the ``tfp.mcmc.TransitionKernel`` of each know.
:mod:`gpflow_bae.mcmc.types` has what all share.
"""

from gpflow_bae.mcmc import (
    adaptive_langevin,
    adaptive_sghmc,
    algorithm,
    gradient_estimators,
    hmc,
    integrators,
    kernels,
    langevin,
    mclmc,
    metropolis,
    noise,
    parallel_tempering,
    preconditioned_sgld,
    random_walk,
    schedules,
    sghmc,
    sgld,
    sgnht,
    slice_sampling,
    step_size,
    structures,
    targets,
    types,
)
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, State, Step, Target
from gpflow_bae.mcmc.kernels import (
    SGHMC,
    SGLD,
    SGNHT,
    AdaptiveSGHMC,
    LangevinGradient,
    PreconditionedSGLD,
    replica_exchange,
)

__all__ = [
    "SGHMC",
    "SGLD",
    "SGNHT",
    "AdaptiveSGHMC",
    "LangevinGradient",
    "PreconditionedSGLD",
    "SamplingAlgorithm",
    "State",
    "Step",
    "Target",
    "adaptive_langevin",
    "adaptive_sghmc",
    "algorithm",
    "gradient_estimators",
    "hmc",
    "integrators",
    "kernels",
    "langevin",
    "mclmc",
    "metropolis",
    "noise",
    "parallel_tempering",
    "preconditioned_sgld",
    "random_walk",
    "replica_exchange",
    "schedules",
    "sghmc",
    "sgld",
    "sgnht",
    "slice_sampling",
    "step_size",
    "structures",
    "targets",
    "types",
]
