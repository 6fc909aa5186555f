"""The common driver, on a study of its own that takes no time."""

import importlib.util
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from absl import app, flags
from matplotlib.animation import FuncAnimation
from matplotlib.figure import Figure

from experiments.common import driver, plans, results, tensorboard
from experiments.common import flags as common_flags
from gpflow_bae.inference.runs.run import report
from tests.experiments.commands import call


class _Plan(plans.Plan):
    def describe(self) -> dict[str, Any]:
        return {"rate": flags.FLAGS.rate}


def _define() -> None:
    common_flags.define(["one", "all"])
    flags.DEFINE_float("rate", 0.5, "A setting.")
    flags.DEFINE_integer("stop", 3, "Steps of three that are done.")


def _execute(options: driver.Options) -> driver.Outcome:
    if flags.FLAGS.data_dir == "nowhere":
        raise FileNotFoundError("There are no data in nowhere: fetch them with curl.")
    return driver.Outcome(
        metrics={"rmse": flags.FLAGS.rate, "seed": options.seed},
        num_parameters=7,
        curves={"loss": [2.0, 1.0]},
        unfinished=plans.unfinished(flags.FLAGS.stop, 3, "steps"),
        figures={"curve": Figure()},
        films={"film": FuncAnimation(Figure(figsize=(1, 1)), lambda i: [], frames=2)},
        arrays={"x": np.arange(3)},
    )


def _runs() -> Iterator[driver.Run]:
    if flags.FLAGS.rate < 0:
        raise ValueError("--rate is negative; it must be a positive number.")
    models = ["one", "two"] if flags.FLAGS.model == "all" else ["one"]
    for model in models:
        folder = model if len(models) > 1 else ""
        yield driver.Run(
            model=model, plan=_Plan(), execute=_execute, words=["", "word"], folder=folder
        )


STUDY = driver.Study("toy", _define, _runs)


def test_a_run_leaves_its_results_figures_arrays_and_scalars(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = call(STUDY, tmp_path, "--seed=2", "--variant=a b", "--rate=0.25")
    assert found["metrics"] == {"rmse": 0.25, "seed": 2}
    assert (found["experiment"], found["model"], found["preset"]) == ("toy", "one", "quick")
    assert found["variant"] == "a b word" and found["complete"] is True
    assert found["settings"] == {"rate": 0.25} and found["temperature"] is None
    assert set(found["seconds"]) == {"total"} and found["curves"] == {"loss": [2.0, 1.0]}
    assert found["command"].startswith("python ")
    assert found["command"].endswith(" --seed=2 '--variant=a b' --rate=0.25 --out_dir=OUT_DIR")
    config = json.loads((tmp_path / results.CONFIG).read_text())
    assert config == {
        "experiment": "toy",
        "model": "one",
        "preset": "quick",
        "seed": 2,
        "settings": {"rate": 0.25},
    }
    assert (tmp_path / "curve.png").exists()
    assert (tmp_path / "film.gif").read_bytes()[:6] == b"GIF89a"
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert arrays["x"].tolist() == [0, 1, 2]
    assert "one: rmse 0.25" in capsys.readouterr().out


def test_tensorboard_is_an_extra(tmp_path: pathlib.Path) -> None:
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(app.UsageError, match="needs TensorBoard: pip install"):
            call(STUDY, tmp_path, "--tensorboard")
    else:
        call(STUDY, tmp_path, "--tensorboard")
        assert list((tmp_path / "tensorboard").iterdir())


def test_several_models_have_a_folder_each(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):  # nothing in the folder above them
        call(STUDY, tmp_path, "--model=all")
    names = {json.loads(p.read_text())["model"] for p in tmp_path.glob("*/results.json")}
    assert names == {"one", "two"}


def test_only_a_finished_run_has_nothing_to_do(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = call(STUDY, tmp_path, "--stop=1")
    assert stopped["variant"] == "word first 1 of 3 steps" and stopped["complete"] is False
    # The clock of the second call has not seen the first, so its seconds are not the run's total.
    finished = call(STUDY, tmp_path, "--resume")
    assert finished["complete"] is True and set(finished["seconds"]) == {"since_resume"}
    capsys.readouterr()
    assert call(STUDY, tmp_path, "--resume") == finished
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "already holds a finished run"),
        (["--rate=0.1", "--resume"], "other settings"),
        (["--rate=-1"], "--rate is negative; it must be"),
        (["--seed=1", "--data_dir=nowhere", "--variant=other"], "fetch them with curl"),
    ],
)
def test_what_a_user_can_mend_is_said_in_words(
    tmp_path: pathlib.Path, arguments: list[str], message: str
) -> None:
    call(STUDY, tmp_path / "run")
    folder = "other" if "--seed=1" in arguments else "run"
    with pytest.raises(app.UsageError, match=message):
        call(STUDY, tmp_path / folder, *arguments)


def test_a_run_without_data_does_not_keep_its_folder(tmp_path: pathlib.Path) -> None:
    """Or the next, with data, would be told to resume it."""
    with pytest.raises(app.UsageError, match="no data in nowhere"):
        call(STUDY, tmp_path, "--data_dir=nowhere")
    assert call(STUDY, tmp_path)["complete"]


def test_scalars_are_written_while_algorithms_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of each algorithm at its own step; a label that starts again has a number."""
    written: list[tuple[str, float, int]] = []
    monkeypatch.setattr(tf.summary, "scalar", lambda *tag, step: written.append((*tag, step)))
    with tensorboard.writing(tmp_path) as scalars:
        report("sampling", 1, {"loss": np.array([[1.0, 2.0], [3.0, 4.0]]), "finite": np.ones(1)})
        assert written == [("sampling/loss/0", 2.0, 1), ("sampling/loss/1", 3.0, 1)]
        report("sampling", 2, {"accepted": np.array([True, False])})
        report("sampling", 2, {"loss": np.array([5.0])})
    report("sampling", 9, {"loss": np.array([5.0])})  # nobody watches
    assert written[2:] == [("sampling/accepted", 0.5, 2), ("sampling_2/loss", 5.0, 2)]
    scalars.finish({"rmse": 0.5}, {"mse": [1.0, 0.5]})
    assert written[4:] == [("metrics/rmse", 0.5, 0), ("curves/mse", 1.0, 0), ("curves/mse", 0.5, 1)]
    assert list(tmp_path.iterdir())


def test_stray_words_are_refused() -> None:
    with pytest.raises(app.UsageError, match=r"Unexpected arguments: \['more'\]"):
        driver.run(STUDY, ["command", "more"], [])


def test_options_of_an_engine_without_checkpoints() -> None:
    options = driver.Options(3, pathlib.Path("run"), resume=True)
    assert options.arguments() == {"seed": 3, "jit_compile": False, "progress": True}
    assert options.arguments("fit")["out_dir"] == pathlib.Path("run/fit")
    assert driver.Options(3).arguments("fit")["out_dir"] is None
