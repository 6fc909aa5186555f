"""Posteriors out of the folders that the drivers leave behind."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.common.driver import POSTERIOR
from gpflow_bae import serving
from gpflow_bae.data import MultiOutputTable
from gpflow_bae.models import VariationalAutoencoder
from gpflow_bae.posteriors import Posterior
from gpflow_bae.posteriors.stored.archive import read_archive

# Methods without a model of this package.
_BASELINES = {
    "mean": "the mean of each column",
    "igp": "GPflow's models of single outputs",
    "gpar": "GPflow's models of single outputs, one after another",
}


class UnsupportedRunError(ValueError):
    """A folder that no posterior can be read from."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A posterior, and what its export should say."""

    posterior: Any
    signatures: tuple[str, ...]
    notes: dict[str, Any]
    why_not: dict[str, str] = dataclasses.field(default_factory=dict)


def read(folder: pathlib.Path, data_dir: str | None = None) -> Run:
    """The posterior of a run, with its model built again from the run's settings.

    :param data_dir: folder of the data sets, for runs whose model is built from data.
    :raises FileNotFoundError: if there is no run, or no sample yet.
    :raises UnsupportedRunError: for a run that leaves no posterior, or one that today's code builds
        another model for.
    """
    if (folder / "fit.json").exists():
        raise UnsupportedRunError(
            f"{folder} is a fit of experiments.impute, whose model has no encoder to export: use "
            "gpflow_bae.impute.Imputer.load."
        )
    if not (folder / "config.json").exists():
        raise FileNotFoundError(
            f"{folder} holds no config.json of a driver; name the --out_dir of a run."
        )
    config = json.loads((folder / "config.json").read_text())
    experiment, (*_, method) = config["experiment"], config["model"].split("/")
    if method in _BASELINES:
        raise UnsupportedRunError(
            f"{folder} is a run of the baseline {method}, {_BASELINES[method]}: it leaves no "
            "posterior to export. Name a run of a model."
        )
    if experiment not in _BUILDERS:
        raise UnsupportedRunError(
            f"{folder} is a run of {experiment}; this command exports runs of "
            f"{sorted(_BUILDERS)}. Call "
            "gpflow_bae.serving.export where you have the posterior in Python."
        )
    notes: dict[str, Any] = {
        "run": {k: config[k] for k in ("experiment", "model", "preset", "seed")}
    }
    if experiment == "imputation" and (folder / "arrays.npz").exists():
        with np.load(folder / "arrays.npz") as arrays:
            scale = (arrays[f"standardiser_{name}"] for name in ("mean", "std"))
            notes |= _units(*scale, config["settings"]["log_outputs"])
    if not (folder / POSTERIOR).exists():
        raise FileNotFoundError(
            f"{folder} has no {POSTERIOR} yet, which a run writes at its end: finish the run with "
            "--resume."
        )
    header, arrays = read_archive(folder / POSTERIOR)
    model = _BUILDERS[experiment](config, arrays, data_dir)
    posterior = _load(folder / POSTERIOR, header["kind"], model)
    if isinstance(model, VariationalAutoencoder) and not isinstance(posterior, Posterior):
        return _without_data(model, notes)
    return Run(posterior, serving.SIGNATURES, notes)


def _load(path: pathlib.Path, kind: str, model: Any) -> Any:
    """The posterior in a file, under a model that was built for it."""
    from gpflow_bae import posteriors

    try:
        return getattr(posteriors, kind).load(path, model)
    except ValueError as error:
        raise UnsupportedRunError(
            f"{path} has other parameters than the model built from the run's settings ({error}): "
            "it was written by another version of the code; export it with that one."
        ) from error


def _changes(plan: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The plain settings of a run that a plan of today has."""
    names = {f.name for f in dataclasses.fields(plan)} - {"model", "regime"}
    kinds = (bool, int, float, str, list, type(None))
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in settings.items()
        if name in names and isinstance(value, kinds) and name not in ("schedule", "sampler")
    }


# A model for each experiment, from config.json, the arrays of posterior.npz, and the folder of the
# data sets. The values of parameters do not matter: the file has them.


def _moving_ball(config: Mapping[str, Any], arrays: Mapping[str, Any], data_dir: str | None) -> Any:
    from experiments.moving_ball import plans, study
    from gpflow_bae.datasets import moving_ball

    plan = plans.make_plan(config["model"], config["preset"])
    plan = dataclasses.replace(plan, **_changes(plan, config["settings"]))
    train, _ = moving_ball.load(config["seed"])
    return study.build_model(plan, train)


def _rotated_mnist(
    config: Mapping[str, Any], arrays: Mapping[str, Any], data_dir: str | None
) -> Any:
    import gpflow

    from experiments.rotated_mnist import models, plans, study

    plan = plans.make_plan(config["model"], config["preset"])
    plan = dataclasses.replace(plan, **_changes(plan, config["settings"]))
    images = None
    if plan.model not in ("vae", "cvae", "bae"):  # which have no vectors of objects
        view = config["holdout_view"]
        images = study.load(data_dir, config["digits"], plan.object_dim, view)
    model = models.build_model(plan, images)
    if not plan.has_samples:
        gpflow.set_trainable(model, True)  # as the study leaves it
    return model


def _table(config: Mapping[str, Any], arrays: Mapping[str, Any], data_dir: str | None) -> Any:
    from experiments.imputation import plans

    _, model = config["model"].split("/")
    plan = plans.make_plan(model)
    plan = dataclasses.replace(plan, **_changes(plan, config["settings"]))
    Y = arrays["posterior/Y"]
    X = np.broadcast_to(arrays["posterior/X"], (*Y.shape[:2], arrays["posterior/X"].shape[-1]))
    lengths = np.full(len(X), X.shape[1])
    if X.shape[-1]:  # padding repeats the last row of a task, whose other rows differ
        lengths += 1 - (X == X[:, -1:]).all(-1).sum(1)
    return plans.build_model(plan, MultiOutputTable(X, Y, lengths=lengths))


def _tabular(config: Mapping[str, Any], arrays: Mapping[str, Any], data_dir: str | None) -> Any:
    from experiments.tabular import networks
    from gpflow_bae.models import TemperedBAE

    dataset, method = config["model"].split("/")
    dtype = "float64" if method == "sghmc" else "float32"
    rows = np.zeros((0, 0))
    return TemperedBAE(*networks.build(dataset, rows, "glorot", config["seed"], dtype))


def _gplvm(config: Mapping[str, Any], arrays: Mapping[str, Any], data_dir: str | None) -> Any:
    from experiments.gplvm import models

    plan = models.Plan()
    plan = dataclasses.replace(plan, **_changes(plan, config["settings"]))
    num_rows, num_outputs = (int(n) for n in arrays["posterior/shape"])
    codes = np.random.default_rng(0).standard_normal((num_rows, plan.latent_dim + plan.biases))
    # Its edges come with the posterior.
    model = models.build(plan, codes, num_outputs, config["seed"], np.arange(5.0))
    if plan.gaussian_steps:
        models.put_flow(plan, model, config["seed"])
    return model


def _sprites(config: Mapping[str, Any], arrays: Mapping[str, Any], data_dir: str | None) -> Any:
    from experiments.sprites import models, plans
    from experiments.sprites.frames import Task
    from gpflow_bae.datasets import sprites

    settings = config["settings"]
    kind = {"representation": settings["representation"]} if config["model"] == "svgp_vae" else {}
    plan = plans.make_plan(config["model"], config["preset"], pretrain_steps=0, **kind)
    plan = dataclasses.replace(plan, **_changes(plan, settings))
    # Of the task its sizes alone, so frames that are black.
    tables = [v for k, v in arrays.items() if k.endswith("kernels[0].inputs.table.values")]
    frames = sprites.Frames(np.zeros((1, 2)), np.zeros((1, sprites.NUM_PIXELS), np.uint8))
    number = len(tables[0]) if tables else 1
    task = Task(frames, frames, frames, number, sprites.NUM_POSES)
    if plan.model != "sgp_bae":
        return models.build_model(plan, task)
    fitted = models.build_model(dataclasses.replace(plan, model="svgp_vae"), task)
    return models.build_chain(plan, fitted)


def _without_data(model: Any, notes: dict[str, Any]) -> Run:
    """A fitted autoencoder, whose run kept its parameters and not its data."""
    width = model.decoder.output_dim
    posterior = Posterior.from_point(model, (np.zeros((1, 2)), np.zeros((1, width), np.float32)))
    if model.latent_prior.needs_inputs:
        signatures = tuple(s for s in serving.SIGNATURES if s != "generate")
        why_not = {"generate": "the folder does not hold the data that predictions condition on"}
        return Run(posterior, signatures, notes, why_not)
    return Run(posterior, serving.SIGNATURES, notes)


_BUILDERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any], str | None], Any]] = {
    "gplvm": _gplvm,
    "imputation": _table,
    "moving_ball": _moving_ball,
    "rotated_mnist": _rotated_mnist,
    "sprites": _sprites,
    "tabular_bae": _tabular,
}


def _units(mean: np.ndarray, std: np.ndarray, log_outputs: bool) -> dict[str, Any]:
    """The scale in which a client sends rows and reads answers."""
    return {
        "units": "y is standardised: (y - mean) / std, of logarithms where log_outputs",
        "mean": mean.tolist(),
        "std": std.tolist(),
        "log_outputs": log_outputs,
    }
