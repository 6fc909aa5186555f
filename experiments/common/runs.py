"""A run's folder and command line, as drivers see them."""

import json
import os
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common import results

__all__ = ["claim", "command"]


def claim(out_dir: str | os.PathLike[str], config: Mapping[str, Any], resume: bool) -> bool:
    """Claims ``out_dir`` for a run (:func:`results.prepare_out_dir`); whether it has work to do.

    A finished run that is to be resumed has none, and says so.
    """
    out_dir = pathlib.Path(out_dir)
    results.prepare_out_dir(out_dir, config, resume)
    written = out_dir / results.RESULTS
    if resume and written.exists() and json.loads(written.read_text()).get("complete", True):
        print(f"{out_dir} holds a finished run; nothing to do.")
        return False
    return True


def command(driver: str, arguments: Sequence[str]) -> str:
    """The command line for the record, without the folders of the machine that it ran on.

    >>> command("moving_ball", ["--seed=1", "--out_dir=/somewhere", "--data_dir=/else"])
    'python -m experiments.moving_ball --seed=1 --out_dir=OUT_DIR'
    """
    kept = [a for a in arguments if a.split("=")[0].lstrip("-") not in ("out_dir", "data_dir")]
    return shlex.join(["python", "-m", f"experiments.{driver}", *kept, "--out_dir=OUT_DIR"])
