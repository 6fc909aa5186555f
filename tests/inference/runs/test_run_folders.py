"""A folder belongs to one run, of its settings and its data, and to one process at a time."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import decoders, encoders, inference, likelihoods, models
from gpflow_bae.core import files
from gpflow_bae.data import Observations, SparseTable, prepare_data
from gpflow_bae.inference.runs.checkpoints import RunDirectory, run_directory
from gpflow_bae.inference.sharding.replicas import ALONE, Replicas
from tests.inference.amortized_models import network

N, P = 12, 3
RNG = np.random.default_rng(0)
X = np.linspace(0.0, 1.0, N)[:, None]
Y = RNG.normal(size=(N, P))
Y[2, 1] = np.nan
Data = tuple[np.ndarray, np.ndarray]


def model(
    kernel: Callable[[], Any] = gpflow.kernels.Matern32,
    activation: str = "tanh",
    fixed: float | None = None,
    prior: Any = None,
) -> models.SGPVAE:
    encoder, likelihood = encoders.FreeFormEncoder(1, N, 2), likelihoods.Gaussian(fixed or 0.3)
    decoder = network(2, P)
    decoder.layers[0].activation = keras.activations.get(activation)
    weighted = decoders.KerasDecoder(decoder, prior)
    found = models.SGPVAE(kernel(), X[::3], weighted, encoder, likelihood, 2)
    gpflow.set_trainable(found.likelihood, fixed is None)
    return found


def moved_hole() -> np.ndarray:
    """The same numbers, with the hole and an observed zero exchanged."""
    return np.where(np.arange(P) == 1, np.roll(Y, 1, 0), Y)


OTHERS: dict[str, Callable[[], Data]] = {
    "columns in another order": lambda: (X, Y[:, ::-1]),
    "rows in another order": lambda: (X[::-1], Y[::-1]),
    "outputs of other rows": lambda: (X, Y[::-1]),
    "inputs in other units": lambda: (1000.0 * X, Y),
    "inputs exchanged": lambda: (X[::-1], Y),
    "another hole": lambda: (X, moved_hole()),
    "a zero for the hole": lambda: (X, np.nan_to_num(Y)),
}


def fit(
    data: Data,
    folder: pathlib.Path,
    resume: bool = True,
    changes: dict[str, Any] | None = None,
    **options: Any,
) -> np.ndarray:
    """Fit a model with ``changes``."""
    settings = inference.VariationalSettings(num_steps=2)
    common = {"steps_per_call": 1, "out_dir": folder, "resume": resume, "progress": False}
    own = model(**changes or {})
    return inference.fit_variational(own, data, settings, **common, **options)


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run that has ended."""
    folder = tmp_path_factory.mktemp("run")
    fit((X, Y), folder, resume=False)
    return folder


@pytest.mark.parametrize("what", OTHERS)
def test_a_run_does_not_go_on_with_other_data(folder: pathlib.Path, what: str) -> None:
    """However alike they look: sums and shapes of most of them are equal."""
    with pytest.raises(ValueError, match="holds a run of other data .* begun with"):
        fit(OTHERS[what](), folder)


def test_a_run_goes_on_with_its_own_data(folder: pathlib.Path) -> None:
    """In another layout of memory and another precision of what float32 holds."""
    same = np.asfortranarray(Y.astype(np.float32).astype(np.float64))
    assert len(fit((np.asfortranarray(X), same), folder)) == 2


OTHER_MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "another kernel": ({"kernel": gpflow.kernels.Matern12}, "Matern32' there, 'Matern12' now"),
    "other columns": (
        {"kernel": lambda: gpflow.kernels.Matern32(active_dims=[0])},
        r"_active_dims: 'slice\(None, None, None\)' there, '\[0\]' now",
    ),
    "another activation": ({"activation": "relu"}, "tanh.* there, .*relu.* now"),
    "another prior": (
        {"prior": decoders.normal_prior(2.0)},
        r"priors..decoder.*scale=3.0.* there, .*scale=2.0.* now",
    ),
    "a fixed value": ({"fixed": 0.5}, "variance: .*a parameter.* there, .*0.5.* now"),
}


@pytest.mark.parametrize("what", OTHER_MODELS)
def test_a_run_does_not_go_on_with_another_model(folder: pathlib.Path, what: str) -> None:
    """Whose variables have the same names and shapes."""
    changes, words = OTHER_MODELS[what]
    with pytest.raises(ValueError, match=f"holds a run with other settings .*{words}"):
        fit((X, Y), folder, changes=changes)


def test_a_run_does_not_go_on_in_another_precision(folder: pathlib.Path) -> None:
    with (
        gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)),
        pytest.raises(ValueError, match="precision: 'float64' there, 'float32' now"),
    ):
        fit((X, Y), folder)


def test_numbers_of_numpy_are_settings(tmp_path: pathlib.Path) -> None:
    """They are the same run as Python's."""
    settings = inference.VariationalSettings(
        num_steps=np.int64(2), learning_rate=np.float32(0.5), relocations=np.int32(0)
    )
    options: dict[str, Any] = {"steps_per_call": np.int64(1), "progress": False}
    inference.fit_variational(
        model(), (X, Y), settings, seed=np.int64(1), out_dir=tmp_path, **options
    )
    plain = inference.VariationalSettings(num_steps=2, learning_rate=0.5, relocations=0)
    options |= {"resume": True, "out_dir": tmp_path, "seed": 1, "steps_per_call": 1}
    assert len(inference.fit_variational(model(), (X, Y), plain, **options)) == 2


def test_long_arrays_in_settings_are_compared_whole(tmp_path: pathlib.Path) -> None:
    """Text would have dots in their middle."""
    values = np.arange(2000.0)
    RunDirectory(tmp_path, {"scales": values}, resume=False)
    RunDirectory(tmp_path, {"scales": values.copy()}, resume=True)
    values[1000] = 0.0
    with pytest.raises(ValueError, match=r"other settings \(scales.1000: 1000.0 there, 0.0 now\)"):
        RunDirectory(tmp_path, {"scales": values}, resume=True)


def test_folders_of_earlier_versions_are_refused(tmp_path: pathlib.Path) -> None:
    """They have shape and sum, which other data may share."""
    (tmp_path / "chain.json").write_text(json.dumps({"seed": 0, "data": [[1, N, P], 1.5]}))
    record = {"seed": 0, "data": prepare_data(model(), (X, Y)).describe()}
    with pytest.raises(ValueError, match="holds a run of other data"):
        RunDirectory(tmp_path, record, resume=True)


def test_what_differs_is_said(tmp_path: pathlib.Path) -> None:
    """Another shape, and settings beside it."""
    RunDirectory(tmp_path, {"seed": 0, "data": {"shape": [4, 2], "digest": "a"}}, resume=False)
    other = {"seed": 1, "data": {"shape": [5, 2], "digest": "b"}}
    words = r"shape \[4, 2\], and these have \[5, 2\]\), and with other settings \(seed: 0 there, 1"
    with pytest.raises(ValueError, match=words):
        RunDirectory(tmp_path, other, resume=True)


def test_triplets_have_a_digest_of_their_content() -> None:
    """Two values exchanged keep shape and sum."""
    rows, columns = np.arange(4), np.array([0, 1, 0, 1])
    one = SparseTable(rows, columns, [1.0, 2.0, 3.0, 4.0]).describe()
    assert one == SparseTable(rows, columns, [1.0, 2.0, 3.0, 4.0]).describe()
    assert one != SparseTable(rows, columns, [2.0, 1.0, 3.0, 4.0]).describe()
    assert one != SparseTable(rows, columns[::-1], [1.0, 2.0, 3.0, 4.0]).describe()


def test_workers_compare_what_data_describe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose rows come in another order is refused, by the digest that a folder has."""

    def record(*data: Any) -> dict[str, Any]:
        Xs, Ys = (tf.constant(v[None]) for v in data)
        return {"seed": 0, "data": Observations(Xs, Ys, None).describe()}

    class Two:
        count, rank = 2, 0
        in_words = staticmethod(ALONE.workers.in_words)
        sent: Any = None

        def gather(self, values: tf.Tensor) -> tf.Tensor:
            if self.sent is None:
                self.sent = values
            return tf.concat([self.sent, values], 0)

    workers = Two()
    replicas = Replicas(ALONE.workers)
    monkeypatch.setattr(replicas, "workers", workers)
    full = np.nan_to_num(Y)
    replicas.agree(record(X, full))
    replicas.agree(record(X, full))
    with pytest.raises(ValueError, match="data of worker 1 is other than the chief's"):
        replicas.agree(record(X, full[::-1]))


HOLD = """
import importlib.util, pathlib, sys, time
spec = importlib.util.spec_from_file_location("files", sys.argv[1])
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
with files.locked(pathlib.Path(sys.argv[2]), "out_dir"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_another_process_is_kept_out_until_this_one_is_gone(tmp_path: pathlib.Path) -> None:
    """Who it is, is said; and one that is killed leaves no lock behind."""
    command = [sys.executable, "-c", HOLD, files.__file__, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            with pytest.raises(ValueError, match=f"is in use by process {process.pid} on "):
                fit((X, Y), tmp_path, resume=False)
            assert not (tmp_path / "chain.json").exists()
        finally:
            process.kill()
    with run_directory(tmp_path, {}, resume=False) as directory:
        assert directory is not None


def test_another_call_is_kept_out_until_this_one_has_ended(tmp_path: pathlib.Path) -> None:
    """By an error too; and several workers' chief is alone to hold it."""

    def callback(number: int, loss: float) -> None:
        with pytest.raises(ValueError, match="is in use by another call in this process"):
            fit((X, Y), tmp_path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as held:
        fit((X, Y), tmp_path, resume=False, callback=callback)
    assert len(fit((X, Y), tmp_path)) == 2
    assert held.traceback  # whose frames are still there


def test_a_folder_may_begin_at_home(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No folder of the name ``~``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with run_directory("~/run", {"a": 1}, resume=False):
        pass
    assert json.loads((tmp_path / "run" / "chain.json").read_text()) == {"a": 1}
    assert not (tmp_path / "~").exists()
