"""What a terminal shows of a command: its own lines, and a short sentence where a user can help."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from absl import app

from experiments.common import terminal
from gpflow_bae.core.terminal import LEVEL_VARIABLE

ROOT = pathlib.Path(__file__).resolve().parents[3]
NOISE = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    "I0000 00:00:1795356608.804999    8181 port.cc:153] oneDNN custom operations are on.\n"
    "2026-11-22 14:10:08.804999: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary\n"
    "To enable the following instructions: AVX2 FMA, rebuild TensorFlow with the flags.\n"
)


def run(folder: pathlib.Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process in which ``tensorflow`` is a module that writes what the real one does."""
    (folder / "tensorflow.py").write_text(
        f"import os, sys\nos.write(2, {NOISE.encode()!r})\nprint('a warning', file=sys.stderr)\n"
    )
    env = {k: v for k, v in os.environ.items() if k != LEVEL_VARIABLE} | variables
    env["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)


LOADS = "import os, experiments, tensorflow; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"


def test_importing_tensorflow_shows_what_is_not_its_log(tmp_path: pathlib.Path) -> None:
    found = run(tmp_path, LOADS)
    assert (found.stdout, found.stderr) == ("3\n", "a warning\n")
    # Who asks for the log gets it.
    found = run(tmp_path, LOADS, TF_CPP_MIN_LOG_LEVEL="0")
    assert (found.stdout, found.stderr) == ("0\n", NOISE + "a warning\n")


def test_quiet_may_be_asked_for_twice(tmp_path: pathlib.Path) -> None:
    twice = "from gpflow_bae.core.terminal import quiet_tensorflow as quiet; quiet(); quiet(); "
    found = run(tmp_path, twice + "import tensorflow")
    assert (found.returncode, found.stderr) == (0, "a warning\n")


def test_an_import_that_fails_fails_as_ever(tmp_path: pathlib.Path) -> None:
    found = run(tmp_path, "import experiments, tensorflow.missing")
    assert found.returncode != 0 and "port.cc" not in found.stderr
    assert "No module named 'tensorflow.missing'" in found.stderr


def test_what_a_user_can_mend_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """absl would print the help of every flag before it."""

    def main(argv: list[str]) -> None:
        raise app.UsageError("--out_dir is taken.")

    monkeypatch.setattr(app, "run", lambda called: called(["command"]))
    with pytest.raises(SystemExit) as stopped:
        terminal.run(main)
    assert stopped.value.code == "--out_dir is taken.\n(--help lists the flags of this command.)"
    assert capsys.readouterr() == ("", "")
