import pathlib

import pytest

from experiments.common import results, runs


def test_the_recorded_command_has_no_folders_of_the_machine() -> None:
    arguments = ["--seed=1", "--out_dir=/tmp/x", "--data_dir=/data", "--variant=a b"]
    assert runs.command("ball", arguments) == (
        "python -m experiments.ball --seed=1 '--variant=a b' --out_dir=OUT_DIR"
    )


@pytest.mark.parametrize("complete", [True, False])
def test_only_a_finished_run_has_nothing_to_do(
    tmp_path: pathlib.Path, complete: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, config = tmp_path / "run", {"seed": 0}
    assert runs.claim(folder, config, resume=False)
    assert runs.claim(folder, config, resume=True)  # claimed, and killed before it had results
    results.write_json(folder / results.RESULTS, {"complete": complete})
    assert runs.claim(folder, config, resume=True) is not complete
    assert ("nothing to do" in capsys.readouterr().out) is complete
    with pytest.raises(ValueError, match="already holds"):
        runs.claim(folder, config, resume=False)
    with pytest.raises(ValueError, match="other settings"):
        runs.claim(folder, {"seed": 1}, resume=True)


@pytest.mark.parametrize("arguments, key", [([], "total"), (["--resume"], "since_resume")])
def test_seconds_of_a_resumed_run_are_not_called_its_total(
    tmp_path: pathlib.Path, arguments: list[str], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["driver", *arguments])
    config = {"experiment": "e", "model": "m", "preset": "quick", "seed": 0, "settings": {}}
    runs.finish(tmp_path, "e", config, {"rmse": 1.0}, words=[], started=0.0, num_parameters=1)
    assert set(results._read_json(tmp_path / results.RESULTS)["seconds"]) == {key}
