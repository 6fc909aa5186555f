"""The command: its flags, and what it writes beside the filled table."""

from __future__ import annotations

import ast
import inspect
import os
import pathlib
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.impute import CheckResult, Imputer, command, command_flags
from gpflow_bae.impute.reading.problems import TableWarning
from tests.impute.tables import stations

pytestmark = pytest.mark.usefixtures("untraced_predictions")

FLAGS = {
    "input",
    "out",
    "outputs",
    "time",
    "time_zone",
    "inputs",
    "task",
    "separator",
    "side_by_side",
    "encoding",
    "decimal",
    "dayfirst",
    "missing_values",
    "continuous",
    "positive",
    "count",
    "binary",
    "bounded",
    "category",
    "grid",
    "posterior",
    "latent_dim",
    "num_steps",
    "hold_out",
    "method",
    "periods",
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


NATRIUM = "Natrium (mmol/l)"


def hospital() -> pd.DataFrame:
    """Columns of every kind, with names that no file can have."""
    whole, holes = stations(12)
    renamed = holes.rename(columns={"a": NATRIUM, "b": "Preis $x_1$"})
    skewed = np.exp(whole["b"] / 30.0)
    return renamed.assign(wet=(whole["b"] > 0) * 1.0, dose=skewed, constant=3.5).where(
        np.random.default_rng(0).random((24, 8)) > [0, 0, 0, 0, 0, 0.2, 0.2, 0.2]
    )


def test_a_table_is_filled_and_its_fit_fills_another(
    tmp_path: pathlib.Path, parse: Callable[..., None], capsys: pytest.CaptureFixture
) -> None:
    holes = hospital()
    holes.to_csv(tmp_path / "t.csv", index=False)
    columns = ("--time=day", "--task=station", f"--outputs={','.join(holes.columns[3:])}")
    out = tmp_path / "filled.csv"
    options = ("--num_steps=2", "--hold_out=0", "--positive=dose", "--method=gp", "--periods=")
    parse(f"--input={tmp_path / 't.csv'}", f"--out={out}", *columns, *options)
    command.main(["impute"])
    said = capsys.readouterr().out
    assert (
        "rows: 24; series: 2, of 12 rows; time (day): 2024-01-01 to 2024-01-12, every 1 day" in said
    )
    assert "Note: Column 'constant' is 3.5 wherever it is observed" in said
    assert "All columns are filled by coregionalised GPs." in said
    for part in ("Natrium_mmol_l", "Preis_x_1", "wet", "dose"):
        assert (tmp_path / f"filled_{part}.png").exists()
    page = (tmp_path / "filled.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 4
    assert not re.search(r"(src|href)=.?https?:", page)
    assert NATRIUM in page and "positive, as its logarithm" in page and "no check" in page

    again = tmp_path / "again.csv"
    folder = tmp_path / "filled.posterior"
    parse(f"--input={tmp_path / 't.csv'}", f"--out={again}", f"--posterior={folder}")
    command.main(["impute"])
    expected = Imputer.load(folder).impute(holes)
    names = [NATRIUM, f"{NATRIUM}_sd", "dose", "dose_lower", "wet", "wet_upper", "constant"]
    pd.testing.assert_frame_equal(pd.read_csv(again)[names], expected[names], rtol=1e-6)
    assert (expected["dose_lower"].dropna() > 0.0).all()
    assert set(expected["wet_upper"].dropna()) <= {0.0, 1.0}
    assert not (tmp_path / "again.posterior").exists()


def test_a_sheet_of_rows_in_no_order_is_filled(
    tmp_path: pathlib.Path, parse: Callable[..., None], capsys: pytest.CaptureFixture
) -> None:
    """Numbers and categories, with a column of text that nobody named."""
    pytest.importorskip("openpyxl")
    rng = np.random.default_rng(0)
    size = rng.standard_normal(60)
    table = pd.DataFrame({"size": size, "kind": np.where(size > 0, "large", "small"), "who": "me"})
    table.loc[:4, "kind"], table.loc[5:9, "size"] = None, np.nan
    table.to_excel(tmp_path / "t.xlsx", index=False)
    out = tmp_path / "filled.xlsx"
    parse(f"--input={tmp_path / 't.xlsx'}", f"--out={out}", "--outputs=size,kind", "--hold_out=0")
    command.main(["impute"])
    said = capsys.readouterr().out
    assert "rows: 60, in no order; missing cells: 10 of 120" in said
    filled = pd.read_excel(out)
    assert list(filled.columns[:6]) == [*table.columns, "size_sd", "size_lower", "size_upper"]
    assert not filled[["size", "kind", "who"]].isna().any().any()
    certain = filled["kind_probability"][:5] > 0.8
    assert (filled["kind"][:5] == np.where(size[:5] > 0, "large", "small"))[certain].all()
    assert (tmp_path / "filled_size.png").exists()


def test_series_side_by_side_come_back_as_rows(
    tmp_path: pathlib.Path, parse: Callable[..., None], capsys: pytest.CaptureFixture
) -> None:
    """What one station has at the hours of another's gap fills it: equal but for the unit."""
    rng = np.random.default_rng(0)
    level = rng.standard_normal(40)
    hours = np.tile(np.arange(40), 2)
    table = pd.DataFrame(
        {"s": ["a"] * 40 + ["b"] * 40, "t": hours, "y": [*level, *(3 * level + 9)]}
    )
    table["y"] += 0.01 * rng.standard_normal(80)
    holes = table.assign(y=table["y"].where((hours < 10) | (hours > 14) | (table["s"] == "b")))
    holes.to_csv(tmp_path / "t.csv", index=False)
    options = ("--time=t", "--task=s", "--outputs=y", "--num_steps=3", "--hold_out=0")
    out = tmp_path / "filled.csv"
    parse(f"--input={tmp_path / 't.csv'}", f"--out={out}", *options, "--side_by_side")
    command.main(["impute"])
    filled = pd.read_csv(out)
    assert list(filled.columns) == ["s", "t", "y", "y_sd", "y_lower", "y_upper"]
    pd.testing.assert_frame_equal(filled[["s", "t"]], table[["s", "t"]])
    hole = holes["y"].isna()
    pd.testing.assert_series_equal(filled["y"][~hole], holes["y"][~hole])
    # White noise: its own neighbours tell nothing, whose error would be one.
    assert np.abs(filled["y"] - table["y"])[hole].max() < 0.3
    assert (filled["y_sd"].notna() == hole).all()

    # The fit fills a later table, of which one series is not there.
    late = tmp_path / "late.csv"
    fit = f"--posterior={out.with_suffix('.posterior')}"
    pd.DataFrame({"s": "b", "t": [41, 42], "y": [12.0, np.nan]}).to_csv(late, index=False)
    parse(f"--input={late}", f"--out={tmp_path / 'f.csv'}", fit, *options[:3])  # as in the fit
    command.main(["impute"])
    assert "left aside" not in capsys.readouterr().out
    again = pd.read_csv(tmp_path / "f.csv")
    assert again["y"][0] == 12.0 and again["s"].tolist() == ["b", "b"]
    assert abs(again["y"][1] - 9.0) < 9.0 and again["y_sd"][1] > 1.0
    pd.DataFrame({"s": "c", "t": [41, 42], "y": [12.0, np.nan]}).to_csv(late, index=False)
    parse(f"--input={late}", f"--out={tmp_path / 'f.csv'}", fit)
    with pytest.raises(SystemExit, match=r"side by side, and this table has \['y \(c\)'\] as well"):
        command.main(["impute"])


def test_hours_that_are_not_there_are_inserted(
    tmp_path: pathlib.Path, parse: Callable[..., None], capsys: pytest.CaptureFixture
) -> None:
    table = pd.DataFrame({"day": [f"{d:02d}.01.2024" for d in range(1, 31)], "y": range(30)})
    table.drop(index=[10, 11]).to_csv(tmp_path / "t.csv", index=False)
    options = ("--num_steps=1", "--hold_out=0", "--dayfirst", "--grid", "--time=day", "--outputs=y")
    parse(f"--input={tmp_path / 't.csv'}", f"--out={tmp_path / 'filled.csv'}", *options)
    command.main(["impute"])
    assert "--grid: 2 rows are inserted." in capsys.readouterr().out
    filled = pd.read_csv(tmp_path / "filled.csv")
    assert filled["day"].tolist() == table["day"].tolist()
    assert filled["y"].notna().all() and filled["y_sd"].notna().sum() == 2


def test_what_is_checked_is_shown(
    tmp_path: pathlib.Path,
    parse: Callable[..., None],
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the terminal and in the report, with the best method marked."""
    stations(12)[1].to_csv(tmp_path / "t.csv", index=False)
    scores = {"rmse": 0.25, "nll": -0.5, "coverage_90": 0.88}
    means = {"rmse": 1.01}  # a score that a method does not have is no number
    found = CheckResult(
        {"the model": {"a": scores}, "column means": {"a": means}},
        {"the model": scores, "column means": means},
        "Use the model <today>.",
        "the model",
        "Ten gaps were hidden.",
        10,
        {"the model": 12.34},
    )
    monkeypatch.setattr(Imputer, "check", lambda *_, **__: found)
    parse(
        f"--input={tmp_path / 't.csv'}",
        f"--out={tmp_path / 'o.csv'}",
        *("--time=day", "--task=station", "--outputs=a,b", "--method=linear"),
    )
    command.main(["impute"])
    said = capsys.readouterr().out
    assert re.search(r"the model +0\.250 +-0\.50 +88%\n", said)
    assert re.search(r"column means +1\.010 +– +–\n", said)
    assert "Use the model <today>.\n" in said
    page = (tmp_path / "o.html").read_text(encoding="utf-8")
    assert "Use the model &lt;today&gt;." in page and "Ten gaps were hidden." in page
    assert re.search("<tr class=best><th>the model</th><td>0.250</td>.*12.3 s", page)
    assert page.count("<td>linear interpolation</td>") == 2  # what filled each of the columns


def test_kinds_are_said_by_flags(parse: Callable[..., None]) -> None:
    given = ("--input=t.csv", "--out=o.csv")
    parse(*given, "--positive=a,b", "--count=n", "--bounded=rel: hum:0:100")
    assert command_flags.kinds_of_flags() == {
        "a": "positive",
        "b": "positive",
        "n": "count",
        "rel: hum": (0.0, 100.0),
    }
    for wrong, message in (
        ("--bounded=a:0", "expected a column and its two bounds"),
        ("--binary=n", "'n' is named by --count and by --binary"),
    ):
        parse(*given, "--count=n", wrong)
        with pytest.raises(ValueError, match=message):
            command_flags.kinds_of_flags()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--outputs=c", r"impute: There is no column \['c'\]"),
        ("--input=nowhere.csv", "impute: .*nowhere.csv"),
        ("--posterior=nowhere", "impute: nowhere holds no fit.json"),
        ("--outputs=a,b,remark", "impute: Column 'remark' is text with 10 different"),
        ("--out=t.csv", "--out=t.csv is the input itself"),
        ("--out=.", "--out=. is a folder; name a file"),
        ("--decimal=,", "columns were separated by ',': pass --separator=','"),
        ("--periods=month", r"impute: periods is \['month'\]; expected a list"),
    ],
)
def test_what_is_wrong_is_one_line(
    flag: str,
    message: str,
    tmp_path: pathlib.Path,
    parse: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    stations(5)[1].assign(remark=list("abcdefghij")).to_csv("t.csv", index=False)
    given = ["--input=t.csv", "--out=o.csv", "--time=day", "--task=station"]
    parse(*(g for g in given if g.partition("=")[0] != flag.partition("=")[0]), flag)
    with pytest.raises(SystemExit, match=message):
        command.main(["impute"])


@pytest.mark.parametrize("flag", ["--input=u.csv", "--outputs=b", "--nodayfirst", "--seed=0"])
def test_a_flag_that_is_given_twice_is_refused(flag: str, parse: Callable[..., None]) -> None:
    """Its last value alone would count."""
    given = ("--input=t.csv", "--out=o.csv", "--outputs=a", "--dayfirst", "--seed=1")
    parse(*given)
    with pytest.raises(command.flags.IllegalFlagValueError, match="already defined as"):
        parse(*given, flag)


@pytest.mark.parametrize(("name", "what"), [("no.csv", "is not there"), (".", "is a folder")])
def test_an_input_that_is_no_file_is_named(
    name: str,
    what: str,
    tmp_path: pathlib.Path,
    parse: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    parse(f"--input={name}", "--out=o.csv")
    with pytest.raises(SystemExit, match=f"impute: --input={name} {what}; name a CSV"):
        command.main(["impute"])


def test_without_pandas_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, parse: Callable[..., None]
) -> None:
    parse("--input=t.parquet", "--out=o.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit, match=r"Parquet files with pyarrow.*gpflow-bae\[tables\]"):
        command.main(["impute"])


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a user starts it."""
    program = "import sys; from gpflow_bae.impute.command import run; run()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"} | variables,
        cwd=pathlib.Path(inspect.getfile(command)).parents[2],
    )


def test_bad_tables_are_refused_and_help_is_given_without_tensorflow(
    tmp_path: pathlib.Path,
) -> None:
    """TensorFlow takes seconds to load; a folder of its name that is broken would be noticed."""
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('loaded')")
    path = {"PYTHONPATH": str(tmp_path)}
    assert "--missing_values:" in run("--help", **path).stdout
    (tmp_path / "t.csv").write_text("t,a\n1,x\n2,3\n3,4\n")
    table = (f"--input={tmp_path / 't.csv'}", f"--out={tmp_path / 'o.csv'}")
    found = run(*table, "--time=t", "--outputs=a", **path)
    assert found.returncode == 1 and found.stdout == ""
    assert found.stderr.startswith("impute: Column 'a' holds what is no number: 'x' in line 2.")
    assert "loaded" in run(*table, "--time=t", "--outputs=a", "--missing_values=x", **path).stderr


def test_a_terminal_shows_our_lines_only(tmp_path: pathlib.Path) -> None:
    stations(8)[1].to_csv(tmp_path / "t.csv", index=False)
    found = run(
        f"--input={tmp_path / 't.csv'}",
        f"--out={tmp_path / 'o.csv'}",
        *("--time=day", "--task=station", "--outputs=a,b", "--num_steps=2"),
        "--hold_out=0",
    )
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[-2:]] == ["Filled table", "Report"]
    # Standard error is a pipe here, which gets lines instead of bars; other lines are not ours.
    progress = re.split(r"[\r\n]+", found.stderr.strip())
    ours = re.compile(r"\d+/\d+ \[|\d+ of \d+ steps|^\s*$")
    assert all(ours.search(v) for v in progress), found.stderr


def test_the_package_is_there_without_pandas() -> None:
    """Modules that import it are imported by none of the others when these are loaded."""
    folder = pathlib.Path(inspect.getfile(command)).parents[1]
    reached: set[pathlib.Path] = set()
    imports: dict[pathlib.Path, set[pathlib.Path]] = {}
    for path in folder.rglob("*.py"):
        imports[path] = set()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import) and any(a.name == "pandas" for a in node.names):
                reached.add(path)
            if isinstance(node, ast.ImportFrom) and node.level:
                base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                names = [base, *(base / alias.name for alias in node.names)]
                imports[path] |= {name.with_suffix(".py") for name in names}
    reading = folder / "impute" / "reading"
    direct = {path.relative_to(reading).as_posix() for path in reached}
    assert direct == {
        *("cells.py", "categories.py", "filling.py", "frames.py", "grid.py", "other_frames.py"),
        *("side_by_side.py", "table_files.py", "times/read.py", "times/written.py"),
        "times/zones.py",
    }
    direct_paths = set(reached)
    while further := {p for p, targets in imports.items() if targets & reached} - reached:
        reached |= further
    assert reached == direct_paths | {folder / "impute" / "transformer.py"}


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("/proc/filled.csv", "--out=/proc/filled.csv: nothing can be written to /proc"),
        ("t.csv/filled.csv", "--out=t.csv/filled.csv: nothing can be written to t.csv"),
        ("o.posterior", "--out=o.posterior: .* one of these names is taken"),
        ("taken.csv", "--out=taken.csv: .* the folder taken.posterior .* one of these names"),
        (
            "old.parquet",
            "--out=old.parquet would have the report, figures and fit of old.csv",
        ),
        ("old.csv.gz", "--out=old.csv.gz would have the report, figures and fit of old.csv"),
        (
            "taken.csv.gz",
            "--out=taken.csv.gz: the report taken.html and the folder taken.posterior",
        ),
        ("t.HTML", "--out=t.HTML: the report is an HTML file"),
        ("t.png", "t.png: .png cannot be written"),
        (f"{'o' * 200}.csv", ".*figures beside it would have too long names"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_before_the_fit(
    out: str,
    message: str,
    tmp_path: pathlib.Path,
    parse: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    stations(5)[1].to_csv("t.csv", index=False)
    for name in ("old.csv", "old.html", "taken.posterior"):
        pathlib.Path(name).write_text("")
    parse("--input=t.csv", f"--out={out}", "--time=day", "--task=station", "--outputs=a,b")
    with pytest.raises(SystemExit, match=f"impute: {message}"):
        command.main(["impute"])


def test_a_home_is_a_home_and_a_table_may_have_its_own_name(
    tmp_path: pathlib.Path, parse: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "t.csv").write_text("a\n")
    (tmp_path / "t.html").write_text("")  # of a run before
    parse("--input=~/t.csv", "--out=~/t.parquet")
    command_flags.check_paths()
    assert tmp_path / "t.csv" == pathlib.Path(command.FLAGS.input)
    assert tmp_path / "t.parquet" == pathlib.Path(command.FLAGS.out)


def test_flags_that_the_fit_decides_are_said_to_be_left_aside(parse: Callable[..., None]) -> None:
    arguments = {"outputs": ["a"], "inputs": [], "time": "day", "task": None, "kinds": None}
    record = {"arguments": arguments | {"seed": 0, "latent_dim": None}}
    given = ("--input=t.csv", "--out=o.csv", "--posterior=p")
    parse(*given, "--outputs=a", "--time=day")
    assert command_flags.notes_on_flags(record) == [] and command_flags.notes_on_flags(None) == []
    parse(*given, "--outputs=b", "--time=day", "--num_steps=3", "--positive=a")
    (note,) = command_flags.notes_on_flags(record)
    assert note.startswith("--outputs, --num_steps, --positive: left aside, because --posterior=p")
    assert "it fills ['a']" in note


def test_warnings_are_notes_of_the_command(capsys: pytest.CaptureFixture) -> None:
    with command._warnings_as_notes():
        warnings.warn("rows are few", TableWarning, stacklevel=1)
    assert capsys.readouterr().out == "Note: rows are few\n"
