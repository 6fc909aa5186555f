"""Run folders: atomic checkpoints, and files of samples and statistics."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core.files import as_path, locked, to_json, write_atomically
from ...versions import __version__
from .run_files import NOT_WHOLE, DamagedError, explained, read_arrays, save_counted
from .run_records import RunRecords

__all__ = ["RunDirectory", "folder_of_part", "run_directory", "stopwatch"]

FORMAT = 1
"""File format number; increased when a version cannot read the files of earlier versions."""


class RunDirectory:
    """A folder of one run: settings, the last two checkpoints, samples and statistics.

    A checkpoint is one file of named arrays, replaced atomically; the previous one is kept in case
    the last one is damaged. Posterior samples and statistics are append-only files
    (:class:`~gpflow_bae.core.records.RecordFile`), because rewriting all of them at every
    checkpoint would cost more than sampling; a checkpoint stores how many records are valid.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any], resume: bool):
        """
        :param settings: settings by name, as Python or NumPy values that JSON can hold; ``"data"``
            is the record that ``data.describe()`` returns.
        :raises ValueError: if the folder holds a run with other settings or of other data, or if
            it holds a run and ``resume`` is False.
        """
        self.path = as_path(path)
        settings = json.loads(to_json(settings))
        canonical = json.dumps(settings, sort_keys=True)
        self._hash = hashlib.sha256(canonical.encode()).hexdigest()
        file = self.path / "chain.json"
        found = _settings_in(file)
        if isinstance(found, Mapping) and found != settings:
            raise ValueError(f"out_dir {self.path} holds a run {_mismatch(found, settings)}")
        if found is not None and not resume:
            whose = "with these settings" if found == settings else "with a damaged chain.json"
            raise ValueError(
                f"out_dir {self.path} holds a run {whose} already; continue it with resume=True, "
                "or choose another out_dir."
            )
        self.samples = RunRecords(self.path / "samples.bin", "samples")
        self.trace = RunRecords(self.path / "trace.bin", "rows of statistics")
        self._state, self._previous = self.path / "state.npz", self.path / "state.previous.npz"
        if found is not None and found != settings:
            self.read_state()  # raises if the checkpoint's hash is that of other settings
        if found != settings:
            self._write(file, lambda f: f.write(json.dumps(settings, indent=1).encode()))

    def write_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a checkpoint, and keep the previous one.

        Samples and statistics are flushed to disk first.

        :raises OSError: if it cannot be written, for instance because the disk is full; existing
            checkpoints stay.
        """
        about = {"format": FORMAT, "version": __version__, "settings": self._hash}
        stored = {f"checkpoint/{name}": np.array(value) for name, value in about.items()}
        self.samples.flush()
        self.trace.flush()
        self._write(self._state, lambda f: save_counted(f, {**arrays, **stored}), self._previous)

    def read_state(self) -> dict[str, np.ndarray] | None:
        """Return the last intact checkpoint, or None; warn if a later one is damaged.

        :raises ValueError: if the checkpoint has other settings or another format.
        """
        damaged = []
        for path in (self._state, self._previous):
            if not path.exists():
                continue
            try:
                arrays = read_arrays(path)
            except DamagedError as error:
                damaged.append(str(error))
                # Renamed, so that the next checkpoint does not replace the intact one.
                os.replace(path, path.with_name("state.damaged.npz"))
                continue
            self._check(path, arrays)
            self._warn(damaged, "the run goes on from the checkpoint before it")
            return arrays
        self._warn(damaged, "there is no other checkpoint, so the run starts anew")
        return None

    def _warn(self, damaged: list[str], what: str) -> None:
        if damaged:
            warnings.warn(f"{'; '.join(damaged)}: {what}.", stacklevel=3)

    def _check(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        """Remove and check format, version and settings; files without a format have format 1."""
        written = int(arrays.pop("checkpoint/format", FORMAT))
        version = str(arrays.pop("checkpoint/version", "0.1.0"))
        settings = str(arrays.pop("checkpoint/settings", self._hash))
        if written != FORMAT:
            raise ValueError(
                f"The checkpoint {path} was written by gpflow_bae {version} in format {written}, "
                f"and version {__version__} reads format {FORMAT}. Go on with that version, or "
                "choose another out_dir to start anew."
            )
        if settings != self._hash:
            raise ValueError(
                f"The checkpoint {path} is of a run with other settings than those in "
                f"{self.path / 'chain.json'}; choose another out_dir, or put the run's own files "
                "back."
            )

    def close(self) -> None:
        """Close the files of samples and statistics; writing opens them again."""
        self.samples.close()
        self.trace.close()

    def write_part(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Store arrays that are computed once, before the first checkpoint.

        :raises OSError: as :meth:`write_state`.
        """
        self._write(self.path / f"{name}.npz", lambda f: save_counted(f, arrays))

    def read_part(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays that :meth:`write_part` stored; empty if there are none.

        :raises ValueError: if the file is damaged.
        """
        path = self.path / f"{name}.npz"
        try:
            return read_arrays(path) if path.exists() else {}
        except DamagedError as error:
            raise ValueError(
                f"{error}. Put the file back, or choose another out_dir to start anew."
            ) from error

    def _write(self, path: Path, write: Any, previous: Path | None = None) -> None:
        with explained(path):
            write_atomically(path, write, previous)


@contextlib.contextmanager
def run_directory(
    path: str | os.PathLike[str] | None, settings: Mapping[str, Any], resume: bool
) -> Iterator[RunDirectory | None]:
    """Open a run's folder and lock it against other runs; yield None if ``path`` is None.

    :raises ValueError: as :class:`RunDirectory`, and if another run is using the folder.
    """
    if path is None:
        yield None
        return
    with (
        locked(as_path(path), "out_dir"),
        contextlib.closing(RunDirectory(path, settings, resume)) as opened,
    ):
        yield opened


def folder_of_part(
    directory: RunDirectory | None, name: str, record: Mapping[str, Any]
) -> RunDirectory | None:
    """Return a subfolder for a part of a run that has its own state; None without a folder."""
    return None if directory is None else RunDirectory(directory.path / name, record, resume=True)


def stopwatch(*folders: str | os.PathLike[str] | None) -> Callable[[], float]:
    """Return a clock that includes the time spent before runs were resumed.

    :param folders: folders of runs, or of sequences of runs; None for a run without a folder.
    :return: a function without arguments that returns the seconds since this call, plus those that
        earlier processes spent on the runs in the folders.
    """
    before = sum(_seconds_in(as_path(folder)) for folder in folders if folder is not None)
    began = time.perf_counter() - before
    return lambda: time.perf_counter() - began


def _seconds_in(folder: Path) -> float:
    """Return the seconds of the run in a folder, or of all runs in its subfolders."""
    state = folder / "state.npz"
    if not state.exists():
        return sum(_seconds_in(path) for path in sorted(folder.glob("*/")))
    try:
        with np.load(state) as file:  # reads only two numbers
            names = ("run/start_seconds", "run/seconds")
            return sum(float(file[name]) for name in names if name in file)
    except NOT_WHOLE:
        return 0.0


def _settings_in(file: Path) -> Any:
    """Return the settings of a folder's run; None without a run, "" if their file is damaged."""
    if not file.exists():
        return None
    try:
        return json.loads(file.read_bytes())
    except ValueError:  # not JSON, or not text
        return ""


def _mismatch(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe how a stored run differs from the requested one, with advice."""
    data, own = there.get("data"), now.get("data")
    advice = "choose another out_dir, or delete that one."
    settings = _differences({**there, "data": own}, {**now, "data": own})
    if data == own:
        return f"with other settings ({settings}); {advice}"
    what = "equal shape, with other values, or the same in another order or other units"
    if isinstance(data, Mapping) and isinstance(own, Mapping) and data["shape"] != own["shape"]:
        what = f"shape {data['shape']}, and these have {own['shape']}"
    beside = f", and with other settings ({settings})" if settings else ""
    return (
        f"of other data (of {what}){beside}: pass the data that it was begun with (X, Y and what "
        f"is missing, in their order), {advice}"
    )


def _differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe at most five entries that differ, with dotted names for nested ones."""
    there, now = _flat(there), _flat(now)
    names = sorted(k for k in {*there, *now} if there.get(k, ...) != now.get(k, ...))

    def value(settings: Mapping[str, Any], name: str) -> str:
        text = repr(settings[name]) if name in settings else "absent"
        return text if len(text) <= 40 else text[:37] + "..."

    words = [f"{k}: {value(there, k)} there, {value(now, k)} now" for k in names[:5]]
    return ", ".join(words + ([f"and {len(names) - 5} more"] if len(names) > 5 else []))


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries and lists to dotted names, so that list items are compared."""
    items = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
    found: dict[str, Any] = {}
    for name, value in items:
        if isinstance(value, Mapping | list) and len(value):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
