"""Provenance of a result: library versions and the commit of the code."""

import importlib
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGES = ("tensorflow", "tensorflow_probability", "keras", "gpflow", "numpy")
# Changes of these files can change a result; changes of documentation cannot.
_CODE = ("gpflow_bae", "experiments", "setup.py", "pyproject.toml")


def versions() -> dict[str, str]:
    """Return versions of Python, of the libraries that affect results, and of this package."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        found[package] = str(importlib.import_module(package).__version__)
    found["gpflow_bae"] = str(importlib.import_module("gpflow_bae.versions").__version__)
    return found


def git_commit(root: str | os.PathLike[str] = ROOT) -> str:
    """Return the commit of the running code.

    :param root: the project's folder.
    :return: the full hash, with "-dirty" appended if code (the packages, setup.py or
        pyproject.toml) differs from it or is untracked; "unknown" outside git, without commits, or
        if ``root`` is a folder inside another repository.
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
