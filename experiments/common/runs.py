"""A run's folder and command line, as drivers see them."""

import json
import os
import pathlib
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common import results

__all__ = ["claim", "command", "finish"]


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


def finish(
    out_dir: str | os.PathLike[str],
    driver: str,
    config: Mapping[str, Any],
    metrics: Mapping[str, float],
    *,
    words: Sequence[str],
    started: float,
    num_parameters: int,
    temperature: float | None = None,
    curves: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Writes ``results.json`` of a run that :func:`claim` began, and says where it is.

    :param driver: Its module, for the command line.
    :param config: What was claimed: experiment, model, preset, seed and settings.
    :param words: Of the variant; empty ones are left out.
    :param started: ``time.perf_counter()`` at the start. Of a run with --resume these seconds are
        not all, and are recorded as ``since_resume``.
    """
    resumed = any(a.lstrip("-") in ("resume", "resume=true") for a in sys.argv[1:])
    results.write_results(
        out_dir,
        config["experiment"],
        config["model"],
        config["preset"],
        config["seed"],
        temperature,
        metrics,
        {"since_resume" if resumed else "total": time.perf_counter() - started},
        num_parameters,
        variant=" ".join(word for word in words if word),
        complete=True,
        settings=config["settings"],
        command=command(driver, sys.argv[1:]),
        curves=curves or {},
    )
    shown = ", ".join(f"{k} {v:.4g}" for k, v in metrics.items())
    print(f"{config['model']}: {shown}. Results are in {out_dir}.")
