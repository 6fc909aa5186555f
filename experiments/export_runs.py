"""Posteriors out of the folders that the drivers leave behind."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpflow_bae import serving
from gpflow_bae.data import prepare_data
from gpflow_bae.posteriors import Bank, Posterior

__all__ = ["Run", "UnsupportedRunError", "read"]


class UnsupportedRunError(ValueError):
    """A folder that no posterior can be read from."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A posterior, and what its export should say."""

    posterior: Posterior
    signatures: tuple[str, ...]
    notes: dict[str, Any]
    why_not: dict[str, str] = dataclasses.field(default_factory=dict)


def read(folder: pathlib.Path, data_dir: str | None = None) -> Run:
    """The posterior of a run, with its model built again from the run's settings.

    :param data_dir: folder of the data sets, for runs whose model is built from data.
    :raises FileNotFoundError: if there is no run, or no sample yet.
    :raises UnsupportedRunError: for a run of another kind, or one that today's code builds
        another model for.
    """
    if (folder / "fit.json").exists():
        return _imputation(folder)
    if not (folder / "config.json").exists():
        raise FileNotFoundError(
            f"{folder} holds neither config.json of a driver nor fit.json of experiments.impute; "
            "name the --out_dir of a run, or <out>.posterior."
        )
    config = json.loads((folder / "config.json").read_text())
    experiment = config["experiment"]
    builders: dict[str, Callable[..., tuple[Any, Any]]] = {
        "moving_ball": _moving_ball,
        "rotated_mnist": _rotated_mnist,
    }
    if experiment not in builders:
        raise UnsupportedRunError(
            f"{folder} is a run of {experiment}; this command exports {sorted(builders)} and the "
            "posteriors of experiments.impute. Call gpflow_bae.serving.export where you have the "
            "posterior in Python."
        )
    if not (folder / "chain" / "chain.json").exists():
        raise UnsupportedRunError(
            f"{folder} is a run of {config['model']} without a chain: variational runs keep no "
            "posterior that this command reads. Call gpflow_bae.serving.export where you have it "
            "in Python."
        )
    model, arrays = builders[experiment](config, data_dir)
    posterior = _read_chain(folder / "chain", model, arrays)
    notes = {k: config[k] for k in ("experiment", "model", "preset", "seed")}
    return Run(posterior, serving.SIGNATURES, {"run": notes})


def _read_chain(folder: pathlib.Path, model: Any, arrays: tuple[Any, Any]) -> Posterior:
    """The samples of a chain, checked against the model that was built for them."""
    record = json.loads((folder / "chain.json").read_text())
    sampled = zip(model.sampled.paths, model.sampled.parameters, strict=True)
    now = [f"{path}{tuple(p.shape)}" for path, p in sampled]
    if record["sampled"] != now:
        changed = sorted(set(record["sampled"]) ^ set(now))
        raise UnsupportedRunError(
            f"{folder} has other parameters than the model built from its settings ({changed}): "
            "it was written by another version of the code; export it with that one."
        )
    files = sorted((folder / "samples").glob("*.npz"))
    if not files:
        raise FileNotFoundError(
            f"{folder} has no sample yet; finish the run with --resume before exporting it."
        )
    samples = []
    for file in files:
        with np.load(file) as sample:
            samples.append(dict(sample))
    temperature = record["sampler_settings"]["temperature"]
    bank = Bank.of_samples(samples, type(model).__name__, temperature=temperature)
    return Posterior(model, bank, prepare_data(model, arrays))


def _changes(plan: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The plain settings of a run that a plan of today has."""
    names = {f.name for f in dataclasses.fields(plan)} - {"model", "regime"}
    plain = (bool, int, float, str)
    return {k: v for k, v in settings.items() if k in names and isinstance(v, plain)}


def _moving_ball(config: Mapping[str, Any], data_dir: str | None) -> tuple[Any, Any]:
    from experiments.moving_ball import plans, study
    from gpflow_bae.datasets import moving_ball

    plan = plans.make_plan(config["model"], config["preset"])
    plan = dataclasses.replace(plan, **_changes(plan, config["settings"]))
    train, _ = moving_ball.load(config["seed"])
    return study.build_model(plan, train), (train.X, train.Y)


def _rotated_mnist(config: Mapping[str, Any], data_dir: str | None) -> tuple[Any, Any]:
    from experiments.rotated_mnist import models, plans, study

    plan = plans.make_plan(config["model"], config["preset"])
    plan = dataclasses.replace(plan, **_changes(plan, config["settings"]))
    data = study.load(data_dir, config["digits"], plan.object_dim, config["holdout_view"])
    return models.build_model(plan, data), (data.train.X[None], data.train.Y[None])


def _imputation(folder: pathlib.Path) -> Run:
    from gpflow_bae.impute import Imputer

    imputer = Imputer.load(folder)
    if imputer.model == "lmc":
        raise UnsupportedRunError(
            f"{folder} is a fit of the model 'lmc', which has no encoder and no decoder to export: "
            "use Imputer.load, or fit the table again with --model=sgp_vae."
        )
    scale = imputer.standardiser_
    arguments = imputer.get_params()
    notes = {
        "columns": {name: arguments[name] for name in ("outputs", "time", "inputs", "task")},
        "units": "y is standardised: (y - mean) / std, of logarithms where log_outputs",
        "mean": scale.mean.tolist(),
        "std": scale.std.tolist(),
        "log_outputs": scale.log_outputs,
    }
    signatures = tuple(s for s in serving.SIGNATURES if s != "generate")
    why_not = {"generate": "the folder does not hold the table that predictions condition on"}
    return Run(imputer.posterior_, signatures, notes, why_not)
