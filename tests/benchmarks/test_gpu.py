"""What is written for a GPU without TensorFlow, and what runs it there."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks import gpu
from benchmarks.common import cases
from gpflow_bae import decoders, encoders, inference, likelihoods, mcmc, models

RUNNER = pathlib.Path(gpu.__file__).with_name("gpu_runner.py")
JAX = "GPFLOW_BAE_JAX_PYTHON"


def signature(text: str) -> list[tuple[tuple[int, ...], str]]:
    """Shapes and types of the arguments of a program's function ``main``."""
    found = re.search(r"@main\((.*?)\) ->", text, flags=re.S)
    assert found is not None
    types = [t.split("x") for t in re.findall(r"%arg\d+: tensor<([^>]*)>", found[1])]
    return [(tuple(int(size) for size in sizes), dtype) for *sizes, dtype in types]


def with_captured(
    nested: dict[str, tf.Tensor], last: tf.Tensor, own: list[tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Every array has another size, so that no two can change places unseen."""
    variable, constant, other = own
    total = tf.reduce_sum(variable) + tf.reduce_sum(constant) * tf.reduce_sum(other)
    return {"z": last + total, "a": nested["b"] - total, "b": nested["a"] * total}


@pytest.fixture(scope="module")
def captured() -> gpu.Program:
    own = [tf.Variable([1.0, 2.0]), tf.constant([3.0, 4.0, 5.0]), tf.Variable([6.0] * 4)]
    arguments = ({"b": tf.fill([5], 7.0), "a": tf.fill([6], 8.0)}, tf.fill([7], 9.0))
    return gpu.export(lambda n, last: with_captured(n, last, own), arguments, {})


def test_what_a_function_captures_are_arguments(captured: gpu.Program) -> None:
    """Its own first, keys in their order; total is 3 + 12 * 24 = 291."""
    expected = [[8.0] * 6, [7.0] * 5, [9.0] * 7, [1.0, 2.0], [3.0, 4.0, 5.0], [6.0] * 4]
    assert [a.tolist() for a in captured.arguments] == expected
    assert signature(captured.text) == [((len(e),), "f32") for e in expected]
    assert list(captured.results) == ["a", "b", "z"]
    for name, value in {"a": [-284.0] * 5, "b": [2328.0] * 6, "z": [300.0] * 7}.items():
        assert captured.results[name].tolist() == value


@pytest.fixture(scope="module")
def parts() -> cases.Parts:
    """The smallest model that has codes, weights and an encoder."""

    def network(inputs: int, outputs: int) -> keras.Model:
        return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(outputs)])

    rng = np.random.default_rng(0)
    X, Y = np.linspace(0.0, 1.0, 12)[None, :, None], rng.standard_normal((1, 12, 3))
    decoder = decoders.KerasDecoder(network(2, 3))
    encoder = encoders.StochasticEncoder(network(6, 2))
    model = models.BAE(decoder, encoder, likelihoods.Gaussian(0.1), 2)
    return cases.Parts(model, (X, Y), inference.AmortizedSettings(), mcmc.sgld.build())


@pytest.fixture(scope="module")
def program(parts: cases.Parts) -> gpu.Program:
    return gpu.sampler_round(parts, 2)


def test_a_round_is_written_with_all_its_arrays(
    program: gpu.Program, parts: cases.Parts, untraced: None
) -> None:
    """And its results are those of an engine that is not compiled."""
    kinds = {"f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64", "i1": "bool"}
    found = [(shape, kinds[dtype]) for shape, dtype in signature(program.text)]
    assert found == [(value.shape, value.dtype.name) for value in program.arguments]
    engine = cases.engine(parts, 2)
    state, statistics = engine.round(engine.initial(), 0)
    # Rounding of float32 alone, 6e-8, in sums of at most 36 terms.
    assert_close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    assert_close(program.results["1/log_prior"], statistics.log_prior.numpy())
    assert_close(program.results["1/log_likelihood"], statistics.log_likelihood.numpy())
    codes = state.sampler.position.codes.numpy()
    assert_close(program.results["0/sampler/position/codes"], codes)


def test_a_round_that_diverges_is_not_written(
    parts: cases.Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = gpu.Program("", [], {"good": np.ones(2), "codes": np.array([1.0, np.nan])})
    monkeypatch.setattr(gpu, "export", lambda *_: found)
    with pytest.raises(FloatingPointError, match="diverged, and cannot be compared: codes[.]"):
        gpu.sampler_round(parts, 4)


def test_the_runner_imports_jax_and_numpy_alone() -> None:
    found: set[str] = set()
    for node in ast.walk(ast.parse(RUNNER.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and not node.level
            found.add(node.module.split(".")[0])
    assert found - set(sys.stdlib_module_names) == {"jax", "numpy"}


def test_copies_are_written_as_reshapes(captured: gpu.Program) -> None:
    """TensorFlow's dialect of XLA has an operation that JAX compiles for CPUs alone."""
    tree = ast.parse(RUNNER.read_text())
    wanted = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "portable"]
    names: dict[str, object] = {"re": re}
    exec(compile(ast.Module(wanted, []), str(RUNNER), "exec"), names)  # the file needs JAX
    text = "%2 = mhlo.copy %1 : tensor<32x9xf64> loc(#loc11)"
    found = names["portable"](text)  # type: ignore[operator]
    assert found == "%2 = stablehlo.reshape %1 : (tensor<32x9xf64>) -> tensor<32x9xf64> loc(#loc11)"
    assert names["portable"](captured.text) == captured.text  # type: ignore[operator]


def python_with_jax() -> str:
    """Skips where there is none."""
    python = os.environ.get(JAX) or (sys.executable if importlib.util.find_spec("jax") else None)
    if python is None:
        pytest.skip(f"JAX is not installed; {JAX} may name the Python of an environment with it")
    return python


def test_jax_finds_the_same_numbers(
    captured: gpu.Program, program: gpu.Program, tmp_path: pathlib.Path
) -> None:
    """And one seed that is another is told from rounding."""
    python = python_with_jax()
    about = dict.fromkeys(("command", "processor", "versions", "git_commit"), "") | {"steps": 2}
    kinds = [(a.shape, a.dtype.name) for a in program.arguments]
    seeds = kinds.index(((1, 2), "int32"))
    wrong = list(program.arguments)
    wrong[seeds] = wrong[seeds] + 1
    folders = []
    for name, written in {
        "captured": captured,
        "round": program,
        "wrong": program._replace(arguments=wrong),
    }.items():
        folders.append(tmp_path / name)
        gpu.write(folders[-1], written, about | {"model": name})
    out = tmp_path / "gpu.json"
    command = [python, str(RUNNER), *map(str, folders), "--repeats=1", f"--out={out}"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1, done.stderr[-3000:]
    rows = json.loads(out.read_text())["rows"]
    assert [row["agrees"] for row in rows] == [True, True, False], done.stdout
    # No number of the first depends on rounding: small integers.
    assert rows[0]["largest_difference"] == 0.0
    # Two steps, in the largest of a dozen terms: some roundings of float32.
    assert rows[1]["largest_difference"] < 1e-5
    assert rows[2]["largest_difference"] > 1e-2
