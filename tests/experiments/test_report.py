import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
from typing import Any

import pytest
from absl import app

from experiments import report
from experiments.common import results, studies
from tests.experiments.commands import parsed

ROOT = pathlib.Path(report.__file__).resolve().parents[1]


def make_result(**changes: Any) -> dict[str, Any]:
    result = {
        "experiment": "ball",
        "model": "sgp_bae",
        "preset": "quick",
        "seed": 0,
        "temperature": 1.0,
        "metrics": {"rmse": 0.3},
        "seconds": {"warm_start": 40.0, "sampling": 100.25},
        "num_parameters": 7,
        "versions": {"python": "3.11.0", "numpy": "1.26.4"},
        "git_commit": "0123456789abcdef0123456789abcdef01234567-dirty",
        "command": "python -m experiments.ball --model=sgp_bae|x",
    }
    return result | changes


def page(folder: pathlib.Path, *runs: dict[str, Any]) -> str:
    """The page of runs, which has all tables."""
    for run in runs:
        results.append_results(folder / "ball.json", run)
    return report.render_runs("ball", folder)


def rows(text: str, heading: str) -> list[list[str]]:
    """Cells of the first table under a heading, header first, without the rule."""
    section = text.split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert set(table[1]) == {"---"}
    return [table[0], *table[2:]]


def test_summary_has_mean_and_std_over_seeds(tmp_path: pathlib.Path) -> None:
    values = [0.31, 0.35, 0.30]
    text = page(
        tmp_path,
        *(make_result(seed=seed, metrics={"rmse": value}) for seed, value in enumerate(values)),
        make_result(model="vae", temperature=None, metrics={"rmse": 0.75, "nll": -1.5}),
    )
    mean, std = statistics.fmean(values), statistics.stdev(values)
    assert rows(text, "## Preset `quick`") == [
        ["model", "temperature", "seeds", "rmse", "nll", "seconds"],
        ["`sgp_bae`", "1, not measured", "0, 1, 2", f"{mean:.4g} ± {std:.2g}", "–", "140"],
        ["`vae`", "–", "0", "0.75", "-1.5", "140"],
    ]


def test_scores_of_held_out_training_cells_are_not_beside_test_scores(
    tmp_path: pathlib.Path,
) -> None:
    text = page(
        tmp_path,
        make_result(metrics={"rmse": 0.5}),
        make_result(metrics={"rmse": 0.1}, variant="wide validation, blocks of 20"),
    )
    assert [row[3] for row in rows(text, "## Preset `quick`")[1:]] == ["0.5"]
    validation = rows(text, "## Preset `quick`: validation")[1:]
    assert [row[1:-1] for row in validation] == [
        ["wide validation, blocks of 20", "1, not measured", "0", "0.1"]
    ]


def test_a_metric_that_a_seed_lacks_is_said(tmp_path: pathlib.Path) -> None:
    both, one = {"rmse": 0.5, "nll": 2.0}, {"rmse": 0.5}
    text = page(tmp_path, make_result(metrics=both), make_result(seed=1, metrics=one))
    assert rows(text, "## Preset `quick`")[1][3:5] == ["0.5 ± 0", "2 (1 of 2 seeds)"]


def test_metrics_keep_the_order_of_the_design(tmp_path: pathlib.Path) -> None:
    metrics = {"zeta": 1, "coverage_90": 2, "alpha": 3, "rmse": 4, "nll": 5}
    text = page(tmp_path, make_result(metrics=metrics))
    header = rows(text, "## Preset `quick`")[0]
    assert header[3:] == ["rmse", "nll", "coverage_90", "seconds"]  # the others are in the file


def test_captions_come_from_their_file(tmp_path: pathlib.Path) -> None:
    page(tmp_path, make_result())
    (tmp_path / "figures").mkdir()
    experiment = make_result()["experiment"]
    (tmp_path / "figures" / f"{experiment}_curve.png").write_bytes(b"")
    (tmp_path / f"{experiment}.captions.json").write_text(f'{{"{experiment}_curve": "A curve."}}')
    assert "*A curve.*" in report.render(experiment, tmp_path)


def test_presets_apart_and_in_order(tmp_path: pathlib.Path) -> None:
    text = page(tmp_path, make_result(preset="paper", metrics={"rmse": 0.2}), make_result())
    assert text.index("## Preset `quick`") < text.index("## Preset `paper`")
    assert rows(text, "## Preset `paper`")[1][3] == "0.2"
    assert rows(text, "## Preset `quick`")[1][3] == "0.3"


def test_variants_are_told_apart_by_what_differs(tmp_path: pathlib.Path) -> None:
    text = page(
        tmp_path,
        make_result(settings={"M": 5, "width": 500}, metrics={"rmse": 0.5}),
        make_result(settings={"M": 15, "width": 500}, metrics={"rmse": 0.3}),
        make_result(settings={"M": 5, "width": 500}, variant="cold start", temperature=0.5),
    )
    labels = [(row[1], row[2]) for row in rows(text, "## Preset `quick`")[1:]]
    asked = "1, not measured"
    assert sorted(labels) == [("M=15", asked), ("M=5", asked), ("cold start", "0.5, not measured")]


def test_nested_settings_tell_runs_apart_and_new_ones_do_not(tmp_path: pathlib.Path) -> None:
    text = page(
        tmp_path,
        make_result(settings={"fit": {"steps": 5, "rate": 0.1}}, metrics={"rmse": 0.5}),
        make_result(settings={"fit": {"steps": 9, "rate": 0.1}, "added": 1}, metrics={"rmse": 0.3}),
    )
    labels = [row[1] for row in rows(text, "## Preset `quick`")[1:]]
    assert sorted(labels) == ["fit.steps=5", "fit.steps=9"]


def test_a_command_is_what_its_table_shares_and_the_flags_of_its_row(
    tmp_path: pathlib.Path,
) -> None:
    """What a row says anyway, and what names the row or its files, is not repeated."""

    def run(words: str, **changes: Any) -> dict[str, Any]:
        command = f"python -m experiments.ball --preset=quick --rate=0.1 {words} --out_dir=OUT_DIR"
        return make_result(command=command, **changes)

    text = page(
        tmp_path,
        run("--model=sgp_bae --seed=0 --resume"),
        run("--model=sgp_bae --seed=1", seed=1, seconds={"total": 100.0, "sampling": 9.0}),
        run("--model=vae --steps=5 '--variant=a|b' --name='c d'", model="vae", variant="a|b"),
    )
    shared = "--preset=quick --model=MODEL --seed=SEED --out_dir=OUT_DIR --rate=0.1 ..."
    assert f"\n`python -m experiments.ball {shared}`\n" in text
    header, first, second = rows(text, "## Preset `quick`")
    assert header[-2:] == ["seconds", "flags"]
    assert first[-2:] == ["120", "–"]  # of 140.25 and 100
    assert second[1] == "a\\|b" and second[-1] == "`--steps=5 '--name=c d'`"


def test_problems_of_one_study_have_tables_of_their_own(tmp_path: pathlib.Path) -> None:
    text = page(
        tmp_path,
        make_result(model="eeg/igp", command="python -m experiments.eeg --model=igp"),
        make_result(model="jura/igp", command="python -m experiments.jura --model=igp"),
    )
    for name in ("eeg", "jura"):
        section = text.split(f"## Preset `quick`, `{name}`\n", 1)[1].split("\n## ", 1)[0]
        assert f"-m experiments.{name} " in section and section.count("| `igp` |") == 1


def test_versions_have_a_row_per_environment(tmp_path: pathlib.Path) -> None:
    newer = {"python": "3.12.0", "numpy": "2.0.0"}
    text = page(tmp_path, make_result(), make_result(seed=1), make_result(seed=2, versions=newer))
    table = rows(text, "## Versions")
    assert table[0] == ["numpy", "python", "runs"]
    assert table[1:] == [["1.26.4", "3.11.0", "2"], ["2.0.0", "3.12.0", "1"]]


def test_figures_with_captions(tmp_path: pathlib.Path) -> None:
    figures = tmp_path / "figures"
    figures.mkdir()
    for name in ("ball_rmse_by_m", "ball_paths", "ball_long_other", "other_paths"):
        (figures / f"{name}.png").touch()
    (tmp_path / "ball_long.json").write_text("[]")
    (figures / "ball_film.gif").touch()
    (figures / "ball_rmse_by_m.svg").touch()  # of another kind: not shown
    page(tmp_path, make_result(captions={"ball_paths.png": "Paths of three videos."}))
    text = report.render("ball", tmp_path)
    assert "![Film](figures/ball_film.gif)" in text and ".svg" not in text
    assert "![Paths](figures/ball_paths.png)\n\n*Paths of three videos.*" in text
    assert "![Rmse by m](figures/ball_rmse_by_m.png)" in text
    assert text.count("](figures/") == 3
    (tmp_path / "ball.notes.md").write_text("![Three videos](figures/ball_paths.png)\n")
    assert report.render("ball", tmp_path).count("](figures/") == 3  # where the notes show it


def test_notes_are_verbatim_between_the_question_and_the_runs(tmp_path: pathlib.Path) -> None:
    page(tmp_path, make_result())
    prose = "Two *paragraphs*, | bars |\n\nand  spaces."
    (tmp_path / "ball.notes.md").write_text(prose + "\n")
    text = report.render("ball", tmp_path)
    assert f"Runs of ball.\n\n{prose}\n\n" in text
    assert "](runs/ball.md)" in text and text.endswith(":hidden:\n\nruns/ball\n```\n")


def test_page_does_not_depend_on_order(tmp_path: pathlib.Path) -> None:
    runs = [make_result(seed=seed, model=model) for seed in (0, 10, 2) for model in ("a", "b")]
    text = page(tmp_path, *runs)
    (tmp_path / "ball.json").write_text(json.dumps(runs[::-1]))
    assert report.render_runs("ball", tmp_path) == text
    assert rows(text, "## Preset `quick`")[1][2] == "0, 2, 10"


def test_a_page_opens_with_what_it_is(tmp_path: pathlib.Path) -> None:
    """A note to those who would edit it is a comment, which no reader sees."""
    page(tmp_path, make_result())
    comment, title, sentence, *_ = report.render("ball", tmp_path).split("\n\n")
    assert comment.startswith("<!-- Rendered from") and comment.endswith("-->")
    assert title == "# Ball" and sentence.startswith("Runs of ball.")


def test_the_page_above_has_a_picture_for_each_study(tmp_path: pathlib.Path) -> None:
    """Those that are there, in one order, with a link; the table of contents lists the same."""
    (tmp_path / "figures").mkdir()
    for name in ("gplvm", "moving_ball", "other"):
        (tmp_path / f"{name}.json").write_text("[]")
    (tmp_path / "figures" / "moving_ball_trajectories_quick.png").touch()
    (written,) = report.write_pages("index", tmp_path)
    text = written.read_text()
    assert text.index("## [Moving ball](moving_ball.md)") < text.index("](gplvm.md)")
    assert text.count("](figures/") == 1 and "other" not in text
    assert text.endswith(":hidden:\n\nmoving_ball\ngplvm\n```\n")


def test_pages_of_the_project_are_what_their_runs_render() -> None:
    folder = ROOT / "docs" / "results"
    pages = [path for path in folder.glob("*.md") if not path.name.endswith(".notes.md")]
    names = {path.stem for path in pages} - {"index"}
    assert {path.stem for path in (folder / "runs").glob("*.md")} == names
    for path in pages:
        command = f"python -m experiments.report --experiment={path.stem}"
        if path.stem == "index":
            assert studies.render_index(folder) == path.read_text(encoding="utf-8"), command
            continue
        for file, render in (
            (path, report.render),
            (folder / "runs" / path.name, report.render_runs),
        ):
            assert render(path.stem, folder) == file.read_text(encoding="utf-8"), command


#: Decimals of the first tables that no run has: of rivals run outside, and of the problem.
OF_NO_RUN = {
    "certificates": {"0.864"},  # the expected share
    "priors": {"0.726"},  # the noise
    "spatial_omics": {"0.125", "0.329"},  # neighbours without pseudo-cells
}


def stored(name: str, problem: str = "", score: str = "") -> list[float]:
    """Scores of all runs, and their means and deviations over seeds.

    :param problem: what the names of the models begin with.
    :param score: a part of the scores' names.
    """
    runs = results.read_collected(ROOT / "docs" / "results" / f"{name}.json")
    runs = [run for run in runs if run["model"].startswith(problem)]
    groups: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    for run in runs:
        groups.setdefault(results.run_key(run)[:-1], []).append(run["metrics"])
    found = []
    for members in groups.values():
        for metric in (m for m in members[0] if score in m):
            values = [m[metric] for m in members if metric in m]
            found += [*values, statistics.fmean(values)]
            found += [statistics.stdev(values)] if len(values) > 1 else []
    return found


@pytest.mark.parametrize("name", sorted(studies.ABOUT))
def test_the_first_tables_of_a_page_have_scores_of_its_runs(name: str) -> None:
    """Rounded to what the page says. Published figures are in columns that say so."""
    notes = (ROOT / "docs" / "results" / f"{name}.notes.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", notes.partition("## Details")[0], re.M)
    known = stored(name)
    for lines in tables:
        table = [row[1:-1].split("|") for row in lines.splitlines()]
        heads = enumerate(table[0])
        own = [i for i, head in heads if not re.search("et al|published|spaVAE", head)]
        for row in table[2:]:
            if "et al" in row[0]:
                continue
            for number in re.findall(r"\d+\.\d+", " ".join(row[i] for i in own)):
                half = 0.5 * 10.0 ** -len(number.partition(".")[2])
                near = any(abs(abs(v) - float(number)) <= half * (1 + 1e-9) for v in known)
                assert near or number in OF_NO_RUN.get(name, ()), (number, row)


def test_figures_of_the_readme_are_scores_of_the_pages_that_it_names() -> None:
    """Its table of papers: what is measured here, rounded to what the table says."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| system | table |") :].partition("\n\n")[0]
    scores = {"SMSE": "smse", "squared error": "mse", "absolute error": "mae"}
    pages: dict[str, tuple[str, str, str]] = {}
    seen = 0
    for line in table.splitlines()[2:]:
        _, place, _, *own = (cell.strip() for cell in line[1:-1].split("|"))
        link = re.search(r"\[(.+?)\]\(docs/results/(\w+)\.md\)", place)
        if link:
            problem = link[1].lower().replace(" ", "_") + "/"
            (score,) = [of for words, of in scores.items() if words in place] or [""]
            pages[link[1]] = (link[2], problem, score)
        (found,) = {pages[name] for name in pages if name in place}
        known = stored(*found) or stored(found[0], score=found[2])
        for number in re.findall(r"\d+\.\d+", " ".join(own)):
            half = 0.5 * 10.0 ** -len(number.partition(".")[2])
            assert any(abs(v - float(number)) <= half * (1 + 1e-9) for v in known), line
            seen += 1
    assert seen > 15


def test_stored_log_densities_say_what_they_are_of() -> None:
    """``nll`` never stands alone, and is that of the moments where one Gaussian is predicted."""
    for path in (ROOT / "docs" / "results").glob("*.json"):
        rows = json.loads(path.read_text(encoding="utf-8"))
        for row in rows if isinstance(rows, list) else []:
            scores = row.get("metrics", {})
            for name in (n for n in scores if n.startswith("nll") and "moments" not in n):
                beside = scores[name.replace("nll", "nll_moments")]
                if row["model"].endswith(("/igp", "/mean")):
                    assert scores[name] == pytest.approx(beside, rel=1e-9)


def test_nothing_to_render_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="does not exist.*--collect"):
        report.render("ball", tmp_path)
    (tmp_path / "ball.json").write_text("[]")
    with pytest.raises(ValueError, match="holds no runs.*--collect"):
        report.render("ball", tmp_path)


def test_collect_finds_runs_below_the_folders(tmp_path: pathlib.Path) -> None:
    for index, name in enumerate(("one", "two/deep")):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        results.write_json(folder / "results.json", make_result(seed=index))
    docs = tmp_path / "docs"
    assert report.collect([tmp_path / "runs"], docs) == ["ball"]
    assert report.collect([tmp_path / "runs" / "one"], docs) == ["ball"]
    assert [run["seed"] for run in results.read_collected(docs / "ball.json")] == [0, 1]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no results.json"):
        report.collect([tmp_path / "empty"], docs)


def test_collect_refuses_a_broken_result(tmp_path: pathlib.Path) -> None:
    results.write_json(tmp_path / "results.json", {"experiment": "ball"})
    with pytest.raises(ValueError, match="lacks the key 'model'"):
        report.collect([tmp_path], tmp_path / "docs")


def run_report(*arguments: str) -> None:
    """The command in this process."""
    with parsed(lambda: None, *arguments) as values:
        report.main(["report", *(a for a in arguments if not a.startswith("--"))])
        assert values.results_dir


def test_command_line(tmp_path: pathlib.Path) -> None:
    results.write_json(tmp_path / "results.json", make_result())
    docs = tmp_path / "docs"
    # The one test of a command in a process of its own: ``python -m`` finds the modules.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "experiments.report", "--collect"),
            *(f"--results_dir={docs}", str(tmp_path)),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(docs / "ball.md"), str(docs / "runs" / "ball.md")]
    assert (docs / "ball.md").read_text() == report.render("ball", docs)
    assert (docs / "runs" / "ball.md").read_text() == report.render_runs("ball", docs)

    with pytest.raises(app.UsageError, match="does not exist"):
        run_report(f"--results_dir={docs}", "--experiment=other")
    with pytest.raises(app.UsageError, match="add --collect"):
        run_report(f"--results_dir={docs}", str(tmp_path))


def test_runs_that_were_not_at_their_temperature_are_not_called_so(tmp_path: pathlib.Path) -> None:
    """A block that was more than a tenth off, in one of two seeds, is enough."""
    measured = [
        {"rmse": 0.1, "kinetic_temperature_min": 0.98, "kinetic_temperature_max": high}
        for high in (1.02, 2.5)
    ]
    runs = [make_result(seed=i, metrics=metrics) for i, metrics in enumerate(measured)]
    assert "| not 1" not in page(tmp_path, runs[0])
    assert page(tmp_path, runs[1]).count("| not 1: 0.98 to 2.5 |") == 1


def test_a_temperature_that_nothing_shows_is_called_so(tmp_path: pathlib.Path) -> None:
    """A sampler that accepts or rejects has no other than the one asked for."""
    runs = [
        make_result(model=name, seed=0, metrics={"rmse": 0.1} | metrics)
        for name, metrics in (("old", {}), ("exact", {"acceptance": 0.6}))
    ]
    page(tmp_path, runs[0])
    lines = page(tmp_path, runs[1]).splitlines()
    for name, words in (("old", "| 1, not measured |"), ("exact", "| 1 |")):
        found = [line for line in lines if f"`{name}`" in line]
        assert found and all(words in line for line in found), name
