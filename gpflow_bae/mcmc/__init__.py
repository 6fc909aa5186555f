"""MCMC samplers over structures of tensors, independent of GPflow models and Keras.

There is a module per algorithm with ``State``, ``init`` and ``update``, and ``build``, which
returns them as a :class:`SamplingAlgorithm`, the interface of engines. Four samplers are available
as a ``tfp.mcmc.TransitionKernel`` in :mod:`gpflow_bae.mcmc.kernels`. Conventions that all share are
in :mod:`gpflow_bae.mcmc.types`.
"""

from gpflow_bae.mcmc import (
    adaptive_sghmc,
    algorithm,
    energy_variance,
    gradient_estimators,
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
    LangevinGradient,
)

__all__ = [
    "SGHMC",
    "SGLD",
    "AdaptiveSGHMC",
    "LangevinGradient",
    "SamplingAlgorithm",
    "State",
    "Step",
    "Target",
    "adaptive_langevin",
    "adaptive_sghmc",
    "algorithm",
    "build_sampler",
    "energy_variance",
    "gradient_estimators",
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
