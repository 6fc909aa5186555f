"""EEG: the published hidden cells, and drop-outs as they are described."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest

from gpflow_bae.data import MultiOutputTable
from gpflow_bae.datasets import eeg

_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]
DATA = next((d for d in _CANDIDATES if d and pathlib.Path(d, "eeg").is_dir()), None)
needs_data = pytest.mark.skipif(DATA is None, reason="the EEG recordings are not on this machine")


def recordings(
    num_tasks: int = 3, num_samples: int = 256, num_outputs: int = 64
) -> MultiOutputTable:
    X = np.tile(np.arange(float(num_samples))[:, None], (num_tasks, 1, 1))
    shape = (num_tasks, num_samples, num_outputs)
    return MultiOutputTable(X, np.random.default_rng(0).standard_normal(shape))


def seeds(num_tasks: int, seed: int = 0) -> list[np.random.SeedSequence]:
    return np.random.SeedSequence(seed).spawn(num_tasks)


def runs(hidden: np.ndarray) -> np.ndarray:
    """Lengths of the runs of True in a vector."""
    edges = np.diff(np.concatenate([[0], hidden.astype(int), [0]]))
    return np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_drop_outs_hide_the_share_in_blackouts(share: float) -> None:
    table = eeg.drop_out(recordings(), share, seeds(3))
    hidden = table.test_mask
    np.testing.assert_array_equal(hidden, ~table.observed)
    for task in hidden:
        assert task.sum() == round(share * task.size)
        # Half of the share are blackouts of all electrodes, of 4 samples each; blackouts of single
        # ones do not add to them but where all 64 meet, which these seeds do not have.
        everywhere = task.all(1)
        assert everywhere.sum() == 4 * round(share / 2 * 256 / 4)
        assert (runs(everywhere) % 4 == 0).all()
    np.testing.assert_array_equal(table.truth, recordings().Y)


def test_single_blackouts_last_16_samples() -> None:
    # So rare that they do not meet: 5 blackouts in 256 samples of 64 electrodes.
    share = 5 * 16 / (256 * 64)
    (task,) = eeg.drop_out(recordings(1), share, seeds(1), share_of_all=0.0).test_mask
    lengths = np.concatenate([runs(column) for column in task.T])
    assert lengths.sum() == 80
    # All are whole but those cut by an end of the recording and the last.
    assert np.count_nonzero(lengths == 16) >= 3


def test_all_blackouts_are_apart_and_anywhere() -> None:
    table = recordings(2000, 16, 2)
    hidden = eeg.drop_out(table, 0.5, seeds(2000), share_of_all=1.0).test_mask
    assert (hidden.all(-1) == hidden.any(-1)).all()
    assert (hidden[..., 0].sum(1) == 8).all()
    # Two blackouts of 4 samples and 8 free samples: C(10, 2) = 45 arrangements, equally likely, of
    # which 9 begin with a blackout: 1/5. Four standard errors of sqrt(0.16 / 2000) = 0.009.
    assert abs(hidden[:, 0, 0].mean() - 0.2) < 0.036


def test_drop_outs_follow_their_own_seed() -> None:
    several = eeg.drop_out(recordings(3), 0.5, seeds(3))
    alone = eeg.drop_out(recordings(3).select([2]), 0.5, seeds(3)[2:])
    np.testing.assert_array_equal(several.test_mask[2], alone.test_mask[0])
    assert not np.array_equal(several.test_mask[0], several.test_mask[1])


def test_wrong_arguments_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="share is 1.5"):
        eeg.drop_out(recordings(1), 1.5, seeds(1))
    with pytest.raises(ValueError, match="share_of_all is -1"):
        eeg.drop_out(recordings(1), 0.5, seeds(1), share_of_all=-1)
    with pytest.raises(ValueError, match="seeds holds 2"):
        eeg.drop_out(recordings(1), 0.5, seeds(2))
    with pytest.raises(ValueError, match="not complete"):
        eeg.drop_out(eeg.drop_out(recordings(1), 0.5, seeds(1)), 0.5, seeds(1))
    with pytest.raises(ValueError, match="regime is '20/20'"):
        eeg.load_large(tmp_path, "20/20")
    with pytest.raises(ValueError, match="seed is -1"):
        eeg.load_large(tmp_path, seed=-1)


def test_missing_and_other_files_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"eeg_small.csv not found.*data_dir"):
        eeg.load_small(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"60trials.npz not found.*data_dir"):
        eeg.load_large(tmp_path)
    (tmp_path / "eeg").mkdir()
    (tmp_path / "eeg" / "eeg_small.csv").write_text("sample,FZ\n0,1.0\n")
    with pytest.raises(ValueError, match="eeg_small.csv has the SHA-256"):
        eeg.load_small(tmp_path)


@needs_data
def test_the_published_hidden_cells() -> None:
    table = eeg.load_small(DATA)
    assert table.X.shape == (1, 256, 1) and table.Y.shape == (1, 256, 7)
    assert table.output_names == ("F3", "F4", "F5", "F6", "FZ", "F1", "F2")
    assert table.test_mask.sum((0, 1)).tolist() == [0, 0, 0, 0, 100, 100, 100]
    assert table.test_mask[0, 156:, 4:].all()
    np.testing.assert_array_equal(table.observed, ~table.test_mask)
    # First row of the file: F3 4.547, F4 -10.488, FZ -3.988; samples are 1/256 s apart.
    np.testing.assert_array_equal(table.Y[0, 0, [0, 1, 4]], [4.547, -10.488, -3.988])
    np.testing.assert_array_equal(table.X[0, :, 0], np.arange(256) / 256)


@needs_data
def test_large_recordings_and_their_duplicates() -> None:
    published = eeg.load_large(DATA, "10/50", drop_duplicates=False)
    assert published.train.Y.shape == published.test.Y.shape == (30, 256, 64)
    ours = eeg.load_large(DATA, "10/50")
    assert ours.test.num_tasks == 25
    # README.md of the data names the five trials that are in both partitions.
    twice = set(published.train_trials) & set(published.test_trials)
    assert twice == {67, 73, 83, 87, 89}
    assert not set(ours.train_trials) & set(ours.test_trials)
    for trial in twice:
        np.testing.assert_array_equal(
            published.train.truth[published.train_trials == trial],
            published.test.truth[published.test_trials == trial],
        )
    # Drop-outs of a recording do not depend on which others are there.
    kept = np.isin(published.test_trials, ours.test_trials)
    np.testing.assert_array_equal(published.test.test_mask[kept], ours.test.test_mask)
    # 10 % and 50 % of 256 * 64 cells, rounded to a cell.
    assert (ours.train.test_mask.sum((1, 2)) == 1638).all()
    assert (ours.test.test_mask.sum((1, 2)) == 8192).all()
    # The small table is a trial of this subject.
    small = eeg.load_small(DATA)
    columns = [ours.train.output_names.index(name) for name in small.output_names]
    first = int(np.flatnonzero(ours.train_trials == 0)[0])
    np.testing.assert_allclose(ours.train.truth[first][:, columns], small.truth[0], atol=1e-9)
