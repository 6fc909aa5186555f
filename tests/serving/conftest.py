"""One small export, of a posterior with made-up samples, shared by the tests of a run."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

import keras
import numpy as np
import pytest

from gpflow_bae import serving
from gpflow_bae.posteriors import Posterior
from tests.serving.small_posteriors import P, sampled_sgp_bae

MAX_ROWS = 12_000


class Exported(NamedTuple):
    """An export with the posterior behind it and the answers that Python gives."""

    posterior: Posterior
    export: serving.Export
    rows: dict[str, np.ndarray]
    expected: dict[str, dict[str, np.ndarray]]  # by signature and output


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    keras.utils.set_random_seed(0)
    posterior = sampled_sgp_bae()
    folder = tmp_path_factory.mktemp("models") / "small"
    written = serving.export(
        posterior, folder, num_draws=12, samples_per_request=3, max_rows=MAX_ROWS, verbose=False
    )
    rng = np.random.default_rng(1)
    y = rng.standard_normal((4, P)).astype(np.float32)
    holes = y.copy()
    holes[[0, 1, 3], [0, 2, 1]] = np.nan
    rows = {
        "encode": {"y": y},
        "decode": {"latents": rng.standard_normal((4, 2)).astype(np.float32)},
        "reconstruct": {"y": y},
        "generate": {"x": np.linspace(-1.0, 1.0, 4)[:, None]},
        "impute": {"y": holes},
    }
    seeds = np.array([7, 0, 7, 8], np.int64)
    rows |= {f"{name}_seeded": inputs | {"seed": seeds} for name, inputs in rows.items()}
    expected = {name: in_python(written.served, name, inputs) for name, inputs in rows.items()}
    return Exported(posterior, written, rows, expected)


def in_python(served, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The answers of the live model, row by row: no batch, and no graph of an export."""
    signature = name.removesuffix("_seeded")
    rows = {k: v for k, v in inputs.items() if k != "seed"}
    count = len(next(iter(rows.values())))
    seeds = inputs.get("seed", np.zeros(count, np.int64))
    answers = [
        served.answer(signature, int(seeds[n]), **{k: v[n : n + 1] for k, v in rows.items()})
        for n in range(count)
    ]
    return {k: np.concatenate([a[k] for a in answers]) for k in answers[0]}


def run_python(code: str, *arguments: str, **environment: str) -> str:
    """Standard output of ``code`` in a fresh process with TensorFlow, but not this package."""
    found = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=found | {"TF_CPP_MIN_LOG_LEVEL": "2"} | environment,
        cwd=pathlib.Path(sys.executable).parent,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
