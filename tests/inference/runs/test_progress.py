"""What a run shows while it goes on, and who is told of it."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from gpflow_bae import inference
from gpflow_bae.inference.runs import progress
from gpflow_bae.inference.runs.checkpoints import RunDirectory
from gpflow_bae.inference.runs.run import report, watched


class Counting(inference.Algorithm):
    """Ten steps, one to a call, or a start of three before them."""

    label = "counting"
    unit = "rounds"
    num_steps = 10

    def step(self, state: Any, number: int, stop: int) -> tuple[Any, int, dict[str, np.ndarray]]:
        return number + 1, 1, {"x": np.array([number + 1.0])}

    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        return {"x": np.asarray(state)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        return arrays["x"]

    def summary(self, number: int, trace: Any) -> tuple[str, dict[str, str]]:
        return "burn-in" if number < 5 else "sampling", {"loss": f"{trace['x'][-1]:.4g}"}


class Start(Counting):
    label = "start"
    num_steps = 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(**how: Any) -> None:
    def initial() -> int:
        inference.run(Start(), lambda: 0, **how)
        return 0

    inference.run(Counting(), initial, **how)


def test_a_file_gets_lines_and_no_copies_of_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """One at the end of each run; with no time between them one after each call."""
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    run()
    assert file.getvalue().splitlines() == [
        "burn-in: 3 of 3 rounds, 0:00, loss 3",
        "sampling: 10 of 10 rounds, 0:00, loss 10",
    ]
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    run()
    lines = file.getvalue().splitlines()[2:]
    assert len(lines) == 13 and lines[3] == "burn-in: 1 of 10 rounds, 0:00, 0:00 left, loss 1"
    file.truncate(0)
    run(progress=False)
    assert not file.getvalue().strip("\0")


def test_a_terminal_gets_each_state_of_a_bar_once(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Terminal()
    monkeypatch.setattr("sys.stderr", file)

    class EveryUpdate(progress.tqdm):  # the real one leaves out those within a tenth of a second
        def __init__(self, **how: Any):
            super().__init__(mininterval=0.0, file=file, **how)

    monkeypatch.setattr(progress, "tqdm", EveryUpdate)
    inference.run(Counting(), lambda: 0)
    frames = [f for f in file.getvalue().split("\r") if f.strip()]
    counts = [next(n for n in range(10, -1, -1) if f" {n}/10 " in f) for f in frames]
    # The empty bar, ten calls, and the last state once more as the line that stays.
    assert counts == [0, *range(1, 11), 10]
    assert all(" rounds/s" in f for f in frames[2:-1])
    assert "loss=4" in frames[4] and frames[4].startswith("burn-in")
    assert frames[5].startswith("sampling")


def test_a_run_that_goes_on_counts_what_is_left_from_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    directory = RunDirectory(tmp_path, {}, resume=True)
    inference.run(Counting(), lambda: 0, directory=directory, stop=4, progress=False)
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    inference.run(Counting(), lambda: 0, directory=directory)
    assert file.getvalue().startswith("sampling: 10 of 10 rounds")
    inference.run(Counting(), lambda: 0, directory=directory)  # nothing is left, or shown
    assert len(file.getvalue().splitlines()) == 1


def test_watchers_see_every_call_of_every_run_inside() -> None:
    """Starts included; not those before or after, and of two watchers each sees all."""
    seen: list[tuple[str, int, float]] = []
    run(progress=False)
    with watched(lambda *called: None), watched(lambda *c: seen.append((*c[:2], c[2]["x"][0]))):
        run(progress=False)
        report("other", 7, {"x": np.array([0.5])})
    run(progress=False)
    starts = [("start", n, float(n)) for n in range(1, 4)]
    chain = [("counting", n, float(n)) for n in range(1, 11)]
    assert seen == [*starts, *chain, ("other", 7, 0.5)]


def test_hours() -> None:
    assert [progress._clock(s) for s in (0.4, 75.2, 3675.0)] == ["0:00", "1:15", "1:01:15"]
