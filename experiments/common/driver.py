"""The driver of all studies, which does everything but a study's own flags, plan and run.

A study is its flags and a function from them to the requested runs. The driver parses the command
line, claims the run's folder or resumes the run, runs it, with TensorBoard scalars if requested,
and writes figures, arrays, the posterior and, at last, ``results.json``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import app

from experiments.common import flags as common_flags
from experiments.common import results, tensorboard, terminal

FLAGS = common_flags.FLAGS
POSTERIOR = "posterior.npz"


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a run; only the seed changes its outcome."""

    seed: int
    out_dir: pathlib.Path | None = None
    resume: bool = False
    jit_compile: bool = False
    progress: bool = True

    def arguments(self, folder: str | None = None) -> dict[str, Any]:
        """Return keyword arguments for the functions of :mod:`gpflow_bae.inference`.

        :param folder: folder of the checkpoints in the run's folder; None for a fit without any.
        """
        chosen: dict[str, Any] = {
            "seed": self.seed,
            "jit_compile": self.jit_compile,
            "progress": self.progress,
        }
        if folder is not None:
            chosen["resume"] = self.resume
            chosen["out_dir"] = None if self.out_dir is None else self.out_dir / folder
        return chosen


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """Outcome of a run of any study.

    unfinished: a text such as "first 3 of 20 samples" for a run that was stopped, else empty.
    seconds: duration of each phase; the driver adds the total.
    posterior: a posterior with a method ``save``; None for a method without one.
    figures: Matplotlib figures by the name of their PNG file.
    films: Matplotlib animations by the name of their GIF file.
    arrays: data of the figures, for ``arrays.npz``.
    """

    metrics: dict[str, float]
    num_parameters: int
    curves: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    posterior: Any = None
    unfinished: str = ""
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    films: dict[str, Any] = dataclasses.field(default_factory=dict)
    arrays: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a command.

    model: name of the model in the results.
    plan: a :class:`~experiments.common.plans.Plan`; None for a method without settings.
    execute: function that makes the run.
    more: further settings that change the outcome, besides experiment, model, preset, seed and
        plan.
    words: parts of the variant's name after --variant; empty ones are left out.
    folder: folder below --out_dir.
    """

    model: str
    plan: Any
    execute: Callable[[Options], Outcome]
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    words: Sequence[str] = ()
    folder: str = ""


@dataclasses.dataclass(frozen=True)
class Study:
    """A command, which its module passes to :func:`start`.

    experiment: name of its page in docs/results.
    define_flags: defines the shared flags (:func:`experiments.common.flags.define`) and its own.
    runs: generates the runs of the flags; each is complete before the next is generated.
    """

    experiment: str
    define_flags: Callable[[], None]
    runs: Callable[[], Iterator[Run]]


def start(study: Study) -> None:
    """Run a study from the command line."""
    define(study)
    terminal.run(lambda argv: run(study, argv, sys.argv[1:]))


def define(study: Study) -> None:
    """Define the study's flags, and list them all in --help."""
    before = set(FLAGS)
    study.define_flags()
    for name in set(FLAGS) - before:
        FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS[name])


def run(study: Study, argv: Sequence[str], arguments: Sequence[str]) -> None:
    """Make the runs of the parsed flags, and write their results.

    :param argv: the program's name, and arguments that are not flags.
    :param arguments: the command line, for the record.
    :raises app.UsageError: for incompatible flags, a folder with another run, or missing data or
        packages.
    """
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    if FLAGS.tensorboard and not tensorboard.is_installed():
        raise app.UsageError("--tensorboard needs TensorBoard: pip install '.[tensorboard]'.")
    planned = study.runs()
    while True:
        try:
            asked = next(planned, None)
            if asked is None:
                return
            out_dir = pathlib.Path(FLAGS.out_dir) / asked.folder
            config = {
                "experiment": study.experiment,
                "model": asked.model,
                "preset": FLAGS.preset,
                "seed": FLAGS.seed,
                **asked.more,
                "settings": {} if asked.plan is None else asked.plan.describe(),
            }
            is_new = claim(out_dir, config, FLAGS.resume)
        except ValueError as error:  # user errors about a setting or the folder
            raise app.UsageError(str(error)) from error
        if is_new:
            _execute(asked, out_dir, config, command(arguments))


def claim(out_dir: str | os.PathLike[str], config: Mapping[str, Any], resume: bool) -> bool:
    """Claim ``out_dir`` for a run (:func:`results.prepare_out_dir`), and return whether to run it.

    For a finished run to be resumed this prints a message and returns False.
    """
    out_dir = results.prepare_out_dir(out_dir, config, resume)
    written = out_dir / results.RESULTS
    if resume and written.exists() and json.loads(written.read_text()).get("complete", True):
        print(f"{out_dir} holds a finished run; nothing to do.")
        return False
    return True


def command(arguments: Sequence[str]) -> str:
    """Return the command line for the record, without folders of the machine.

    :param arguments: arguments of the program, which is a module or a file.
    """
    kept = [a for a in arguments if a.split("=")[0].lstrip("-") not in ("out_dir", "data_dir")]
    spec = sys.modules["__main__"].__spec__
    program = [pathlib.Path(sys.argv[0]).name]
    if spec is not None:
        program = ["-m", spec.name.removesuffix(".__main__")]
    return shlex.join(["python", *program, *kept, "--out_dir=OUT_DIR"])


def _execute(asked: Run, out_dir: pathlib.Path, config: Mapping[str, Any], line: str) -> None:
    """Make a run, and write everything to its folder."""
    jit_compile = common_flags.resolve_jit_compile(FLAGS.jit_compile)
    started = time.perf_counter()
    scalars: tensorboard.Scalars | None = None
    with contextlib.ExitStack() as watching:
        if FLAGS.tensorboard:
            scalars = watching.enter_context(tensorboard.writing(out_dir / "tensorboard"))
        try:
            outcome = asked.execute(Options(FLAGS.seed, out_dir, FLAGS.resume, jit_compile))
        except (FileNotFoundError, ModuleNotFoundError) as error:
            # A missing data set or package; the message names its source.
            results.release(out_dir)
            raise app.UsageError(str(error)) from error
    seconds = dict(outcome.seconds)
    elapsed = time.perf_counter() - started
    if not FLAGS.resume:
        seconds.setdefault("total", elapsed)
    elif not seconds:  # the time before a resumed run is unknown
        seconds["since_resume"] = elapsed
    write_figures(outcome, out_dir)
    if scalars is not None:
        scalars.finish(outcome.metrics, outcome.curves)
    if outcome.posterior is not None:
        outcome.posterior.save(out_dir / POSTERIOR)
    words = [FLAGS.variant, *asked.words, outcome.unfinished]
    results.write_results(
        out_dir,
        {name: config[name] for name in ("experiment", "model", "preset", "seed")}
        | {
            "temperature": None if asked.plan is None else asked.plan.temperature,
            "metrics": outcome.metrics,
            "seconds": seconds,
            "num_parameters": outcome.num_parameters,
            "variant": " ".join(word for word in words if word),
            "complete": not outcome.unfinished,
            "settings": config["settings"],
            "command": line,
            "curves": outcome.curves,
        },
    )
    shown = ", ".join(f"{k} {v:.4g}" for k, v in outcome.metrics.items())
    print(f"{config['model']}: {shown}; {elapsed:.0f} s. Results are in {out_dir}.", flush=True)


def write_figures(outcome: Outcome, out_dir: pathlib.Path) -> None:
    """Write figures of an outcome as PNG, films as GIF, and arrays to ``arrays.npz``."""
    if outcome.figures:
        from experiments.common.images import save_png

        for name, figure in outcome.figures.items():
            save_png(figure, out_dir / f"{name}.png", 120)
    for name, film in outcome.films.items():
        film.save(out_dir / f"{name}.gif", writer="pillow")
    if outcome.arrays:
        import numpy as np

        np.savez_compressed(out_dir / "arrays.npz", **outcome.arrays)
