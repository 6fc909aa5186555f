"""Errors for a chain that diverged: what became non-finite, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..chains import of_chain
from ..runs.naming import leaf_names
from ..runs.run import Trace

__all__ = ["divergence_of"]

_NAMES = 5  # largest number of parameters shown


def divergence_of(
    engine: Any, state: Any, number: int, trace: Trace, saved: str
) -> Exception | None:
    """Return an error that names a chain's non-finite quantities; None if all are finite.

    :param engine: a :class:`~gpflow_bae.inference.engines.chain_sampling.ChainSampling`; the other
        arguments are those of :meth:`gpflow_bae.inference.Algorithm.diagnose`.
    """
    density = trace["log_prior"][-1] + trace["log_likelihood"][-1]  # [C]
    finite = trace["finite"][-1]  # [C, leaves]
    losses = trace["encoder_loss"][-1]
    good = finite.all(1) & np.isfinite(density) & np.isfinite(losses)
    if good.all():
        return None
    chain = int(np.argmin(good))
    words = engine.sampler.diagnose(of_chain(state, chain).sampler)
    if words is not None:
        return ValueError(words)
    held = (state.sampler.position, state.sampler.elements)
    leaves = leaf_names(held, {"parameters": engine.sampled.paths})
    bad = [n.rsplit("/", 1)[-1] for n, ok in zip(leaves, finite[chain], strict=True) if not ok]
    names = list(dict.fromkeys("the latent codes" if n == "codes" else n for n in bad))
    who = "The chain" if engine.num_chains == 1 else f"Chain {chain}"
    return FloatingPointError(
        f"{who} diverged in round {number + 1}: {_what_diverged(names, density[chain])}. The "
        f"last good state is that of round {number}{saved}. {_advice(engine.sampler.settings)}"
    )


def _what_diverged(names: Sequence[str], log_density: float) -> str:
    """Describe what diverged.

    :param names: names of the parameters that are not finite.
    :param log_density: log density of the chain, in nats.
    """
    if names:
        more = " and others" if len(names) > _NAMES else ""
        return f"{', '.join(names[:_NAMES])}{more} became non-finite"
    if not np.isfinite(log_density):
        return f"the log density became {log_density} (often a Cholesky decomposition that failed)"
    return "the encoder's loss became non-finite"


def _advice(settings: Mapping[str, Any]) -> str:
    """Return advice on which settings of the sampler to change."""
    now = ""
    if "step_size" in settings:
        search = settings.get("step_size_search")
        now = f" (now {settings['step_size']}{f', and searched by {search}' if search else ''})"
    decay = ""
    if "momentum_decay" in settings:
        decay = f", raise momentum_decay (now {settings['momentum_decay']})"
    return f"Lower step_size{now}{decay} or raise the jitter."
