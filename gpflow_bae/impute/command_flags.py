"""Flags of the command that fills tables, and the settings that they stand for."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any

from absl import flags

from ..core.files import as_path
from . import saved_fits
from .method_names import AUTO, METHODS, check_names
from .reading.table_format import TableFormat

__all__ = [
    "check_paths",
    "define_flags",
    "kinds_of_flags",
    "notes_on_flags",
    "path_beside",
    "settings_of_flags",
]

FLAGS = flags.FLAGS

_FIT_FLAGS = (
    *("outputs", "time", "inputs", "task", "latent_dim", "num_steps", "seed", "method", "periods"),
)
_LONGEST_NAME = 140  # bytes, of 255 that most file systems have; figures add up to 110
_KIND_FLAGS = ("continuous", "positive", "count", "binary", "category")


def define_flags() -> None:
    """Define the flags of this command."""
    before = set(FLAGS)
    flags.DEFINE_string("input", None, "CSV, .csv.gz, Parquet or .xlsx file with holes.")
    flags.DEFINE_string("out", None, "The same, filled.")
    for name, example in (("input", "table.csv"), ("out", "filled.csv")):
        flags.register_validator(
            name, bool, f"--{name} names a file, which must be given: --{name}={example}."
        )
    flags.DEFINE_list("outputs", [], "Columns to fill.")
    flags.DEFINE_string("time", None, "Column of numbers or dates; the first input.")
    flags.DEFINE_bool("grid", False, "Whether to insert rows at regular times that have none.")
    flags.DEFINE_list("inputs", [], "Further inputs, such as coordinates; words may be missing.")
    flags.DEFINE_string("task", None, "Column that names the independent series a row belongs to.")
    flags.DEFINE_string(
        "separator",
        "",
        "Between the columns of a CSV file; 'tab' is a tabulator. By default ';' where the decimal "
        "mark is a comma, else ','.",
    )
    flags.DEFINE_string("encoding", "utf-8", "Of a CSV file: utf-8, latin-1, cp1252, ...")
    flags.DEFINE_enum("decimal", ".", [".", ","], "Decimal mark of the numbers.")
    flags.DEFINE_bool(
        "dayfirst",
        None,
        "Dates such as 01.02.2024 begin with the day; with --nodayfirst, with the month.",
    )
    flags.DEFINE_string(
        "time_zone", None, "Of times without an offset: Europe/Berlin. None for UTC."
    )
    flags.DEFINE_list("missing_values", [], "Words or numbers that mean a missing cell: -999,n/a")
    flags.DEFINE_bool(
        "side_by_side",
        False,
        "Whether to fill series that share their times as columns beside each other.",
    )
    flags.DEFINE_list("continuous", [], "Outputs that can have any value, whatever they look like.")
    flags.DEFINE_list("positive", [], "Outputs that are never negative: modelled as logarithms.")
    flags.DEFINE_list("count", [], "Outputs that are whole numbers from 0 on.")
    flags.DEFINE_list("binary", [], "Outputs that are 0 or 1.")
    flags.DEFINE_list("category", [], "Outputs and inputs that are categories, also if of digits.")
    flags.DEFINE_list("bounded", [], "Outputs between two bounds: humidity:0:100,cover:0:8")
    flags.DEFINE_string("posterior", None, "Folder of an earlier fit; nothing is fitted.")
    flags.DEFINE_integer(
        "latent_dim",
        None,
        "Latent channels; by default as many as outputs, at most twenty.",
        lower_bound=1,
    )
    flags.DEFINE_integer("num_steps", None, "Steps of L-BFGS.", lower_bound=1)
    flags.DEFINE_enum(
        "method",
        AUTO,
        [AUTO, *METHODS],
        "What fills: the best of all for each column, by hidden gaps; or one method for all.",
    )
    flags.DEFINE_list(
        "periods",
        None,
        "Periods of the calendar that columns may have: hour,weekday,season. By default those of "
        "which the table spans two; none with --periods= alone.",
    )
    flags.DEFINE_float(
        "hold_out",
        0.1,
        "Share of observed cells that the check hides; 0 for none.",
        lower_bound=0.0,
        upper_bound=0.9,
    )
    flags.DEFINE_integer("seed", 0, "Of everything random.", lower_bound=0)
    for name in set(FLAGS) - before:  # a flag that is given twice is an error, not its last value
        FLAGS[name].allow_overwrite = False


def settings_of_flags() -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Constructor arguments of the Imputer; and the record of ``--posterior``'s fit, or None."""
    table_format = TableFormat(
        FLAGS.separator,
        FLAGS.encoding,
        FLAGS.decimal,
        FLAGS.dayfirst,
        tuple(FLAGS.missing_values),
        FLAGS.time_zone,
    )
    check_paths()
    if FLAGS.posterior is not None:
        record = saved_fits.read_record(FLAGS.posterior)
        return saved_fits.arguments(record) | {"table_format": table_format}, record
    settings: dict[str, Any] = {name: FLAGS[name].value for name in _FIT_FLAGS}
    check_names(settings["method"], settings["periods"])
    return settings | {"kinds": kinds_of_flags(), "table_format": table_format}, None


def kinds_of_flags() -> dict[str, Any]:
    """Kinds of columns by name, from the flags."""
    kinds: dict[str, Any] = {}
    for kind in _KIND_FLAGS:
        for name in FLAGS[kind].value or []:
            if kinds.setdefault(name, kind) != kind:
                raise ValueError(f"Column {name!r} is named by --{kinds[name]} and by --{kind}.")
    for entry in FLAGS["bounded"].value or []:
        name, *bounds = entry.rsplit(":", 2)
        try:
            low, high = map(float, bounds)
        except ValueError:
            raise ValueError(
                f"--bounded={entry}: expected a column and its two bounds, such as humidity:0:100."
            ) from None
        if name in kinds:
            raise ValueError(f"Column {name!r} is named by --{kinds[name]} and by --bounded.")
        kinds[name] = (low, high)
    return kinds


def path_beside(out: pathlib.Path) -> pathlib.Path:
    """The filled table's path without ``.gz``, after which report, figures and fit are named."""
    return out.with_suffix("") if out.suffix.lower() == ".gz" else out


def check_paths() -> None:
    """Check, before anything takes time, that files can be read and written as the flags say."""
    source, out = (as_path(p) for p in (FLAGS.input, FLAGS.out))
    FLAGS["input"].value, FLAGS["out"].value = str(source), str(out)
    if out.is_dir():
        raise ValueError(f"--out={out} is a folder; name a file, such as {out / 'filled.csv'}.")
    if out.exists() and source.exists() and out.samefile(source):
        raise ValueError(f"--out={out} is the input itself, which would be lost; name another.")
    if out.suffix.lower() == ".html":
        raise ValueError(f"--out={out}: the report is an HTML file beside the table; name a .csv.")
    _check_neighbours(source, out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise ValueError(
            f"--out={out}: nothing can be written to {out.parent} ({error.strerror}); name a file "
            "elsewhere."
        ) from None
    try:
        from .reading import table_files

        if table_files.is_parquet(source) or table_files.is_parquet(out):
            import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Tables are read with pandas, and Parquet files with pyarrow ({error}): "
            "pip install 'gpflow-bae[tables]'."
        ) from error
    table_files.check_output(out)
    if source.is_dir() or not source.exists():
        what = "is a folder" if source.is_dir() else "is not there"
        raise FileNotFoundError(f"--input={source} {what}; name a CSV or Parquet file.")


def _check_neighbours(source: pathlib.Path, out: pathlib.Path) -> None:
    """Check that the names of the report and of the fit's folder beside the table are free."""
    beside = path_beside(out)
    if len(os.fsencode(beside.stem)) > _LONGEST_NAME:
        raise ValueError(
            f"--out={out}: figures beside it would have too long names; name a shorter one."
        )
    page, folder = beside.with_suffix(".html"), beside.with_suffix(".posterior")
    if out == folder or (folder.exists() and not folder.is_dir()) or page.is_dir():
        raise ValueError(
            f"--out={out}: the report {page.name} and the folder {folder.name} are written beside "
            "the table, and one of these names is taken; name another table."
        )
    endings = (".csv", ".csv.gz", ".tsv", ".txt", ".parquet", ".pq", ".xlsx")
    others = [beside.with_suffix(ending) for ending in endings]
    for other in others:
        if page.exists() and other.exists() and other not in (source, out):
            raise ValueError(
                f"--out={out} would have the report, figures and fit of {other}, which is there "
                "already: give it another name, or remove that one."
            )


def notes_on_flags(record: dict[str, Any] | None) -> list[str]:
    """A note on flags that have no effect beside the fit of ``--posterior``."""
    if record is None:
        return []
    of_fit = saved_fits.arguments(record) | record.get("side_by_side", {})
    said = [
        name for name in (*_FIT_FLAGS, *_KIND_FLAGS, "bounded", "hold_out") if FLAGS[name].present
    ]
    said = [name for name in said if name not in of_fit or FLAGS[name].value != of_fit[name]]
    if not said:
        return []
    flags = ", ".join(f"--{name}" for name in said)
    return [
        f"{flags}: left aside, because --posterior={FLAGS.posterior} was fitted already; it fills "
        f"{of_fit['outputs']}. Leave --posterior out to fit again."
    ]
