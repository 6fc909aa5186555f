"""The loop that every algorithm runs in: checkpoints, resuming, clock, bar, samples, divergence."""

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
Watcher = Callable[[str, int, Trace], None]

_watchers: contextvars.ContextVar[tuple[Watcher, ...]] = contextvars.ContextVar(
    "watchers", default=()
)


@contextlib.contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Every run inside this context, starts of chains included, is reported while it goes on.

    For what follows runs from outside, such as TensorBoard, whoever started them.

    :param watcher: called with (the algorithm's label, steps done, statistics) after each call.
    """
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


def report(label: str, number: int, trace: Trace) -> None:
    """Tell those who watch; :func:`run` does, and a loop of somebody else's may.

    :param label: whose statistics they are.
    :param number: steps done.
    :param trace: statistics by name, arrays whose first axis is the steps.
    """
    for watcher in _watchers.get():
        watcher(label, number, trace)


class Algorithm(ABC):
    """What :func:`run` repeats.

    A state is a structure of tensors, or None for an algorithm that changes variables in place.
    Steps are counted in units of the algorithm's own, of which one call may take several.
    """

    label: str
    """What the bar is called."""
    num_steps: int
    """Of a whole run."""

    @abstractmethod
    def step(self, state: Any, number: int, stop: int) -> tuple[Any, int, Trace]:
        """Go on from a state after ``number`` steps, to at most ``stop``.

        :return: the next state, the steps taken, and statistics by name, all with one row for each
            of them, or all with one for the call, of the same types and shapes in every call.
        """

    @abstractmethod
    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        """A state by name, parameters by their paths: what a checkpoint holds."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """The state that :meth:`arrays` wrote."""

    def sample(self, state: Any, number: int) -> dict[str, np.ndarray] | None:
        """What goes into the bank after ``number`` steps; None for nothing.

        Arrays have the same names, types and shapes in every sample.
        """
        return None

    def diagnose(self, state: Any, number: int, trace: Trace, saved: str) -> Exception | None:
        """The error to raise where a step went wrong, else None.

        :param number: steps before the one that led to ``state``.
        :param saved: where the last good state is, in words, to be put into the message.
        """
        return None

    def summary(self, number: int, trace: Trace) -> tuple[str, dict[str, str]]:
        """What the bar shows after a step: its label, and numbers per item."""
        return self.label, {}


class Run(NamedTuple):
    """What a run has come to."""

    state: Any
    samples: Sequence[Mapping[str, np.ndarray]]
    """Arrays by name for each; of a run with a folder they are in its file until they are read."""
    trace: dict[str, np.ndarray]
    """Statistics by name, rows in the order of the steps."""
    seconds: float
    """Inside steps, those before an interruption included."""
    start_seconds: float
    """What the first state took; of a start that was interrupted, its last part."""


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
    replicas: Replicas = ALONE,
) -> Run:
    """Run an algorithm from its start, or from the last checkpoint in ``directory``, to its end.

    :param initial: makes the first state; called only where there is no checkpoint.
    :param directory: where checkpoints, samples and statistics go; None keeps everything in
        memory, which then grows with every sample. A run
        that was killed goes on from its last checkpoint as if it had not been, bit by bit. With
        one, SIGTERM and SIGINT (Ctrl-C) wait for the call they fall into, and a checkpoint; the
        second one does not wait.
    :param stop: steps after which to stop early; None for all.
    :param checkpoint_every: calls between checkpoints; one is also written after
        ``seconds_between_checkpoints``, and at the end.
    :param callback: called with (steps done, statistics) after each call; True ends the run there.
    :param replicas: that share the algorithm's work, each process in a loop of its own: the chief
        writes and shows the bar, and all end where one is told to.
    :raises FloatingPointError: what ``algorithm.diagnose`` says; the last good state is saved.
    :raises ValueError: if what is in ``directory`` is damaged or another version's, so that it
        cannot be resumed.
    """
    records = RunRecords(directory)
    number, seconds = 0, 0.0
    found = None if directory is None else directory.read_state()
    if found is None:
        elapsed = stopwatch(None if directory is None else directory.path)
        state = initial()  # resumes what it had begun in folders of its own
        start_seconds = elapsed()
    else:
        assert directory is not None
        try:
            start_seconds = float(found.pop("run/start_seconds"))
            number, seconds = int(found.pop("run/number")), float(found.pop("run/seconds"))
            records.resume(found)
            state = algorithm.restore(found)
        except KeyError as name:
            raise ValueError(
                f"The checkpoint in {directory.path} has no {name}, so another version of "
                "gpflow_bae wrote it: go on with that one, or choose another out_dir to start anew."
            ) from name

    saved_number = -1

    def save() -> None:
        nonlocal saved_number
        if directory is None:
            return
        counters = {
            "number": number,
            "seconds": seconds,
            "start_seconds": start_seconds,
            **records.counts(),
        }
        directory.write_state(
            algorithm.arrays(state)
            | {f"run/{name}": np.array(value) for name, value in counters.items()}
        )
        saved_number = number

    if found is None:
        save()  # a start is not lost either
    stop = algorithm.num_steps if stop is None else min(stop, algorithm.num_steps)
    calls, saved_at = 0, time.monotonic()
    with (
        contextlib.closing(records),
        interruptions_wait(directory is not None) as interruption,
        Progress(algorithm.label, stop, number, shown=progress and replicas.is_chief) as shown,
    ):
        while number < stop:
            started = time.perf_counter()
            following, taken, trace = algorithm.step(state, number, stop)
            seconds += time.perf_counter() - started
            where = "" if directory is None else f" (saved in {directory.path})"
            error = algorithm.diagnose(following, number, trace, where)
            if error is not None:
                if state is not None:  # what changes in place is not what it was
                    save()
                raise error
            state, number, calls = following, number + taken, calls + 1
            records.add(trace, algorithm.sample(state, number))
            overdue = time.monotonic() - saved_at > seconds_between_checkpoints
            if number >= stop or calls % checkpoint_every == 0 or overdue:
                save()
                saved_at = time.monotonic()
            shown.update(taken, *algorithm.summary(number, trace))
            report(algorithm.label, number, trace)
            enough = callback is not None and callback(number, trace) is True
            if enough and saved_number != number:
                save()
            if replicas.workers.any(interruption.came):
                if saved_number != number:
                    save()
                words = f"after {number} of {stop} steps{where}"
                if not interruption.came:
                    raise RuntimeError(f"Another worker was interrupted {words}; start all again.")
                interruption.deliver(words)
            if enough:
                break
    return Run(state, records.samples(), records.trace(), seconds, start_seconds)
