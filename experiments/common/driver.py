"""The one driver of every study: what a command does beside the study's own flags, plan and run.

A study is its flags and a function from them to the runs that were asked for. The rest is done
here, once: parse the command line, claim the run's folder or resume it, run, with TensorBoard
scalars on the way, and write figures, arrays, the posterior and, as the last act,
``results.json``.
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
    """How a run is carried out; of these only the seed decides its outcome."""

    seed: int
    out_dir: pathlib.Path | None = None
    resume: bool = False
    jit_compile: bool = False
    progress: bool = True

    def arguments(self, folder: str | None = None) -> dict[str, Any]:
        """The arguments that the functions of :mod:`gpflow_bae.inference` take.

        :param folder: Of the run, for checkpoints; None for a fit that keeps none.
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
    """What a run of any study leaves behind.

    unfinished: words such as "first 3 of 20 samples" of a run that was stopped; empty else.
    seconds: of each phase; the driver adds the total.
    posterior: what predicts, with a ``save``; None for a method that leaves none.
    figures: by the name of their PNG file.
    films: Matplotlib's animations, by the name of their GIF file.
    arrays: what they were drawn from, for ``arrays.npz``.
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
    """One run that a command asks for.

    model: its name in the results.
    plan: a :class:`~experiments.common.plans.Plan`; None for a method without settings.
    execute: the run itself.
    more: what else decides the outcome, beside experiment, model, preset, seed and settings.
    words: of the variant, after those of --variant; empty ones are left out.
    folder: below --out_dir.
    """

    model: str
    plan: Any
    execute: Callable[[Options], Outcome]
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    words: Sequence[str] = ()
    folder: str = ""


@dataclasses.dataclass(frozen=True)
class Study:
    """A command, which its module hands to :func:`start`.

    experiment: the page of docs/results that its runs belong to.
    define_flags: the shared flags (:func:`experiments.common.flags.define`) and its own.
    runs: a generator of what the flags ask for; a run is over before the next is asked for.
    """

    experiment: str
    define_flags: Callable[[], None]
    runs: Callable[[], Iterator[Run]]


def start(study: Study) -> None:
    """The command line of a study; the last line of its module."""
    define(study)
    terminal.run(lambda argv: run(study, argv, sys.argv[1:]))


def define(study: Study) -> None:
    """Defines the study's flags, all of which --help lists."""
    before = set(FLAGS)
    study.define_flags()
    for name in set(FLAGS) - before:
        FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS[name])


def run(study: Study, argv: Sequence[str], arguments: Sequence[str]) -> None:
    """Runs what the flags, which were parsed, ask for, and writes down what came of it.

    :param argv: What no flag took, the program's name first.
    :param arguments: The command line, for the record.
    :raises app.UsageError: For flags that do not go together, a folder that is taken, or data that
        are not there.
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
        except ValueError as error:  # of a setting, or of the folder: for the user to read
            raise app.UsageError(str(error)) from error
        if is_new:
            _execute(asked, out_dir, config, command(arguments))


def claim(out_dir: str | os.PathLike[str], config: Mapping[str, Any], resume: bool) -> bool:
    """Claims ``out_dir`` for a run (:func:`results.prepare_out_dir`); whether it has work to do.

    A finished run that is to be resumed has none, and says so.
    """
    out_dir = results.prepare_out_dir(out_dir, config, resume)
    written = out_dir / results.RESULTS
    if resume and written.exists() and json.loads(written.read_text()).get("complete", True):
        print(f"{out_dir} holds a finished run; nothing to do.")
        return False
    return True


def command(arguments: Sequence[str]) -> str:
    """The command line for the record, without the folders of the machine that it ran on.

    :param arguments: Of the program that runs, a module or a file.
    """
    kept = [a for a in arguments if a.split("=")[0].lstrip("-") not in ("out_dir", "data_dir")]
    spec = sys.modules["__main__"].__spec__
    program = [pathlib.Path(sys.argv[0]).name]
    if spec is not None:
        program = ["-m", spec.name.removesuffix(".__main__")]
    return shlex.join(["python", *program, *kept, "--out_dir=OUT_DIR"])


def _execute(asked: Run, out_dir: pathlib.Path, config: Mapping[str, Any], line: str) -> None:
    """A run, and all that it leaves in its folder."""
    jit_compile = common_flags.resolve_jit_compile(FLAGS.jit_compile)
    started = time.perf_counter()
    scalars: tensorboard.Scalars | None = None
    with contextlib.ExitStack() as watching:
        if FLAGS.tensorboard:
            scalars = watching.enter_context(tensorboard.writing(out_dir / "tensorboard"))
        try:
            outcome = asked.execute(Options(FLAGS.seed, out_dir, FLAGS.resume, jit_compile))
        except FileNotFoundError as error:  # a data set, with where to get it
            results.release(out_dir)
            raise app.UsageError(str(error)) from error
    seconds = dict(outcome.seconds)
    elapsed = time.perf_counter() - started
    if not FLAGS.resume:
        seconds.setdefault("total", elapsed)
    elif not seconds:  # the clock of a resumed run has not seen all of it
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
    """The figures of an outcome as PNG files, films as GIF, and its arrays in ``arrays.npz``."""
    if outcome.figures:
        from experiments.common.images import save_png

        for name, figure in outcome.figures.items():
            save_png(figure, out_dir / f"{name}.png", 120)
    for name, film in outcome.films.items():
        film.save(out_dir / f"{name}.gif", writer="pillow")
    if outcome.arrays:
        import numpy as np

        np.savez_compressed(out_dir / "arrays.npz", **outcome.arrays)
