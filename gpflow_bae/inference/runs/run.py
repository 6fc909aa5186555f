"""The loop of every algorithm: checkpoints, resuming, timing, progress, samples, divergence."""

from __future__ import annotations

import contextlib
import contextvars
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..sharding.replicas import ALONE, Replicas
from .checkpoints import RunDirectory, stopwatch
from .interruption import interruptions_wait
from .progress import Progress
from .run_records import RunRecords

__all__ = ["Algorithm", "Run", "report", "run", "watched"]

Trace = Mapping[str, np.ndarray]
Samples = Sequence[Mapping[str, np.ndarray]]
Watcher = Callable[[str, int, Trace], None]

_watchers: contextvars.ContextVar[tuple[Watcher, ...]] = contextvars.ContextVar(
    "watchers", default=()
)


@contextlib.contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call ``watcher`` after each step call of every run inside this context.

    Runs that initialise chains are included. TensorBoard logging uses this.

    :param watcher: called with (the algorithm's label, steps taken, statistics).
    """
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


def report(label: str, number: int, trace: Trace) -> None:
    """Call all watchers; :func:`run` does this, and custom loops may.

    :param label: name of the algorithm.
    :param number: steps taken.
    :param trace: statistics by name, arrays whose first axis is the steps.
    """
    for watcher in _watchers.get():
        watcher(label, number, trace)


class Algorithm(ABC):
    """An iterative algorithm that :func:`run` runs.

    A state is a structure of tensors, or None for an algorithm that changes variables in place.
    The algorithm defines the unit of a step; one call may take several steps.
    """

    label: str
    """Name shown beside the progress bar."""
    unit: str = "steps"
    """What a user calls its steps, in the plural: :func:`run` counts them."""
    num_steps: int
    """Number of steps of a whole run."""

    @abstractmethod
    def step(self, state: Any, number: int, stop: int) -> tuple[Any, int, Trace]:
        """Continue from the state after ``number`` steps, to at most ``stop``.

        :return: the next state, the number of steps taken, and statistics by name. All statistics
            have one row for each step, or all have one row for the call; types and shapes of rows
            are the same in every call.
        """

    @abstractmethod
    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        """Return a state as named arrays for a checkpoint; parameters are named by their paths."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """Return the state whose :meth:`arrays` these are."""

    def sample(self, state: Any, number: int) -> dict[str, np.ndarray] | None:
        """Return the sample to store after ``number`` steps, or None.

        Arrays have the same names, types and shapes in every sample.
        """
        return None

    def diagnose(self, state: Any, number: int, trace: Trace, saved: str) -> Exception | None:
        """Return the error to raise if a step diverged, else None.

        :param number: steps taken before the call that led to ``state``.
        :param saved: where the last good state is stored, as text for the error message.
        """
        return None

    def summary(self, number: int, trace: Trace) -> tuple[str, dict[str, str]]:
        """Return what the progress bar shows: a label, and formatted numbers by name."""
        return self.label, {}


class Run(NamedTuple):
    """The result of a run."""

    state: Any
    samples: Samples
    """Samples as named arrays; those of a run with a folder are read from its file on access."""
    trace: dict[str, np.ndarray]
    """Statistics by name, rows in the order of the steps."""
    seconds: float
    """Time spent in steps, including those before an interruption."""
    start_seconds: float
    """Time to make the first state, including the recorded time of resumed runs in subfolders."""


def run(
    algorithm: Algorithm,
    initial: Callable[[], Any],
    *,
    directory: RunDirectory | None = None,
    stop: int | None = None,
    checkpoint_every: int = 20,
    seconds_between_checkpoints: float = 60.0,
    progress: bool = True,
    callback: Callable[[int, Trace], bool | None] | None = None,
    enough: Callable[[int, Callable[[], Samples]], bool] | None = None,
    replicas: Replicas = ALONE,
) -> Run:
    """Run an algorithm from its start, or from the last checkpoint in ``directory``, to its end.

    :param initial: returns the first state; called only if there is no checkpoint.
    :param directory: folder for checkpoints, samples and statistics; None keeps everything in
        memory, which then grows with every sample. A run that was killed resumes from its last
        checkpoint and gives bitwise the same result. With a folder, the first SIGTERM or SIGINT
        (Ctrl-C) waits for the current call and a checkpoint; a second one does not.
    :param stop: number of steps after which to stop early; None for all.
    :param checkpoint_every: calls between checkpoints; one is also written after
        ``seconds_between_checkpoints``, and at the end.
    :param callback: called with (steps taken, statistics) after each call; returning True ends the
        run.
    :param enough: called before each call, and at the end, with the steps taken and a function that
        returns the samples so far; returning True ends the run, which resumes to the same end.
    :param replicas: replicas that share the work; each process runs this loop, only the chief
        writes files and shows progress, and an interruption of one process ends all.
    :raises FloatingPointError: returned by ``algorithm.diagnose``; the last good state is saved.
    :raises ValueError: if the files in ``directory`` are damaged or of another version, so that
        the run cannot be resumed.
    """
    samples, rows = RunRecords(), RunRecords()
    if directory is not None:
        samples, rows = directory.samples, directory.trace
    number, seconds = 0, 0.0
    found = None if directory is None else directory.read_state()
    if found is None:
        elapsed = stopwatch(None if directory is None else directory.path)
        state = initial()  # resumes from its own subfolders after an interruption
        start_seconds = elapsed()
    else:
        assert directory is not None
        try:
            start_seconds = float(found.pop("run/start_seconds"))
            number, seconds = int(found.pop("run/number")), float(found.pop("run/seconds"))
            samples.resume(int(found.pop("run/num_samples")))
            rows.resume(int(found.pop("run/num_rows")))
            state = algorithm.restore(found)
        except KeyError as name:
            raise ValueError(
                f"The checkpoint in {directory.path} has no {name}, so another version of "
                "gpflow_bae wrote it: go on with that one, or choose another out_dir to start anew."
            ) from name

    saved_number = -1 if found is None else number

    def save() -> None:
        nonlocal saved_number
        if directory is None:
            return
        counters = {
            "number": number,
            "seconds": seconds,
            "start_seconds": start_seconds,
            "num_samples": samples.count,
            "num_rows": rows.count,
        }
        directory.write_state(
            algorithm.arrays(state)
            | {f"run/{name}": np.array(value) for name, value in counters.items()}
        )
        saved_number = number

    def stored() -> Samples:
        samples.flush()
        return samples.records()

    if found is None:
        save()  # the initialisation may have been expensive
    stop = algorithm.num_steps if stop is None else min(stop, algorithm.num_steps)
    calls, saved_at = 0, time.monotonic()
    with (
        contextlib.closing(samples),
        contextlib.closing(rows),
        interruptions_wait(directory is not None) as interruption,
        Progress(
            algorithm.label,
            stop,
            number,
            unit=algorithm.unit,
            shown=progress and replicas.is_chief,
        ) as shown,
    ):
        while not (enough and enough(number, stored)) and number < stop:
            started = time.perf_counter()
            following, taken, trace = algorithm.step(state, number, stop)
            seconds += time.perf_counter() - started
            where = "" if directory is None else f" (saved in {directory.path})"
            error = algorithm.diagnose(following, number, trace, where)
            if error is not None:
                if state is not None:  # variables changed in place no longer hold the last state
                    save()
                raise error
            state, number, calls = following, number + taken, calls + 1
            rows.add(trace)
            if (sample := algorithm.sample(state, number)) is not None:
                samples.add({name: np.asarray(value)[None] for name, value in sample.items()})
            overdue = time.monotonic() - saved_at > seconds_between_checkpoints
            if number >= stop or calls % checkpoint_every == 0 or overdue:
                save()
                saved_at = time.monotonic()
            shown.update(taken, *algorithm.summary(number, trace))
            report(algorithm.label, number, trace)
            ended = callback is not None and callback(number, trace) is True
            if replicas.workers.any(interruption.came):
                if saved_number != number:
                    save()
                words = f"after {number} of {stop} {algorithm.unit}{where}"
                if not interruption.came:
                    raise RuntimeError(f"Another worker was interrupted {words}; start all again.")
                interruption.deliver(words)
            if ended:
                break
        if saved_number != number:
            save()
    return Run(state, samples.records(), rows.stacked(), seconds, start_seconds)
