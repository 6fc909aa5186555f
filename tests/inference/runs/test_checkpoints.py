"""Checkpoints that are cut short, changed, other versions' or do not fit on the disk; signals."""

from __future__ import annotations

import os
import pathlib
import resource
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpflow_bae import inference
from gpflow_bae.inference.runs import checkpoints
from gpflow_bae.inference.runs.checkpoints import RunDirectory
from gpflow_bae.inference.runs.interruption import interruptions_wait

from .test_run import Doubling, directory, run_in

OPTIONS: dict[str, Any] = {"progress": False, "checkpoint_every": 1}


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Shells have commands in the background ignore Ctrl-C, and then so would these tests."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def stopped_at(folder: pathlib.Path, stop: int) -> None:
    """A run with a checkpoint after each call of three steps."""
    first = np.float64(1.0)
    inference.run(Doubling(), lambda: first, directory=directory(folder), stop=stop, **OPTIONS)


def test_cut_short_anywhere_the_checkpoint_before_it_is_used(tmp_path: pathlib.Path) -> None:
    """At some of the lengths that the file can have, and where it ends; the run goes on as one that
    was never stopped.
    """
    whole = inference.run(Doubling(), lambda: np.float64(1.0), progress=False)
    stopped_at(tmp_path, 6)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    state = tmp_path / "state.npz"
    size = len(before[state])
    for length in [*range(0, size - 40, 41), *range(size - 40, size, 3), size - 1]:
        for path, content in before.items():
            path.write_bytes(content)
        state.write_bytes(before[state][:length])
        with pytest.warns(UserWarning, match="state.npz is damaged.*the checkpoint before it"):
            found = directory(tmp_path).read_state()
        assert int(found["run/number"]) == 3
        assert found.keys() == {"x"} | {
            f"run/{name}"
            for name in ("number", "seconds", "start_seconds", "num_samples", "num_rows")
        }
    again = run_in(tmp_path, np.float64(np.nan))  # of the last one, cut by a byte
    assert again.state == whole.state
    np.testing.assert_array_equal(again.trace["x"], whole.trace["x"])
    assert [float(s["x"]) for s in again.samples] == [float(s["x"]) for s in whole.samples]


def test_a_changed_byte_is_seen_where_it_matters(tmp_path: pathlib.Path) -> None:
    """Any byte of the file turned over: another checkpoint is read, or the same numbers."""
    stopped_at(tmp_path, 6)
    state, previous = tmp_path / "state.npz", tmp_path / "state.previous.npz"
    good, older = state.read_bytes(), previous.read_bytes()
    expected = directory(tmp_path).read_state()
    seen = 0
    for place in range(0, len(good), 3):
        changed = bytearray(good)
        changed[place] ^= 0xFF
        state.write_bytes(changed)
        previous.write_bytes(older)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = directory(tmp_path).read_state()
        if caught:
            seen += 1
            assert int(found["run/number"]) == 3
        else:
            np.testing.assert_equal(found, expected)
    assert seen > len(good) / 6  # of a third; the rest are dates and the like


def test_a_damaged_checkpoint_does_not_push_out_the_good_one(tmp_path: pathlib.Path) -> None:
    stopped_at(tmp_path, 6)
    (tmp_path / "state.npz").write_bytes(b"")
    folder = directory(tmp_path)
    with pytest.warns(UserWarning, match="damaged"):
        good = folder.read_state()
    folder.write_state({"x": np.array(1.0)})
    (tmp_path / "state.npz").write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        np.testing.assert_equal(directory(tmp_path).read_state(), good)


def test_with_no_good_one_the_run_starts_anew(tmp_path: pathlib.Path) -> None:
    stopped_at(tmp_path, 3)
    for name in ("state.npz", "state.previous.npz"):
        (tmp_path / name).write_bytes(b"PK")
    with pytest.warns(UserWarning, match="previous.npz is damaged.*the run starts anew"):
        again = run_in(tmp_path, np.float64(1.0))
    assert again.state == inference.run(Doubling(), lambda: np.float64(1.0), progress=False).state


def test_between_the_two_names_there_is_a_state(tmp_path: pathlib.Path) -> None:
    """Killed after the old state was renamed and before the new one was."""
    stopped_at(tmp_path, 6)
    os.replace(tmp_path / "state.npz", tmp_path / "state.previous.npz")
    folder = directory(tmp_path)
    assert int(folder.read_state()["run/number"]) == 6


def test_a_damaged_sample_is_named(tmp_path: pathlib.Path) -> None:
    stopped_at(tmp_path, 9)
    sample = tmp_path / "samples.bin"
    content = sample.read_bytes()
    sample.write_bytes(content[:-7])
    with pytest.raises(ValueError, match="samples.bin is cut short.* Of the run's 1 samples"):
        run_in(tmp_path, np.float64(1.0))
    sample.unlink()
    with pytest.raises(ValueError, match="samples.bin is missing"):
        run_in(tmp_path, np.float64(1.0))
    sample.write_bytes(content)
    trace = tmp_path / "trace.bin"
    trace.write_bytes(trace.read_bytes()[:-50])
    with pytest.raises(ValueError, match="trace.bin is cut short.* Of the run's 9 rows of stat"):
        run_in(tmp_path, np.float64(1.0))


@pytest.mark.parametrize("name", ["samples.bin", "trace.bin"])
def test_beyond_what_the_checkpoint_counts_anything_may_be(
    tmp_path: pathlib.Path, name: str
) -> None:
    """What a process that died had begun to write, cut short or never on the disk."""
    whole = inference.run(Doubling(), lambda: np.float64(1.0), progress=False)
    stopped_at(tmp_path, 3)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    stopped_at(tmp_path, 10)
    counted, written = before.get(tmp_path / name, b""), (tmp_path / name).read_bytes()
    assert written.startswith(counted) and len(counted) < len(written)
    for length in range(len(counted), len(written), 5):
        for path, content in before.items():
            path.write_bytes(content)
        (tmp_path / name).write_bytes(written[:length].ljust(len(written), b"?"))
        again = run_in(tmp_path, np.float64(np.nan))
        np.testing.assert_array_equal(again.trace["x"], whole.trace["x"])
        assert [float(s["x"]) for s in again.samples] == [float(s["x"]) for s in whole.samples]


def test_a_checkpoint_of_an_earlier_version_is_refused(tmp_path: pathlib.Path) -> None:
    """Those held the statistics themselves, and no number of rows."""
    stopped_at(tmp_path, 9)
    folder = directory(tmp_path)
    state = folder.read_state()
    del state["run/num_rows"]
    folder.write_state(state | {"trace/x": np.zeros(9)})
    with pytest.raises(ValueError, match="has no 'run/num_rows', so another version of gpflow_bae"):
        run_in(tmp_path, np.float64(np.nan))


def test_a_part_is_kept_and_its_damage_seen(tmp_path: pathlib.Path) -> None:
    folder = directory(tmp_path)
    assert folder.read_part("losses") == {}
    folder.write_part("losses", {"0": np.arange(3.0)})
    np.testing.assert_equal(directory(tmp_path).read_part("losses"), {"0": np.arange(3.0)})
    (tmp_path / "losses.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match="losses.npz is damaged.*Put the file back"):
        folder.read_part("losses")


def test_states_of_other_formats_and_other_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_at(tmp_path / "one", 6)
    other = RunDirectory(tmp_path / "other", {"kind": "tripling"}, resume=True)
    other.write_state({"x": np.array(1.0)})
    os.replace(tmp_path / "other" / "state.npz", tmp_path / "one" / "state.npz")
    with pytest.raises(ValueError, match="is of a run with other settings"):
        directory(tmp_path / "one").read_state()
    stopped_at(tmp_path / "two", 6)
    monkeypatch.setattr(checkpoints, "FORMAT", 2)
    with pytest.raises(ValueError, match="in format 1, and version .* reads format 2"):
        run_in(tmp_path / "two", np.float64(1.0))


def test_a_state_without_an_array_is_another_version_s(tmp_path: pathlib.Path) -> None:
    stopped_at(tmp_path, 6)
    folder = directory(tmp_path)
    state = folder.read_state()
    del state["x"]
    folder.write_state(state)
    with pytest.raises(ValueError, match="has no 'x', so another version of gpflow_bae wrote it"):
        run_in(tmp_path, np.float64(1.0))


def test_settings_that_are_damaged_are_known_from_the_state(tmp_path: pathlib.Path) -> None:
    stopped_at(tmp_path, 6)
    (tmp_path / "chain.json").write_bytes(b'{"kind": "dou')
    with pytest.raises(ValueError, match="with a damaged chain.json already"):
        RunDirectory(tmp_path, {"kind": "doubling"}, resume=False)
    with pytest.raises(ValueError, match="of a run with other settings"):
        RunDirectory(tmp_path, {"kind": "tripling"}, resume=True)
    assert int(directory(tmp_path).read_state()["run/number"]) == 6
    RunDirectory(tmp_path, {"kind": "doubling"}, resume=True)  # and chain.json is whole again


def test_a_full_disk_leaves_what_is_there(tmp_path: pathlib.Path) -> None:
    """Files may not grow beyond a limit of this process, which fails in the same call."""
    folder = directory(tmp_path)
    folder.write_state({"x": np.zeros(3)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, hard))
    try:
        with pytest.raises(OSError, match=r"state.npz could not be written \(File too large\)"):
            folder.write_state({"x": np.zeros(100_000)})
        folder.samples.add({"x": np.arange(5000.0)[None]})
        with pytest.raises(OSError, match=r"samples.bin could not be written.*resume=True"):
            folder.samples.add({"x": np.zeros([1, 5000])})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    files = ["chain.json", "samples.bin", "state.npz"]
    assert sorted(p.name for p in tmp_path.rglob("*")) == files
    np.testing.assert_array_equal(folder.samples.records()[0]["x"], np.arange(5000.0))
    np.testing.assert_array_equal(directory(tmp_path).read_state()["x"], np.zeros(3))


class Signalled(Doubling):
    """Doubling that gets a signal in its second call, as a cluster's scheduler sends one."""

    number = signal.SIGINT

    def step(self, state: Any, number: int, stop: int) -> Any:
        if number == 3:
            signal.raise_signal(self.number)
        return super().step(state, number, stop)


def test_ctrl_c_waits_for_the_call_and_a_checkpoint(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"progress": False, "directory": directory(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        inference.run(Signalled(), lambda: np.float64(1.0), **options)
    words = f"interrupted by SIGINT after 6 of 10 steps (saved in {tmp_path}); resume=True goes on"
    said = capfd.readouterr().err
    assert said.index("SIGINT: stops after this step and its checkpoint") < said.index(words)
    assert int(directory(tmp_path).read_state()["run/number"]) == 6
    again = run_in(tmp_path, np.float64(np.nan))
    assert again.state == inference.run(Doubling(), lambda: np.float64(1.0), progress=False).state


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_sigterm_ends_the_process_after_a_checkpoint(tmp_path: pathlib.Path) -> None:
    """As the signal does by itself, so that whoever sent it sees that it was heard."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        Signalled.number = signal.SIGTERM
        folder = directory(tmp_path)
        inference.run(Signalled(), lambda: np.float64(1.0), directory=folder, progress=False)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
    assert int(directory(tmp_path).read_state()["run/number"]) == 6


def test_a_program_with_a_handler_of_its_own_goes_on(tmp_path: pathlib.Path) -> None:
    """It is called once the checkpoint is there, and the run is what it is without a signal."""
    heard = []
    former = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        done = inference.run(
            Signalled(), lambda: np.float64(1.0), directory=directory(tmp_path), progress=False
        )
    finally:
        signal.signal(signal.SIGINT, former)
    assert heard == [signal.SIGINT]
    assert done.state == inference.run(Doubling(), lambda: np.float64(1.0), progress=False).state


def test_signals_are_left_as_they_were() -> None:
    """In other threads nothing is touched; a second signal does not wait."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def elsewhere() -> None:
        with interruptions_wait() as interruption:
            assert not interruption.came

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    with pytest.raises(KeyboardInterrupt):
        with interruptions_wait() as interruption:
            signal.raise_signal(signal.SIGINT)
            assert interruption.came
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        with interruptions_wait():
            signal.raise_signal(signal.SIGINT)  # comes too late to be asked for
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
