"""Models of tables with missing cells, and their settings (Ashman 2020; Tran 2023)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow_probability as tfp

from experiments.common import plans
from experiments.imputation.tables import MODELS, NETS, SAMPLED, Published
from gpflow_bae import (
    decoders,
    encoders,
    guides,
    inducing_variables,
    inference,
    latent_priors,
    likelihoods,
    models,
)
from gpflow_bae.data import MultiOutputTable
from gpflow_bae.mcmc import SamplingAlgorithm, adaptive_sghmc, sghmc


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """All settings that change the outcome of a fit, except the table and the seed.

    :raises ValueError: for an unknown model or network, and for no channel, layer or inducing
        point.
    """

    model: str = "sgp_vae"
    net: str = "factornet"
    free_from: str = "indexnet"  # the network whose fit free-form codes start from
    log_outputs: bool = False  # model logarithms of (positive) outputs
    latent_dim: int = 2
    num_inducing: int | None = 64  # None for all points, and an exact GP of sgp_vae
    lengthscale: float = 1.0
    # Period of periodic kernels, if any, of all channels, or one per channel, cyclically repeated.
    period: float | tuple[float, ...] | None = None
    encoder_widths: tuple[int, ...] = (20,)
    decoder_widths: tuple[int, ...] = (5, 5)
    activation: str = "relu"
    noise_start: float = 0.1  # standard deviation of the noise of standardised outputs
    noise_floor: float = 1e-3
    noise_is_fixed: bool = False
    code_noise_variance: float = 1e-3  # of a sampled model
    inducing_outputs: str = "integrated"  # of sgp_bae; or "sampled", which rounds of rows need
    num_layers: int = 2  # of a deep prior, including the last; 3 as published
    hidden_variance: float = 0.05  # of hidden layers' functions around their inputs, in X's units^2
    nugget: float | None = None  # code noise variance of a variational model; None as published
    variational: inference.VariationalSettings = inference.VariationalSettings()
    schedule: inference.AmortizedSettings | None = None  # rounds of a chain
    sampler: SamplingAlgorithm | None = None

    def __post_init__(self) -> None:
        networks = tuple(net for net in NETS if net != "free")
        for name, choices in (("model", MODELS), ("net", NETS), ("free_from", networks)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {choices}.")
        for name in ("latent_dim", "num_inducing", "num_layers"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} is {number}; it must be at least 1.")


def make_plan(
    model: str,
    *,
    num_steps: int = 1500,
    learning_rate: float = 5e-3,
    final_learning_rate_fraction: float = 0.05,
    prior_learning_rate: float | None = None,
    batch_size: int | None = None,
    schedule: Mapping[str, Any] | None = None,
    sampler: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Plan:
    """Return a plan with settings of its engine.

    :param num_steps, learning_rate, final_learning_rate_fraction, prior_learning_rate, batch_size:
        settings of the variational fit, from which a sampled model starts.
    :param schedule: fields of :class:`~gpflow_bae.inference.AmortizedSettings` that differ from
        1500 steps of burn-in and 40 samples, 50 steps apart; not used for a variational model.
    :param sampler: arguments of :func:`gpflow_bae.mcmc.adaptive_sghmc.build`; not used for a
        variational model.
    :param fields: fields of :class:`Plan`.
    """
    sampled = model in SAMPLED
    variational = inference.VariationalSettings(
        num_steps=num_steps,
        learning_rate=learning_rate,
        final_learning_rate_fraction=final_learning_rate_fraction,
        prior_learning_rate=prior_learning_rate,
        batch_size=batch_size,
        prior_on_parameters=sampled,
    )
    if sampled:
        rounds = {"num_samples": 40, "thinning": 50} | dict(schedule or {})
        fields["schedule"] = plans.rounds(**rounds)
        fields["sampler"] = adaptive_sghmc.build(**(sampler or {}))
    return Plan(model=model, variational=variational, **fields)


def default_plan(
    model: str, preset: str, published: Published | None = None, **changes: Any
) -> Plan:
    """Return the plan of a preset, with changes for a table.

    :param published: settings of the preset "paper" of the table; None for those of no paper.
    :param changes: fields of :class:`Plan`, and arguments of :func:`make_plan`; None for a value of
        the preset. The ``sampler`` may also have a ``name``; for "sghmc" see
        :func:`_in_prior_coordinates`.
    """
    sampler = dict(changes.pop("sampler", {}))
    named = sampler.pop("name", "adaptive_sghmc")
    schedule = changes.pop("schedule", {})
    chosen = {name: value for name, value in changes.items() if value is not None}
    if preset == "paper":
        schedule = {"num_samples": 50, "thinning": 180} | schedule
        defaults: dict[str, Any] = {"num_steps": 3000}
        if published is not None and model in SAMPLED:
            defaults |= {"net": "zeros", "num_inducing": 128, "num_layers": 3}
            if published.step_size is not None and named != "sghmc":
                defaults["inducing_outputs"] = "sampled"
                schedule = {"batch_size": 100} | schedule
                sampler = {"step_size": published.step_size} | sampler
            if published.noise is not None and "noise_start" not in chosen:
                defaults |= {"noise_start": published.noise, "noise_is_fixed": True}
        elif published is not None:
            defaults |= _published(published, chosen.get("net", "factornet"))
        chosen = defaults | chosen
    plan = make_plan(
        model, schedule=schedule, sampler={} if named == "sghmc" else sampler, **chosen
    )
    return _in_prior_coordinates(plan, sampler) if named == "sghmc" else plan


def _published(published: Published, net: str) -> dict[str, Any]:
    """Return the settings of a variational model (Ashman et al. 2020, appendix E)."""
    kind = published.free_from if net == "free" else net
    in_parts = kind in ("pointnet", "pointnet_one_hot", "indexnet")
    return {
        "num_steps": published.num_steps,
        "learning_rate": 1e-3,
        "final_learning_rate_fraction": 1.0,
        "prior_learning_rate": published.prior_rate,
        "batch_size": published.batch_size,
        "num_inducing": published.num_inducing,
        "encoder_widths": (published.units,) * (published.layers // (2 if in_parts else 1)),
        "decoder_widths": (published.units,) * published.layers,
        "free_from": published.free_from,
    }


def _in_prior_coordinates(plan: Plan, sampler: Mapping[str, Any]) -> Plan:
    """Return a plan for SGHMC on all rows by BAOAB steps, in coordinates whitened by the priors.

    Moves update the parameters on which these depend, and the step size follows from the curvature.

    :param sampler: arguments of :func:`gpflow_bae.mcmc.sghmc.build`.
    :raises ValueError: for a variational model, or a chain with minibatches.
    """
    if plan.schedule is None or plan.schedule.batch_size is not None:
        raise ValueError(
            f"--sampler=sghmc is of chains whose steps see all codes; {plan.model} has no such "
            "chain with these flags: leave --sampler and --batch_size out."
        )
    schedule = dataclasses.replace(plan.schedule, coordinates="prior")
    steps = {"step_size": 0.01, "momentum_decay": 0.05} | dict(sampler)
    built = sghmc.build(**steps, integrator="baoab")
    built = plans.with_step_size_search(built, sampler, 0.35)
    return dataclasses.replace(plan, schedule=schedule, sampler=built)


def _decoder(plan: Plan, num_outputs: int) -> decoders.KerasDecoder:
    layers: list[Any] = [keras.Input((plan.latent_dim,))]
    layers += [keras.layers.Dense(w, activation=plan.activation) for w in plan.decoder_widths]
    network = keras.Sequential([*layers, keras.layers.Dense(num_outputs)])
    return decoders.KerasDecoder(network, decoders.normal_prior())


def gaussian_encoder(plan: Plan, table: MultiOutputTable) -> Any:
    """Return the partial inference network of a plan, or its free-form codes."""
    if plan.net == "free":
        return encoders.FreeFormEncoder(table.num_tasks, table.Y.shape[1], plan.latent_dim)
    return encoders.partial_encoder(
        plan.net, table.num_outputs, plan.latent_dim, plan.encoder_widths, plan.activation
    )


def _kernel(plan: Plan, table: MultiOutputTable, channel: int = 0) -> gpflow.kernels.Kernel:
    width = table.X.shape[-1]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(width, plan.lengthscale))
    if plan.period is None:
        return kernel
    periods = np.atleast_1d(plan.period)
    period = float(periods[channel % len(periods)])
    periodic = gpflow.kernels.Periodic(kernel, period=period)
    # The period is known to a few per cent, and the likelihood of other periods has many modes.
    location = gpflow.utilities.to_default_float(np.log(period))
    periodic.period.prior = tfp.distributions.LogNormal(location, 0.02)
    return periodic


def inducing_inputs(plan: Plan, table: MultiOutputTable) -> np.ndarray:
    """Return inducing inputs [M, D]: centres of k-means, or all distinct rows if there are few."""
    rows = np.unique(table.X[table.rows], axis=0)
    if plan.num_inducing is None or len(rows) <= plan.num_inducing:
        return rows
    return inducing_variables.k_means(table.X[table.rows], plan.num_inducing)


def build_model(plan: Plan, table: MultiOutputTable, Z: Any = None) -> Any:
    """Build the model of a plan at its initial values.

    :param table: the table to fit; one row suffices if ``Z`` is given and the encoder is a network.
    :param Z: inducing inputs [M, D], as an array or GPflow's inducing points; those of
        :func:`inducing_inputs` if None.
    :raises ValueError: for a sampled model with free-form codes.
    """
    noise = np.full(table.num_outputs, plan.noise_start**2)
    likelihood = likelihoods.Gaussian(noise, variance_lower_bound=plan.noise_floor**2)
    if plan.noise_is_fixed:
        gpflow.set_trainable(likelihood, False)
    common: dict[str, Any] = {
        "decoder": _decoder(plan, table.num_outputs),
        "likelihood": likelihood,
        "latent_dim": plan.latent_dim,
    }
    # A kernel for each channel, as published: lengthscales differ.
    kernels = [_kernel(plan, table, channel) for channel in range(plan.latent_dim)]
    Z = inducing_inputs(plan, table) if Z is None else Z
    if plan.model not in SAMPLED:
        return _variational(plan, kernels, Z, common | {"encoder": gaussian_encoder(plan, table)})
    if plan.net == "free":
        raise ValueError(
            "A sampled model's codes are free already: net 'free' is for the variational ones."
        )
    common["encoder"] = encoders.partial_encoder(
        plan.net,
        table.num_outputs,
        plan.latent_dim,
        plan.encoder_widths,
        plan.activation,
        stochastic=True,
    )
    common["code_noise_variance"] = plan.code_noise_variance
    if plan.model == "sgp_bae":
        for kernel in kernels:
            models.set_default_kernel_priors(kernel, plan.lengthscale, variance=1.0)
        common["inducing_outputs"] = plan.inducing_outputs
        return models.SGPBAE(kernel=kernels, inducing_variable=Z, **common)
    hidden = [_kernel(plan, table) for _ in range(plan.num_layers - 1)]
    for kernel in hidden:
        kernel.variance.assign(plan.hidden_variance)
        models.set_default_kernel_priors(kernel, plan.lengthscale, variance=plan.hidden_variance)
    for kernel in kernels:
        models.set_default_kernel_priors(kernel, plan.lengthscale, variance=1.0)
    return models.DSGPBAE([*hidden, kernels], [Z.copy() for _ in range(plan.num_layers)], **common)


def _variational(plan: Plan, kernels: list[Any], Z: Any, common: dict[str, Any]) -> Any:
    """Return a variational model: an SGP-VAE, a VAE, or a GPPVAE, whose codes are mean field.

    The codes of a GPPVAE have an exact GP as prior where there are no inducing points (Ashman et
    al. 2020, appendix F), else noise around a low-rank one, as much as those of a sampled model, or
    the nugget, which is learnt.
    """
    if plan.model == "vae":
        return models.VAE(**common)
    if plan.model == "gppvae" and plan.num_inducing is None:
        common["encoder"] = guides.MeanFieldGuide(common["encoder"])
        prior = latent_priors.GP(kernels, common.pop("latent_dim"), plan.nugget)
        return models.VariationalAutoencoder(prior, **common)
    if plan.model == "gppvae":
        noise = plan.code_noise_variance if plan.nugget is None else plan.nugget
        built = models.GPPVAE(kernels, Z, code_noise_variance=noise, **common)
        gpflow.set_trainable(built.latent_prior.code_noise_variance, plan.nugget is not None)
        return built
    common["encoder"] = guides.SubsetGuide(common["encoder"])  # of points in minibatches, eq. 42
    if plan.nugget is not None:
        prior = latent_priors.SparseGP(kernels, Z, common.pop("latent_dim"), plan.nugget)
        return models.VariationalAutoencoder(prior, **common)
    if plan.num_inducing is None:
        return models.GPVAE(kernel=kernels, **common)
    return models.SGPVAE(kernel=kernels, inducing_variable=Z, **common)
