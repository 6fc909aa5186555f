"""What a user's own program shows, and what importing the package costs and changes."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from gpflow_bae.core import terminal

ROOT = pathlib.Path(__file__).resolve().parents[2]

PROGRAM = """
import gpflow_bae

gpflow_bae.quiet_tensorflow()
import gpflow
import keras
import numpy as np

rng = np.random.default_rng(0)
X = np.linspace(0.0, 10.0, 20)[:, None]
Y = np.sin(X) @ rng.normal(size=(1, 4)) + 0.1 * rng.normal(size=(20, 4))
model = gpflow_bae.models.SGPBAE(
    gpflow.kernels.SquaredExponential(lengthscales=2.0),
    X[::2],
    decoder=keras.Sequential([keras.Input((2,)), keras.layers.Dense(4)]),
    encoder=keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)]),
    likelihood=gpflow_bae.likelihoods.Gaussian(0.1),
    latent_dim=2,
)
settings = gpflow_bae.inference.AmortizedSettings(
    num_sampler_steps=2, burnin=4, num_samples=2, thinning=2
)
posterior = gpflow_bae.inference.sample_amortized(model, (X, Y), settings, warm_start=None)
posterior.predict_y(X)
posterior.save("posterior.npz")
"""

OURS = re.compile(
    r"(burn-in|sampling): "  # a bar, or the line that ends one where there are none
    # After so few steps warnings are due; Python shows the line that they are about.
    r"|\S+/program[.]py:\d+: UserWarning: The fit reconstructs its own training data hardly better"
    r"|\S+/program[.]py:\d+: UserWarning: The chains were too short to know"
    r"|posterior = gpflow_bae[.]inference[.]sample_amortized"
)


def start(code: str, folder: pathlib.Path, error: int) -> subprocess.Popen[str]:
    """A fresh Python without the test's own settings of TensorFlow's log."""
    path = folder / "program.py"
    path.write_text(code)
    env = {k: v for k, v in os.environ.items() if k != terminal.LEVEL_VARIABLE}
    env["PYTHONPATH"] = str(ROOT)
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=error,
        cwd=folder,
        env=env,
        text=True,
    )


def read_terminal(descriptor: int) -> str:
    found = b""
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # what Linux says where the other end is closed
            part = b""
        if not part:
            return found.decode()
        found += part


def shown(text: str) -> list[str]:
    """Lines, those that a bar writes over each other included, without what moves the cursor."""
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    return [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]


@pytest.mark.slow
def test_a_program_shows_our_lines_alone(tmp_path: pathlib.Path) -> None:
    """On a terminal, where there are bars, and in a pipe; the two at once, to wait for one."""
    folders = [tmp_path / name for name in ("terminal", "pipe")]
    for folder in folders:
        folder.mkdir()
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))  # or it has none
    on_terminal = start(PROGRAM, folders[0], there)
    os.close(there)
    in_pipe = start(PROGRAM, folders[1], subprocess.PIPE)
    bars = read_terminal(here)
    os.close(here)
    printed = [on_terminal.communicate()[0]]
    output, lines = in_pipe.communicate()
    printed.append(output)
    assert (on_terminal.returncode, in_pipe.returncode) == (0, 0), bars + lines
    assert printed == ["", ""]
    for text, end in ((bars, "sampling: 100%"), (lines, "sampling: 4 of 4 rounds")):
        assert [line for line in shown(text) if not OURS.match(line)] == []
        assert any(line.startswith(end) for line in shown(text)), text
    assert all((folder / "posterior.npz").exists() for folder in folders)


IMPORTS = """
import json, logging, os, sys, warnings
import {first}
def state():
    return [
        dict(os.environ), logging.root.level, len(logging.root.handlers),
        [logging.getLogger(n).level for n in ("tensorflow", "absl")],
        [str(f) for f in warnings.filters], [str(f) for f in sys.meta_path],
    ]
before, modules = state(), set(sys.modules)
{then}
print(json.dumps([before == state(), sorted(set(sys.modules) - modules)]))
"""


def after_import(first: str, then: str, folder: pathlib.Path) -> tuple[bool, set[str]]:
    """Whether the second import left log, warnings and environment alone, and what it loaded."""
    process = start(IMPORTS.format(first=first, then=then), folder, subprocess.PIPE)
    output, error = process.communicate()
    assert process.returncode == 0, error
    unchanged, modules = json.loads(output)
    return unchanged, {m for m in modules if m.split(".")[0] not in sys.stdlib_module_names}


def test_importing_the_package_alone_loads_nothing_else(tmp_path: pathlib.Path) -> None:
    unchanged, modules = after_import("sys", "import gpflow_bae", tmp_path)
    assert unchanged
    assert modules == {"gpflow_bae", "gpflow_bae.versions"}


def test_rooms_load_no_library_that_gpflow_does_not(tmp_path: pathlib.Path) -> None:
    """So that importing them takes as long as TensorFlow and GPflow do, which a clock would tell
    with the noise of a busy machine. Of SciPy a few more parts.
    """
    rooms = "from gpflow_bae import decoders, encoders, fit, likelihoods, mcmc, models, Posterior"
    unchanged, modules = after_import("gpflow, tensorflow", rooms, tmp_path)
    assert unchanged
    assert {m.split(".")[0] for m in modules} <= {"gpflow_bae", "scipy", "tqdm"}
    assert len([m for m in modules if m.startswith("scipy.")]) < 20
    assert not {m for m in modules if m.startswith(("gpflow_bae.impute", "gpflow_bae.estimators"))}


def test_quiet_is_a_public_name_and_says_when_it_is_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import gpflow_bae

    monkeypatch.delenv(terminal.LEVEL_VARIABLE, raising=False)
    with pytest.warns(UserWarning, match="too late: TensorFlow was imported before"):
        gpflow_bae.quiet_tensorflow()
    assert os.environ[terminal.LEVEL_VARIABLE] == "3"
    gpflow_bae.quiet_tensorflow()  # once is enough: pytest would fail on a second warning
    monkeypatch.setenv(terminal.LEVEL_VARIABLE, "0")
    gpflow_bae.quiet_tensorflow()
    assert os.environ[terminal.LEVEL_VARIABLE] == "0"
