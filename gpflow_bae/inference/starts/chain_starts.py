"""Starts of the chains of a run, each from the model's values and with the chain's own seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ...data import in_memory
from ...models import TemperedBAE
from ..chains import chain_seeds, stack_chains
from ..engines.chain_sampling import ChainSampling
from ..runs.checkpoints import RunDirectory
from ..seeding import seed_networks
from .default_start import default_start
from .initializer import Initializer

__all__ = ["initial_chains", "starts_of_chains"]


def starts_of_chains(
    warm_start: Initializer | Sequence[Initializer] | str | None,
    model: Any,
    data: Any,
    num_chains: int,
) -> list[Initializer] | list[None]:
    """Return the start of each chain, from what :func:`sample_amortized` takes.

    :raises ValueError: for another text than ``"default"``, or another number of starts.
    :raises TypeError: for what is no start.
    """
    if isinstance(warm_start, str):
        if warm_start != "default":
            raise ValueError(
                'warm_start must be "default", None or a start such as WarmStart(), got '
                f"{warm_start!r}."
            )
        is_tempered = isinstance(model, TemperedBAE)
        warm_start = None if is_tempered else default_start(model, in_memory(data))
    if warm_start is None:
        return [None] * num_chains
    starts: list[Any] = [warm_start] * num_chains
    if isinstance(warm_start, Sequence):
        starts = list(warm_start)
    for start in starts:
        if not isinstance(start, Initializer):
            raise TypeError(
                "warm_start must be a start such as WarmStart(settings) or PriorMeanStart(), one "
                f'for each chain, "default" or None, got {type(start).__name__}.'
            )
    if len(starts) != num_chains:
        raise ValueError(
            f"warm_start has {len(starts)} starts for num_chains={num_chains} chains; give one "
            "for each chain, or a single one that is run for each."
        )
    return starts


def initial_chains(
    algorithm: ChainSampling,
    starts: list[Any],
    losses: list[np.ndarray],
    directory: RunDirectory | None,
    jit_compile: bool,
    progress: bool,
) -> Any:
    """Run each chain's start from the model's current values, and return the initial chains.

    With several workers each runs the starts of its own chains; if the workers share minibatches,
    the chief runs all.

    :param losses: the losses of all starts are appended.
    :param directory: folder of the run; starts keep checkpoints in its subfolders.
    """
    model = algorithm.model
    moved = [model, *(n for start in starts if start is not None for n in start.networks)]
    parameters = {
        id(p): p for module in moved for p in gpflow.utilities.parameter_dict(module).values()
    }
    variables = [p.unconstrained_variable for p in parameters.values()]
    before = [tf.identity(v) for v in variables]
    seeds = chain_seeds(algorithm.seed, algorithm.num_chains)
    chains = []
    own = algorithm.spread.own_chains(algorithm.num_chains)
    for c in own if algorithm.spread.makes_starts else ():
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        start, seed = starts[c], seeds[c]
        seed_networks(model, seed)
        latents = None
        if start is not None:
            latents, loss = start.run_as_part(
                model,
                in_memory(algorithm.data),
                directory,
                f"start_{c}",
                seed=seed,
                jit_compile=jit_compile,
                progress=progress and algorithm.spread.workers.rank == 0,
            )
            losses.append(loss)
        chains.append(algorithm.initial_chain(algorithm.seed_of(c, -1), latents))
    state = stack_chains(chains) if chains else algorithm.initial()
    return algorithm.spread.started(state, variables, losses)
