"""The reader of TSI-Bench's windows: the benchmark's own splits and masks."""

import os
import pathlib

import numpy as np
import pytest

from gpflow_bae.datasets import tsi_bench

_BESIDE = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]
DATA = next((d for d in _CANDIDATES if d and (pathlib.Path(d) / "tsi_bench").exists()), None)
needs_data = pytest.mark.skipif(DATA is None, reason="tsi_bench is not in the data folder")


def test_missing_files_and_unknown_names(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"italy_air.npz not found.*data_dir"):
        tsi_bench.load(tmp_path, "italy_air", "point01")
    with pytest.raises(ValueError, match="pattern must be one of .*, got 'points'"):
        tsi_bench.load(tmp_path, "italy_air", "points")


def test_another_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tsi_bench").mkdir()
    np.savez(tmp_path / "tsi_bench" / "ett_h1.npz", train=np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match="SHA-256"):
        tsi_bench.load(tmp_path, "ett_h1", "point01")


def test_other_masks_have_files_of_their_own(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    Y = {part: rng.standard_normal((5, 4, 3)) for part in ("train", "val", "test")}
    hidden = {part: rng.random(v.shape) < 0.3 for part, v in Y.items()}
    (tmp_path / "tsi_bench").mkdir()
    masks = {f"point05_{part}": np.packbits(v) for part, v in hidden.items()}
    np.savez(tmp_path / "tsi_bench" / "ett_h1_7.npz", **Y, **masks)
    found = tsi_bench.load(tmp_path, "ett_h1", "point05", mask_seed=7)
    for part, windows in found.items():
        np.testing.assert_array_equal(windows.Y, Y[part])
        np.testing.assert_array_equal(windows.hidden, hidden[part])


@needs_data
@pytest.mark.parametrize(("dataset", "shape"), [("italy_air", (12, 13)), ("ett_h1", (48, 7))])
def test_windows_are_the_benchmarks(dataset: str, shape: tuple[int, int]) -> None:
    """Standardised by the training part; so many cells are hidden as each pattern says."""
    shares = {"point01": 0.1, "point05": 0.5, "point09": 0.9, "subseq05": 0.5, "block05": 0.5}
    for pattern, share in shares.items():
        parts = tsi_bench.load(DATA, dataset, pattern)
        for part in parts.values():
            assert part.Y.shape[1:] == part.hidden.shape[1:] == shape
            np.testing.assert_array_equal(np.isnan(part.observed), part.hidden)
        # Points are hidden independently, within 5 deviations of their share; runs only about so.
        deviation = np.sqrt(share * (1.0 - share) / parts["train"].Y.size)
        within = 5.0 * deviation if pattern.startswith("point") else 0.1
        assert abs(parts["train"].hidden.mean() - share) < within
    train = parts["train"].Y.reshape(-1, shape[1])
    # The last hours of the training part fill no window, and were standardised with it.
    np.testing.assert_allclose(train.mean(0), 0.0, atol=0.01)
    np.testing.assert_allclose(train.std(0), 1.0, atol=0.02)
