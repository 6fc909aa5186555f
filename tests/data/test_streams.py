"""Rows in files come all, once an epoch, in an order that a seed says; what is wrong is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

from gpflow_bae.data import StreamedObservations, prepare_data, write_tfrecords
from tests.data.test_observations import model

N, D, P = 90, 1, 5
SEED = [3, 4]


def rows(count: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Inputs are the numbers of the rows; every observation is one of a kind, some are missing."""
    X = np.arange(float(count))[:, None]
    Y = (X + np.arange(P) / 8.0).astype(np.float32)
    Y[::7, 2] = np.nan
    return X, Y


def matrices(folder: Path, points_per_shard: int = 4) -> StreamedObservations:
    """Twenty-three shards, of which a group has sixteen."""
    X, Y = rows()
    pieces = ((X[i : i + 33], Y[i : i + 33]) for i in range(0, N, 33))
    write_tfrecords(folder, pieces, points_per_shard)
    return StreamedObservations.from_tfrecords(folder / "*.tfrecord", shuffle_buffer=20)


def example(**values: Any) -> bytes:
    features = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=value))
        for name, value in values.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write(path: Path, records: list[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


def lists(folder: Path) -> StreamedObservations:
    X, Y = rows()
    for number, part in enumerate(np.array_split(np.arange(N), 3)):
        write(folder / f"{number}.tfrecord", [example(X=X[n], Y=Y[n]) for n in part])
    return StreamedObservations.from_tfrecords(folder / "*.tfrecord", shuffle_buffer=20)


def parquet(folder: Path) -> StreamedObservations:
    X, Y = rows()
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(N), 3)):
        columns = {
            f"y{p}": [None if np.isnan(v) else float(v) for v in Y[part, p]] for p in range(P)
        }
        table = pyarrow.table(
            {"time": X[part, 0].astype(np.int64), "name": ["a"] * len(part)} | columns
        )
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet")
    outputs = [f"y{p}" for p in range(P)]
    return StreamedObservations.from_parquet(
        folder / "*.parquet", inputs=["time"], outputs=outputs, shuffle_buffer=20
    )


def dataset(folder: Path) -> StreamedObservations:
    pipeline = tf.data.Dataset.from_tensor_slices(rows())
    return StreamedObservations.from_dataset(pipeline, shuffle_buffer=20)


def unread(folder: Path) -> StreamedObservations:
    matrices(folder)
    return StreamedObservations.from_tfrecords(
        folder / "*.tfrecord", shuffle_buffer=20, num_points=N
    )


SOURCES = [matrices, lists, parquet, dataset, unread]


def numbers(stream: StreamedObservations, size: int, blocks: int, first: int = 0) -> np.ndarray:
    """Which rows the minibatches [blocks, size] hold, read three at a time, from ``first`` on."""
    reader = stream.reader(size, 3, SEED)
    return np.concatenate([reader.read(first + 3 * k)[0][..., 0] for k in range(blocks)])


@pytest.mark.parametrize("source", SOURCES)
def test_every_row_comes_once_an_epoch_in_an_order_of_its_own(
    source: Callable[[Path], StreamedObservations], tmp_path: Path
) -> None:
    stream = source(tmp_path / "rows")
    assert (stream.num_points, stream.input_dim, stream.num_outputs) == (N, D, P)
    assert stream.has_missing
    found = numbers(stream, 15, 6).reshape(3, N)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.tile(np.arange(N), (3, 1)))
    assert (found[0] != found[1]).any() and (found[0] != np.arange(N)).any()


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_goes_on_from_any_minibatch(
    source: Callable[[Path], StreamedObservations], tmp_path: Path
) -> None:
    """Minibatches of 7 rows begin anywhere in an epoch, a group of shards and the buffer."""
    stream = source(tmp_path / "rows")
    whole = numbers(stream, 7, 13)
    for first in (3, 12, 13, 26) if source is matrices else (25,):
        np.testing.assert_array_equal(numbers(stream, 7, 2, first), whole[first : first + 6])


@pytest.mark.parametrize("source", SOURCES)
def test_minibatches_in_the_order_of_the_files_are_those_in_memory(
    source: Callable[[Path], StreamedObservations], tmp_path: Path
) -> None:
    stream = StreamedObservations(source(tmp_path / "rows")._shards, shuffle_buffer=0)
    memory = prepare_data(model("bae"), rows())
    block = stream.reader(15, 8, SEED).read(0)
    for number in range(8):
        found = stream.batch(block, tf.constant(number))
        expected = memory.gather(tf.range(15 * number, 15 * number + 15) % N)
        assert (found.scale, found.point_scale) == (expected.scale, expected.point_scale) == (6, 6)
        for name in ("X", "Y", "mask"):
            ours, theirs = getattr(found, name), getattr(expected, name)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


def test_rows_are_those_of_other_seeds_in_another_order(tmp_path: Path) -> None:
    stream = matrices(tmp_path)
    one = stream.reader(N, 1, [1, 0]).read(0)[0]
    other = stream.reader(N, 1, [2, 0]).read(0)[0]
    assert (one != other).numpy().any()


def test_a_sample_is_of_distinct_rows_each_as_likely(tmp_path: Path) -> None:
    """Of 40 samples of a third of the rows each is in 13.3, with a deviation of 3."""
    stream = dataset(tmp_path)
    counts = np.zeros(N)
    for seed in range(40):
        X, Y = stream.sample(30, seed)
        assert X is not None
        assert len(np.unique(X)) == 30
        np.testing.assert_array_equal(Y, rows()[1][X[:, 0].astype(int)])
        counts[X[:, 0].astype(int)] += 1
    assert 0 < counts.min() and counts.max() < 13.3 + 4 * 3
    np.testing.assert_array_equal(np.sort(stream.sample(10**6)[0], axis=0), rows()[0])


def test_data_without_inputs_and_without_holes(tmp_path: Path) -> None:
    Y = rows()[1][:, :2]
    write_tfrecords(tmp_path, (None, Y))
    stream = StreamedObservations.from_tfrecords(tmp_path / "*.tfrecord")
    assert stream.input_dim is None and not stream.has_missing
    batch = stream.batch(stream.reader(10, 1, SEED).read(0), tf.constant(0))
    assert batch.X is None and batch.mask is None and batch.Y.shape == (1, 10, 2)


def damaged(folder: Path) -> Iterator[tuple[str, Callable[[], Any], str]]:
    """What is wrong, how it is opened, and what is said."""
    X, Y = rows()
    good = [example(X=X[n], Y=Y[n]) for n in range(9)]

    def opened(name: str, *records: list[bytes]) -> Callable[[], Any]:
        paths = [write(folder / name / f"{k}", r) for k, r in enumerate(records)]
        return lambda: StreamedObservations.from_tfrecords(paths)

    open_tfrecords = StreamedObservations.from_tfrecords
    yield "nothing", lambda: open_tfrecords(folder / "*.x"), "no file of the name, or pattern"
    yield "missing", lambda: open_tfrecords([folder / "x"]), "There is no file .*x"
    yield "empty", opened("empty", []), "empty.0 holds no records"
    yield "empty later", opened("later", good, []), "later.1 holds no rows"
    wide = [example(X=X[0], Y=[1.0, 2.0])]
    yield "width", opened("wide", good, wide), "wide.1 could not be read.*1 inputs and 5 obs"
    yield "infinite", opened("inf", good, [example(X=[0.0], Y=[np.inf] * P)]), "inf.1 holds inf in"
    nan = [*good, example(X=[np.nan], Y=Y[0])]
    yield "inputs", opened("nan", good, nan), "nan.1 holds nan in row 9, column 0 of its inputs"
    never = [example(X=[0.0], Y=[1.0, np.nan])]
    yield "column", opened("never", never), r"no observation at all in column\(s\) \[1\]"
    yield "feature", opened("feature", [example(Z=[0.0])]), "no feature 'Y'.*'Z'"
    text = tf.train.Example(
        features=tf.train.Features(
            feature={"Y": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"text"]))}
        )
    )
    yield "text", opened("text", [text.SerializeToString()]), "Feature 'Y'.*numbers of one point"
    path = write(folder / "cut" / "0", good)
    cut = folder / "cut" / "1"
    cut.write_bytes(path.read_bytes()[:-20])
    yield "cut", lambda: open_tfrecords([path, cut]), "cut/1 is damaged"
    flipped = folder / "cut" / "2"
    flipped.write_bytes(path.read_bytes()[:200] + b"?" + path.read_bytes()[201:])
    yield "flipped", lambda: open_tfrecords([path, flipped]), "cut/2 is damaged"
    yield "other", lambda: open_tfrecords([Path(__file__)]), "is damaged, or no file of TFRecords"

    def columns(**changes: Any) -> Callable[[], Any]:
        file = folder / "table.parquet"
        table = pyarrow.table({"x": [1.0, 2.0], "y": [1, None], "s": ["a", "b"]})
        pyarrow.parquet.write_table(table, file)
        given = {"inputs": ["x"], "outputs": ["y"]} | changes
        return lambda: StreamedObservations.from_parquet(file, **given)

    yield "absent", columns(outputs=["z"]), "table.parquet has no column 'z'.*x, y, s"
    yield "strings", columns(inputs=["s"]), "Column 's' of .* holds string, expected numbers"
    yield "one name", columns(inputs="x"), r"inputs must be a list.*\['x'\]"
    yield "null input", columns(inputs=["y"]), "table.parquet holds nan in row 1"
    from_dataset = StreamedObservations.from_dataset
    endless = tf.data.Dataset.from_tensor_slices((X, Y)).repeat()
    yield "endless", lambda: from_dataset(endless), "has no end"
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(3)
    yield "batches", lambda: from_dataset(batches), "single points"
    none = tf.data.Dataset.from_tensor_slices((X, Y)).take(0)
    yield "no points", lambda: from_dataset(none), "The dataset holds no rows"


def test_errors_name_the_file_and_what_was_expected(tmp_path: Path) -> None:
    for what, opened, words in damaged(tmp_path):
        with pytest.raises((ValueError, FileNotFoundError), match=words):
            pytest.fail(f"{what}: {opened()}")
    with pytest.raises(TypeError, match="must be a tf.data.Dataset, got tuple"):
        StreamedObservations.from_dataset(rows())  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [N - 1, N + 25])
def test_a_wrong_number_of_rows_is_said(given: int, tmp_path: Path) -> None:
    matrices(tmp_path, 40)
    stream = StreamedObservations.from_tfrecords(
        tmp_path / "*.tfrecord", num_points=given, shuffle_buffer=20
    )
    with pytest.raises(ValueError, match=f"not the {given} that were expected"):
        numbers(stream, 15, 6)


def test_a_file_that_changed_is_said(tmp_path: Path) -> None:
    stream = matrices(tmp_path, 40)
    path = tmp_path / "points-00001.tfrecord"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="points-00001.tfrecord is damaged"):
        numbers(stream, 15, 6)


def test_infinities_are_said_where_nobody_looked_first(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(X=[0.0], Y=[1.0]), example(X=[1.0], Y=[np.inf])])
    stream = StreamedObservations.from_tfrecords([path], num_points=2)
    with pytest.raises(ValueError, match="a holds inf in row 1"):
        stream.reader(2, 1, SEED).read(0)


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        ((np.zeros((2, 1)), np.zeros((3, 1))), {}, r"Piece 0 .*\(2, 1\) and \(3, 1\)"),
        ((np.full((3, 1), np.nan), np.zeros((3, 1))), {}, "NaN among its inputs"),
        ([(None, np.zeros((3, 1))), (None, np.zeros((3, 2)))], {}, "P = 2, those before it .* 1"),
        ([], {}, "nothing to write"),
        ((None, np.zeros((3, 1))), {"points_per_shard": 0}, "points_per_shard must be at least 1"),
    ],
)
def test_what_is_written_is_checked(
    data: Any, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=words):
        write_tfrecords(tmp_path, data, **options)


def test_shards_are_not_mixed_with_others(tmp_path: Path) -> None:
    assert len(write_tfrecords(tmp_path, rows(), 40)) == 3
    with pytest.raises(ValueError, match="points-00000.tfrecord is there already"):
        write_tfrecords(tmp_path, rows())


def test_what_needs_all_points_is_refused(tmp_path: Path) -> None:
    stream = matrices(tmp_path, 40)
    for ask in (
        lambda: stream.X,
        lambda: stream.Y,
        lambda: stream.mask,
        lambda: stream.gather(None),
    ):
        with pytest.raises(ValueError, match=f"needs all {N} points at once"):
            ask()
    for size, words in ((None, "batch_size must be set"), (91, "between 1 and the 90"), (0, "0")):
        with pytest.raises(ValueError, match=words):
            stream.check_batch_size(size)
    with pytest.raises(ValueError, match="the decoder's last layer"):
        prepare_data(model("bae", num_outputs=4), stream)
    with pytest.raises(ValueError, match="cannot be fitted to a stream, because its prior"):
        prepare_data(model("gp_bae"), stream)
    write_tfrecords(tmp_path / "none", (None, rows()[1]))
    without = StreamedObservations.from_tfrecords(tmp_path / "none" / "*")
    sampled = model("sgp_bae", inducing_outputs="sampled")
    with pytest.raises(ValueError, match="prior over inputs, and the stream has none"):
        prepare_data(sampled, without)
    for name in ("num_points", "shuffle_buffer"):
        with pytest.raises(ValueError, match=f"{name} must be at least"):
            StreamedObservations(stream._shards, **{name: -1})


@pytest.mark.parametrize("read", [True, False])
def test_a_run_knows_its_rows_by_a_digest(tmp_path: Path, read: bool) -> None:
    """Columns, rows and units that sums do not tell apart; unread files by their first rows."""

    def described(name: str, X: np.ndarray, Y: np.ndarray) -> dict[str, Any]:
        folder = tmp_path / name
        write_tfrecords(folder, (X, Y), 40)
        return StreamedObservations.from_tfrecords(
            folder / "*.tfrecord", num_points=None if read else N
        ).describe()

    X, Y = rows()
    own = described("own", X, Y)
    assert own == described("copy", X, Y)  # wherever they are
    assert own["shape"] == [N, D, P]
    others = {"columns": (X, Y[:, ::-1]), "rows": (X, Y[::-1]), "units": (1000.0 * X, Y)}
    found = {name: described(name, *data) for name, data in others.items()}
    for name, other in found.items():
        assert other["shape"] == own["shape"] and other["digest"] != own["digest"], name
    swapped = [*range(50), 60, *range(51, 60), 50, *range(61, N)]  # in the file of the middle
    same = described("inside", X, Y[swapped]) == own
    assert same == (not read), "only those who have read all rows can know"


def test_a_home_is_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    files = write_tfrecords("~/shards", (None, rows()[1][:, :2]))
    assert [file.parent for file in files] == [tmp_path / "shards"]
