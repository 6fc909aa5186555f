import json
import pathlib
import subprocess
from typing import Any

import numpy as np
import pytest

from experiments.common import provenance, results

CONFIG = {"model": "sgp_bae", "num_inducing": 10, "step_size": 0.005, "layers": (500, 500)}


def make_result(**changes: Any) -> dict[str, Any]:
    result = {
        "experiment": "moving_ball",
        "model": "sgp_bae",
        "preset": "quick",
        "seed": 0,
        "temperature": 1.0,
        "metrics": {"rmse": 0.3},
        "seconds": {"sampling": 10.0},
        "num_parameters": 7,
        "versions": {"python": "3.11.0"},
        "git_commit": "unknown",
    }
    return result | changes


def write(out_dir: pathlib.Path, **changes: Any) -> dict[str, Any]:
    arguments = make_result(**changes)
    del arguments["versions"], arguments["git_commit"]
    return results.write_results(out_dir, arguments)


def test_prepare_writes_the_config_at_once(tmp_path: pathlib.Path) -> None:
    out_dir = results.prepare_out_dir(tmp_path / "a" / "b", CONFIG, resume=False)
    assert out_dir == tmp_path / "a" / "b"
    written = json.loads((out_dir / "config.json").read_text())
    assert written == CONFIG | {"layers": [500, 500]}
    assert [path.name for path in out_dir.iterdir()] == ["config.json"]


def test_prepare_refuses_other_settings(tmp_path: pathlib.Path) -> None:
    results.prepare_out_dir(tmp_path, CONFIG, resume=False)
    other = {"model": "sgp_bae", "num_inducing": 15, "layers": (500, 500), "warm": True}
    for resume in (False, True):
        with pytest.raises(ValueError) as error:
            results.prepare_out_dir(tmp_path, other, resume=resume)
        message = str(error.value)
        assert "num_inducing: 10 there, 15 now" in message
        assert "step_size: 0.005 there, absent now" in message
        assert "warm: absent there, true now" in message
        assert "model" not in message and "layers" not in message
        assert "another --out_dir, or delete" in message
    assert json.loads((tmp_path / "config.json").read_text())["num_inducing"] == 10


def test_settings_that_differ_are_few_and_short(tmp_path: pathlib.Path) -> None:
    """Nested ones by their own names, five at most, and no value longer than a line."""
    settings = {"sampler": {"step_size": 0.1, "noise": "binomial"}, "seeds": list(range(99))}
    results.prepare_out_dir(tmp_path, {"settings": settings, "seed": 0}, resume=False)
    other = {"sampler": {"step_size": 0.2, "noise": "binomial"}, "seeds": list(range(98))}
    with pytest.raises(ValueError) as error:
        results.prepare_out_dir(tmp_path, {"settings": other, "seed": 0}, resume=True)
    message = str(error.value)
    assert "(sampler.step_size: 0.1 there, 0.2 now; seeds: [0, 1, 2," in message
    assert "noise" not in message and len(message) < 400
    many = {f"x{i}": i for i in range(20)}
    with pytest.raises(ValueError, match=r"x11: absent there, 11 now; and 16 more\)"):
        results.prepare_out_dir(tmp_path, {"settings": settings | many, "seed": 1}, resume=True)


@pytest.mark.parametrize("finished", [False, True])
def test_prepare_wants_resume_for_the_same_settings(tmp_path: pathlib.Path, finished: bool) -> None:
    results.prepare_out_dir(tmp_path, CONFIG, resume=False)
    if finished:
        write(tmp_path)
    state = "a finished run" if finished else "an unfinished run"
    with pytest.raises(ValueError, match=f"{state} with the same settings.*--resume"):
        results.prepare_out_dir(tmp_path, CONFIG, resume=False)
    assert results.prepare_out_dir(tmp_path, CONFIG, resume=True) == tmp_path


def test_prepare_with_resume_starts_where_nothing_is(tmp_path: pathlib.Path) -> None:
    results.prepare_out_dir(tmp_path / "new", CONFIG, resume=True)
    assert (tmp_path / "new" / "config.json").exists()


def test_prepare_refuses_what_is_not_a_run(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="is a file"):
        results.prepare_out_dir(file, CONFIG, resume=False)
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match=r"holds results.json but no config.json"):
        results.prepare_out_dir(tmp_path, CONFIG, resume=True)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        results.prepare_out_dir(tmp_path, CONFIG, resume=True)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="not a dict of settings"):
        results.prepare_out_dir(tmp_path, CONFIG, resume=True)


def test_prepare_refuses_settings_without_json_form(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        results.prepare_out_dir(tmp_path / "a", {"x": object()}, resume=False)
    with pytest.raises(ValueError, match="config holds NaN"):
        results.prepare_out_dir(tmp_path / "a", {"x": float("nan")}, resume=False)
    assert not (tmp_path / "a").exists()


def test_results_have_the_format(tmp_path: pathlib.Path) -> None:
    returned = write(
        tmp_path,
        metrics={"rmse": np.float32(0.25), "nll": np.array(-1.5)},
        num_parameters=np.int64(7),
        temperature=None,
        settings={"num_inducing": 10},
        command="python -m experiments.moving_ball",
        curves={"elbo": np.array([1.0, np.nan, 3.0])},
    )
    written = json.loads((tmp_path / "results.json").read_text())
    assert written == returned
    assert list(written)[:10] == [
        "experiment",
        "model",
        "preset",
        "seed",
        "temperature",
        "metrics",
        "seconds",
        "num_parameters",
        "versions",
        "git_commit",
    ]
    assert written["metrics"] == {"rmse": 0.25, "nll": -1.5}
    assert written["temperature"] is None
    assert written["curves"] == {"elbo": [1.0, None, 3.0]}
    assert set(written["versions"]) == {
        "python",
        "tensorflow",
        "tensorflow_probability",
        "keras",
        "gpflow",
        "numpy",
        "gpflow_bae",
    }
    assert written["versions"]["numpy"] == np.__version__
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"metrics": {"rmse": float("nan")}}, r"metrics\['rmse'\] is nan"),
        ({"metrics": {"rmse": float("inf")}}, r"metrics\['rmse'\] is inf"),
        ({"metrics": {"rmse": "good"}}, r"metrics\['rmse'\] is 'good'"),
        ({"seconds": {"all": float("nan")}}, r"seconds\['all'\] is nan"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"seed": "0"}, "seed of a result is '0'"),
        ({"num_parameters": 1.5}, "num_parameters of a result is 1.5"),
    ],
)
def test_bad_results_are_refused(
    tmp_path: pathlib.Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write(tmp_path, **changes)
    assert not list(tmp_path.iterdir())


def test_reserved_names_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"reserved key\(s\) \['git_commit', 'versions'\]"):
        results.write_results(tmp_path, make_result())


def test_write_json_replaces_whole_files(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    results.write_json(path, {"x": 1})

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(results.os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        results.write_json(path, {"x": 2})
    assert json.loads(path.read_text()) == {"x": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_write_json_keeps_values_and_short_lines(tmp_path: pathlib.Path) -> None:
    value = {
        "curve": [1.5, None, -2],
        "nested": [[1, 2], [], {"a": ["x, y", "[ 1 ]"]}],
        "text": "[\n  1,\n  2\n]",
        "dash": "–",
    }
    path = tmp_path / "a.json"
    results.write_json(path, value)
    assert json.loads(path.read_text(encoding="utf-8")) == value
    assert '"curve": [1.5, null, -2]' in path.read_text(encoding="utf-8")


def test_append_replaces_the_same_run_only(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "results" / "moving_ball.json"
    first = make_result(settings={"M": 10, "warm": True})
    for run in (
        make_result(seed=1, settings=first["settings"]),
        first,
        make_result(settings={"M": 15, "warm": True}),
        make_result(settings=first["settings"], temperature=0.5),
        make_result(settings=first["settings"], temperature=None),
        make_result(settings=first["settings"], variant="cold start"),
        make_result(settings=first["settings"], model="vae"),
        make_result(settings=first["settings"], preset="paper"),
    ):
        results.append_results(path, run)
    assert len(results.read_collected(path)) == 8
    again = make_result(settings={"warm": True, "M": 10}, metrics={"rmse": 0.2})
    results.append_results(path, again)
    entries = results.read_collected(path)
    assert len(entries) == 8
    assert again in entries and first not in entries
    assert entries == sorted(entries, key=results.run_key)


def test_collected_order_does_not_depend_on_arrival(tmp_path: pathlib.Path) -> None:
    runs = [make_result(seed=seed, model=model) for seed in (10, 2) for model in ("vae", "bae")]
    for name, order in (("a", runs), ("b", runs[::-1])):
        for run in order:
            results.append_results(tmp_path / name, run)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    seeds = [run["seed"] for run in results.read_collected(tmp_path / "a")]
    assert seeds == [2, 10, 2, 10]


def test_append_checks_both_sides(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "moving_ball.json"
    incomplete = make_result()
    del incomplete["git_commit"]
    with pytest.raises(ValueError, match="lacks the key 'git_commit'"):
        results.append_results(path, incomplete)
    path.write_text("{}")
    with pytest.raises(ValueError, match="expected a list"):
        results.append_results(path, make_result())
    with pytest.raises(ValueError, match="does not exist"):
        results.read_collected(tmp_path / "other.json")


def test_git_commit(tmp_path: pathlib.Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert provenance.git_commit(tmp_path) == "unknown"
    git("init")
    assert provenance.git_commit(tmp_path) == "unknown"
    code = tmp_path / "gpflow_bae" / "code.py"
    code.parent.mkdir()
    code.write_text("x = 1\n")
    git("add", ".")
    git("commit", "-m", "first", "--no-verify")
    commit = git("rev-parse", "HEAD")
    assert provenance.git_commit(tmp_path) == commit
    # The tree holds somebody else's commit.
    assert provenance.git_commit(code.parent) == "unknown"

    (tmp_path / "notes.md").write_text("prose")
    assert provenance.git_commit(tmp_path) == commit
    code.write_text("x = 2\n")
    assert provenance.git_commit(tmp_path) == f"{commit}-dirty"
    git("checkout", "--", ".")
    assert provenance.git_commit(tmp_path) == commit
    (code.parent / "new.py").write_text("")
    assert provenance.git_commit(tmp_path) == f"{commit}-dirty"
