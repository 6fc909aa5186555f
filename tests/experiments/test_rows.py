"""Every row of the results pages: its command gives its model, its variant and its settings."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
from typing import Any

import pytest

import experiments
from tests.experiments.commands import parsed, study

ROOT = pathlib.Path(experiments.__file__).parents[1]
STUDIES = (
    *("certificates", "gplvm", "imputation", "imputation_benchmarks", "moving_ball", "priors"),
    *("regression", "rotated_mnist", "spatial_omics", "sprites", "tabular_bae"),
)
#: Settings that rows have and that are no choice any more, with what is always done today.
NO_CHOICE = {
    "coupled": (False,),
    "fan_in_prior": (False,),
    "fixed_representation": (False,),
    "hidden_widths": ([64],),
    "kernel": ("normalized", "se"),
    "learn_inducing": (False,),
    "learn_poses": (True,),
    "num_inducing": (None,),
    "pretrain_learning_rate": (0.001,),
    "principal_components": (True,),
    "sampler.moves": ([], ["code_scale", "prior_parameters"], ["likelihood_parameters"]),
    "sampler.num_starts": (1,),
    "sampler.scale_codes": (False,),
    "sampler.start_batch_size": (None,),  # of chains without a start
    "sampler.start_learning_rate": (0.003,),
    "sampler.subtract_gradient_noise": (False,),
    "sampler.vectorize_chains": (False,),
    "spatial.final_learning_rate_fraction": (0.05,),
    "spatial.learning_rate": (0.01,),
    "spatial.patience": (4,),
    "spatial.step_size": (0.005, 0.01),
    "spatial.validation_fraction": (0.1,),
    "titsias": (False,),
    "weight_prior_scale": (1.0,),
}
#: Settings of rows that no command gives, with words of the page that say so.
LOST = {
    ("certificates", "dsgp_bae", ""): (
        {"sampler.num_sampler_steps", "sampler.burnin", "sampler.thinning"}
        | {"sampler.momentum_decay", "sampler.step_size_search"},
        "no command gives",
    ),
    ("rotated_mnist", "sgp_bae", "mode start"): ({"regime"}, "no command gives"),
    ("rotated_mnist", "sgp_bae", "inducing inputs sampled"): (
        {"sampler.step_size_search"},
        "which no command gives",
    ),
    ("tabular_bae", "swiss_roll/sghmc", "tuned"): (
        {"sampler.burnin", "sampler.step_size_search"},
        "no command gives",
    ),
}


def rows(page: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / f"docs/results/{page}.json").read_text(encoding="utf-8"))


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Settings by dotted names."""
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Any] = {}
    for name, part in value.items():
        found |= flat(part, f"{prefix}.{name}" if prefix else name)
    return found


def in_todays_words(settings: dict[str, Any]) -> dict[str, Any]:
    """Stored settings under the names that they have today."""
    found = dict(settings)
    step_size = found.get("sampler.step_size")
    if str(step_size).startswith("from_"):  # the search was recorded in the place of its start
        found["sampler.step_size_search"] = step_size.removeprefix("from_")
        found["sampler.step_size"] = found.pop("sampler.initial_step_size")
    for part in ("variational", "settings"):  # rows and columns of a minibatch, once apart
        if f"{part}.num_columns" in found:
            columns = found.pop(f"{part}.num_columns")
            if part == "settings":
                found[f"{part}.batch_size"] = [found[f"{part}.batch_size"], columns]
    if found.get("variational.relocations") == 0:  # none is the default where inputs are known
        found["variational.relocations"] = None
    return found


def differences(then: dict[str, Any], now: dict[str, Any]) -> set[str]:
    """Names of stored settings that a plan of today has with another value, or cannot have."""
    return {
        name
        for name, value in in_todays_words(flat(then)).items()
        if (now[name] != value if name in now else value not in NO_CHOICE.get(name, ()))
    }


def test_every_page_of_rows_is_there() -> None:
    kept = (json.loads(p.read_text(encoding="utf-8")) for p in ROOT.glob("docs/results/*.json"))
    found = {row["experiment"] for page in kept if isinstance(page, list) for row in page}
    assert found == set(STUDIES)


@pytest.mark.parametrize("page", STUDIES)
def test_commands_give_the_rows_of_the_pages(page: str) -> None:
    """Model, variant and settings of every collected run, from its command."""
    notes = " ".join((ROOT / f"docs/results/{page}.notes.md").read_text(encoding="utf-8").split())
    for row in rows(page):
        module, *arguments = shlex.split(row["command"])[2:]
        asked = study(module.removeprefix("experiments."))
        with parsed(asked.define_flags, *arguments) as values:
            assert asked.experiment == row["experiment"]
            assert (values.preset, values.seed) == (row["preset"], row["seed"])
            (run,) = [run for run in asked.runs() if run.model == row["model"]]
            words = " ".join(word for word in (values.variant, *run.words) if word)
        stopped = re.sub(r" ?first \d+ of \d+ (samples|steps)", "", row["variant"])
        lost, said = LOST.get((page, row["model"], stopped), (set(), ""))
        assert words == stopped or said, row["command"]
        if run.plan is None:
            continue
        assert run.plan.temperature == row["temperature"]
        now = flat(json.loads(json.dumps(run.plan.describe())))
        assert differences(row["settings"], now) <= lost, row["command"]
        assert said in notes


def test_a_setting_that_no_command_gives_is_seen() -> None:
    now = {"a": 1, "sampler.step_size": 0.01, "sampler.step_size_search": "curvature"}
    then = {"a": 1, "sampler": {"step_size": "from_curvature", "initial_step_size": 0.01}}
    assert not differences(then, now)
    assert differences(then | {"a": 2}, now) == {"a"}
    assert differences(then | {"coupled": True}, now) == {"coupled"}
    assert not differences(then | {"coupled": False}, now)
