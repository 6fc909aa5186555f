"""Runs that lose nothing: atomic checkpoints, and samples that are appended one file each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..files import write_atomically

__all__ = ["RunDirectory", "write_atomically"]


class RunDirectory:
    """A folder that holds a chain: its settings, its last checkpoint, and its samples.

    The state is one file of arrays by name, replaced whole; each posterior sample is its own file,
    written once, because rewriting all of them at every checkpoint would cost more than sampling.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any], resume: bool):
        """
        :raises ValueError: if the folder holds a run with other settings, or one that is not to
            be resumed.
        """
        self.path = Path(path)
        settings = json.loads(json.dumps(settings, default=str))
        file = self.path / "chain.json"
        if file.exists():
            found = json.loads(file.read_text())
            if found != settings:
                raise ValueError(
                    f"out_dir {self.path} holds a run with other settings "
                    f"({_differences(found, settings)}); choose another out_dir, or delete that "
                    "one."
                )
            if not resume:
                raise ValueError(
                    f"out_dir {self.path} holds a run with these settings already; continue it "
                    "with resume=True, or choose another out_dir."
                )
        else:
            write_atomically(file, lambda f: f.write(json.dumps(settings, indent=1).encode()))
        self._samples = self.path / "samples"

    def child(self, name: str, record: Mapping[str, Any]) -> RunDirectory:
        """A folder inside this one, for a part of the run that has a state of its own."""
        return RunDirectory(self.path / name, record, resume=True)

    @property
    def has_state(self) -> bool:
        """Whether :meth:`write_state` was called for this run."""
        return (self.path / "state.npz").exists()

    def write_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Store the state of a chain, in place of the last one."""
        write_atomically(self.path / "state.npz", lambda f: np.savez(f, **arrays))

    def read_state(self) -> dict[str, np.ndarray] | None:
        """The last state written, if there is one."""
        if not self.has_state:
            return None
        with np.load(self.path / "state.npz") as file:
            return dict(file)

    def write_sample(self, index: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Store posterior sample ``index``; a file of that name is replaced."""
        path = self._samples / f"{index:05d}.npz"
        write_atomically(path, lambda f: np.savez(f, **arrays))

    def read_samples(self, count: int) -> list[dict[str, np.ndarray]]:
        """The first ``count`` samples; later ones (of a run that died) are ignored."""
        samples = []
        for index in range(count):
            with np.load(self._samples / f"{index:05d}.npz") as file:
                samples.append(dict(file))
        return samples


def _differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """At most five entries that differ, nested ones by dotted names, in words."""
    there, now = _flat(there), _flat(now)
    names = sorted(k for k in {*there, *now} if there.get(k, ...) != now.get(k, ...))

    def value(settings: Mapping[str, Any], name: str) -> str:
        text = repr(settings[name]) if name in settings else "absent"
        return text if len(text) <= 40 else text[:37] + "..."

    words = [f"{k}: {value(there, k)} there, {value(now, k)} now" for k in names[:5]]
    return ", ".join(words + ([f"and {len(names) - 5} more"] if len(names) > 5 else []))


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries and lists by dotted names: of a long list only what differs is shown."""
    items = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
    found: dict[str, Any] = {}
    for name, value in items:
        if isinstance(value, Mapping | list) and len(value):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
