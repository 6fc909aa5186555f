"""The reference: TFP's No-U-Turn sampler on the very same joint density, all chains at once."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.amortisation import problem as problems
from gpflow_bae import diagnostics, functional, models

__all__ = ["Reference", "sample_reference", "sample_vectors"]

tfm = tfp.mcmc
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
    log_joint, like = problems.flat_log_joint(model, problem)
    if path is not None and path.exists():
        with np.load(path) as file:
            vectors, divergent, acceptance = (file[k] for k in ("vectors", "divergent", "accept"))
    else:
        vectors, divergent, acceptance = sample_vectors(
            log_joint, like, num_chains, num_warmup, num_draws, seed
        )
        if path is not None:
            np.savez(path, vectors=vectors, divergent=divergent, accept=acceptance)
    num_draws, num_chains, size = vectors.shape
    flat = np.reshape(np.swapaxes(vectors, 0, 1), [-1, size])  # chain after chain
    pieces = np.split(flat, np.cumsum([int(np.prod(v.shape)) for v in like])[:-1], axis=1)
    *parameters, latents = (
        np.reshape(piece, [-1, *v.shape]) for piece, v in zip(pieces, like, strict=True)
    )
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


def sample_vectors(
    log_joint: Any,
    like: list[tf.Tensor],
    num_chains: int,
    num_warmup: int,
    num_draws: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors [draws, C, D] of a log density of vectors, divergences and acceptances.

    :param like: tensors that have the sizes of a vector's pieces, and the values chains start near.
    """
    start_seed, chain_seed = np.array([seed, 0], np.int32), np.array([seed, 1], np.int32)
    noise = tf.random.stateless_normal(
        [num_chains, int(sum(np.prod(v.shape) for v in like))],
        start_seed,
        dtype=tf.float64,
        alg="philox",
    )
    start = functional.flatten(like) + 0.3 * noise
    kernel = tfm.DualAveragingStepSizeAdaptation(
        tfm.NoUTurnSampler(log_joint, step_size=np.float64(0.1), max_tree_depth=7),
        num_adaptation_steps=int(0.8 * num_warmup),
        target_accept_prob=np.float64(0.85),
    )

    def trace(_: tf.Tensor, results: Any) -> tuple[tf.Tensor, tf.Tensor]:
        inner = results.inner_results
        return inner.has_divergence, tf.exp(tf.minimum(inner.log_accept_ratio, 0.0))

    # XLA: leapfrog steps of thirty scalars are all overhead otherwise.
    run = tf.function(
        lambda: tfm.sample_chain(
            num_draws,
            start,
            kernel=kernel,
            num_burnin_steps=num_warmup,
            trace_fn=trace,
            seed=chain_seed,
        ),
        autograph=False,
        jit_compile=True,
    )
    vectors, (divergent, acceptance) = run()
    return vectors.numpy(), divergent.numpy(), acceptance.numpy()
