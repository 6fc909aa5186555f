"""The one loop, under an algorithm that needs no model; states by name; Adam as a function."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import time
import tracemalloc
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference
from gpflow_bae.core import records
from gpflow_bae.inference.optimise import adam
from gpflow_bae.inference.runs import checkpoints
from gpflow_bae.inference.runs.checkpoints import RunDirectory, folder_of_part
from gpflow_bae.inference.runs.naming import from_arrays, leaf_names, to_arrays


class Doubling(inference.Algorithm):
    """x <- 2 x + number, three steps to a call, of ten; every sixth step is a sample."""

    label = "doubling"
    num_steps = 10

    def step(self, state: Any, number: int, stop: int) -> tuple[Any, int, dict[str, np.ndarray]]:
        taken = min(3, stop - number)
        values = []
        for i in range(number, number + taken):
            state = 2.0 * state + i
            values.append(float(state))
        return state, taken, {"x": np.array(values)}

    def sample(self, state: Any, number: int) -> dict[str, np.ndarray] | None:
        return {"x": np.asarray(state)} if number % 6 == 0 else None

    def diagnose(self, state: Any, number: int, trace: Any, saved: str) -> Exception | None:
        bad = float(state) > 1e6
        return FloatingPointError(f"too large after {number}{saved}") if bad else None

    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        return {"x": np.asarray(state)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        return arrays["x"]


TOUCHES_FILES = ("open", "write", "flush", "fsync", "close", "replace", "rename", "unlink")


def directory(path: pathlib.Path) -> RunDirectory:
    return RunDirectory(path, {"kind": "doubling"}, resume=True)


def test_stopped_anywhere_it_goes_on_as_if_it_had_not(tmp_path: pathlib.Path) -> None:
    """Dead in any call, with checkpoints at every second one: states, samples and trace agree."""
    whole = inference.run(Doubling(), lambda: np.float64(1.0), progress=False)
    assert [int(s["x"]) for s in whole.samples] == [int(whole.trace["x"][5])]
    assert len(whole.trace["x"]) == 10
    for last in (3, 6, 9):
        folder = tmp_path / str(last)

        def die(number: int, _: Any, last: int = last) -> None:
            if number == last:
                raise KeyboardInterrupt

        options: dict[str, Any] = {"progress": False, "checkpoint_every": 2}
        with pytest.raises(KeyboardInterrupt):
            inference.run(
                Doubling(),
                lambda: np.float64(1.0),
                directory=directory(folder),
                callback=die,
                **options,
            )
        again = inference.run(
            Doubling(), lambda: np.float64(np.nan), directory=directory(folder), **options
        )
        assert again.state == whole.state
        np.testing.assert_array_equal(again.trace["x"], whole.trace["x"])
        for one, other in zip(again.samples, whole.samples, strict=True):
            np.testing.assert_array_equal(one["x"], other["x"])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_killed_at_any_file_it_goes_on_as_if_it_had_not(tmp_path: pathlib.Path) -> None:
    """SIGKILL before every seventh call that touches a file, until a run gets through.

    What an algorithm computes between such calls is lost with the process, whatever it is, so these
    are all the moments there are. The child computes with NumPy alone: TensorFlow does not survive
    a fork.
    """
    whole = inference.run(Doubling(), lambda: np.float64(1.0), progress=False)
    outcomes = []
    for k in range(0, 1000, 7):  # a file takes some thirty calls
        folder = tmp_path / str(k)
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # a child that hangs must not hang the tests
            calls = iter(range(k))

            def count(frame: Any, event: str, function: Any, calls: Any = calls) -> None:
                name = getattr(function, "__name__", "")
                if event == "c_call" and name in TOUCHES_FILES and next(calls, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.setprofile(count)
            run_in(folder, np.float64(1.0))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        again = run_in(folder, np.float64(1.0))
        assert again.state == whole.state
        np.testing.assert_array_equal(again.trace["x"], whole.trace["x"])
        assert [float(s["x"]) for s in again.samples] == [float(s["x"]) for s in whole.samples]
        outcomes.append(os.WTERMSIG(status))
        if status == 0:
            break
    # Settings, first state, two checkpoints and a sample are five files, each opened and renamed.
    assert outcomes[:-1] == [signal.SIGKILL] * len(outcomes[:-1]) and len(outcomes) > 10


def run_in(folder: pathlib.Path, first: np.float64) -> inference.Run:
    options: dict[str, Any] = {"progress": False, "checkpoint_every": 2}
    return inference.run(Doubling(), lambda: first, directory=directory(folder), **options)


def test_an_early_stop_and_the_rest(tmp_path: pathlib.Path) -> None:
    short = inference.run(
        Doubling(), lambda: np.float64(1.0), directory=directory(tmp_path), stop=4, progress=False
    )
    assert len(short.trace["x"]) == 4
    rest = inference.run(Doubling(), lambda: 0.0, directory=directory(tmp_path), progress=False)
    whole = inference.run(Doubling(), lambda: np.float64(1.0), progress=False)
    assert rest.state == whole.state


def test_what_goes_wrong_leaves_the_last_good_state(tmp_path: pathlib.Path) -> None:
    """2^3 times 2e5 is too large: the second call fails, and the first one is on disk."""
    with pytest.raises(FloatingPointError, match=f"too large after 3 .saved in {tmp_path}."):
        inference.run(
            Doubling(), lambda: np.float64(2e4), directory=directory(tmp_path), progress=False
        )
    found = directory(tmp_path).read_state()
    assert int(found["run/number"]) == 3 and float(found["x"]) == 8 * 2e4 + 4


class Drawing(Doubling):
    """A sample of a kilobyte in each of as many steps as it is told."""

    def __init__(self, num_steps: int):
        self.num_steps = num_steps

    def step(self, state: Any, number: int, stop: int) -> tuple[Any, int, dict[str, np.ndarray]]:
        return state, 1, {"x": np.array([float(number)])}

    def sample(self, state: Any, number: int) -> dict[str, np.ndarray]:
        return {"x": np.full(128, float(number))}


def test_memory_does_not_grow_with_samples(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run with a folder, and of one that is resumed: ten times as many samples take less than
    a twentieth of their own size more. Without a folder they take all of it.
    """
    monkeypatch.setattr(records, "_AT_ONCE", 2**16)  # what is checked at a time

    def peak(num_samples: int, folder: pathlib.Path | None) -> int:
        kept = None if folder is None else directory(folder)
        options: dict[str, Any] = {"directory": kept, "progress": False}
        tracemalloc.start()
        found = inference.run(Drawing(num_samples), lambda: np.float64(0.0), **options)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(found.samples) == len(found.trace["x"]) == num_samples
        assert float(found.samples[num_samples - 1]["x"][127]) == num_samples
        return most

    few, many = 200, 2000
    more = (many - few) * 1024
    for _ in range(2):  # a second time from what the first one left
        assert peak(many, tmp_path / "many") - peak(few, tmp_path / "few") < more / 20
    assert peak(many, None) - peak(few, None) > more


def test_names_of_leaves_are_paths() -> None:
    """In the order of ``tf.nest.flatten``, and back: dictionaries are sorted, tuples are not."""
    state = inference.Point((tf.constant([1.0]), tf.constant([2.0, 3.0])), {"b": tf.constant(4)})
    paths = {"parameters": (".z", ".a")}
    assert leaf_names(state, paths) == ["parameters/.z", "parameters/.a", "codes/b"]
    arrays = to_arrays(state, paths)
    np.testing.assert_array_equal(arrays["parameters/.a"], [2.0, 3.0])
    back = from_arrays(state, arrays, paths)
    for one, other in zip(tf.nest.flatten(back), tf.nest.flatten(state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert isinstance(back, inference.Point)
    with pytest.raises(ValueError, match=r"no 'parameters/\.a': it was written by another version"):
        from_arrays(state, {k: v for k, v in arrays.items() if k != "parameters/.a"}, paths)


def test_adam_is_keras_adam() -> None:
    """Ten steps of float32; a value without gradient rests. Rounding: 1e-7 of each."""
    rng = np.random.default_rng(0)
    start = [rng.standard_normal((3, 2)).astype(np.float32), np.ones(4, np.float32)]
    variables = [tf.Variable(v) for v in start]
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(variables)
    values, resting = tuple(map(tf.constant, start)), tf.constant([5.0])
    state = adam.init((*values, resting))
    for _ in range(10):
        gradients = [tf.constant(rng.standard_normal(v.shape), tf.float32) for v in start]
        optimizer.apply(gradients, variables)
        moved, state = adam.update((*values, resting), [*gradients, None], state, 0.01)
        values = moved[:2]
        np.testing.assert_array_equal(moved[2], resting)
    for value, variable in zip(values, variables, strict=True):
        np.testing.assert_allclose(value, variable, rtol=1e-6)
    assert int(state.count) == 10


def test_what_a_start_took_is_kept(tmp_path: pathlib.Path) -> None:
    """A run that is taken up again knows it, though it makes no start."""

    def slow() -> np.float64:
        time.sleep(0.05)
        return np.float64(1.0)

    first = inference.run(Doubling(), slow, directory=directory(tmp_path), stop=3, progress=False)
    rest = inference.run(Doubling(), lambda: 0.0, directory=directory(tmp_path), progress=False)
    assert rest.start_seconds == first.start_seconds >= 0.05


def test_a_start_that_was_resumed_has_the_seconds_of_both_processes(tmp_path: pathlib.Path) -> None:
    """What the first process did is in the folder of the part that it had begun."""
    part = folder_of_part(directory(tmp_path), "start", {})

    def slow() -> np.float64:
        time.sleep(0.05)
        return np.float64(1.0)

    inference.run(Doubling(), slow, directory=part, stop=3, progress=False)
    begun = checkpoints.stopwatch(None, tmp_path)()
    assert begun >= 0.05
    rest = inference.run(Doubling(), slow, directory=directory(tmp_path), progress=False)
    assert rest.start_seconds >= begun + 0.05
    # A state stands for all that led to it, its start's parts included.
    began, total = time.perf_counter(), rest.start_seconds + rest.seconds
    elapsed = checkpoints.stopwatch(tmp_path)()
    assert elapsed - (time.perf_counter() - began) <= total <= elapsed
