"""Renders the pages of docs/results from collected runs, so that nobody types a number into one.

    python -m experiments.report --collect RUN_DIR...      # merge runs, then render
    python -m experiments.report --experiment=moving_ball  # render
    python -m experiments.report --experiment=index        # the page above them, with pictures

``docs/results/<experiment>.md`` is made of ``<experiment>.json``, of the prose in
``<experiment>.notes.md`` if there is any, and of ``figures/<experiment>_*`` (PNG and GIF) with the
captions of ``<experiment>.captions.json``. The same files always give the same page.
"""

import json
import pathlib
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
    """Merges every ``results.json`` in or below the given folders into the collected lists.

    :param run_dirs: Folders of finished runs.
    :param results_dir: ``docs/results``.
    :return: Sorted names of the experiments that were touched.
    :raises ValueError: If a folder holds no finished run, or one is not in the format.
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


def write_page(experiment: str, results_dir: results.PathLike) -> pathlib.Path:
    """Renders ``<experiment>.md`` beside its data.

    :return: The page.
    :raises ValueError: If there are no collected runs of the experiment.
    """
    page = pathlib.Path(results_dir) / f"{experiment}.md"
    text = (
        studies.render_index(results_dir)
        if experiment == "index"
        else render(experiment, results_dir)
    )
    page.write_text(text, encoding="utf-8")
    return page


def render(experiment: str, results_dir: results.PathLike) -> str:
    """The page as Markdown.

    :param experiment: Name of the driver.
    :param results_dir: Folder with ``<experiment>.json``.
    :raises ValueError: If there are no collected runs of the experiment.
    """
    folder = pathlib.Path(results_dir)
    runs = results.read_collected(folder / f"{experiment}.json")
    if not runs:
        raise ValueError(
            f"{experiment}.json holds no runs. Collect some with"
            " python -m experiments.report --collect RUN_DIR..."
        )
    runs = sorted(runs, key=results.run_key)
    words = experiment.replace("_", " ")
    about = studies.ABOUT.get(
        experiment, studies.About(words.capitalize(), f"Runs of {words}.", "")
    )
    parts = [
        f"<!-- Rendered from `{experiment}.json` by `python -m experiments.report"
        f" --experiment={experiment}`. Do not edit: prose belongs in `{experiment}.notes.md`. -->",
        f"# {about.title}",
        f"{about.sentence} The tables and figures below were written by runs, and the table of"
        " every run has its command. What is said to have been asked is what this project set out"
        " to reach; **missed** means that it has not.",
    ]
    notes = folder / f"{experiment}.notes.md"
    if notes.exists():
        parts += ["## Notes", notes.read_text(encoding="utf-8").strip("\n")]
    for preset in sorted({run["preset"] for run in runs}, key=_preset_rank):
        of_preset = [run for run in runs if run["preset"] == preset]
        chosen = [run for run in of_preset if "validation" not in run.get("variant", "")]
        if chosen:
            parts += [f"## Preset `{preset}`", _summary_table(chosen)]
        held_out = [run for run in of_preset if run not in chosen]
        if held_out:  # not beside the test scores: they are of other cells
            parts += [f"## Preset `{preset}`: validation", _summary_table(held_out)]
    parts.append(
        "Mean ± standard deviation over seeds (sample standard deviation; none for one seed)."
    )
    parts += _figures(experiment, folder, runs)
    parts += ["## Every run", _run_table(runs), "## Versions", _version_table(runs)]
    return "\n\n".join(parts) + "\n"


def _summary_table(runs: Sequence[Result]) -> str:
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for run in runs:
        groups.setdefault(results.run_key(run)[:-1], []).append(run)
    # What the field compares; the rest is in the table of every run.
    names = _metric_names(runs)
    metrics = [name for name in names if name in _METRIC_ORDER] or names
    rows = []
    for members in groups.values():
        first = members[0]
        rows.append(
            [
                f"`{first['model']}`",
                _label(first, runs),
                _temperature(members),
                ", ".join(str(run["seed"]) for run in members),
                *(_mean_and_std(members, name) for name in metrics),
            ]
        )
    return _table(["model", "variant", "temperature", "seeds", *metrics], rows)


def _run_table(runs: Sequence[Result]) -> str:
    metrics = _metric_names(runs)
    rows = []
    for run in sorted(runs, key=lambda run: _preset_rank(run["preset"])):
        same_preset = [other for other in runs if other["preset"] == run["preset"]]
        rows.append(
            [
                run["preset"],
                f"`{run['model']}`",
                _label(run, same_preset),
                _temperature([run]),
                str(run["seed"]),
                *(_number(run["metrics"].get(name)) for name in metrics),
                str(run["num_parameters"]),
                _seconds(run["seconds"]),
                f"`{_short_commit(run['git_commit'])}`",
                f"`{run['command']}`" if run.get("command") else _NONE,
            ]
        )
    header = ["preset", "model", "variant", "temperature", "seed", *metrics]
    return _table([*header, "parameters", "seconds", "commit", "command"], rows)


def _version_table(runs: Sequence[Result]) -> str:
    """One row for each environment that runs were made in."""
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


def _figures(experiment: str, folder: pathlib.Path, runs: Sequence[Result]) -> list[str]:
    captions = {name: text for run in runs for name, text in run.get("captions", {}).items()}
    own = folder / f"{experiment}.captions.json"
    if own.exists():
        captions |= json.loads(own.read_text(encoding="utf-8"))
    # "moving_ball_*" also matches figures of an experiment called moving_ball_long.
    longer = [path.stem + "_" for path in folder.glob(f"{experiment}_*.json")]
    paths = [
        path
        for path in sorted((folder / "figures").glob(f"{experiment}_*"))
        if path.suffix in (".png", ".gif") and not path.name.startswith(tuple(longer))
    ]
    parts = ["## Figures"] if paths else []
    for path in paths:
        words = path.stem.removeprefix(f"{experiment}_").replace("_", " ")
        caption = captions.get(path.name, captions.get(path.stem, words[:1].upper() + words[1:]))
        parts.append(f"![{caption}](figures/{path.name})\n\n*{caption}*")
    return parts


def _label(run: Result, peers: Sequence[Result]) -> str:
    """The run's variant, and those settings in which runs of this model and variant differ.

    A setting that not all of them know, having been added since, does not tell them apart.
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
    """The temperature that was asked for, and what it was where a block was a tenth or more off.

    Samplers that accept or reject have none but the one asked for; of the others, runs made before
    temperatures were measured say so.
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


def _seconds(seconds: dict[str, float]) -> str:
    phases = {name: value for name, value in seconds.items() if name != "total"}
    total = seconds.get("total", sum(phases.values()))
    text = f"{total:.1f}"
    if phases:
        text += f" ({', '.join(f'{name} {phases[name]:.1f}' for name in sorted(phases))})"
    return text


def _short_commit(commit: str) -> str:
    digits, dash, suffix = commit.partition("-")
    return digits[:12] + dash + suffix


def _preset_rank(preset: str) -> tuple[int, str]:
    known = preset in _PRESET_ORDER
    return (_PRESET_ORDER.index(preset) if known else len(_PRESET_ORDER), preset)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    # An unescaped bar would end the cell, in a command too.
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


def main(argv: Sequence[str]) -> None:
    """Collects if asked, then renders; prints the pages it wrote."""
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
            print(write_page(experiment, _RESULTS_DIR.value))
    except ValueError as error:
        raise app.UsageError(str(error)) from error


if __name__ == "__main__":
    terminal.run(main)
