"""The report of a run: one self-contained HTML file, for the screen or for print."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import html
import importlib.metadata
import pathlib
import platform
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...core.files import write_atomically
from ..check.result import CheckResult
from ..reading.user_table import CellPredictions, UserTable
from . import outline

__all__ = ["RunFacts", "as_text", "write"]

_SCORES = {
    "rmse": ("RMSE", "{:.3f}"),
    "nll": ("NLL", "{:.2f}"),
    "coverage_90": ("coverage", "{:.0%}"),
}
_MOST_BEYOND = 50  # cells that are listed
_LIBRARIES = ("gpflow-bae", "gpflow", "tensorflow", "keras", "numpy", "pandas")


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """What a report says about the run.

    * source, result: names of the files.
    * command: the command line, to repeat the run.
    * settings: constructor arguments of the Imputer.
    * seconds: time that each part took.
    * filled_by: the method of each output.
    """

    source: str
    result: str
    command: str
    settings: Mapping[str, Any]
    seconds: Mapping[str, float]
    filled_by: Mapping[str, str] = dataclasses.field(default_factory=dict)


def as_text(result: CheckResult) -> str:
    """The summary of a check as lines for a terminal."""
    width = max(map(len, result.methods))
    lines = [f"  {'':{width}}" + "".join(f"  {title:>9}" for title, _ in _SCORES.values())]
    for method in result.methods:
        found = result.summary[method]
        lines.append(f"  {method:{width}}" + "".join(f"  {cell:>9}" for cell in _scores(found)))
    return "\n".join(lines)


def write(
    path: pathlib.Path,
    user: UserTable,
    predicted: CellPredictions,
    pictures: Mapping[str, bytes],
    result: CheckResult | None,
    run: RunFacts,
) -> None:
    """Write the report.

    :param predicted: predictions of all cells of ``user``.
    :param pictures: PNG files by output.
    :param result: the result of the check, if there was one.
    """
    holes = user.num_holes
    methods = dict.fromkeys(run.filled_by.values())
    template = pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    page = string.Template(template).substitute(
        title=_text(f"{pathlib.Path(run.source).name}, imputed"),
        summary=_text(
            f"{holes:,} missing cells of {pathlib.Path(run.source).name} were filled by "
            f"{', '.join(methods) or 'their only values'}; the filled table is "
            f"{pathlib.Path(run.result).name}."
        ),
        verdict=_verdict(result),
        facts=_pairs(outline.facts(user)),
        columns=_columns(user, predicted, run.filled_by),
        beyond=_beyond(outline.beyond(user, predicted)),
        notes=_notes(user.notes),
        check="" if result is None else _summary(result),
        by_column="" if result is None else _by_column(result),
        figures="".join(_figure(name, picture) for name, picture in pictures.items()),
        settings=_pairs(_settings(run)),
    )
    write_atomically(path, lambda file: file.write(page.encode("utf-8")))


def _text(value: Any) -> str:
    return html.escape(str(value))


def _number(value: float | None, style: str) -> str:
    return "–" if value is None or not np.isfinite(value) else style.format(value)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], marked: int | None = None) -> str:
    """An HTML table with words in the first column and numbers in others.

    :param header, rows: cells, as HTML.
    :param marked: number of the row that is set in bold.
    """
    head = "".join(f"<th>{cell}</th>" for cell in header)
    body = "".join(
        f"<tr{' class=best' if i == marked else ''}>"
        + "".join(
            f"<{'td' if j else 'th'}>{cell}</{'td' if j else 'th'}>" for j, cell in enumerate(row)
        )
        + "</tr>"
        for i, row in enumerate(rows)
    )
    return (
        f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _pairs(values: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{_text(k)}</dt><dd>{_text(v)}</dd>" for k, v in values.items())
    return f"<dl>{rows}</dl>"


def _verdict(result: CheckResult | None) -> str:
    if result is None:
        return (
            "<p class=verdict>There was no check on hidden cells in this run, so nothing here says "
            "how far the filled values can be trusted.</p>"
        )
    return f"<p class=verdict>{_text(result.verdict)}</p>"


def _columns(user: UserTable, predicted: CellPredictions, filled_by: Mapping[str, str]) -> str:
    """A table with a row for each output, with the median uncertainty of its filled cells."""
    typical = {}
    for p, kind in enumerate(user.columns.kinds):
        hole = ~user.table.observed[..., p] & user.table.rows
        cells = (array[..., p][hole] for array in predicted)
        deviation = kind.settle(*cells)[1]
        typical[kind.name] = f"{np.median(deviation):.3g}" if len(deviation) else "–"
    rows = [
        (
            _text(row.name),
            f"{row.num_missing:,}",
            f"{row.share_missing:.1%}",
            *(_number(value, "{:.4g}") for value in (row.least, row.median, row.greatest)),
            typical.get(row.name, "0"),
            _text(row.kind),
            _text(filled_by.get(row.name, "its only value")),
        )
        for row in outline.columns(user)
    ]
    header = (
        *("column", "missing", "share", "least", "median", "greatest", "sd of filled"),
        *("kind", "filled by"),
    )
    return _table(header, rows).replace("<table>", "<table class=columns>")


def _beyond(found: Sequence[outline.Beyond]) -> str:
    """A list of the cells that were filled outside of the observed range of their columns."""
    if not found:
        return ""
    shown = [
        (_text(cell.column), _text(cell.place), f"{cell.value:.4g}", f"{cell.end:.4g}")
        for cell in found[:_MOST_BEYOND]
    ]
    more = f" The first {_MOST_BEYOND} are shown." if len(found) > _MOST_BEYOND else ""
    return (
        "<h2>Filled outside of what was observed</h2>"
        f"<p>{len(found):,} cells are beyond the least or greatest observed value of their column. "
        f"Nothing observed says what happens there.{more}</p>"
        + _table(("column", "place", "filled", "least or greatest observed"), shown)
    )


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    listing = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return f"<h2>Notes on the table</h2><ul class=notes>{listing}</ul>"


def _summary(result: CheckResult) -> str:
    best = result.methods.index(result.best) if result.best in result.methods else None
    timed = bool(result.seconds)
    rows = [
        (
            _text(method),
            *_scores(result.summary[method]),
            *([_number(result.seconds.get(method), "{:.1f} s")] if timed else []),
        )
        for method in result.methods
    ]
    header = ("method", *(title for title, _ in _SCORES.values()), *(["time"] if timed else []))
    return (
        "<h2>The check on hidden cells</h2>"
        + (f"<p>{_text(result.hidden)}</p>" if result.hidden else "")
        + _table(header, rows, best)
        + "<p class=small>Averages over columns. RMSE: root mean squared error, in standard "
        "deviations of the column; about 1 is what its mean achieves. NLL: negative log density of "
        "a hidden cell in the same units; lower is better. Coverage: share of hidden cells inside "
        "of their 90&nbsp;% interval, in columns of numbers; 90&nbsp;% is right, less is "
        "overconfident.</p>"
    )


def _by_column(result: CheckResult) -> str:
    parts = ["<h2>The check, by column</h2>"]
    for key, (title, style) in _SCORES.items():
        rows = [
            (
                _text(column),
                *(
                    _number(result.per_column[method].get(column, {}).get(key), style)
                    for method in result.methods
                ),
            )
            for column in result.columns
        ]
        parts.append(f"<section><h3>{title}</h3>")
        parts.append(_table(("column", *map(_text, result.methods)), rows) + "</section>")
    return "".join(parts)


def _scores(found: Mapping[str, float]) -> list[str]:
    return [_number(found.get(key), style) for key, (_, style) in _SCORES.items()]


def _figure(name: str, picture: bytes) -> str:
    content = base64.b64encode(picture).decode("ascii")
    return (
        f"<figure><figcaption>{_text(name)}</figcaption>"
        f'<img alt="{_text(name)}: observed and filled values" '
        f'src="data:image/png;base64,{content}"></figure>'
    )


def _settings(run: RunFacts) -> dict[str, str]:
    found = {"command": run.command}
    found |= {
        name: str(value)
        for name, value in run.settings.items()
        if value not in (None, (), [], {}) and name not in ("progress", "table_format")
    }
    found["seconds"] = ", ".join(f"{name} {value:.1f}" for name, value in run.seconds.items())
    versions = [f"Python {platform.python_version()}"]
    for name in _LIBRARIES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    found["versions"] = ", ".join(versions)
    found["written"] = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return found
