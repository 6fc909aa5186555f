"""Times of everything that users wait for, beside what the machine can do at most.

python -m benchmarks.run --suite=step --data_dir=DATA
python -m benchmarks.run --suite=scaling
python -m benchmarks.run --suite=chains
python -m benchmarks.run --suite=serving
python -m benchmarks.run --suite=start
python -m benchmarks.run --suite=xla --data_dir=DATA
python -m benchmarks.run --suite=peers --peer_python=OTHER/bin/python

Each suite writes ``docs/results/performance_SUITE.json``, and ``docs/performance.md`` is made anew
of all that are there. Variants are timed in turns and medians reported; ratios are those of single
turns, with their quartiles. Compare numbers of one run only: machines have other work to do.
"""

from __future__ import annotations

import pathlib
import time

from absl import app, flags

from benchmarks.common import commands

FLAGS = flags.FLAGS
SUITES = ("step", "scaling", "chains", "serving", "peers", "start", "xla")


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_enum("suite", None, SUITES, "What is timed.", required=True)
    flags.DEFINE_integer("threads", 2, "Threads of TensorFlow.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Turns.", lower_bound=1)
    flags.DEFINE_string("peer_python", None, "Python of an environment that has the peers.")
    flags.DEFINE_string("data_dir", None, "Folder of the data sets; without it some are left out.")
    flags.DEFINE_string(
        "out", None, "JSON to write (default: docs/results/performance_SUITE.json)."
    )
    flags.DEFINE_string("page", "docs/performance.md", "Page to write; '' for none.")


def main() -> None:
    """Measure, write, and render."""
    from benchmarks.common import machine, report, suites

    path = pathlib.Path(FLAGS.out or f"docs/results/performance_{FLAGS.suite}.json")
    if path.is_dir():
        raise app.UsageError(
            f"--out={path} is a folder; name a file, such as {path / 'found.json'}."
        )
    began = time.monotonic()
    found = getattr(suites, FLAGS.suite)(
        suites.Options(FLAGS.threads, FLAGS.repeats, FLAGS.data_dir, FLAGS.peer_python)
    )
    words = [f"--{f}={getattr(FLAGS, f)}" for f in ("threads", "repeats", "suite")]
    words += ["--data_dir=DATA"] if FLAGS.data_dir else []
    words += ["--peer_python=OTHER/bin/python"] if FLAGS.peer_python else []
    record = {
        "suite": FLAGS.suite,
        "command": " ".join(["python -m benchmarks.run", *sorted(words)]),
        "processor": machine.processor(),
        "threads": FLAGS.threads,
        "repeats": FLAGS.repeats,
        **found,
        "seconds": round(time.monotonic() - began),
        **commands.made_with(),
    }
    commands.write(path, record)
    print(report.tables(record))
    if FLAGS.page:
        report.write_page(pathlib.Path(FLAGS.page), path.parent)


if __name__ == "__main__":
    commands.start(define_flags, main)
