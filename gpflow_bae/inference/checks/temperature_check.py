"""Check whether chains have their target temperature."""

from __future__ import annotations

import numpy as np

from ...core.arguments import warn_caller
from ...models import BayesianAutoencoder, VariationalAutoencoder
from ...posteriors import Posterior, TemperedPosterior
from ..moves import PriorParameters

__all__ = ["block_temperatures", "blocks_off_temperature", "warn_of_temperature"]

_TOLERANCE = 0.1  # relative, of a block's kinetic temperature
_SURE = 3.0  # standard errors by which it must deviate
_BATCHES = 8  # parts of a chain whose means give the standard error (batch means)
_DOUBTED = 0.5  # relative deviation that is worth a word even if it may be chance
_SHOWN = 4


def block_temperatures(posterior: Posterior | TemperedPosterior) -> dict[str, np.ndarray]:
    """Return kinetic temperatures [C, rounds] after burn-in of all sampled blocks, by path.

    It omits parameters at temperature 0 (point estimates), parameters that a move updates instead
    of the sampler, and codes that each round redraws from the encoder, because their momenta start
    at zero every time.

    :return: empty without a trace, and for fewer than sixteen rounds after burn-in, which are too
        few for an estimate.
    """
    found = _sampled_blocks(posterior)
    return {} if any(v.shape[1] < 2 * _BATCHES for v in found.values()) else found


def _sampled_blocks(posterior: Posterior | TemperedPosterior) -> dict[str, np.ndarray]:
    """Return :func:`block_temperatures` of any number of rounds."""
    found, settings = posterior.kinetic_temperature_rounds, posterior.bank.settings
    if posterior.temperature <= 0.0:
        return {}
    left_out = tuple(settings.get("point_estimates") or ())
    left_out += ("codes",) if settings.get("codes") == "encoder" else ()
    return {
        name: rounds
        for name, rounds in found.items()
        if rounds.any() and not name.startswith(left_out)
    }


def blocks_off_temperature(posterior: Posterior | TemperedPosterior) -> dict[str, float]:
    """Return temperatures, relative to the target, of blocks that deviate by more than a tenth.

    They are those of :func:`block_temperatures`; for ``integrator="baoab"`` with minibatches, whose
    noise heats positions more than the measured momenta, they are those of positions
    (:mod:`gpflow_bae.mcmc.integrators`). Its logarithm must also deviate by more than three
    standard errors, estimated from the means of eighths of the chains after burn-in. Logarithms,
    because a temperature is a scale: an estimate has an error in proportion to itself.

    :return: by path, the largest deviation first.
    """
    return _deviating(posterior, block_temperatures(posterior), _TOLERANCE)


def _deviating(
    posterior: Posterior | TemperedPosterior,
    blocks: dict[str, np.ndarray],
    tolerance: float,
    sure: float = _SURE,
) -> dict[str, float]:
    """Return relative temperatures of blocks that are more than ``tolerance`` from 1.

    :param sure: number of standard errors by which they must deviate.
    """
    off, heat = {}, _position_heat_factor(posterior)
    for name, rounds in blocks.items():
        relative = rounds / posterior.temperature
        if relative.mean() > 1.0:
            relative = 1.0 + heat * (relative - 1.0)
        splits = np.array_split(relative, min(_BATCHES, rounds.shape[1]), axis=1)
        parts = np.array([p.mean(1) for p in splits])
        mean = float(relative.mean())
        error = parts.std() / np.sqrt(max(parts.size - 1, 1))
        if abs(mean - 1.0) > tolerance and abs(np.log(mean)) > sure * error / mean:
            off[name] = mean
    return dict(sorted(off.items(), key=lambda item: -abs(np.log(item[1]))))


def _position_heat_factor(posterior: Posterior | TemperedPosterior) -> float:
    """Return the ratio of the excess temperatures of positions and of measured momenta."""
    settings = posterior.bank.settings
    sampler, batch = settings.get("sampler_settings", {}), settings.get("batch_size")
    if isinstance(posterior, Posterior) and batch == posterior.data.num_items:
        batch = None
    decay, of_momenta = sampler.get("momentum_decay"), sampler.get("integrator") == "baoab"
    if batch is None or not of_momenta or not isinstance(decay, float) or decay >= 1.0:
        return 1.0
    return (2.0 - decay) ** 2 / (2.0 - 2.0 * decay) ** 2


def _drawn_by_moves(posterior: Posterior | TemperedPosterior) -> tuple[str, ...]:
    """Return the paths of parameters that ``moves=("prior_parameters",)`` would update."""
    if not isinstance(posterior.model, BayesianAutoencoder):
        return ()
    try:
        return PriorParameters(posterior.model).owned
    except ValueError:  # which says why the model does not allow the move
        return ()


def warn_of_temperature(posterior: Posterior | TemperedPosterior) -> None:
    """Warn if blocks of the chains do not have their target temperature, with advice.

    :warns UserWarning: if :func:`blocks_off_temperature` returns any, or if estimates are more than
        half off in a run that is too short to know.
    """
    off = blocks_off_temperature(posterior)
    if not off:
        _warn_of_short_run(posterior)
        return
    shown = _shown(off)
    asked = posterior.temperature
    batch = posterior.bank.settings.get("batch_size")
    minibatches = batch is not None
    if isinstance(posterior, Posterior):
        minibatches = minibatches and batch < posterior.data.num_items
    hot = max(off.values()) > 1.0
    if hot and minibatches:
        # Sampling of a bound has no control variates, and advice in use already does not help.
        has_codes = not isinstance(posterior.model, VariationalAutoencoder)
        controlled = posterior.bank.settings.get("gradients") == "control_variates"
        first = 'gradients="control_variates" with steps_per_batch=1, or '
        remedy = (
            "Noise of minibatch gradients heats a chain: take "
            f"{first if has_codes and not controlled else ''}a larger batch_size than {batch} "
            "(None for all data), or a smaller step_size together with a larger momentum_decay."
        )
        if any(name in _drawn_by_moves(posterior) for name in off):
            remedy += (
                " Parameters of the latent prior need no steps: moves draw them given all codes, "
                'moves=("prior_parameters",).'
            )
    elif hot:
        remedy = (
            "Steps are too large for the curvature there: take a smaller step_size. Or, where the "
            "log likelihood still rises, the chain is on its way: take a longer burnin."
        )
    else:
        remedy = (
            "Momenta that are too slow come from subtracted gradient noise that was not there, or "
            "from a chain that had no time to warm up: set subtract_gradient_noise=False, or run "
            "longer."
        )
    times = "" if asked == 1.0 else f" times the temperature {asked:g} that was asked for"
    warn_caller(
        f"The chains were not at their temperature: of {len(posterior.kinetic_temperatures)} "
        f"blocks {len(off)} had a temperature more than 10 % off: {shown}{times}. So "
        f"their samples are not those of the posterior at temperature {asked:g}. {remedy} "
        "posterior.kinetic_temperatures has all of them.",
    )


def _warn_of_short_run(posterior: Posterior | TemperedPosterior) -> None:
    """Warn if estimates are far from the target, and the run too short to tell them from it."""
    blocks = _sampled_blocks(posterior)
    off = _deviating(posterior, blocks, _DOUBTED, sure=0.0)
    if not off:
        return
    (_, number), *_ = (rounds.shape for rounds in blocks.values())
    warn_caller(
        f"The chains were too short to know whether they had their temperature: in the {number} "
        f"rounds after burn-in {len(off)} of {len(posterior.kinetic_temperatures)} blocks had one "
        f"more than 50 % off, which may be chance: {_shown(off)}. Take more samples, or a larger "
        "thinning."
    )


def _shown(off: dict[str, float]) -> str:
    """Return the first blocks and their temperatures as text."""
    more = f", and {len(off) - _SHOWN} others" if len(off) > _SHOWN else ""
    return ", ".join(f"{name} {value:.3g}" for name, value in list(off.items())[:_SHOWN]) + more
