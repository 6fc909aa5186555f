"""EEG of the UCI EEG database (Begleiter; doi 10.24432/C5TS3D), in microvolt, at 256 Hz.

The small table is one trial of seven electrodes, three of which stop early (Requeima et al., 2019;
Ashman et al., 2020; Tran et al., 2023). The large one has 30 training and 30 test recordings of all
64 electrodes, with simulated drop-outs (Ashman et al., 2020, who name neither the recordings nor
the random numbers: both are our choices here).
"""

import math
import os
from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

from ..core.arguments import check_integer
from ..data import MultiOutputTable
from .files import find_files

__all__ = ["REGIMES", "LargeEEG", "drop_out", "load_large", "load_small"]

_ORIGIN = "https://archive.ics.uci.edu/dataset/121/eeg+database (data/README.md says how repacked)"
_SMALL = {"eeg_small.csv": "26fd42f81d8fc67155e92c5ef2a1ddd03fbe64e7f025ba35d2080c456ad4d710"}
_LARGE = {
    "eeg_subject337_60trials.npz": (
        "71b86ea5e5aefdb681ea92f954aeca8fea6b0c4ba58d6c2a06561b4378671fac"
    )
}
_SAMPLES_PER_SECOND = 256
_ELECTRODES = ("F3", "F4", "F5", "F6", "FZ", "F1", "F2")
_HIDDEN_ELECTRODES, _NUM_HIDDEN = ("FZ", "F1", "F2"), 100

# Length, in samples, of a blackout of one electrode, and of all electrodes.
_SINGLE, _ALL = 16, 4

#: Fraction of cells that drop out of the training and of the test recordings.
REGIMES = {"50/50": (0.5, 0.5), "10/50": (0.1, 0.5)}


class LargeEEG(NamedTuple):
    """Training and test recordings, as tables with one task per recording.

    Both are partly observed, and ``test_mask`` of both is True for cells that dropped out: a model
    is fitted to the first and fills the gaps of the second.
    train_trials, test_trials: trial numbers of the tasks, in their order.
    """

    train: MultiOutputTable
    test: MultiOutputTable
    train_trials: np.ndarray
    test_trials: np.ndarray


@check_shapes("return.X: [1, N, 1]", "return.Y: [1, N, 7]")
def load_small(data_dir: str | os.PathLike[str]) -> MultiOutputTable:
    """Read trial 0 of subject 337: one task, 256 rows, inputs in seconds.

    Outputs are F3, F4, F5, F6, FZ, F1, F2; the last 100 samples of the last three are the test.

    :param data_dir: Folder that holds ``eeg`` with ``eeg_small.csv``.
    :raises FileNotFoundError: If the file is missing.
    :raises ValueError: If the file is not the published one.
    """
    (path,) = find_files(data_dir, "eeg", _SMALL, _ORIGIN)
    with open(path, encoding="ascii") as file:
        header = file.readline().strip().split(",")
        rows = np.loadtxt(file, delimiter=",")
    truth = rows[None][..., [header.index(name) for name in _ELECTRODES]]
    mask = np.zeros(truth.shape, dtype=bool)
    mask[:, -_NUM_HIDDEN:, [_ELECTRODES.index(name) for name in _HIDDEN_ELECTRODES]] = True
    table = MultiOutputTable(
        X=rows[None, :, :1] / _SAMPLES_PER_SECOND,
        Y=truth,
        output_names=_ELECTRODES,
        input_names=("seconds",),
    )
    return table.hide(mask)


def load_large(
    data_dir: str | os.PathLike[str],
    regime: str = "50/50",
    seed: int = 0,
    *,
    drop_duplicates: bool = True,
) -> LargeEEG:
    """Read all recordings of subject 337 in the database's own partitions, with drop-outs.

    Five trials are in both partitions. They are left out of the test recordings, of which 25
    remain, because they are training data; ``drop_duplicates=False`` keeps the published 30 and
    30. The 64 columns include the eye channels X and Y and the reference nd.

    :param data_dir: Folder that holds ``eeg`` with ``eeg_subject337_60trials.npz``.
    :param regime: ``"50/50"`` or ``"10/50"``: percentages that drop out in training and test.
    :param seed: Seed of the drop-outs, see :func:`drop_out`; an integer >= 0. Those of a recording
        depend only on its trial, partition and regime, not on other recordings.
    :raises FileNotFoundError: If the file is missing.
    :raises ValueError: If the file is not the published one, or an argument is out of range.
    """
    if regime not in REGIMES:
        raise ValueError(f"regime is {regime!r}; expected one of {list(REGIMES)}.")
    check_integer("seed", seed, 0)
    (path,) = find_files(data_dir, "eeg", _LARGE, _ORIGIN)
    with np.load(path) as file:
        microvolts = file["nanovolts"] / 1000.0
        trials, partition = file["trial"].astype(int), file["partition"]
        electrodes = tuple(map(str, file["electrodes"]))
    is_train, is_test = partition == "train", partition == "test"
    if drop_duplicates:
        is_test &= ~np.isin(trials, trials[is_train])
    tables = []
    for part, (chosen, share) in enumerate(zip((is_train, is_test), REGIMES[regime], strict=True)):
        seconds = np.arange(microvolts.shape[1])[:, None] / _SAMPLES_PER_SECOND
        table = MultiOutputTable(
            X=np.tile(seconds, (np.count_nonzero(chosen), 1, 1)),
            Y=microvolts[chosen],
            output_names=electrodes,
            input_names=("seconds",),
        )
        seeds = [np.random.SeedSequence([int(seed), part, trial]) for trial in trials[chosen]]
        tables.append(drop_out(table, share, seeds))
    return LargeEEG(tables[0], tables[1], trials[is_train], trials[is_test])


def drop_out(
    table: MultiOutputTable,
    share: float,
    seeds: list[np.random.SeedSequence],
    *,
    share_of_all: float = 0.5,
) -> MultiOutputTable:
    """Simulate failures of electrodes, independently for each recording.

    A fraction ``share_of_all`` of the hidden cells is from blackouts of all electrodes (4 samples
    each, without overlap), the others are from blackouts of single electrodes (16 samples each,
    which may overlap) at uniformly random times. The last one is cut when the share is reached, so
    the number of hidden cells is exact. Ashman et al. (2020) give both lengths and the share, but
    not the frequency of either kind.

    :param table: Complete recordings, one per task, of equal length.
    :param share: Fraction of the cells of a recording to hide, in (0, 1).
    :param seeds: One per task.
    :param share_of_all: Fraction of the hidden cells that blackouts of all electrodes hide, in
        [0, 1]; rounded to whole blackouts.
    :return: The table with hidden cells as its test cells.
    :raises ValueError: If an argument is out of range, or recordings are not complete.
    """
    for name, value, valid in (
        ("share", share, 0.0 < share < 1.0),
        ("share_of_all", share_of_all, 0.0 <= share_of_all <= 1.0),
    ):
        if not valid:
            raise ValueError(f"{name} is {value!r}; expected a share between 0 and 1.")
    if len(seeds) != table.num_tasks:
        raise ValueError(f"seeds holds {len(seeds)}; expected one for each of {table.num_tasks}.")
    if not table.observed.all():
        raise ValueError("The recordings of table are not complete; drop_out starts from all.")
    _, num_samples, num_electrodes = table.Y.shape
    hidden = np.zeros(table.Y.shape, dtype=bool)
    for task, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        num_blackouts = math.floor(share * share_of_all * num_samples / _ALL + 0.5)
        # A uniformly random choice of blackouts that do not overlap.
        places = num_samples - num_blackouts * (_ALL - 1)
        starts = np.sort(rng.choice(places, num_blackouts, replace=False))
        starts = starts + (_ALL - 1) * np.arange(num_blackouts)
        hidden[task, (starts[:, None] + np.arange(_ALL)).ravel()] = True
        left = round(share * hidden[task].size) - np.count_nonzero(hidden[task])
        while left > 0:
            electrode = rng.integers(num_electrodes)
            start = rng.integers(1 - _SINGLE, num_samples)  # may begin before the recording
            window = slice(max(start, 0), start + _SINGLE)
            new = np.flatnonzero(~hidden[task, window, electrode])[:left]
            hidden[task, window.start + new, electrode] = True
            left -= len(new)
    return table.hide(hidden)
