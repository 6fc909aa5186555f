"""MCMC moves between the rounds of a sampler, each of which leaves the posterior invariant.

Gradient steps explore exact symmetries slowly, because the density is constant along them, and do
not suit a few scalars of unknown scale. After each round a move updates some variables by a
transition that leaves their conditional distribution given the others invariant, so that the
chain's stationary distribution stays the posterior.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ...models import BayesianAutoencoder
from .base import Move
from .code_scale import CodeScale
from .likelihood_parameters import LikelihoodParameters
from .prior_parameters import PriorParameters
from .unknown_inputs import UnknownInputs

__all__ = [
    "MOVES",
    "CodeScale",
    "LikelihoodParameters",
    "Move",
    "PriorParameters",
    "UnknownInputs",
    "allowed_moves",
    "build_moves",
]

#: Moves by their name in settings.
MOVES: dict[str, type[Move]] = {
    "code_scale": CodeScale,
    "prior_parameters": PriorParameters,
    "likelihood_parameters": LikelihoodParameters,
    "unknown_inputs": UnknownInputs,
}


def build_moves(names: Sequence[str], model: BayesianAutoencoder) -> tuple[Move, ...]:
    """Return the named moves of a model, in the order of the names.

    :raises ValueError: for an unknown name, or a move that the model does not allow.
    """
    if unknown := [name for name in names if name not in MOVES]:
        raise ValueError(f"moves holds {unknown[0]!r}; expected names among {tuple(MOVES)}.")
    return tuple(MOVES[name](model) for name in names)


def allowed_moves(model: BayesianAutoencoder) -> tuple[Move, ...]:
    """Return all moves that a model allows, except those of inputs."""
    found = []
    for name in ("code_scale", "prior_parameters", "likelihood_parameters"):
        with contextlib.suppress(ValueError):  # which says why the model does not allow it
            found.append(MOVES[name](model))
    return tuple(found)
