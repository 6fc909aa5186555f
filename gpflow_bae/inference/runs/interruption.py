"""Delay SIGTERM and SIGINT until the current step and its checkpoint are complete."""

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

# Cluster schedulers send SIGTERM before SIGKILL; Ctrl-C is SIGINT.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption:
    """Record of a delayed SIGTERM or SIGINT; ``came`` is whether one has arrived."""

    came: bool = False

    def __init__(self) -> None:
        self.came = False
        self.number: int | None = None
        self._former: dict[int, Any] = {}

    def wait(self) -> None:
        """Install the handlers that delay signals."""
        for number in _SIGNALS:
            former = signal.getsignal(number)
            if former not in (signal.SIG_IGN, None):  # ignored signals stay ignored
                self._former[number] = signal.signal(number, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.came, self.number = True, number
        self.end()  # a second signal takes effect at once
        name = signal.Signals(number).name
        words = f"{name}: stops after this step and its checkpoint; a second one does not wait\n"
        with contextlib.suppress(OSError):
            os.write(2, words.encode())  # sys.stderr may be in the middle of a write

    def end(self) -> None:
        """Restore the former signal handlers."""
        while self._former:
            signal.signal(*self._former.popitem())

    def deliver(self, where: str) -> None:
        """Raise the delayed signal under its former handler, then delay signals again.

        :param where: how far the work has come; shown in the exit message.
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
    """Delay the first SIGTERM or SIGINT inside the context; it takes effect at the end.

    A loop that reads ``came`` between two steps can write a checkpoint and then call
    :meth:`deliver <Interruption.deliver>`. A second signal is not delayed. Only the main thread
    receives signals: in other threads this has no effect.

    :param wanted: whether to delay signals.
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
