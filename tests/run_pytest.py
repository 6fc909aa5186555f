"""The main program of every Bazel test: run pytest on the files given as arguments.

Without Bazel there is no need for it: ``make test``, or pytest itself, does the same.
"""

import os
import sys

import pytest


def main() -> int:
    """Run pytest with this program's arguments, and return its exit status."""
    scratch = os.environ.get("TEST_TMPDIR")
    if scratch:  # the home folder is read-only in Bazel's sandbox, and libraries keep files there
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR"):
            os.environ[name] = scratch
    arguments = ["-p", "no:cacheprovider", *sys.argv[1:]]
    report = os.environ.get("XML_OUTPUT_FILE")  # where Bazel wants the results
    if report:
        arguments.append(f"--junitxml={report}")
    status = pytest.main(arguments)
    # A file whose tests are all marked slow has none left to run in the fast suite.
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and "not slow" in arguments:
        return 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
