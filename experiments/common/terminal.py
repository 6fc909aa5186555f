"""Start commands, without log messages of libraries and long usage errors."""

from __future__ import annotations

import sys
from collections.abc import Callable

from absl import app, flags, logging


def run(main: Callable[[list[str]], None]) -> None:
    """Call ``absl.app.run``, but print usage errors without the whole help.

    Libraries log through absl then, at level warning or above unless --verbosity is given.
    """

    def called(argv: list[str]) -> None:
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)
        try:
            main(argv)
        except app.UsageError as error:
            sys.exit(f"{error}\n(--help lists the flags of this command.)")

    app.run(called)
