"""Base class of the plans of all studies, and results of any posterior."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gpflow_bae import inference
    from gpflow_bae.mcmc import SamplingAlgorithm


@dataclasses.dataclass(frozen=True)
class Plan:
    """All settings that change the outcome of a run, except the seed and the data.

    A field ``sampler`` holds a sampler with the rounds of ``schedule``, or settings of tempering;
    None if nothing is sampled.
    """

    @property
    def temperature(self) -> float | None:
        """Temperature of the sampled posterior; None if nothing is sampled."""
        sampler = getattr(self, "sampler", None)
        return None if sampler is None else getattr(sampler, "settings", {}).get("temperature", 1.0)

    @property
    def num_samples(self) -> int:
        """Number of posterior samples of a complete run."""
        schedule = getattr(self, "schedule", getattr(self, "sampler", None))
        return 1 if schedule is None else schedule.num_samples

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        settings = dataclasses.asdict(self)
        for name, value in vars(self).items():
            if hasattr(value, "objective"):
                settings[name]["objective"] = self.describe_objective(value.objective)
        points = settings.pop("point_estimates", ())
        if settings.pop("schedule", None) is not None:
            schedule = vars(self)["schedule"].describe() | {"point_estimates": points}
            settings["sampler"] = schedule | dict(vars(self)["sampler"].settings)
        for name in ("sampler", "spatial"):  # settings with their own records
            if hasattr(vars(self).get(name), "describe"):
                settings[name] = vars(self)[name].describe()
        return settings

    def describe_objective(self, objective: Any) -> Any:
        """Return the name of a fit's objective."""
        return type(objective).__name__


def named_objective(plan: Plan, objective: Any) -> dict[str, Any]:
    """Return the name and settings of a fit's objective."""
    return {"name": type(objective).__name__, **dataclasses.asdict(objective)}


def rounds(**fields: Any) -> inference.AmortizedSettings:
    """Build the rounds of a chain from fields, named as in flags and stored results.

    :param fields: fields of :class:`~gpflow_bae.inference.AmortizedSettings`, with
        num_encoder_steps, encoder_loss and encoder_batch_size for those of its ``encoder``.
    """
    from gpflow_bae import inference

    names = {
        "num_encoder_steps": "num_steps",
        "encoder_loss": "loss",
        "encoder_batch_size": "batch_size",
    }
    of_encoder = {names[name]: fields.pop(name) for name in names if name in fields}
    return inference.AmortizedSettings(**fields, encoder=inference.EncoderSettings(**of_encoder))


def with_step_size_search(
    sampler: SamplingAlgorithm, given: Mapping[str, Any], fraction: float = 0.5
) -> SamplingAlgorithm:
    """Return a sampler with a step size from the curvature, unless a step size is given.

    A given step size is printed, and ``step_size_search`` is then null in the record.

    :param given: settings from flags.
    :param fraction: the step size as a fraction of the largest stable one.
    """
    from gpflow_bae.mcmc.step_size import from_curvature

    if "step_size" not in given:
        return from_curvature(sampler, fraction)
    size = given["step_size"]
    print(f"Steps are of size {size:g}, as given: the search by curvature is off.", flush=True)
    return sampler._replace(settings={**sampler.settings, "step_size_search": None})


def unfinished(found: int, planned: int, what: str = "samples") -> str:
    """Return the variant's text for a run that was stopped; empty for a complete run."""
    return "" if found >= planned else f"first {found} of {planned} {what}"


def chain_curves(posterior: Any) -> dict[str, list[float]]:
    """Return log density and encoder loss along a chain, and the losses of the fit before it.

    For several chains these are means over the chains.
    """
    curves = {}
    if posterior.history is not None:
        history = posterior.history.reshape(-1, *posterior.history.shape[-2:]).mean(0)
        curves["log_density"] = (history[:, 0] + history[:, 1]).tolist()
        curves["encoder_loss"] = history[:, 2].tolist()
    losses = posterior.warm_start_losses
    if losses is not None:
        curves["variational_loss"] = losses.reshape(-1, losses.shape[-1]).mean(0).tolist()
    return curves


def chain_temperatures(posterior: Any) -> dict[str, float]:
    """Return the least and greatest kinetic temperature of blocks, averaged over rounds and chains.

    The result is empty if :func:`gpflow_bae.inference.block_temperatures` has no temperatures.
    """
    from gpflow_bae import inference

    found = [float(v.mean()) for v in inference.block_temperatures(posterior).values()]
    if not found:
        return {}
    return {"kinetic_temperature_min": min(found), "kinetic_temperature_max": max(found)}


def chainwise_rhat(chains: np.ndarray, max_outputs: int = 2000) -> float:
    """Return the worst chain's R-hat between its halves; NaN for fewer than eight draws.

    The R-hat of a chain is the 95 % quantile over outputs.

    :param chains: draws of outputs [C, S, ...].
    """
    from gpflow_bae import diagnostics

    half = chains.shape[1] // 2
    if half < 4:
        return float("nan")
    pairs = (np.stack([chain[:half], chain[-half:]]) for chain in chains)
    return max(
        diagnostics.function_space_diagnostics(pair, max_outputs=max_outputs).rhat_q95
        for pair in pairs
    )


def prior_level(model: Any) -> float | None:
    """Return the prior mean of the log prior per sampled parameter, which is minus its entropy.

    The entropy is that of normal priors of untransformed parameters. The result is None if other
    parameters are more than a thousandth of all.
    """
    total, counted = 0.0, 0
    for parameter in model.sampled.parameters:
        kind = type(parameter.prior).__name__
        if kind == "Normal" and type(parameter.transform).__name__ in ("NoneType", "Identity"):
            entropy = np.broadcast_to(parameter.prior.entropy(), parameter.shape)
            total, counted = total - float(np.sum(entropy)), counted + entropy.size
    return total / counted if counted > 0.999 * model.sampled.num_scalars else None


def chain_figure(posterior: Any, schedule: Any, is_warm: bool = True) -> Any:
    """Draw log likelihood and log prior along chains (:func:`gpflow_bae.plotting.plot_chain`)."""
    from gpflow_bae import plotting

    history, steps = posterior.history, schedule.num_sampler_steps
    return plotting.plot_chain(
        steps * np.arange(1, history.shape[-2] + 1),
        history[..., 1] / posterior.data.num_points,
        history[..., 0] / posterior.model.sampled.num_scalars,
        steps * schedule.burnin_rounds,
        prior_level(posterior.model),
        is_warm,
    )


def svgp_vae_objective(
    published: bool,
    kappa_squared: float,
    geco: bool | None = None,
    smoothing: float = 0.99,
    beta: float = 1.0,
) -> Any:
    """Return GECO, or the bound with a weight on its divergence.

    :param published: whether the model was published with GECO.
    :param geco: whether to use GECO; None for ``published``.
    """
    from gpflow_bae import inference

    if published if geco is None else geco:
        return inference.GECO(kappa_squared, smoothing)
    return inference.EvidenceLowerBound(beta)


def assign_tolerance(model: Any, objective: Any) -> None:
    """Set the noise variance of a model fitted by GECO, which fits none, to GECO's tolerance."""
    from gpflow_bae import inference

    if isinstance(objective, inference.GECO):
        model.observation_likelihood.variance.assign(objective.tolerance)


def gaussian_encoder(network: Any, is_clipped: bool) -> Any:
    """Return a Gaussian encoder with variances limited as by the published code's --clip_qs."""
    from gpflow_bae import encoders

    low, high = (1e-3, 10.0) if is_clipped else (1e-6, 1e3)
    return encoders.GaussianEncoder(network, min_variance=low, max_variance=high)


def encode_and_decode(
    posterior: Any, Y: np.ndarray, num_draws: int = 1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of rows, given draws of the encoder without the prior."""
    means, noises = [], []
    for s, draws in enumerate(posterior.encode(Y, num_draws=num_draws, seed=seed)):
        bound = posterior.model.bind([v[s] for v in posterior.parameters])
        for codes in draws:
            mean, noise = bound.observation_likelihood.moments(bound.decode(None, codes))
            means.append(mean.numpy())
            noises.append(noise.numpy())
    return np.mean(means, 0), np.var(means, 0) + np.mean(noises, 0)


def count(values: Iterable[Any]) -> int:
    """Return the number of scalars in parameters or variables."""
    return sum(int(np.prod(v.shape)) for v in values)
