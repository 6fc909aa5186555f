"""A campaign of kills against runs of NumPy alone: one resumes rightly, and one does not."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from benchmarks import kills
from gpflow_bae import inference
from gpflow_bae.inference.runs.checkpoints import RunDirectory


class Walk(inference.Algorithm):
    """A random walk whose step has the seed of its number; each takes two milliseconds."""

    label = "walk"
    num_steps = 30

    def step(self, state: Any, number: int, stop: int) -> Any:
        time.sleep(0.002)
        state = state + self.seeded(number).standard_normal()
        return state, 1, {"x": np.array([state])}

    def seeded(self, number: int) -> np.random.Generator:
        return np.random.default_rng(number)

    def sample(self, state: Any, number: int) -> dict[str, np.ndarray]:
        return {"x": np.asarray(state)}

    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        return {"x": np.asarray(state)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Any:
        return arrays["x"]


class Forgetful(Walk):
    """Its steps go on from a generator that is in no checkpoint."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(0)

    def seeded(self, number: int) -> np.random.Generator:
        return self._generator


def work(algorithm: type[Walk]) -> kills.Work:
    def run(folder: pathlib.Path) -> Mapping[str, np.ndarray]:
        directory = RunDirectory(folder, {"kind": "walk"}, resume=True)
        options: Any = {"progress": False, "checkpoint_every": 1}
        found = inference.run(algorithm(), lambda: 0.0, directory=directory, **options)
        return {f"{i}": sample["x"] for i, sample in enumerate(found.samples)} | found.trace

    return run


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_runs_that_resume_are_told_from_runs_that_do_not(tmp_path: pathlib.Path) -> None:
    good = kills.campaign(work(Walk), tmp_path / "good", 20, 0)
    assert good.phases.total() == 20 and "sampling" in good.phases
    assert good.ends == good.equal >= 1 and not good.failures
    bad = kills.campaign(work(Forgetful), tmp_path / "bad", 20, 0)
    assert bad.equal < bad.ends


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_run_that_fails_says_why(tmp_path: pathlib.Path) -> None:
    def fail(folder: pathlib.Path) -> Mapping[str, np.ndarray]:
        raise ValueError("no such thing")

    with pytest.raises(RuntimeError, match="no such thing"):
        kills.campaign(fail, tmp_path, 1, 0)


def test_digests_are_of_everything() -> None:
    one = {"a": np.zeros(2), "b": np.zeros(3)}
    others = ({"a": np.zeros(3), "b": np.zeros(2)}, {**one, "b": np.zeros(3, np.float32)})
    assert kills.digest(one) == kills.digest(dict(reversed(one.items())))
    assert all(kills.digest(one) != kills.digest(other) for other in others)


def test_campaigns_of_several_seeds_add_up(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "kills.json"
    first = kills.Campaign(kills.Counter({"burn-in": 3}), 2, 2, [])
    second = kills.Campaign(kills.Counter({"burn-in": 1, "sampling": 4}), 3, 2, ["no"])
    for seed, found in ((0, second), (1, second), (0, first)):
        kills.write(file, found, {"seed": seed})
    read = json.loads(file.read_text())
    assert [c["seed"] for c in read.pop("campaigns")] == [1, 0]
    total = kills.Campaign(kills.Counter({"burn-in": 4, "sampling": 4}), 5, 4, ["no"])
    assert read == total.record()
