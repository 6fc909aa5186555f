"""The bank: what it refuses, what thinning and pooling keep, and files that lose nothing."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.core import files
from gpflow_bae.posteriors import Bank
from gpflow_bae.posteriors.stored.archive import read_archive, write_archive

C, S = 2, 6


def bank(offset: float = 0.0, **changes: Any) -> Bank:
    values = offset + np.arange(C * S, dtype=np.float64).reshape(C, S)
    arguments: dict[str, Any] = {
        "parameters": {".kernel.variance": values, ".decoder.weights[0]": values[..., None] * 0.1},
        "encoder": {".encoder.weights[0]": values.astype(np.float32)[..., None, None]},
        "latents": np.zeros((C, S, 1, 4, 2)) + values[..., None, None, None],
        "model": "Toy",
        "temperature": 0.5,
        "trace": {"log_prior": np.arange(10.0).reshape(C, 5), "accepted": np.ones((C, 5), bool)},
        "settings": {"seed": 3, "step_sizes": (0.1, 1 / 3), "kind": None},
        "seconds": {"sampling": 1.5},
    }
    return Bank(**(arguments | changes))


def assert_equal(one: Bank, other: Bank) -> None:
    """To the bit, with types, and with paths in one order."""
    for name in ("parameters", "encoder", "trace"):
        mine, its = getattr(one, name), getattr(other, name)
        assert list(mine) == list(its)
        for path, values in mine.items():
            assert values.dtype == its[path].dtype and values.shape == its[path].shape, path
            assert values.tobytes() == its[path].tobytes(), path
    assert (one.latents is None) == (other.latents is None)
    if one.latents is not None:
        np.testing.assert_array_equal(one.latents, other.latents)
    for name in ("model", "temperature", "settings", "versions", "seconds"):
        assert getattr(one, name) == getattr(other, name), name


def test_sizes_and_what_is_recorded() -> None:
    found = bank()
    assert (found.num_chains, found.num_samples) == (C, S)
    assert found.versions["tensorflow"] == tf.__version__
    assert found.settings == {"seed": 3, "step_sizes": [0.1, 1 / 3], "kind": None}
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.temperature = 1.0  # type: ignore[misc]


VALUES = np.zeros((C, S))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"encoder": {".w": np.zeros((C, S + 1))}},
            r"'parameters/.kernel.variance' has \[C, S\] = \[2, 6\], 'encoder/.w' has \[2, 7\]",
        ),
        ({"encoder": {".w": np.zeros((C + 1, S))}}, r"'encoder/.w' has \[3, 6\]"),
        ({"latents": np.zeros((C, S - 1, 1, 4, 2))}, r"'latents' has \[2, 5\]"),
        ({"latents": np.zeros((C, S, 4, 2))}, r"latents have shape .* expected \[C, S, T, N, L\]"),
        ({"trace": {"loss": np.zeros((1, 9))}}, r"trace/loss has shape \(1, 9\); .* C = 2"),
        ({"trace": {"loss": np.zeros(C)}}, r"expected \[C, rounds\]"),
        ({"parameters": {".a": np.zeros(S)}}, r"\[C, S, \.\.\.\]; got .* values\[None\]"),
        ({"parameters": {".a": VALUES.astype(object)}}, "parameters/.a holds object, not numbers"),
        ({"parameters": {}, "encoder": {}, "latents": None}, "samples is empty"),
    ],
)
def test_arrays_that_disagree_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bank(**changes)


def test_a_bank_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="no sample at all"):
        Bank({".a": np.zeros((C, 0))}, {}, None, "Toy")
    with pytest.raises(ValueError, match="no sample at all"):
        bank().select([])


def test_thin_and_select_take_samples_of_every_chain() -> None:
    whole = bank()
    thin = whole.thin(4)  # samples 0 and 4
    assert (thin.num_chains, thin.num_samples) == (C, 2)
    np.testing.assert_array_equal(thin.parameters[".kernel.variance"], [[0.0, 4.0], [6.0, 10.0]])
    np.testing.assert_array_equal(thin.latents[..., 0, 0, 0], [[0.0, 4.0], [6.0, 10.0]])
    np.testing.assert_array_equal(thin.encoder[".encoder.weights[0]"][1, 1], [[10.0]])
    np.testing.assert_array_equal(thin.trace["log_prior"], whole.trace["log_prior"])
    assert_equal(whole.select([0, 4]), thin)
    assert_equal(whole.select(slice(None)), whole)
    for every in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="every is .*; expected a positive integer"):
            whole.thin(every)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        whole.select([S])


def test_as_one_chain_is_chain_after_chain() -> None:
    one = bank().as_one_chain()
    assert (one.num_chains, one.num_samples) == (1, C * S)
    np.testing.assert_array_equal(one.parameters[".kernel.variance"], [np.arange(12.0)])
    assert one.trace == {}  # of rounds, which chains do not have one after another
    single = Bank({".a": np.ones((1, 3))}, {}, None, "Toy", trace={"loss": np.ones((1, 4))})
    assert_equal(single.as_one_chain(), single)


def test_pool_puts_chains_side_by_side() -> None:
    other = bank(
        100.0,
        settings={"seed": 4, "step_sizes": (0.1, 1 / 3), "kind": None},
        seconds={"sampling": 2.0, "warm_start": 1.0},
        trace={"log_prior": np.zeros((C, 5)), "accepted": np.ones((C, 6), bool)},
    )
    pooled = Bank.pool(bank(), other, bank(200.0))
    assert (pooled.num_chains, pooled.num_samples) == (3 * C, S)
    for path, values in pooled.parameters.items():
        np.testing.assert_array_equal(values[:C], bank().parameters[path])
        np.testing.assert_array_equal(values[C : 2 * C], other.parameters[path])
        np.testing.assert_array_equal(values[2 * C :], bank(200.0).parameters[path])
    assert pooled.latents.shape == (3 * C, S, 1, 4, 2)
    assert list(pooled.trace) == ["log_prior"]  # the other trace has another number of rounds
    assert pooled.settings["seed"] == [3, 4, 3] and pooled.settings["kind"] is None
    assert pooled.settings["step_sizes"] == [0.1, 1 / 3]
    assert pooled.seconds == {"sampling": 5.0, "warm_start": 1.0}
    assert pooled.versions == bank().versions
    assert_equal(Bank.pool(bank()), bank())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (bank(model="Other"), "model is 'Toy' in the one and 'Other' in the other"),
        (bank(temperature=1.0), "temperature is 0.5 in the one and 1.0"),
        (bank().thin(2), "num_samples is 6 .* and 3 .*select the same number"),
        (bank(latents=None), "latents is in one of them only"),
        (bank(encoder={".encoder.bias": VALUES}), r"encoder/.encoder.weights\[0\] is in one"),
        (bank(latents=np.zeros((C, S, 1, 5, 2))), r"latents has shapes \(1, 4, 2\) and \(1, 5"),
        (
            bank(parameters=dict(reversed(bank().parameters.items()))),
            "their paths have another order",
        ),
    ],
)
def test_pool_refuses_banks_that_do_not_fit(other: Bank, message: str) -> None:
    with pytest.raises(ValueError, match=r"banks\[0\] and banks\[2\] cannot be pooled: " + message):
        Bank.pool(bank(), bank(), other)


def test_pool_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="banks is empty"):
        Bank.pool()


class Toy:
    """As much of a model as a bank looks at."""

    def __init__(self, sampled: dict[str, Any], encoder: dict[str, Any]):
        class Parameter:
            def __init__(self, value: Any):
                self.unconstrained_variable = tf.Variable(value)

        self.sampled = SimpleNamespace(
            paths=tuple(sampled), parameters=tuple(Parameter(v) for v in sampled.values())
        )
        self.amortized = SimpleNamespace(
            paths=tuple(encoder), variables=[tf.Variable(v) for v in encoder.values()]
        )


VARIANCE, WEIGHTS = np.zeros(()), np.zeros(1)
ENCODER = {".encoder.weights[0]": np.zeros((1, 1), np.float32)}


@pytest.mark.parametrize(
    ("sampled", "encoder", "message"),
    [
        (
            {".kernel.lengthscales": VARIANCE, ".decoder.weights[0]": WEIGHTS},
            ENCODER,
            r"model has .kernel.lengthscales where the samples have .kernel.variance",
        ),
        (
            {".kernel.variance": VARIANCE},
            ENCODER,
            r"nothing where the samples have .decoder.weights",
        ),
        (
            {".kernel.variance": VARIANCE, ".decoder.weights[0]": np.zeros(3)},
            ENCODER,
            r"model has .decoder.weights\[0\] of shape \(3,\), its samples shape \(1,\)",
        ),
        (
            {".kernel.variance": VARIANCE, ".decoder.weights[0]": WEIGHTS.astype(np.float32)},
            ENCODER,
            "in float32, its samples in float64",
        ),
        (
            {".kernel.variance": VARIANCE, ".decoder.weights[0]": WEIGHTS},
            {**ENCODER, ".encoder.weights[1]": np.zeros(1, np.float32)},
            r"model has .encoder.weights\[1\] where the samples have nothing \(encoder, number 1\)",
        ),
    ],
)
def test_check_names_the_first_difference(
    sampled: dict[str, Any], encoder: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        bank().check(Toy(sampled, encoder))


def test_check_passes_the_bank_of_the_model() -> None:
    sampled = {".kernel.variance": VARIANCE, ".decoder.weights[0]": WEIGHTS}
    bank().check(Toy(sampled, ENCODER))
    bank(encoder={}).check(Toy(sampled, ENCODER))  # the model keeps its own encoder
    with pytest.raises(ValueError, match="type Toy, but the samples are of SGPBAE"):
        bank(model="SGPBAE").check(Toy(sampled, ENCODER))


def test_a_file_is_the_bank_to_the_bit(tmp_path: pathlib.Path) -> None:
    """Every type of number, NaN and infinities, views, paths with brackets, no suffix."""
    rng = np.random.default_rng(0)
    odd = np.array([np.nan, -np.inf, -0.0, 5e-324, 1 / 3, np.pi])
    arrays = {
        ".double": np.stack([odd, odd[::-1]]),
        ".single": rng.standard_normal((C, S, 3, 2)).astype(np.float32),
        ".half": rng.standard_normal((C, S, 3)).astype(np.float16),
        ".brain[0]": rng.standard_normal((C, S, 3)).astype(tf.bfloat16.as_numpy_dtype),
        ".view": np.moveaxis(rng.standard_normal((S, C, 2)), 1, 0),
        ".empty": np.zeros((C, S, 0)),
    }
    for written in (bank(parameters=arrays), bank(latents=None, encoder={}, trace={})):
        path = tmp_path / "samples"
        written.save(path)
        assert [p.name for p in tmp_path.iterdir()] == ["samples"]
        assert_equal(Bank.load(path), written)


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("bank") / "bank.npz"
    bank().save(path)
    return path.read_bytes()


@pytest.mark.parametrize("share", [0.001, 0.05, 0.3, 0.6, 0.9, 0.97, 0.999])
def test_a_file_that_is_cut_is_refused(
    tmp_path: pathlib.Path, whole_file: bytes, share: float
) -> None:
    path = tmp_path / "cut.npz"
    path.write_bytes(whole_file[: max(3, int(share * len(whole_file)))])
    with pytest.raises(ValueError, match=r"cut.npz \(\d+ bytes\) is cut short or damaged"):
        Bank.load(path)


def test_a_damaged_file_is_refused(tmp_path: pathlib.Path, whole_file: bytes) -> None:
    """One bit among the numbers: the checksums of the file tell."""
    values = bank().parameters[".kernel.variance"].tobytes()
    place = whole_file.index(values) + 20
    flipped = bytearray(whole_file)
    flipped[place] ^= 1
    (tmp_path / "bank.npz").write_bytes(flipped)
    with pytest.raises(ValueError, match="is cut short or damaged"):
        Bank.load(tmp_path / "bank.npz")


def test_foreign_files_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "foreign"
    for content, message in [
        (b"", r"\(0 bytes\) is empty; expected a whole file"),
        (b"weights: 3\n", "is a file of another kind"),
        (b"\x80\x04N.", "is a file of another kind"),  # a pickle
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            Bank.load(path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match="is a file of another kind"):
        Bank.load(path)
    with path.open("wb") as file:
        np.savez(file, weights=np.zeros(3))
    with pytest.raises(ValueError, match=r"npz file that something else wrote .*'nothing'"):
        Bank.load(path)
    with path.open("wb") as file:
        np.savez(file, header=np.frombuffer(json.dumps({"format": "Other"}).encode(), np.uint8))
    with pytest.raises(ValueError, match="its header says 'Other'"):
        Bank.load(path)
    with pytest.raises(FileNotFoundError):
        Bank.load(tmp_path / "missing")


def test_objects_are_never_unpickled(tmp_path: pathlib.Path, whole_file: bytes) -> None:
    """A file that claims to be ours, with an object where numbers are expected."""
    path = tmp_path / "bank.npz"
    header, arrays = bank().contents()
    write_archive(path, header, {**arrays, "latents": np.array([{}], dtype=object)})
    with pytest.raises(ValueError, match="is cut short or damaged"):
        Bank.load(path)


def test_another_version_of_the_format_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bank.npz"
    header, arrays = bank().contents()
    write_archive(path, {**header, "version": 2, "versions": {"gpflow_bae": "9.9"}}, arrays)
    with pytest.raises(ValueError, match=r"has version 2 .* reads version 1; .*\(9.9\)"):
        read_archive(path)


def test_a_write_that_fails_leaves_the_last_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bank.npz"
    bank().save(path)

    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        files.write_atomically(path, fail)
    assert_equal(Bank.load(path), bank())
    assert [p.name for p in tmp_path.iterdir()] == ["bank.npz"]
