"""Install this package with NumPy 2, which GPflow's own requirements do not allow yet.

    python tools/install_numpy2.py          # or with names of extras: tables test

For Python 3.10 to 3.13; on 3.13 there is no other way, because TensorFlow needs NumPy 2 there.
GPflow and this package are installed without what they require, and then all of that but GPflow's
bound.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("gpflow-bae", "gpflow")


def pip(*arguments: str) -> None:
    """Run pip of this interpreter."""
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *arguments], check=True)


def required(extras: list[str]) -> list[str]:
    """What both packages require, without each other and without GPflow's bound of NumPy."""
    from packaging.requirements import Requirement

    found = ["numpy>=2"]
    for package in PACKAGES:
        for text in importlib.metadata.requires(package) or []:
            need = Requirement(text)
            wanted = need.marker is None or any(
                need.marker.evaluate({"extra": extra}) for extra in ["", *extras]
            )
            bound = package == "gpflow" and need.name == "numpy"
            if wanted and need.name not in PACKAGES and not bound:
                need.marker = None
                found.append(str(need))
    return found


def main() -> None:
    """Install the package of this folder, and the extras that are named."""
    flags = [word for word in sys.argv[1:] if word.startswith("-")]
    if flags:
        sys.exit(f"{flags[0]} is no name of an extra.\n\n{__doc__}")
    pip("packaging", "setuptools>=64", "wheel")
    pip("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    pip("--no-deps", next(r for r in importlib.metadata.requires(PACKAGES[0]) if "gpflow" in r))
    pip(*required(sys.argv[1:]))


if __name__ == "__main__":
    main()
