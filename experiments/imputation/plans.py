"""Models and settings of the missing-data experiments (Ashman et al. 2020; Tran et al. 2023)."""

from __future__ import annotations

import dataclasses
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow_probability as tfp

from experiments.common import plans
from gpflow_bae import (
    decoders,
    encoders,
    inducing_variables,
    inference,
    latent_priors,
    likelihoods,
    models,
)
from gpflow_bae.datasets.multi_output import MultiOutputTable

__all__ = ["MODELS", "NETS", "Plan", "build_model", "default_plan"]

MODELS = ("sgp_vae", "gp_vae", "sgp_bae", "dsgp_bae")
NETS = ("zeros", "pointnet", "indexnet", "factornet", "free")
VARIATIONAL = ("sgp_vae", "gp_vae")


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a run, but the seed."""

    model: str = "sgp_vae"
    net: str = "factornet"
    log_outputs: bool = False  # positive outputs enter as logarithms
    latent_dim: int = 2
    num_inducing: int = 64
    lengthscale: float = 1.0
    period: float | None = None  # a periodic kernel, where given
    encoder_widths: tuple[int, ...] = (20,)
    decoder_widths: tuple[int, ...] = (5, 5)
    activation: str = "relu"
    noise_start: float = 0.1  # of standardised outputs (standard deviation squared)
    noise_floor: float = 1e-3
    weight_prior_scale: float = 1.0
    code_noise_variance: float = 1e-3  # of a sampled model
    hidden_variance: float = 0.05  # of what a deep prior adds to the inputs, in their units squared
    nugget: float | None = None  # the same of a variational one; None: none, as published
    variational: inference.VariationalSettings = inference.VariationalSettings()
    sampler: inference.AmortizedSettings | None = None


def default_plan(model: str, preset: str, **changes: Any) -> Plan:
    """The settings that the drivers share; each changes what its table asks for.

    :param changes: fields of :class:`Plan`; ``epochs`` and ``batch_size`` of the fit, and
        ``sampler`` as fields of :class:`~gpflow_bae.inference.AmortizedSettings`.
    """
    sampled = model not in VARIATIONAL
    steps = {"quick": 1500, "paper": 3000}[preset]
    variational = inference.VariationalSettings(
        num_steps=changes.pop("epochs", None) or steps,
        learning_rate=changes.pop("learning_rate", None) or 5e-3,
        final_learning_rate_fraction=0.05,
        batch_size=changes.pop("batch_size", None),
        prior_on_parameters=sampled,
    )
    overrides = changes.pop("sampler", None) or {}
    sampler = None
    if sampled:
        lengths = {
            "quick": {"burnin": 1500, "num_samples": 40, "thinning": 50},
            "paper": {"burnin": 1500, "num_samples": 50, "thinning": 180},
        }[preset]
        sampler = inference.AmortizedSettings(
            **(
                {"step_size": 0.005, "momentum_decay": 0.05, "encoder_loss": "energy"}
                | lengths
                | overrides
            )
        )
    return Plan(model=model, variational=variational, sampler=sampler, **changes)


def _decoder(plan: Plan, num_outputs: int) -> decoders.KerasDecoder:
    layers: list[Any] = [keras.Input((plan.latent_dim,))]
    layers += [keras.layers.Dense(w, activation=plan.activation) for w in plan.decoder_widths]
    network = keras.Sequential([*layers, keras.layers.Dense(num_outputs)])
    return decoders.KerasDecoder(network, decoders.normal_prior(plan.weight_prior_scale))


def gaussian_encoder(plan: Plan, table: MultiOutputTable) -> Any:
    """The partial inference network of a plan, as pseudo-observations of the codes."""
    if plan.net == "free":
        return encoders.FreeFormEncoder(table.num_tasks, table.Y.shape[1], plan.latent_dim)
    return _partial_encoder(plan, table)


def _partial_encoder(plan: Plan, table: MultiOutputTable, **options: bool) -> Any:
    widths = (plan.encoder_widths, plan.activation)
    return encoders.partial_encoder(
        plan.net, table.num_outputs, plan.latent_dim, *widths, **options
    )


def _kernel(plan: Plan, table: MultiOutputTable) -> gpflow.kernels.Kernel:
    width = table.X.shape[-1]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(width, plan.lengthscale))
    if plan.period is None:
        return kernel
    periodic = gpflow.kernels.Periodic(kernel, period=plan.period)
    # It is known to a few per cent, and the likelihood of other periods has many modes.
    location = gpflow.utilities.to_default_float(np.log(plan.period))
    periodic.period.prior = tfp.distributions.LogNormal(location, 0.02)
    return periodic


def inducing_inputs(plan: Plan, table: MultiOutputTable) -> np.ndarray:
    """Inducing inputs [M, D]: the centres of k-means, or all rows where there are no more."""
    rows = np.unique(table.X[table.rows], axis=0)
    if len(rows) <= plan.num_inducing:
        return rows
    return inducing_variables.k_means(table.X[table.rows], plan.num_inducing)


def build_model(plan: Plan, table: MultiOutputTable) -> Any:
    """The model of a plan, at its initial values."""
    noise = np.full(table.num_outputs, plan.noise_start**2)
    common: dict[str, Any] = {
        "decoder": _decoder(plan, table.num_outputs),
        "likelihood": likelihoods.Gaussian(noise, variance_lower_bound=plan.noise_floor**2),
        "latent_dim": plan.latent_dim,
    }
    # A kernel for each channel, as published: lengthscales differ.
    kernels = [_kernel(plan, table) for _ in range(plan.latent_dim)]
    if plan.model in VARIATIONAL:
        return _variational(plan, table, kernels, common)
    if plan.net == "free":
        raise ValueError(
            "A sampled model's codes are free already: net 'free' is for the variational ones."
        )
    common["encoder"] = _partial_encoder(plan, table, stochastic=True)
    common["code_noise_variance"] = plan.code_noise_variance
    Z = inducing_inputs(plan, table)
    for kernel in kernels:
        models.set_default_kernel_priors(kernel, plan.lengthscale, variance=1.0)
    if plan.model == "sgp_bae":
        return models.SGPBAE(kernel=kernels, inducing_variable=Z, **common)
    hidden = _kernel(plan, table)
    hidden.variance.assign(plan.hidden_variance)
    models.set_default_kernel_priors(hidden, plan.lengthscale, variance=plan.hidden_variance)
    return models.DSGPBAE([hidden, kernels], [Z, Z.copy()], **common)


def _variational(
    plan: Plan, table: MultiOutputTable, kernels: list[Any], common: dict[str, Any]
) -> models.VariationalAutoencoder:
    """The published model, or one with a nugget, which is fitted."""
    common["encoder"] = gaussian_encoder(plan, table)
    Z = None if plan.model == "gp_vae" else inducing_inputs(plan, table)
    if plan.nugget is None:
        if Z is None:
            return models.GPVAE(kernel=kernels, **common)
        return models.SGPVAE(kernel=kernels, inducing_variable=Z, **common)
    L = common.pop("latent_dim")
    prior: Any = (
        latent_priors.GP(kernels, L, plan.nugget)
        if Z is None
        else latent_priors.SparseGP(kernels, Z, L, plan.nugget)
    )
    return models.VariationalAutoencoder(prior, **common)
