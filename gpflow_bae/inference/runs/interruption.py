"""Signals that end a program wait until what it is at is on disk."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["Interruption", "interruptions_wait"]

# What schedulers of clusters send before they kill, and Ctrl-C.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption:
    """Whether a signal has come that wants the program to end."""

    came: bool = False

    def __init__(self) -> None:
        self.came = False
        self.number: int | None = None
        self._former: dict[int, Any] = {}

    def wait(self) -> None:
        """From now on signals wait."""
        for number in _SIGNALS:
            former = signal.getsignal(number)
            if former not in (signal.SIG_IGN, None):  # whoever ignores them goes on doing so
                self._former[number] = signal.signal(number, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.came, self.number = True, number
        self.end()  # the next one is not waited for
        name = signal.Signals(number).name
        words = f"{name}: stops after this step and its checkpoint; a second one does not wait\n"
        with contextlib.suppress(OSError):
            os.write(2, words.encode())  # standard error itself may be in the middle of a line

    def end(self) -> None:
        """Signals are again what they were."""
        while self._former:
            signal.signal(*self._former.popitem())

    def deliver(self, where: str) -> None:
        """Do what the signal does without us; where that is nothing, go on waiting for the next.

        :param where: how far the work has come, for whoever reads the program's last words.
        """
        assert self.number is not None
        number, self.number, self.came = self.number, None, False
        words = f"interrupted by {signal.Signals(number).name} {where}; resume=True goes on there"
        print(words, file=sys.stderr, flush=True)
        self.end()
        signal.raise_signal(number)
        self.wait()


@contextlib.contextmanager
def interruptions_wait(wanted: bool = True) -> Iterator[Interruption]:
    """Inside, the first SIGTERM or SIGINT is noted only; it does what it does at the end.

    So whoever asks ``came`` between two steps can put its work on disk, and :meth:`deliver
    <Interruption.deliver>` it. A second signal does not wait. Only the main thread can take
    signals: in others nothing changes.

    :param wanted: False changes nothing.
    """
    interruption = Interruption()
    if wanted and threading.current_thread() is threading.main_thread():
        interruption.wait()
    try:
        yield interruption
    finally:
        interruption.end()
    if interruption.number is not None:
        signal.raise_signal(interruption.number)
