"""Files of records: what is written is read to the bit, and anything else is seen."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.core.records import DamagedRecordsError, RecordFile, Records

BFLOAT16 = tf.bfloat16.as_numpy_dtype


def rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays of all kinds, names that are none of NumPy's fields, and one without elements."""
    rng = np.random.default_rng(seed)
    return {
        "parameters/.kernel.variance": rng.standard_normal((count, 2)),
        "weights[0]": rng.standard_normal((count, 3, 1)).astype(np.float32),
        "half": rng.standard_normal((count, 5)).astype(BFLOAT16),
        "checksum": rng.integers(0, 9, (count, 1)).astype(np.int16),
        "accepted": rng.uniform(size=(count,)) < 0.5,
        "nothing": np.zeros((count, 2, 0)),
    }


def written(path: pathlib.Path, *parts: dict[str, np.ndarray]) -> RecordFile:
    file, start = RecordFile(path), 0
    for part in parts:
        file.write(start, part)
        start += len(part["half"])
    file.flush()
    file.close()
    return file


def record_size(content: bytes, count: int) -> int:
    """Bytes of each of ``count`` records, which are after the first line."""
    return (len(content) - content.index(b"\n") - 1) // count


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype and found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes(), name


def test_what_is_written_is_read_to_the_bit(tmp_path: pathlib.Path) -> None:
    """At once or one by one, in memory or mapped, whole or record by record."""
    whole = rows(7)
    first, rest = ({k: v[part] for k, v in whole.items()} for part in (slice(3), slice(3, None)))
    one, other = written(tmp_path / "one", whole), written(tmp_path / "other", first, rest)
    assert one.path.read_bytes() == other.path.read_bytes()
    found = RecordFile(other.path).read(7)
    assert_same(found.stacked(), whole)
    mapped = found.stacked(in_memory=0)
    assert_same(mapped, whole)
    assert all(isinstance(values, np.memmap) for values in mapped.values() if values.size)
    assert not any(isinstance(values, np.memmap) for values in found.stacked().values())
    assert len(found) == 7 and len(found[2:5]) == 3 and [*found]
    assert_same(dict(found[-1]), {name: values[-1] for name, values in whole.items()})
    with pytest.raises(IndexError):
        found[7]
    assert_same(RecordFile(other.path).read(2).stacked(), {k: v[:2] for k, v in whole.items()})
    assert RecordFile(tmp_path / "none").read(0).stacked() == {}


def test_records_of_a_number_that_is_there_are_replaced(tmp_path: pathlib.Path) -> None:
    """As a run does that goes on from a checkpoint before them; and 0 begins a new file, which
    whoever has mapped the former one does not see.
    """
    former, changed = rows(5), rows(2, seed=1)
    file = written(tmp_path / "file", former)
    again = RecordFile(file.path)
    again.write(3, changed)
    again.close()
    expected = {k: np.concatenate([former[k][:3], changed[k]]) for k in former}
    mapped = RecordFile(file.path).read(5).stacked(in_memory=0)
    assert_same(mapped, expected)
    written(file.path, changed)
    assert_same(mapped, expected)
    assert_same(RecordFile(file.path).read(2).stacked(), changed)


def test_any_byte_that_is_another_is_seen(tmp_path: pathlib.Path) -> None:
    """Of the first line and of every record that counts; beyond these anything may be."""
    file = written(tmp_path / "file", rows(3))
    content = file.path.read_bytes()
    counted = len(content) - record_size(content, 3)
    expected = {name: values[:2] for name, values in rows(3).items()}
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        file.path.write_bytes(changed)
        if place < counted:
            with pytest.raises(DamagedRecordsError, match="damaged"):
                RecordFile(file.path).read(2)
        else:
            assert_same(RecordFile(file.path).read(2).stacked(), expected)


def test_cut_short_anywhere_is_seen(tmp_path: pathlib.Path) -> None:
    file = written(tmp_path / "file", rows(2))
    content = file.path.read_bytes()
    for length in range(len(content)):
        file.path.write_bytes(content[:length])
        with pytest.raises(DamagedRecordsError, match="cut short, in record [01] of 2|first line"):
            RecordFile(file.path).read(2)


def test_records_in_each_other_s_places_are_seen(tmp_path: pathlib.Path) -> None:
    file = written(tmp_path / "file", rows(2))
    content = file.path.read_bytes()
    size = record_size(content, 2)
    file.path.write_bytes(content[: -2 * size] + content[-size:] + content[-2 * size : -size])
    with pytest.raises(DamagedRecordsError, match="record 0 of .* is damaged"):
        RecordFile(file.path).read(2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"half": None}, "'half' as no array where those before have"),
        ({"half": np.zeros((1, 5))}, "'half' as .'<f8', .5,.. where those before have .'bfloat16'"),
        ({"half": np.zeros((1, 4), BFLOAT16)}, r"'half' as .'bfloat16', \(4,\)"),
        ({"more": np.zeros((1, 4))}, "'more' as .* where those before have none"),
        ({"half": np.array(["a"])}, "half holds <U1, not numbers"),
        ({"half": np.zeros((2, 5), BFLOAT16)}, "expected .K, .... with one K"),
        ({"half": np.float64(0.0)}, "expected .K, .... with one K"),
    ],
)
def test_other_arrays_are_refused(tmp_path: pathlib.Path, change: Any, words: str) -> None:
    file = written(tmp_path / "file", rows(2))
    arrays = {k: v for k, v in {**rows(1), **change}.items() if v is not None}
    with pytest.raises(ValueError, match=words):
        file.write(2, arrays)
    assert_same(file.read(2).stacked(), rows(2))


def test_a_later_format_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "file", rows(2))
    monkeypatch.setattr("gpflow_bae.core.records.FORMAT", 2)
    with pytest.raises(DamagedRecordsError, match="has format 1 of records, and this .* reads 2"):
        file.read(1)


def test_a_missing_file_is_missing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        RecordFile(tmp_path / "none").read(1)
    with pytest.raises(FileNotFoundError):
        Records(tmp_path / "none", 1)
