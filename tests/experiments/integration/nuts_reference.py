"""The No-U-Turn sampler's answer, stored: 8 chains of 500 + 600 steps take half a minute.

``python -m tests.experiments.integration.nuts_reference`` writes the file anew; it refuses chains
with an R-hat of 1.02 or more for any quantity that is compared.
"""

from __future__ import annotations

import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from experiments.amortisation import problem as problems
from experiments.amortisation import reference as references
from experiments.common import nuts

STORED = pathlib.Path(__file__).parent / "nuts_reference.npz"
GROUPS = ("train", "new")


def density_at_fixed_points() -> np.ndarray:
    """By which the file knows the problem that it is the answer to."""
    problem = problems.generate(0)
    log_joint, like = nuts.flat_log_joint(problems.build_model(problem), problem.X, problem.Y)
    size = sum(int(np.prod(v.shape)) for v in like)
    points = np.random.default_rng(0).standard_normal((3, size))
    return np.asarray(log_joint(tf.constant(points)))


def load() -> Any:
    """As much of ``Quantities`` as is compared: two rows for each group with the stored moments."""
    with np.load(STORED) as file:
        np.testing.assert_allclose(
            density_at_fixed_points(),
            file["density"],
            rtol=1e-5,  # the network is float32
            err_msg=f"{STORED.name} is the answer to another problem; see its module.",
        )
        moments = {g: (file[f"{g}_mean"], file[f"{g}_sd"]) for g in GROUPS}
    return SimpleNamespace(**{g: np.stack([m - s, m + s]) for g, (m, s) in moments.items()})


def main() -> None:
    """Sample and store."""
    problem = problems.generate(0)
    found = references.sample_reference(
        problems.build_model(problem), problem, num_chains=8, num_warmup=500, num_draws=600, seed=0
    )
    arrays = {"density": density_at_fixed_points(), "rhat": found.rhat, "ess": found.ess}
    for group in GROUPS:
        values = getattr(found.quantities, group)
        mean = values.mean(0)
        second = getattr(found.quantities, f"{group}_square").mean(0)
        arrays |= {f"{group}_mean": mean, f"{group}_sd": np.sqrt(second - mean**2)}
    np.savez(STORED, **arrays)
    print(f"R-hat {found.rhat:.4f}, smallest effective sample size {found.ess:.0f}")


if __name__ == "__main__":
    main()
