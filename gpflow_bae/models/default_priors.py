"""Default priors of the parameters of a sampled model."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow_probability as tfp
from gpflow.base import Parameter

from ..core.scales import spread
from ..latent_priors import LatentProcess
from ..latent_priors.inducing import InducingLatentPrior

__all__ = [
    "check_priors",
    "inducing_layers",
    "set_default_kernel_priors",
    "set_default_likelihood_priors",
    "set_default_priors",
]

tfd = tfp.distributions

_POSITIVE = ("variance", "scale", "shape", "sigma")  # parameters of GPflow's likelihoods


def set_default_kernel_priors(
    kernel: gpflow.kernels.Kernel, lengthscale: float = 1.0, variance: float = 0.05
) -> None:
    """Set the log-normal priors of Tran et al. (2023) on kernel parameters without a prior.

    Lengthscales get LogNormal(log lengthscale, 1), variances LogNormal(log variance, 1). Existing
    priors, and parameters that are not trainable, are unchanged. Sampled models do this with a
    copy of your kernel; variational models use only the priors that you set.

    :raises ValueError: for a trainable parameter of any other name without a prior.
    """
    medians = {"lengthscales": lengthscale, "variance": variance}
    for path, parameter in gpflow.utilities.parameter_dict(kernel).items():
        if parameter.prior is not None or not parameter.trainable:
            continue
        name = path.rsplit(".", 1)[-1]
        if name not in medians:
            raise ValueError(
                f"The kernel's parameter {path} is sampled but has no prior, and there is no "
                f"default for {name!r}: set its prior to a tfp distribution, or fix it with "
                "gpflow.set_trainable(parameter, False)."
            )
        location = gpflow.utilities.to_default_float(np.log(medians[name]))
        parameter.prior = tfd.LogNormal(location, gpflow.utilities.to_default_float(1.0))


def inducing_layers(latent_prior: LatentProcess) -> list[InducingLatentPrior]:
    """Return the submodules of a prior that have inducing points, the prior itself included."""
    modules = (latent_prior, *latent_prior.submodules)
    return [module for module in modules if isinstance(module, InducingLatentPrior)]


def set_default_priors(latent_prior: LatentProcess) -> None:
    """Set default priors on the kernels and inducing inputs of a fitted latent prior.

    Parameters that have a prior keep it. Kernels get the priors of
    :func:`set_default_kernel_priors`; inducing inputs keep their values and get, in each column, a
    normal prior with the column's mean and twice its standard deviation.

    :raises ValueError: for trainable inducing inputs with columns that a kernel reads as ids.
    """
    for kernel in latent_prior.kernels:
        set_default_kernel_priors(kernel)
    for layer in inducing_layers(latent_prior):
        Z = layer.inducing_variable.Z
        if not (isinstance(Z, Parameter) and Z.trainable):
            continue
        if layer.id_columns:
            raise ValueError(
                f"The inducing inputs are sampled, and a kernel reads their column(s) "
                f"{layer.id_columns} as ids, which would be moved: hold them with "
                "gpflow.set_trainable(model.inducing_variable, False)."
            )
        if Z.prior is None:
            values = Z.numpy()
            Z.prior = tfd.Normal(values.mean(0), 2.0 * spread(values))


def set_default_likelihood_priors(likelihood: gpflow.Module) -> None:
    """Set log-normal priors on positive parameters of a likelihood without a prior.

    The variance, scale, shape and sigma of GPflow's likelihoods get LogNormal(log(value), 1), as
    the noise of :class:`~gpflow_bae.likelihoods.Gaussian` has. Existing priors, other parameters
    and those that are not trainable are unchanged. Sampled models do this with a copy of your
    likelihood.
    """
    for path, parameter in gpflow.utilities.parameter_dict(likelihood).items():
        positive = path.rsplit(".", 1)[-1] in _POSITIVE
        if parameter.prior is None and parameter.trainable and positive:
            location = np.log(parameter.numpy())
            parameter.prior = tfd.LogNormal(location, np.ones_like(location))


def check_priors(model: Any) -> None:
    """Check that every sampled parameter of a model has a prior.

    :raises ValueError: naming the first parameter without one by its path in the model.
    """
    sampled = model.sampled
    for path, parameter in zip(sampled.paths, sampled.parameters, strict=True):
        if parameter.prior is None:
            raise ValueError(
                f"The model's parameter {path} of shape {tuple(parameter.shape)} is sampled but "
                "has no prior, and there is no default for it: set its prior to a tfp "
                "distribution before the model is made, or fix it with "
                "gpflow.set_trainable(parameter, False)."
            )
