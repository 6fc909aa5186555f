"""Fill the missing cells of a table, with uncertainty, and check the result on hidden cells.

gpflow-bae-impute --input=table.csv --time=date --inputs=lat,lon --outputs=a,b,c \\
    --task=station --out=imputed.csv

First the table is checked, and all errors are reported with their columns and lines. Then observed
cells are hidden, and the model and simpler methods are scored on them. Then the model is fitted to
all observed cells, and the command writes ``imputed.csv`` with ``<output>_sd`` and a 90 % interval
for every filled cell, a report ``imputed.html``, a figure for each output, and the fitted
posterior. ``--posterior=DIR`` fills other rows with that posterior, without fitting again; they may
belong to tasks that the fit never saw.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from absl import app, flags

from ..core.terminal import load_tensorflow_quietly
from . import saved_fits
from .command_flags import define_flags, notes_on_flags, path_beside, settings_of_flags
from .method_names import who_fills
from .reading.problems import TableError, TableWarning, messages_of_command
from .reading.user_table import UserTable
from .report import outline

__all__ = ["main", "run"]

FLAGS = flags.FLAGS

_SIDE_BY_SIDE = ("time", "task", "outputs")  # flags that series side by side need


def main(argv: list[str]) -> None:
    """Read, check, fill, write."""
    if len(argv) > 1:
        raise app.UsageError(
            f"Unexpected arguments: {argv[1:]}. Columns of one flag are separated by commas "
            "without spaces, and names with spaces are quoted."
        )
    with messages_of_command():
        _run()


def _run() -> None:
    started = time.perf_counter()
    try:
        settings, record = settings_of_flags()
        user, arranged = _read(settings, record)
    except (ImportError, OSError, ValueError) as error:
        # Errors of a table are for the user, who needs no traceback.
        sys.exit(f"impute: {error}")

    print(outline.text(user, FLAGS.input), flush=True)
    for note in (*notes_on_flags(record), *user.notes):
        print(f"Note: {note}", flush=True)
    try:
        with _warnings_as_notes():
            _fill(settings, record, user, arranged, started)
    except KeyboardInterrupt:
        sys.exit("impute: stopped.")


def _fill(
    settings: dict[str, Any],
    record: Any,
    user: UserTable,
    arranged: Callable[[Any], Any],
    started: float,
) -> None:
    """Check, fit, fill and write: the part that needs TensorFlow."""
    seconds = {"reading": time.perf_counter() - started}
    print("Loading TensorFlow ...", flush=True)
    load_tensorflow_quietly()
    from .imputer import Imputer
    from .model.gaps import MOST_TESTED
    from .reading import table_files
    from .report import document, figures

    out = pathlib.Path(FLAGS.out)
    beside = path_beside(out)
    result = None
    if record is None:
        imputer = Imputer(**settings)
        if FLAGS.hold_out > 0:
            are_many = FLAGS.hold_out * user.table.observed.sum() > MOST_TESTED
            share = f"{MOST_TESTED:,}" if are_many else f"{FLAGS.hold_out:.0%}"
            print(
                f"Checking: {share} of the observed cells are hidden, and predicted by all "
                "methods.",
                flush=True,
            )
            try:
                with _timed(seconds, "check"):
                    result = imputer.check(user, fraction=FLAGS.hold_out)
            except ValueError as error:
                sys.exit(f"impute: the check failed: {error} --hold_out=0 leaves the check out.")
            print(f"{document.as_text(result)}\n{result.verdict}", flush=True)
        print("Fitting to all observed cells.", flush=True)
        with _timed(seconds, "fit"):
            folder = beside.with_suffix(".posterior")
            imputer.fit(user, start=imputer.checked_).save(folder)
            if FLAGS.side_by_side:
                roles = {name: FLAGS[name].value for name in _SIDE_BY_SIDE}
                saved_fits.add(folder, side_by_side=roles)
    else:
        imputer = Imputer.load(FLAGS.posterior)
    with _timed(seconds, "prediction"):
        predicted = imputer.predict_cells(user)
    if result is None:
        print(who_fills(imputer.methods_), flush=True)
    beyond = outline.beyond(user, predicted)
    for line in outline.beyond_text(beyond):
        print(f"Note: {line}", flush=True)
    table_files.write_file(arranged(user.fill(*predicted)), out, settings["table_format"])
    print(f"Filled table: {out}", flush=True)

    drawn = figures.draw(user, predicted, as_map=imputer.time is None and len(imputer.inputs) > 1)
    pictures = {name: figures.to_png(figure) for name, figure in drawn.items()}
    for name, part in figures.file_names(pictures).items():
        beside.with_name(f"{beside.stem}_{part}.png").write_bytes(pictures[name])
    run = document.RunFacts(
        source=str(FLAGS.input),
        result=str(out),
        command=shlex.join(["gpflow-bae-impute", *sys.argv[1:]]),
        settings=imputer.get_params(),
        filled_by=imputer.methods_,
        seconds=seconds,
    )
    page = beside.with_suffix(".html")
    document.write(page, user, predicted, pictures, result, run)
    print(f"Report: {page}, and a figure for each output beside it.", flush=True)


def _read(
    settings: dict[str, Any], record: dict[str, Any] | None
) -> tuple[UserTable, Callable[[Any], Any]]:
    """Read and check the table, without TensorFlow.

    :return: the table, and a function that arranges its filled copy as the file is.
    """
    from .reading import frames, table_files

    guessed: list[str] = []
    raw = table_files.read_file(FLAGS.input, settings["table_format"], guessed)
    if table_files.is_parquet(FLAGS.out):
        twice = sorted({str(c) for c in raw.columns if list(raw.columns).count(c) > 1})
        if twice:
            raise TableError([f"Parquet files cannot have columns of one name: {twice}."])
    arranged: Callable[[Any], Any] = lambda filled: filled  # noqa: E731
    if FLAGS.side_by_side or (record is not None and "side_by_side" in record):
        raw, arranged = _side_by_side(raw, settings, record)
    roles: dict[str, Any] = {
        name: settings.get(name) for name in (*saved_fits.ROLES, "kinds", "table_format")
    }
    fitted = None if record is None else saved_fits.fitted_columns(record)
    try:
        if FLAGS.grid:
            raw = _on_grid(raw, roles)
        user = frames.read_frame(raw, **roles, fitted=fitted)
    except TableError as error:
        raise TableError([*guessed, *error.problems]) from None
    if guessed:
        raise TableError(guessed)
    return user, arranged


def _side_by_side(
    raw: Any, settings: dict[str, Any], record: Any
) -> tuple[Any, Callable[[Any], Any]]:
    """The table with its series side by side, and a function that takes it back when it is filled.

    The columns of the series replace the outputs of the settings; those of ``--posterior`` are in
    its record.
    """
    from .reading.side_by_side import names_beside, narrow, widen

    if record is not None and "side_by_side" not in record:
        raise TableError(
            [
                f"--posterior={FLAGS.posterior} was not fitted to series side by side: leave "
                "--side_by_side out, or fit the table again."
            ]
        )
    roles = settings if record is None else record["side_by_side"]
    time, task, outputs = (roles[name] for name in _SIDE_BY_SIDE)
    if settings["inputs"] or time is None or task is None:
        raise TableError(["--side_by_side needs --time, --task and --outputs, and no --inputs."])
    wide = widen(raw, outputs, time, task, None if record is None else settings["outputs"])
    names = names_beside(raw, outputs, task)
    if record is None:
        given = settings["kinds"].items()
        kinds = {n: kind for name, kind in given for n in names.get(name, [name])}
        settings |= {"outputs": sum(names.values(), []), "task": None, "kinds": kinds}
    return wide, functools.partial(narrow, table=raw, names=names, time=time, task=task)


def _on_grid(raw: Any, roles: dict[str, Any]) -> Any:
    """The table with a row at each regular time of its series."""
    from .reading.grid import insert_rows

    if roles["time"] is None:
        raise TableError(["--grid inserts rows at regular times: name the --time of a row."])
    parts = {name: roles[name] for name in ("time", "task", "inputs", "table_format")}
    found = insert_rows(raw, **parts)
    print(f"--grid: {len(found) - len(raw)} rows are inserted.", flush=True)
    return found


@contextlib.contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Print what the Imputer warns of as the command's other notes."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def print_note(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, TableWarning):
                print(f"Note: {message}", flush=True)
            else:
                show(message, category, *place, **more)

        warnings.simplefilter("always", TableWarning)
        warnings.showwarning = print_note
        yield


@contextlib.contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Record the seconds that a block takes."""
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started


def run() -> None:
    """Start the command, for the console script and for ``python -m experiments.impute``."""
    before = set(FLAGS)
    define_flags()
    for name in set(FLAGS) - before:  # --help shows the flags of the program that was started
        FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS[name])
    program = sys.modules["__main__"]
    program.__doc__ = program.__doc__ or __doc__
    app.run(main)
