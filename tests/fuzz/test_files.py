"""Files of ours that something happened to, and folders that hold something else."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import tempfile
from typing import Any

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from gpflow_bae import datasets
from gpflow_bae.data import Observations
from gpflow_bae.inference.runs.checkpoints import RunDirectory
from gpflow_bae.posteriors import Bank, Posterior
from tests.fuzz.answers import answered, assert_finite, cases
from tests.serving import small_posteriors


@functools.cache
def saved() -> tuple[Posterior, bytes]:
    posterior = small_posteriors.sampled_sgp_bae()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "posterior.npz"
        posterior.save(path)
        return posterior, path.read_bytes()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Cut anywhere, changed anywhere, with something in front or behind, or nothing of it."""
    content = saved()[1]
    at = draw(st.integers(0, len(content)))
    kind = draw(st.sampled_from(["cut", "changed", "before", "behind", "else", "npz"]))
    some = draw(st.binary(max_size=8))
    if kind == "npz":
        with tempfile.TemporaryFile() as file:
            values = draw(st.sampled_from([np.zeros(3), np.array([{}]), np.array("a")]))
            np.savez(file, header=np.frombuffer(some, np.uint8), **{"parameters/a": values})
            file.seek(0)
            return file.read()
    return {
        "cut": content[:at],
        "changed": content[:at] + some + content[at + len(some) :],
        "before": some + content,
        "behind": content + some,
        "else": some,
    }[kind]


@hypothesis.given(damaged(), st.booleans())
@cases(40)
def test_damaged_banks(content: bytes, with_model: bool) -> None:
    model = saved()[0].model
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "posterior.npz"
        path.write_bytes(content)
        found: Any = answered(
            lambda: Posterior.load(path, model) if with_model else Bank.load(path)
        )
    if found is not None:
        bank = found.bank if with_model else found
        assert_finite([*bank.parameters.values(), *bank.encoder.values()])


READERS: dict[str, Any] = {
    "jura/prediction.dat": datasets.jura.load,
    "oil_flow/oil_flow.npz": datasets.oil_flow.load,
    "eeg/eeg.mat": datasets.eeg.load_small,
    "mnist/mnist.npz": datasets.mnist.load_train,
    "movielens/ratings.npz": datasets.movielens.load,
}


@pytest.mark.parametrize("name", READERS)
@hypothesis.given(st.binary(max_size=20), st.booleans())
@cases(5)
def test_data_sets_of_other_files(name: str, content: bytes, other: bool) -> None:
    """What is read has the published digest; nothing else is."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / (name + ".part" if other else name)
        path.parent.mkdir()
        path.write_bytes(content)
        assert answered(lambda: READERS[name](folder)) is None


@hypothesis.given(
    st.permutations(range(4)),
    st.permutations(range(3)),
    st.sampled_from([1.0, 1000.0, -1.0, 1.0 + 1e-12]),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
)
@cases(40)
def test_runs_go_on_with_equal_data_alone(
    rows: list[int], columns: list[int], unit: float, dtype: Any, with_inputs: bool
) -> None:
    """Rows, columns, units, and inputs that go with their rows or do not."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(1, 4, 1)), rng.integers(0, 2, (1, 4, 3)).astype(np.float32)
    Xnew = unit * (X[:, rows] if with_inputs else X)
    Ynew = np.asfortranarray(Y[:, rows][..., columns], dtype)

    def record(*data: Any) -> dict[str, Any]:
        inputs, outputs = data
        held = Observations(tf.constant(inputs), tf.constant(outputs.astype(np.float32)), None)
        return {"data": held.describe()}

    equal = np.array_equal(Xnew, X) and np.array_equal(Ynew, Y)
    with tempfile.TemporaryDirectory() as folder:
        RunDirectory(folder, record(X, Y), resume=False)
        refused = contextlib.nullcontext() if equal else pytest.raises(ValueError, match="other da")
        with refused:
            RunDirectory(folder, record(Xnew, Ynew), resume=True)
