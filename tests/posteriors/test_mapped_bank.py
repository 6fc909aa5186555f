"""A bank that is a view of a run's file: the numbers of one in memory, without its memory."""

from __future__ import annotations

import copy
import pathlib
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpflow_bae.core import records
from gpflow_bae.posteriors import Bank, Posterior, TemperedPosterior, sample_loop
from gpflow_bae.posteriors.stored.archive import read_archive
from tests.posteriors import small

BYTES_OF_SAMPLE, NUM_SAMPLES = 2**14, 6000  # 94 MiB


def mapped(bank: Bank, file: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Bank:
    """The same samples as a run writes them, none of which are few enough to be read at once."""
    monkeypatch.setattr(records, "IN_MEMORY", 0)
    header, arrays = bank.contents()
    samples = {k: np.moveaxis(v, 1, 0) for k, v in arrays.items() if not k.startswith("trace/")}
    written = records.RecordFile(file)
    written.write(0, samples)
    written.close()
    traces = {k: v for k, v in arrays.items() if k.startswith("trace/")}
    about = {k: header[k] for k in ("temperature", "settings", "seconds")}
    return Bank.of_samples(written.read(bank.num_samples), header["model"], traces, **about)


def equal(one: Any, other: Any) -> None:
    """Arrays in any structure, to the bit."""
    if isinstance(one, dict):
        assert list(one) == list(other)
        one, other = list(one.values()), list(other.values())
    if isinstance(one, tuple | list):
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            equal(mine, its)
    else:
        np.testing.assert_array_equal(one, other, strict=True)


PREDICTIONS: dict[str, Callable[[Posterior], Any]] = {
    "predict": lambda p: p.predict(small.X_NEW, num_codes=3),
    "predict_log_density": lambda p: p.predict_log_density(small.data(0.3), num_codes=3),
    "predict_latent": lambda p: p.predict_latent(),
    "encode": lambda p: p.encode(small.data()[1], num_draws=3),
    "hyperparameters": lambda p: p.hyperparameters(include_decoder=True),
    "arrays": lambda p: [p.parameters, p.encoder, p.latents],
    "select": lambda p: p.select([5, 0, 3]).parameters,
}


@pytest.mark.parametrize("codes", [True, False])
def test_a_posterior_of_it_is_the_one_of_samples_in_memory(
    codes: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit; and when one call holds no more than two samples."""
    posterior = small.posterior(codes=codes)
    names = PREDICTIONS if codes else ["predict", "arrays"]
    expected = {name: PREDICTIONS[name](posterior) for name in names}
    other = copy.copy(posterior)  # shares what is compiled
    other.bank = mapped(posterior.bank, tmp_path / "samples.bin", monkeypatch)
    assert all(isinstance(v, np.memmap) for v in other.bank.parameters.values())
    for name in names:
        equal(PREDICTIONS[name](other), expected[name])
    each = sum(v[0, 0].nbytes for _, v in other.bank._leaves())
    monkeypatch.setattr(sample_loop, "MEMORY_PER_CALL", 2 * each)
    for name in ("predict", "predict_log_density") if codes else ("predict",):
        equal(PREDICTIONS[name](other), expected[name])
    other.save(tmp_path / "posterior.npz")
    posterior.save(tmp_path / "expected.npz")
    saved, wanted = (read_archive(tmp_path / f"{name}.npz") for name in ("posterior", "expected"))
    equal(saved[1], wanted[1])


def test_so_is_a_tempered_one(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    posterior, rows = small.tempered(), small.rows()
    bank = mapped(posterior.bank, tmp_path / "samples.bin", monkeypatch)
    other = TemperedPosterior(posterior.model, bank, swap_rate=posterior.swap_rate)
    equal(other.reconstruct(rows), posterior.reconstruct(rows))


def test_samples_of_it_are_read_when_they_are_used(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What NumPy allocates: what was asked for, and of a file in parts the 16 MiB that NumPy writes
    at a time, twice.
    """
    leaf = np.zeros((2, NUM_SAMPLES // 2, BYTES_OF_SAMPLE // 8))
    leaf[..., 0] = np.arange(NUM_SAMPLES).reshape(2, -1)
    bank = mapped(Bank({".a": leaf}, {}, None, "Toy"), tmp_path / "samples.bin", monkeypatch)
    size = leaf.nbytes
    del leaf

    def peak(use: Callable[[], Any]) -> int:
        tracemalloc.start()
        use()
        _, found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return found

    assert peak(lambda: bank.thin(10)) < size / 1000
    assert peak(lambda: bank.select([3, 5])) < 10 * BYTES_OF_SAMPLE
    assert peak(lambda: bank.as_one_chain([2, NUM_SAMPLES - 1])) < 10 * BYTES_OF_SAMPLE
    one = bank.as_one_chain([2, NUM_SAMPLES - 1]).parameters[".a"]
    np.testing.assert_array_equal(one[0, :, 0], [2, NUM_SAMPLES - 1])
    monkeypatch.setattr(sample_loop, "MEMORY_PER_CALL", 100 * BYTES_OF_SAMPLE)
    rows = sample_loop.chain_after_chain(bank.parameters[".a"])
    first = sample_loop.SampleLoop(lambda value: value[0])
    total = np.sum(np.arange(NUM_SAMPLES))
    assert peak(lambda: first.sum((rows,), zeros=np.zeros(()))) < 400 * BYTES_OF_SAMPLE
    assert first.sum((rows,), zeros=np.zeros(())) == total
    assert peak(lambda: bank.save(tmp_path / "bank.npz")) < size / 2
