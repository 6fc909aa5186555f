"""The No-U-Turn sampler's answer, stored: 8 chains of 500 + 600 steps take half a minute.

``python -m tests.experiments.integration.nuts_reference`` writes the file anew; it refuses chains
with an R-hat of 1.02 or more for any quantity that is compared.
"""

from __future__ import annotations

import pathlib

import numpy as np
import tensorflow as tf

from experiments.common import nuts
from gpflow_bae import diagnostics
from tests.experiments.integration import nuts_problem

STORED = pathlib.Path(__file__).parent / "nuts_reference.npz"
GROUPS = ("train", "new")
NUM_CHAINS, NUM_WARMUP, NUM_DRAWS, MAX_RHAT = 8, 500, 600, 1.02


def density_at_fixed_points() -> np.ndarray:
    """By which the file knows the problem that it is the answer to."""
    problem = nuts_problem.generate()
    log_joint, like = nuts.flat_log_joint(nuts_problem.build_model(), problem.X, problem.Y)
    size = sum(int(np.prod(v.shape)) for v in like)
    points = np.random.default_rng(0).standard_normal((3, size))
    return np.asarray(log_joint(tf.constant(points)))


def load() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The stored means and standard deviations of each group's cells."""
    with np.load(STORED) as file:
        np.testing.assert_allclose(
            density_at_fixed_points(),
            file["density"],
            rtol=1e-5,  # the network is float32
            err_msg=f"{STORED.name} is the answer to another problem; see its module.",
        )
        return {g: (file[f"{g}_mean"], file[f"{g}_sd"]) for g in GROUPS}


def main() -> None:
    """Sample and store.

    :raises RuntimeError: if a quantity that is compared has an R-hat of 1.02 or more.
    """
    problem, model = nuts_problem.generate(), nuts_problem.build_model()
    log_joint, like = nuts.flat_log_joint(model, problem.X, problem.Y)
    vectors, _, _ = nuts.sample_vectors(log_joint, like, NUM_CHAINS, NUM_WARMUP, NUM_DRAWS, 0)
    *parameters, codes = nuts.unpacked(vectors, like)
    found = nuts_problem.quantities(model, problem, tuple(parameters), codes)
    chains = np.concatenate([found.train, found.new], 1).reshape(NUM_CHAINS, NUM_DRAWS, -1)
    rhat = float(diagnostics.rank_normalised_rhat(chains).max())
    ess = float(diagnostics.effective_sample_size(chains).min())
    if not rhat < MAX_RHAT:
        raise RuntimeError(f"The chains disagree: the largest R-hat is {rhat:.3f}.")
    arrays = {"density": density_at_fixed_points(), "rhat": rhat, "ess": ess}
    for group in GROUPS:
        arrays[f"{group}_mean"], arrays[f"{group}_sd"] = found.moments(group)
    np.savez(STORED, **arrays)
    print(f"R-hat {rhat:.4f}, smallest effective sample size {ess:.0f}")


if __name__ == "__main__":
    main()
