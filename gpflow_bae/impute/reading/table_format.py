"""The notation of numbers, dates and missing cells in a file."""

from __future__ import annotations

import dataclasses
import zoneinfo
from typing import Any

from .problems import setting

__all__ = ["TableFormat", "option"]

_SEPARATORS = {"\\t": "\t", "tab": "\t", "semicolon": ";", "comma": ",", "space": " "}


@dataclasses.dataclass(frozen=True)
class TableFormat:
    """The notation of numbers, dates and missing cells in a file.

    * separator: one character between the columns of a CSV file; ``tab`` for a tabulator. By
      default ``;`` where the decimal mark is a comma, else ``,``.
    * encoding: encoding of a CSV file, such as ``utf-8``, ``latin-1`` or ``cp1252``.
    * decimal: the decimal mark of numbers, ``.`` or ``,``.
    * dayfirst: whether 01.02.2024 is the first of February (True) or the second of January (False);
      None if all dates begin with the year (ISO 8601).
    * missing_values: words and numbers that mean a missing cell. Empty cells, NaN, NA, N/A, null
      and none always do.
    * time_zone: where the clocks are whose times have no offset, such as ``Europe/Berlin``; None
      for UTC, or for a clock that is never changed.

    :raises ValueError: for a separator of several characters, a decimal mark that is neither, or an
        encoding or a time zone that Python does not know.
    """

    separator: str = ""
    encoding: str = "utf-8"
    decimal: str = "."
    dayfirst: bool | None = None
    missing_values: tuple[str, ...] = ()
    time_zone: str | None = None

    def __post_init__(self) -> None:
        usual = ";" if self.decimal == "," else ","
        separator = _SEPARATORS.get(self.separator, self.separator or usual)
        object.__setattr__(self, "separator", separator)
        words = self.missing_values
        words = (words,) if isinstance(words, str | int | float) else words
        object.__setattr__(self, "missing_values", tuple(str(word).strip() for word in words))
        if len(self.separator) != 1:
            raise ValueError(f"separator is {self.separator!r}; expected one character, or 'tab'.")
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal is {self.decimal!r}; expected '.' or ','.")
        if self.time_zone is not None:
            try:
                zoneinfo.ZoneInfo(self.time_zone)
            except (KeyError, OSError, ValueError):
                raise ValueError(
                    f"time_zone is {self.time_zone!r}, which Python does not know; expected a name "
                    "such as Europe/Berlin."
                ) from None
        try:
            "".encode(self.encoding)
        except LookupError:
            raise ValueError(
                f"encoding is {self.encoding!r}, which Python does not know; common ones are "
                "utf-8, latin-1, cp1252 and utf-16."
            ) from None


def option(name: str, value: Any) -> str:
    """The name of a field of the format in a message, with its value."""
    if isinstance(value, bool):
        flag = f"--{name}" if value else f"--no{name}"
    else:
        flag = f"--{name}={value if isinstance(value, str) else ','.join(value)}"
    return setting(flag, f"table_format=TableFormat({name}={value!r})")
