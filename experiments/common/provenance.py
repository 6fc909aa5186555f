"""What a result was made with: library versions and the commit of the code."""

import importlib
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGES = ("tensorflow", "tensorflow_probability", "keras", "gpflow", "numpy")
# A result is what these make of its settings; edited documentation does not change one.
_CODE = ("gpflow_bae", "experiments", "setup.py", "pyproject.toml")


def versions() -> dict[str, str]:
    """Versions of Python, of the libraries that numbers depend on, and of this package."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        found[package] = str(importlib.import_module(package).__version__)
    found["gpflow_bae"] = str(importlib.import_module("gpflow_bae.versions").__version__)
    return found


def git_commit(root: str | os.PathLike[str] = ROOT) -> str:
    """The commit of the code that runs.

    :param root: The project's folder.
    :return: The full hash, with "-dirty" appended where code (the packages, setup.py or
        pyproject.toml) differs from it or is untracked; "unknown" outside git, without commits, or
        where ``root`` merely lies inside somebody else's repository.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or pathlib.Path(top).resolve() != pathlib.Path(root).resolve():
        return "unknown"
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    status = _git(root, "status", "--porcelain", "--", *_CODE)
    if commit is None or status is None:
        return "unknown"
    return f"{commit}-dirty" if status else commit


def _git(root: str | os.PathLike[str], *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", os.fspath(root), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
