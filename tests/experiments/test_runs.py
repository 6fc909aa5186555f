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
