"""Files of ours that something happened to, and folders that hold something else."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from gpflow_bae import datasets
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
