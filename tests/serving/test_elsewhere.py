"""The export where this package is not: another process, the command line, and C."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tools import saved_model_utils

from tests.serving.conftest import Exported, run_python
from tests.serving.small_posteriors import L, P

FRESH_PROCESS = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("gpflow", "gpflow_bae", "check_shapes", "tensorflow_probability"):
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Block())
import numpy as np
import tensorflow as tf

try:
    import gpflow_bae
except ImportError:
    pass
else:
    raise SystemExit("the package can be imported")
model = tf.saved_model.load(sys.argv[1])
rows = np.load(sys.argv[2])
answers = {}
for name in sorted({key.split("/")[0] for key in rows}):
    inputs = {k.split("/")[1]: tf.constant(rows[k]) for k in rows if k.split("/")[0] == name}
    for output, value in model.signatures[name](**inputs).items():
        answers[name + "/" + output] = value.numpy()
np.savez(sys.argv[3], **answers)
"""


def test_a_process_without_the_package(exported: Exported, tmp_path: pathlib.Path) -> None:
    """TensorFlow alone loads the export, and gives the numbers of the live model."""
    rows = {f"{n}/{k}": v for n, inputs in exported.rows.items() for k, v in inputs.items()}
    np.savez(tmp_path / "rows.npz", **rows)
    run_python(FRESH_PROCESS, exported.export.path, tmp_path / "rows.npz", tmp_path / "answers.npz")
    with np.load(tmp_path / "answers.npz") as answers:
        for name, outputs in exported.expected.items():
            for output, expected in outputs.items():
                np.testing.assert_allclose(
                    answers[f"{name}/{output}"], expected, rtol=1e-5, atol=1e-5
                )


def test_saved_model_cli(exported: Exported, tmp_path: pathlib.Path) -> None:
    """``saved_model_cli run`` writes the same numbers."""
    np.save(tmp_path / "y.npy", exported.rows["impute"]["y"])
    arguments = ["run", "--dir", str(exported.export.path), "--tag_set", "serve"]
    arguments += ["--signature_def", "impute", "--inputs", f"y={tmp_path / 'y.npy'}"]
    arguments += ["--outdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for output, expected in exported.expected["impute"].items():
        found = np.load(tmp_path / f"{output}.npy")
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to compile the loader")
def test_a_c_program(exported: Exported, tmp_path: pathlib.Path) -> None:
    """TensorFlow's C API, from the libraries in the wheel: the same numbers, and errors as text."""
    libraries = pathlib.Path(tf.sysconfig.get_lib())
    names = ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]
    missing = [n for n in names if not (libraries / n).exists()]
    if missing:
        pytest.skip(f"this TensorFlow has no {missing}")
    program = tmp_path / "loader"
    source = pathlib.Path(__file__).with_name("loader.c")
    subprocess.run(
        ["g++", "-x", "c++", str(source), "-o", str(program), f"-I{tf.sysconfig.get_include()}"]
        + [f"-L{libraries}", *(f"-l:{n}" for n in names), f"-Wl,-rpath,{libraries}"],
        check=True,
        capture_output=True,
        timeout=300,
    )
    graph = saved_model_utils.get_meta_graph_def(str(exported.export.path), "serve")
    signature = graph.signature_def["encode"]
    operations = [signature.inputs["y"].name.split(":")[0], signature.outputs["mean"].name]

    def run(y: np.ndarray) -> subprocess.CompletedProcess[str]:
        shape = [str(n) for n in (*y.shape, L)]
        return subprocess.run(
            [str(program), str(exported.export.path), *operations, *shape],
            input=" ".join(f"{v:.9g}" for v in y.ravel()),
            capture_output=True,
            text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
            timeout=300,
        )

    done = run(exported.rows["encode"]["y"])
    assert done.returncode == 0, done.stdout + done.stderr
    found = np.array(done.stdout.split(), float).reshape(-1, L)
    np.testing.assert_allclose(found, exported.expected["encode"]["mean"], rtol=1e-5, atol=1e-5)
    assert run(np.zeros((0, P))).returncode == 0
    bad = run(np.zeros((2, P + 1)))
    assert bad.returncode == 3 and "y must have shape [rows, 3]" in bad.stdout, bad.stdout
