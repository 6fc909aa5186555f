"""The messages that the troubleshooting page quotes are those of the code."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guides" / "troubleshooting.md"
FOREIGN = (
    "cannot be packed",
    "port.cc",
    "cpu_feature_guard",
    "Not handling type",
    "cuInit",
    "oneDNN",
)


def literals() -> str:
    """All text of the package, with what is filled in left out and lines of strings joined."""
    text = "\n".join(p.read_text() for p in sorted((ROOT / "gpflow_bae").rglob("*.py")))
    text = re.sub(r"[\"']\s*\n\s*(?:else\s+)?f?[\"']", "", text)
    return re.sub(r"\{[^{}]*\}", "\0", text)


def quoted() -> list[str]:
    """What the first column of the first table quotes."""
    rows = [r for r in PAGE.read_text().split("\n## ")[0].splitlines() if r.startswith("| ")]
    return [found for row in rows for found in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


@pytest.mark.skipif(not PAGE.exists(), reason="Bazel gives a test its own package alone.")
def test_quoted_messages_are_messages() -> None:
    """Every run of words between two ellipses, or values, occurs in a string of the code."""
    text = literals()
    lost = []
    for message in quoted():
        if any(words in message for words in FOREIGN):
            continue
        for piece in re.split(r"\.\.\.|\['?[\w']+\]|'[^']*'|\b\d{8}\b|=\.*", message):
            words = piece.strip(" ,;:()").split()
            # The first ones or the last may be names that are filled in.
            runs = [words, words[:-1], *(words[i:] for i in (1, 2, 3))]
            runs = [" ".join(run) for run in runs if len(run) > 1]
            if runs and not any(run in text for run in runs):
                lost.append((message, piece))
    assert len(quoted()) > 30
    assert not lost


def test_messages_name_arguments_of_python() -> None:
    """Only the command of the imputer has flags."""
    files = [p for p in (ROOT / "gpflow_bae").rglob("*.py") if "impute" not in p.parts]
    assert [p.name for p in files if re.search(r"(?<![-\w])--[a-z]", p.read_text())] == []
