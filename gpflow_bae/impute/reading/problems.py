"""Errors and warnings about a table; all errors are raised in one message."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...core.arguments import warn_caller

__all__ = [
    "LINE",
    "Problems",
    "TableError",
    "TableWarning",
    "messages_of_command",
    "place_of",
    "setting",
    "warn",
]

LINE = "line"  # name of the index of a table from a CSV file, which holds the line of each row

_SHOWN = 12  # of each problem's cells
_of_command = contextvars.ContextVar("of_command", default=False)


class TableError(ValueError):
    """A table cannot be used; the message lists every reason.

    :param problems: sentences, one for each problem.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        text = self.problems[0]
        if count > 1:
            text = f"{count} problems:" + "".join(f"\n- {problem}" for problem in self.problems)
        super().__init__(text)


class TableWarning(UserWarning):
    """Something a user should know about how a table was read."""


def warn(notes: Iterable[str]) -> None:
    """Warn of each note, at the line outside of this package that led here."""
    for note in notes:
        warn_caller(note, TableWarning)


@contextlib.contextmanager
def messages_of_command() -> Iterator[None]:
    """Messages name the flags of the command, which are arguments in Python elsewhere."""
    token = _of_command.set(True)
    try:
        yield
    finally:
        _of_command.reset(token)


def setting(flag: str, argument: str) -> str:
    """The name of a setting in a message: the flag, for a shell, or the argument in Python."""
    if not _of_command.get():
        return argument
    name, equals, value = flag.partition("=")
    return name + equals + (shlex.quote(value) if equals else "")


def place_of(table: Any, row: int) -> str:
    """The place of a row of a table, by its number from 0: its line in a file, such as ``line 7``.

    :param table: a DataFrame, or an array.
    """
    index: Any = getattr(table, "index", None)
    return f"row {row + 1}" if getattr(index, "name", None) != LINE else f"line {index[row]}"


class Problems:
    """Collects the problems of a table, to raise them together.

    :param table: the table, whose rows messages name; or a function of a row's number from 0 that
        names its place.
    """

    def __init__(self, table: Any = None) -> None:
        self.found: list[str] = []
        self.place: Callable[[int], str] = (
            table if callable(table) else functools.partial(place_of, table)
        )

    def add(self, what: str, advice: str = "") -> None:
        """Add a problem: a sentence without its full stop, and a sentence with advice."""
        self.found.append(f"{what}." + (f" {advice}" if advice else ""))

    def add_rows(
        self,
        what: str,
        rows: Any,
        advice: str = "",
        cells: Any = None,
        num_shown: int = _SHOWN,
    ) -> None:
        """Add a problem of some rows, and name the first of them. Without rows, add nothing.

        :param what: the beginning of a sentence that ends with the places of the rows.
        :param cells: the content of the cells, if the message should show it.
        :param num_shown: number of rows that are named.
        """
        if len(rows) == 0:
            return
        shown = [self.place(int(row)) for row in rows[:num_shown]]
        if cells is not None:
            shown = [f"{cell!r} in {at}" for cell, at in zip(cells, shown, strict=False)]
        listing = ", ".join(shown)
        if len(rows) > num_shown:
            listing += f" and {len(rows) - num_shown} more"
        self.add(f"{what} {listing}", advice)

    def raise_if_any(self) -> None:
        """Raise the problems.

        :raises TableError: if there is a problem.
        """
        if self.found:
            raise TableError(self.found)
