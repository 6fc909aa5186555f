"""Start commands on a terminal that shows their own lines."""

from __future__ import annotations

import sys
from collections.abc import Callable

from absl import app, flags, logging


def run(main: Callable[[list[str]], None]) -> None:
    """``absl.app.run``, but of what a user can mend it says that alone, without the whole help.

    Libraries log through absl then; below warnings they are left out, unless --verbosity is given.
    """

    def called(argv: list[str]) -> None:
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)
        try:
            main(argv)
        except app.UsageError as error:
            sys.exit(f"{error}\n(--help lists the flags of this command.)")

    app.run(called)
