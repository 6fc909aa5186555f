"""Runs that lose nothing: atomic checkpoints, and samples that are appended one file each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ..files import write_atomically

__all__ = ["RunDirectory", "write_atomically"]


class RunDirectory:
    """A folder that holds a chain: its settings, its last checkpoint, and its samples.

    The state of the chain is one ``tf.train.Checkpoint``; each posterior sample is its own file,
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
                changed = sorted(k for k in {*found, *settings} if found.get(k) != settings.get(k))
                raise ValueError(
                    f"out_dir {self.path} holds a run with other settings ("
                    + ", ".join(
                        f"{k}: {found.get(k)!r} there, {settings.get(k)!r} now" for k in changed
                    )
                    + "); choose another out_dir, or delete that one."
                )
            if not resume:
                raise ValueError(
                    f"out_dir {self.path} holds a run with these settings already; continue it "
                    "with resume=True, or choose another out_dir."
                )
        else:
            write_atomically(file, lambda f: f.write(json.dumps(settings, indent=1).encode()))
        self._samples = self.path / "samples"

    def manager(self, trackable: tf.train.Checkpoint) -> tf.train.CheckpointManager:
        """Keeps the last two checkpoints of ``trackable``."""
        return tf.train.CheckpointManager(trackable, str(self.path / "checkpoints"), max_to_keep=2)

    @property
    def has_state(self) -> bool:
        """Whether :meth:`write_state` was called for this run."""
        return (self.path / "state.npz").exists()

    def write_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Store the state of a chain that is plain arrays, in place of the last one."""
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
