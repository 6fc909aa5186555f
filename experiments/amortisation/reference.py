"""The reference: TFP's No-U-Turn sampler on the very same joint density, all chains at once."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np

from experiments.amortisation import problem as problems
from experiments.common import nuts
from gpflow_bae import diagnostics, models

__all__ = ["Reference", "sample_reference"]

MAX_RHAT = 1.02


@dataclasses.dataclass(frozen=True)
class Reference:
    """Draws of all chains, one after another, and what ArviZ says of them."""

    draws: problems.Draws  # leading dimension [C S]
    quantities: problems.Quantities
    rhat: float  # largest over every quantity that is compared
    ess: float  # smallest bulk effective sample size
    num_divergent: int
    acceptance: float


def sample_reference(
    model: models.SGPBAE,
    problem: problems.Problem,
    *,
    num_chains: int = 8,
    num_warmup: int = 500,
    num_draws: int = 2000,
    seed: int = 0,
    path: pathlib.Path | None = None,
) -> Reference:
    """Sample, or read what an earlier call left at ``path``, and refuse chains that disagree.

    Chains start at draws of the prior of the codes times a tenth, and at small random steps from
    the model's present parameters.

    :raises RuntimeError: if a quantity that is compared has an R-hat of 1.02 or more.
    """
    log_joint, like = nuts.flat_log_joint(model, problem.X, problem.Y)
    if path is not None and path.exists():
        with np.load(path) as file:
            vectors, divergent, acceptance = (file[k] for k in ("vectors", "divergent", "accept"))
    else:
        vectors, divergent, acceptance = nuts.sample_vectors(
            log_joint, like, num_chains, num_warmup, num_draws, seed
        )
        if path is not None:
            np.savez(path, vectors=vectors, divergent=divergent, accept=acceptance)
    num_draws, num_chains, _ = vectors.shape
    *parameters, latents = nuts.unpacked(vectors, like)
    draws = problems.Draws(tuple(parameters), latents)
    found = problems.quantities(model, problem, draws)
    everything = np.concatenate(
        [found.train, found.new, found.codes, found.decoder, found.parameters], 1
    )
    chains = everything.reshape(num_chains, num_draws, -1)
    rhat = float(diagnostics.rank_normalised_rhat(chains).max())
    ess = float(diagnostics.effective_sample_size(chains).min())
    if not rhat < MAX_RHAT:
        raise RuntimeError(
            f"The reference chains disagree: the largest R-hat is {rhat:.3f}, expected below "
            f"{MAX_RHAT}. Take more draws, or a longer warm-up."
        )
    return Reference(draws, found, rhat, ess, int(np.sum(divergent)), float(np.mean(acceptance)))
