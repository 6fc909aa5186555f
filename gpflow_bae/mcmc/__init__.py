"""MCMC samplers over structures of tensors, independent of GPflow models and Keras.

There is a module per algorithm with ``State``, ``init`` and ``update``. Stochastic-gradient
samplers and ``mclmc`` have ``build`` too, which returns them as a :class:`SamplingAlgorithm`,
the interface of engines; those with an accept-reject step are for parallel tempering. Three are
available as a ``tfp.mcmc.TransitionKernel`` in :mod:`gpflow_bae.mcmc.kernels`. Conventions that all
share are in :mod:`gpflow_bae.mcmc.types`.
"""

from gpflow_bae.mcmc import (
    adaptive_sghmc,
    algorithm,
    energy_variance,
    integrators,
    kernels,
    mclmc,
    noise,
    schedules,
    sghmc,
    sgld,
    step_size,
    structures,
    types,
)
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, State, Step, Target
from gpflow_bae.mcmc.building import build_sampler
from gpflow_bae.mcmc.calibrated import (
    adaptive_langevin,
    hmc,
    langevin,
    metropolis,
    parallel_tempering,
    random_walk,
    slice_sampling,
    targets,
)
from gpflow_bae.mcmc.kernels import (
    SGHMC,
    SGLD,
    AdaptiveSGHMC,
)

__all__ = [
    "SGHMC",
    "SGLD",
    "AdaptiveSGHMC",
    "SamplingAlgorithm",
    "State",
    "Step",
    "Target",
    "adaptive_langevin",
    "adaptive_sghmc",
    "algorithm",
    "build_sampler",
    "energy_variance",
    "hmc",
    "integrators",
    "kernels",
    "langevin",
    "mclmc",
    "metropolis",
    "noise",
    "parallel_tempering",
    "random_walk",
    "schedules",
    "sghmc",
    "sgld",
    "slice_sampling",
    "step_size",
    "structures",
    "targets",
    "types",
]
