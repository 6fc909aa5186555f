"""A summary of a table in a few lines, which the command prints and its report shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..reading.problems import place_of
from ..reading.user_table import CellPredictions, UserTable

__all__ = [
    "Beyond",
    "ColumnOutline",
    "beyond",
    "beyond_text",
    "columns",
    "facts",
    "text",
]


@dataclasses.dataclass(frozen=True)
class ColumnOutline:
    """Missing cells, kind, and range of the observed values of an output."""

    name: str
    num_missing: int
    share_missing: float
    kind: str
    least: float
    median: float
    greatest: float


def columns(user: UserTable) -> list[ColumnOutline]:
    """Summaries of all outputs, in the user's order."""
    kinds = {kind.name: kind.describe() for kind in user.columns.kinds}
    rows = []
    for name, values, missing in zip(user.outputs, user.Y.T, user.missing.T, strict=True):
        shown = values[~np.isnan(values)]
        low, middle, high = np.quantile(shown, [0.0, 0.5, 1.0]) if len(shown) else [np.nan] * 3
        kind = kinds.get(name, "constant, not modelled")
        rows.append(
            ColumnOutline(name, int(missing.sum()), missing.mean(), kind, low, middle, high)
        )
    return rows


def facts(user: UserTable) -> dict[str, str]:
    """Rows, series, span of the inputs and missing cells, in words."""
    found = {"rows": f"{user.num_rows:,}" + ("" if user.inputs else ", in no order")}
    lengths = np.count_nonzero(user.rows >= 0, axis=1)
    if len(lengths) > 1:
        found["series"] = f"{len(lengths)}, of {_range(lengths.min(), lengths.max())} rows"
    for d, name in enumerate(user.inputs):
        if d == 0 and user.has_dates:
            span = " to ".join(_date(edge) for edge in (user.times.min(), user.times.max()))
            every = f", every {_duration(user.interval)}" if np.isfinite(user.interval) else ""
            found[f"time ({name})"] = span + every
        else:
            column = user.X[:, d]
            found[f"input {name}"] = f"{column.min():g} to {column.max():g}"
    holes, cells = user.num_holes, user.num_cells
    found["missing cells"] = f"{holes:,} of {cells:,} ({_percent(holes / cells)})"
    return found


def text(user: UserTable, source: str) -> str:
    """The summary as lines for a terminal."""
    summary = "; ".join(f"{name}: {value}" for name, value in facts(user).items())
    rows = columns(user)
    width = min(40, max(len(row.name) for row in rows))
    lines = [
        f"  {row.name:{width}}  {_percent(row.share_missing):>6} missing  {row.kind}"
        for row in rows
    ]
    return "\n".join([f"{source}: {summary}.", *lines])


class Beyond(NamedTuple):
    """A cell that was filled outside of the observed range of its column, and the range's end."""

    column: Any
    place: str
    value: float
    end: float


def beyond(user: UserTable, predicted: CellPredictions) -> list[Beyond]:
    """Cells that are filled outside of the observed range of their column, farthest first.

    :param predicted: of all cells [T, N, P], in the units of the outputs.
    """
    found: list[tuple[float, Beyond]] = []
    for p, kind in enumerate(user.columns.kinds):
        Y, real = user.table.Y[..., p], user.table.rows
        shown = Y[~np.isnan(Y)]
        if len(shown) == 0 or kind.kind == "binary":
            continue
        low, high = float(shown.min()), float(shown.max())
        value = kind.settle(*(moment[..., p] for moment in predicted))[0]
        end = np.clip(value, low, high)
        # What rounding adds to the value itself is not beyond.
        far = np.abs(value - end) > 1e-9 * max(abs(low), abs(high), high - low)
        for t, n in np.argwhere(far & np.isnan(Y) & real):
            place = place_of(user.source, user.rows[t, n])
            cell = Beyond(kind.name, place, float(value[t, n]), float(end[t, n]))
            found.append((abs(cell.value - cell.end) / ((high - low) or 1.0), cell))
    return [cell for _, cell in sorted(found, key=lambda pair: -pair[0])]


def beyond_text(found: Sequence[Beyond]) -> list[str]:
    """A sentence on such cells, or none."""
    if not found:
        return []
    first = found[0]
    many = len(found) > 1
    which, whose = (f"{len(found):,} cells were", "their") if many else ("1 cell was", "its")
    return [
        f"{which} filled outside of what was observed in {whose} column, the farthest in column "
        f"{first.column!r}, {first.place}: {first.value:.4g}, beyond {first.end:.4g}. The report "
        "lists them."
    ]


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %" if share == 0 or share >= 0.1 else f"{100.0 * share:.2g} %"


def _date(stamp: np.datetime64) -> str:
    """A timestamp in minutes; the date alone at midnight."""
    return str(stamp.astype("datetime64[m]")).replace("T", " ").removesuffix(" 00:00")


def _duration(days: float) -> str:
    """A length of time in the largest unit of which it has at least one."""
    for unit, length in (("day", 1.0), ("hour", 1.0 / 24), ("minute", 1.0 / 1440)):
        if days >= 0.999 * length:
            count = f"{days / length:.3g}"
            return f"{count} {unit}" + ("" if count == "1" else "s")
    return f"{days * 86400:.3g} s"
