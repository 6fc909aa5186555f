"""Render the pages of docs/results from collected runs, with all numbers of their tables.

    python -m experiments.report --collect RUN_DIR...      # merge runs, then render
    python -m experiments.report --experiment=moving_ball  # render
    python -m experiments.report --experiment=index        # the index page, with pictures

``docs/results/<experiment>.md`` has the question, the prose of ``<experiment>.notes.md`` and the
figures that the prose does not show: ``figures/<experiment>_*`` (PNG and GIF) with the captions of
``<experiment>.captions.json``. ``runs/<experiment>.md`` has the tables of all runs of
``<experiment>.json`` and their commands. The same files always give the same pages.
"""

import json
import pathlib
import shlex
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from absl import app, flags

from experiments.common import results, studies, terminal

FLAGS = flags.FLAGS

_RESULTS_DIR = flags.DEFINE_string(
    "results_dir", "docs/results", "Folder of the collected runs and the pages."
)
_EXPERIMENT = flags.DEFINE_string("experiment", "moving_ball", "Page to render.")
_COLLECT = flags.DEFINE_boolean(
    "collect", False, "Merge the runs in the folders given as arguments, then render their pages."
)

_METRIC_ORDER = """
    elbo elbo_collapsed knn_errors log_density log_density_hidden log_density_missing
    rmse_reconstruction rmse_heldout log_probability rmse rmse_test_aligned mse mse_best
    mse_mean mse_one_draw mse_context_1 mse_context_4 mse_context_12
    epistemic_variance_context_1 epistemic_variance_context_4 epistemic_variance_context_12
    epistemic_variance_context_36 smse mae mae_10_steps nll nll_moments coverage_90 smse_mixture
    mae_mixture nll_mixture nll_moments_mixture coverage_90_mixture lengthscale_q025
    lengthscale_median lengthscale_q975 spearman rmse_log1p coverage_90_whole adjusted_rand
    collapsed_channels knn_accuracy svm_accuracy sbc_p_value nuts_bias nuts_spread_ratio
    rhat_median rhat_q95 acceptance swap_rate ess_per_second step_ms
""".split()
_PRESET_ORDER = ("quick", "paper")
_NONE = "–"

Result = dict[str, Any]


def collect(run_dirs: Iterable[results.PathLike], results_dir: results.PathLike) -> list[str]:
    """Merge every ``results.json`` in or below the given folders into the collected lists.

    :param run_dirs: folders of finished runs.
    :param results_dir: ``docs/results``.
    :return: sorted names of the changed experiments.
    :raises ValueError: if a folder holds no finished run, or one that is not in the format.
    """
    touched = set()
    for run_dir in run_dirs:
        paths = sorted(pathlib.Path(run_dir).rglob(results.RESULTS))
        if not paths:
            raise ValueError(
                f"{str(run_dir)!r} holds no {results.RESULTS}, so no run in it is finished."
                " Finish it with --resume, or name another folder."
            )
        for path in paths:
            result = json.loads(path.read_text(encoding="utf-8"))
            results.validate(result)
            name = result["experiment"]
            results.append_results(pathlib.Path(results_dir) / f"{name}.json", result)
            touched.add(name)
    return sorted(touched)


def write_pages(experiment: str, results_dir: results.PathLike) -> list[pathlib.Path]:
    """Render ``<experiment>.md`` and ``runs/<experiment>.md`` beside their data.

    :return: the pages; for ``index`` the page that lists the others.
    :raises ValueError: if there are no collected runs of the experiment.
    """
    folder = pathlib.Path(results_dir)
    if experiment == "index":
        texts = {folder / "index.md": studies.render_index(folder)}
    else:
        texts = {
            folder / f"{experiment}.md": render(experiment, folder),
            folder / "runs" / f"{experiment}.md": render_runs(experiment, folder),
        }
    for page, text in texts.items():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    return list(texts)


def render(experiment: str, results_dir: results.PathLike) -> str:
    """Render the page of a study as Markdown: its question, its notes and its figures.

    :param experiment: name of the driver.
    :param results_dir: folder with ``<experiment>.json``.
    :raises ValueError: if there are no collected runs of the experiment.
    """
    folder = pathlib.Path(results_dir)
    runs = _collected(experiment, folder)
    about = _about(experiment)
    path = folder / f"{experiment}.notes.md"
    notes = path.read_text(encoding="utf-8").strip("\n") if path.exists() else ""
    parts = [
        _comment(experiment, f": prose belongs in `{experiment}.notes.md`"),
        f"# {about.title}",
        about.sentence,
        *([notes] if notes else []),
        *_figures(experiment, folder, runs, notes),
        f"Scores and commands of all runs have [a page of their own](runs/{experiment}.md).",
        f"```{{toctree}}\n:hidden:\n\nruns/{experiment}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def render_runs(experiment: str, results_dir: results.PathLike) -> str:
    """Render the page of a study's runs as Markdown: a row for runs that differ only in the seed.

    :param experiment: name of the driver.
    :param results_dir: folder with ``<experiment>.json``.
    :raises ValueError: if there are no collected runs of the experiment.
    """
    runs = _collected(experiment, pathlib.Path(results_dir))
    tables: dict[tuple[Any, ...], list[Result]] = {}
    for run in runs:
        problem = run["model"].rpartition("/")[0]
        held_out = "validation" in run.get("variant", "")  # not scored on the test cells
        tables.setdefault((_preset_rank(run["preset"]), problem, held_out), []).append(run)
    parts = [
        _comment(experiment, ""),
        f"# Runs: {_about(experiment).title}",
        f"All runs behind [the page of results](../{experiment}.md). Scores are means over seeds"
        " ± their sample standard deviation, and seconds are means over seeds. Where a temperature"
        " is said not to be the one that was set, a block of parameters was a tenth or more away"
        " from it, and the blocks' range is given. A row's flags take the place of the dots in the"
        f" command of its table. `docs/results/{experiment}.json` has the runs of single seeds,"
        " with all scores, settings, whole commands, commits and versions.",
    ]
    for (_, problem, held_out), members in sorted(tables.items()):
        head = f"## Preset `{members[0]['preset']}`"
        head += f", `{problem}`" if problem else ""
        command, flags_of = _commands(members)
        parts += [head + (": validation" if held_out else ""), command]
        parts.append(_run_table(members, flags_of))
    return "\n\n".join([*parts, "## Versions", _version_table(runs)]) + "\n"


def _collected(experiment: str, folder: pathlib.Path) -> list[Result]:
    runs = results.read_collected(folder / f"{experiment}.json")
    if not runs:
        raise ValueError(
            f"{experiment}.json holds no runs. Collect some with"
            " python -m experiments.report --collect RUN_DIR..."
        )
    return sorted(runs, key=results.run_key)


def _about(experiment: str) -> studies.About:
    words = experiment.replace("_", " ")
    default = studies.About(words.capitalize(), f"Runs of {words}.", "")
    return studies.ABOUT.get(experiment, default)


def _comment(experiment: str, where: str) -> str:
    return (
        f"<!-- Rendered from `{experiment}.json` by `python -m experiments.report"
        f" --experiment={experiment}`. Do not edit{where}. -->"
    )


def _commands(runs: Sequence[Result]) -> tuple[str, list[str]]:
    """Return the common part of the commands of a table's runs as Markdown, and other flags."""
    words = [shlex.split(run.get("command", "")) for run in runs]
    each = list(zip(runs, words, strict=True))
    flags_of = [[w for w in line[3:] if not _is_known(w, run)] for run, line in each]
    shared = [w for w in flags_of[0] if all(w in flags for flags in flags_of)]
    modules = {" ".join(line[:3]) for line in words}
    models = ["--model=MODEL"] if any(_model(run) in line for run, line in each) else []
    own = [f"--preset={runs[0]['preset']}", *models, "--seed=SEED", "--out_dir=OUT_DIR"]
    command = " ".join([*sorted(modules - {""}), *own, *map(shlex.quote, shared), "..."])
    return f"`{command}`", [shlex.join(w for w in flags if w not in shared) for flags in flags_of]


def _is_known(word: str, run: Result) -> bool:
    """Return whether a word of a run's command is in its row, or only names the row or files."""
    name = word.partition("=")[0].lstrip("-")
    of_row = (_model(run), f"--preset={run['preset']}")
    return word in of_row or name in ("seed", "variant", "out_dir", "resume")


def _model(run: Result) -> str:
    return f"--model={run['model'].rpartition('/')[2]}"


def _run_table(runs: Sequence[Result], flags_of: Sequence[str]) -> str:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, run in enumerate(runs):
        groups.setdefault(results.run_key(run)[:-1], []).append(index)
    # Metrics that publications compare; all others are in the file.
    names = _metric_names(runs)
    metrics = [name for name in names if name in _METRIC_ORDER] or names
    rows = []
    for indices in groups.values():
        members = [runs[i] for i in indices]
        flags_here = "; ".join(dict.fromkeys(flags_of[i] for i in indices if flags_of[i]))
        rows.append(
            [
                f"`{members[0]['model'].rpartition('/')[2]}`",
                _label(members[0], runs),
                _temperature(members),
                ", ".join(str(run["seed"]) for run in members),
                *(_mean_and_std(members, name) for name in metrics),
                f"{statistics.fmean(_seconds(run) for run in members):.0f}",
                f"`{flags_here}`" if flags_here else _NONE,
            ]
        )
    header = ["model", "variant", "temperature", "seeds", *metrics, "seconds", "flags"]
    kept = [
        column
        for column in zip(header, *rows, strict=True)
        if column[0] not in ("variant", "temperature", "flags") or set(column[1:]) != {_NONE}
    ]
    return _table([column[0] for column in kept], zip(*(c[1:] for c in kept), strict=True))


def _version_table(runs: Sequence[Result]) -> str:
    """Return a table with a row for each environment of runs."""
    counts: dict[str, int] = {}
    for run in runs:
        key = json.dumps(run["versions"], sort_keys=True)
        counts[key] = counts.get(key, 0) + 1
    environments = [(json.loads(key), count) for key, count in sorted(counts.items())]
    names = sorted({name for found, _ in environments for name in found})
    rows = [
        [*(found.get(name, _NONE) for name in names), str(count)] for found, count in environments
    ]
    return _table([*names, "runs"], rows)


def _figures(
    experiment: str, folder: pathlib.Path, runs: Sequence[Result], notes: str
) -> list[str]:
    """Return the figures that the notes do not show, with their captions."""
    captions = {name: text for run in runs for name, text in run.get("captions", {}).items()}
    own = folder / f"{experiment}.captions.json"
    if own.exists():
        captions |= json.loads(own.read_text(encoding="utf-8"))
    # "moving_ball_*" also matches figures of an experiment called moving_ball_long.
    longer = [path.stem + "_" for path in folder.glob(f"{experiment}_*.json")]
    paths = [
        path
        for path in sorted((folder / "figures").glob(f"{experiment}_*"))
        if path.suffix in (".png", ".gif")
        and not path.name.startswith(tuple(longer))
        and f"(figures/{path.name})" not in notes
    ]
    parts = ["## Figures"] if paths else []
    for path in paths:
        words = path.stem.removeprefix(f"{experiment}_").replace("_", " ").capitalize()
        caption = captions.get(path.name, captions.get(path.stem))
        parts.append(f"![{words}](figures/{path.name})")
        parts += [f"*{caption}*"] if caption else []
    return parts


def _label(run: Result, peers: Sequence[Result]) -> str:
    """Return a run's variant, and those settings in which runs of its model and variant differ.

    Settings that some of them lack, because they were added later, are left out.
    """
    variant = run.get("variant", "")
    alike = [
        results.flat(other.get("settings", {}))
        for other in peers
        if other["model"] == run["model"] and other.get("variant", "") == variant
    ]
    settings = results.flat(run.get("settings", {}))
    words = [variant] if variant else []
    for name in sorted(set.intersection(*(set(other) for other in alike))):
        if len({json.dumps(other[name]) for other in alike}) > 1:
            value = settings[name]
            words.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    return ", ".join(words) or _NONE


def _metric_names(runs: Sequence[Result]) -> list[str]:
    names = {name for run in runs for name in run["metrics"]}
    return [name for name in _METRIC_ORDER if name in names] + sorted(names - set(_METRIC_ORDER))


def _mean_and_std(runs: Sequence[Result], name: str) -> str:
    values = [run["metrics"][name] for run in runs if name in run["metrics"]]
    if not values:
        return _NONE
    text = _number(statistics.fmean(values))
    if len(values) > 1:
        text += f" ± {statistics.stdev(values):.2g}"
    if len(values) < len(runs):
        text += f" ({len(values)} of {len(runs)} seeds)"
    return text


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:.4g}"


def _temperature(runs: Sequence[Result]) -> str:
    """Return the target temperature, or the range of blocks if one is more than a tenth off.

    For samplers with an accept-reject step this is the target. Other runs without measured
    temperatures are marked as such.
    """
    asked = runs[0]["temperature"]
    if asked is None:
        return _NONE
    known = {"kinetic_temperature_max", "acceptance"}
    if not all(known & run["metrics"].keys() for run in runs):
        return f"{asked:g}, not measured"
    low, high = (
        choose(run["metrics"].get(f"kinetic_temperature_{end}", asked) for run in runs)
        for choose, end in ((min, "min"), (max, "max"))
    )
    if max(abs(low - asked), abs(high - asked)) <= 0.1 * asked:
        return f"{asked:g}"
    return f"not {asked:g}: {low:.2g} to {high:.2g}"


def _seconds(run: Result) -> float:
    seconds = run["seconds"]
    return seconds.get("total", sum(seconds.values()))


def _preset_rank(preset: str) -> tuple[int, str]:
    known = preset in _PRESET_ORDER
    return (_PRESET_ORDER.index(preset) if known else len(_PRESET_ORDER), preset)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    # An unescaped bar would end the cell, also within a command.
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


def main(argv: Sequence[str]) -> None:
    """Collect runs if requested, render pages, and print their paths."""
    run_dirs = argv[1:]
    if run_dirs and not _COLLECT.value:
        raise app.UsageError(f"unexpected arguments {run_dirs}; to merge runs, add --collect.")
    if _COLLECT.value and not run_dirs:
        raise app.UsageError("--collect needs at least one run's folder as an argument.")
    try:
        experiments = (
            collect(run_dirs, _RESULTS_DIR.value) if _COLLECT.value else [_EXPERIMENT.value]
        )
        for experiment in experiments:
            print(*write_pages(experiment, _RESULTS_DIR.value), sep="\n")
    except ValueError as error:
        raise app.UsageError(str(error)) from error


if __name__ == "__main__":
    terminal.run(main)
