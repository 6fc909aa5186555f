"""All that is wrong with a table, in one message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...core.arguments import warn_caller

__all__ = ["Problems", "TableError", "TableWarning", "warn"]

_SHOWN = 12  # of each problem's cells


class TableError(ValueError):
    """A table that cannot be used, with every reason.

    :param problems: sentences, each of one problem.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        text = self.problems[0]
        if count > 1:
            text = f"{count} problems:" + "".join(f"\n- {problem}" for problem in self.problems)
        super().__init__(text)


class TableWarning(UserWarning):
    """What a user should know of how a table was read."""


def warn(notes: Iterable[str]) -> None:
    """Warns of each note, as of the line outside of this package that led here."""
    for note in notes:
        warn_caller(note, TableWarning)


class Problems:
    """Collects what is wrong, and raises it at once.

    :param place: names the place of a row, such as ``line 7``, given its number from 0.
    """

    def __init__(self, place: Callable[[int], str] | None = None) -> None:
        self.found: list[str] = []
        self.place = (lambda row: f"row {row + 1}") if place is None else place

    def __len__(self) -> int:
        return len(self.found)

    def add(self, what: str, advice: str = "") -> None:
        """One problem: a sentence without its full stop, and a sentence that says what to do."""
        self.found.append(f"{what}." + (f" {advice}" if advice else ""))

    def add_rows(
        self,
        what: str,
        rows: Any,
        advice: str = "",
        cells: Any = None,
        num_shown: int = _SHOWN,
    ) -> None:
        """One problem of several rows, of which the first are named; none if there are no rows.

        :param what: a sentence that the places of the rows end.
        :param cells: what is written there, if that helps.
        :param num_shown: how many are named.
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
        """:raises TableError: if there is a problem."""
        if self.found:
            raise TableError(self.found)
