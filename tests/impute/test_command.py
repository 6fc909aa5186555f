"""The command: its flags, and what it writes beside the filled table."""

from __future__ import annotations

import ast
import inspect
import pathlib
import sys
from collections.abc import Callable, Iterator

import pandas as pd
import pytest

from gpflow_bae.impute import Imputer, command
from tests.impute.tables import stations

pytestmark = pytest.mark.usefixtures("untraced_predictions")

FLAGS = {
    "input",
    "out",
    "outputs",
    "time",
    "inputs",
    "task",
    "separator",
    "model",
    "posterior",
    "latent_dim",
    "num_inducing",
    "epochs",
    "hold_out",
    "seed",
}


@pytest.fixture
def parse() -> Iterator[Callable[..., None]]:
    """Defines the command's flags and gives them values; afterwards they are gone."""
    before = set(command.FLAGS)

    def parse(*arguments: str) -> None:
        if set(command.FLAGS) == before:
            command.define_flags()
        command.FLAGS.unparse_flags()
        command.FLAGS(["impute", *arguments])

    yield parse
    for name in set(command.FLAGS) - before:
        delattr(command.FLAGS, name)
    command.FLAGS.unparse_flags()


def test_the_program_has_the_flags_that_are_promised_and_shows_them(
    monkeypatch: pytest.MonkeyPatch, parse: Callable[..., None]
) -> None:
    started = []
    monkeypatch.setattr(command.app, "run", started.append)
    monkeypatch.setattr(sys, "argv", ["gpflow-bae-impute", "--help"])
    before = set(command.FLAGS)
    command.run()
    assert started == [command.main]
    assert set(command.FLAGS) - before == FLAGS
    shown = command.FLAGS.main_module_help()
    assert all(f"--{name}:" in shown or f"--[no]{name}:" in shown for name in FLAGS), shown
    assert all(command.FLAGS[name].help for name in FLAGS)


def test_a_table_is_filled_and_its_fit_fills_another(
    tmp_path: pathlib.Path, parse: Callable[..., None], capsys: pytest.CaptureFixture
) -> None:
    _, holes = stations(12)
    holes.to_csv(tmp_path / "t.csv", index=False)
    columns = ("--time=day", "--task=station", "--outputs=a,b")
    out = tmp_path / "filled.csv"
    options = ("--epochs=2", "--num_inducing=4", "--hold_out=0")
    parse(f"--input={tmp_path / 't.csv'}", f"--out={out}", *columns, *options)
    command.main(["impute"])
    assert "24 rows, 2 task(s), 8 holes." in capsys.readouterr().out
    for name in ("filled_a.png", "filled_b.png", "filled.posterior/fit.json"):
        assert (tmp_path / name).exists()
    again = tmp_path / "again.csv"
    folder = tmp_path / "filled.posterior"
    parse(f"--input={tmp_path / 't.csv'}", f"--out={again}", f"--posterior={folder}")
    command.main(["impute"])
    expected = Imputer.load(folder).impute(holes)
    pd.testing.assert_frame_equal(
        pd.read_csv(again)[["a", "b", "b_sd"]], expected[["a", "b", "b_sd"]], rtol=1e-6
    )
    assert not (tmp_path / "again.posterior").exists()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--outputs=c", r"impute: There is no column \['c'\]"),
        ("--input=nowhere.csv", "impute: .*nowhere.csv"),
        ("--posterior=nowhere", "impute: nowhere holds no fit.json"),
    ],
)
def test_what_is_wrong_is_one_line(
    flag: str, message: str, tmp_path: pathlib.Path, parse: Callable[..., None]
) -> None:
    stations(5)[1].to_csv(tmp_path / "t.csv", index=False)
    parse(f"--input={tmp_path / 't.csv'}", "--out=o.csv", "--time=day", "--task=station", flag)
    with pytest.raises(SystemExit, match=message):
        command.main(["impute"])


def test_without_pandas_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, parse: Callable[..., None]
) -> None:
    parse("--input=t.parquet", "--out=o.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit, match=r"Parquet files with pyarrow.*gpflow-bae\[impute\]"):
        command.main(["impute"])


def test_only_one_module_imports_pandas_and_none_imports_that_one_when_loaded() -> None:
    """The package is there without the extra."""
    folder = pathlib.Path(inspect.getfile(command)).parents[1]
    guilty = set()
    for path in folder.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            words = (
                ast.unparse(node).split() if isinstance(node, ast.Import | ast.ImportFrom) else ()
            )
            if {"pandas", "frames", ".frames"} & set(words):
                guilty.add(path.name)
    assert guilty == {"frames.py"}
