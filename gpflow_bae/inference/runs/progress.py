"""Progress of a run: a bar on a terminal or in a notebook, periodic lines in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tqdm.auto import tqdm
from tqdm.notebook import tqdm as notebook_tqdm

__all__ = ["Progress", "shows_bars"]

SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """The progress of one run, on standard error; only one may be shown at a time.

    It is a bar on a terminal and in a notebook. In a log file a bar would leave thousands of
    copies of itself, so there a line is printed every 30 seconds, and one at the end.
    """

    def __init__(
        self,
        label: str,
        total: int,
        initial: int = 0,
        *,
        unit: str = "steps",
        shown: bool = True,
    ):
        """
        :param label: name of the run.
        :param total: number of steps at the end.
        :param initial: number of steps already taken.
        :param unit: what is counted, in the plural.
        """
        self._label, self._total, self._number, self._unit = label, total, initial, unit
        self._first, self._started = initial, time.monotonic()
        self._printed_at, self._numbers = self._started, ""
        self._bar: Any = None
        self._prints = shown and not shows_bars()
        if shown and not self._prints:
            self._bar = tqdm(
                total=total, initial=initial, desc=label, unit=f" {unit}", dynamic_ncols=True
            )

    def update(self, taken: int, label: str, numbers: Mapping[str, str]) -> None:
        """Advance the progress by ``taken`` steps.

        :param label: name of the current phase.
        :param numbers: formatted values to show, by name.
        """
        self._number += taken
        self._label = label
        self._numbers = "".join(f", {name} {value}" for name, value in numbers.items())
        if self._bar is not None:
            # Without refresh=False each of these would draw the bar once more.
            self._bar.set_description(label, refresh=False)
            self._bar.set_postfix(numbers, refresh=False)
            self._bar.update(taken)
        elif self._prints and self._number < self._total:
            now = time.monotonic()
            if now - self._printed_at >= SECONDS_BETWEEN_LINES:
                self._printed_at = now
                self._print(now)

    def _print(self, now: float) -> None:
        elapsed, done = now - self._started, self._number - self._first
        text = f"{self._label}: {self._number} of {self._total} {self._unit}, {_clock(elapsed)}"
        if 0 < done and self._number < self._total:
            text += f", {_clock(elapsed * (self._total - self._number) / done)} left"
        print(text + self._numbers, file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._prints and self._number > self._first:
            self._print(time.monotonic())


def shows_bars() -> bool:
    """Return whether standard error is a terminal or this is a notebook, which draws bars."""
    is_notebook = issubclass(tqdm, notebook_tqdm)  # the class that tqdm.auto selected
    return is_notebook or bool(getattr(sys.stderr, "isatty", lambda: False)())


def _clock(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds.

    >>> _clock(75.2), _clock(3675.0)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
