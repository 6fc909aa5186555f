"""The check, the fit, and what is kept of it, for a user's table."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import tensorflow as tf

from experiments import imputation_study
from experiments.baselines import independent_gps, linear_interpolation, mean, scores
from experiments.imputation_plans import Plan, build_model, default_plan
from experiments.impute_table import INTERVAL, UserTable
from gpflow_bae.data import MultiOutputTable, Standardiser, hold_out
from gpflow_bae.posteriors import Posterior

__all__ = ["SavedFit", "check", "draw", "make_plan"]

_TASKS_DRAWN = 3


def make_plan(
    model: str,
    table: MultiOutputTable,
    latent_dim: int | None = None,
    num_inducing: int = 64,
    epochs: int | None = None,
) -> Plan:
    """Settings for a table nobody has seen: a FactorNet, a linear decoder, half as many channels.

    A linear decoder makes the model one of linearly mixed GPs, which small tables can hold; inputs
    are scaled to unit variance, and lengthscales start at a third of that. Codes have noise of
    their own around the GP, for what outputs share at one row alone, which lowered error and
    negative log density on the validation cells of EEG and Jura (docs/results/imputation.md).
    """
    return default_plan(
        model,
        "quick",
        net="factornet",
        latent_dim=latent_dim or max(1, (table.num_outputs + 1) // 2),
        lengthscale=0.3,
        decoder_widths=(),
        num_inducing=num_inducing,
        noise_start=0.3,
        nugget=0.1,
        code_noise_variance=0.1,
        epochs=epochs,
        learning_rate=1e-2,
    )


def check(plan: Plan, table: MultiOutputTable, fraction: float, seed: int) -> pd.DataFrame:
    """RMSE, NLL and coverage on hidden cells, of the model and of what it has to beat."""
    hidden = hold_out(table, fraction, seed)
    rows = {plan.model: imputation_study.run(plan, hidden, seed=seed, progress=False).metrics}
    for name, module in (
        ("independent GPs", independent_gps),
        ("linear interpolation", linear_interpolation),
        ("column means", mean),
    ):
        rows[name] = scores.score(hidden, *module.fit_predict(hidden, seed=seed))
    return pd.DataFrame(rows).T[["rmse", "nll", "coverage_90"]]


@dataclasses.dataclass(frozen=True)
class SavedFit:
    """A fitted posterior with everything that later rows need."""

    plan: Plan
    posterior: Posterior
    standardiser: Standardiser
    columns: dict[str, Any]
    scaling: tuple[np.ndarray, np.ndarray]

    @classmethod
    def fit(cls, plan: Plan, user: UserTable, columns: dict[str, Any], seed: int) -> SavedFit:
        """Fit to all that is observed."""
        standardiser = Standardiser.fit(user.table.Y, user.table.output_names, plan.log_outputs)
        posterior = imputation_study.fit(plan, user.table, standardiser, seed=seed)
        return cls(plan, posterior, standardiser, columns, (user.input_centre, user.input_scale))

    def predict(self, user: UserTable, new: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [T, N, P] in the units of the outputs.

        :param new: whether these are other rows than those of the fit.
        """
        given = (user.table.X, user.table.Y) if new else None
        return imputation_study.predict(self.posterior, self.standardiser, given)

    def write(self, folder: str | pathlib.Path) -> None:
        """``fit.json`` and ``arrays.npz`` in a folder."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {f"parameter_{i}": v for i, v in enumerate(self.posterior.parameters)}
        arrays |= {f"encoder_{i}": v for i, v in enumerate(self.posterior.encoder)}
        arrays |= {"mean": self.standardiser.mean, "std": self.standardiser.std}
        arrays |= {"centre": self.scaling[0], "scale": self.scaling[1]}
        arrays["inducing"] = _inducing(self.posterior.model)
        np.savez(folder / "arrays.npz", **arrays)
        plan = {
            f.name: getattr(self.plan, f.name)
            for f in dataclasses.fields(self.plan)
            if f.name not in ("variational", "sampler")
        }
        record = {"plan": plan, "columns": self.columns}
        (folder / "fit.json").write_text(json.dumps(record, indent=1))

    @classmethod
    def read(cls, folder: str | pathlib.Path) -> SavedFit:
        """What :meth:`write` wrote.

        :raises FileNotFoundError: if the folder holds no fit.
        """
        folder = pathlib.Path(folder)
        if not (folder / "fit.json").exists():
            raise FileNotFoundError(
                f"{folder} holds no fit.json: name the folder <out>.posterior of an earlier run."
            )
        record = json.loads((folder / "fit.json").read_text())
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in record["plan"].items()}
        plan = default_plan(fields.pop("model"), "quick", **fields)
        with np.load(folder / "arrays.npz") as file:
            arrays = dict(file)
        P, Z = len(arrays["mean"]), arrays["inducing"]
        rows = MultiOutputTable(
            Z[None], np.zeros((1, len(Z), P)), output_names=tuple(record["columns"]["outputs"])
        )
        model = build_model(dataclasses.replace(plan, num_inducing=len(Z)), rows)
        posterior = Posterior(
            model,
            [arrays[f"parameter_{i}"] for i in range(len(model.sampled_paths))],
            [arrays[f"encoder_{i}"] for i in range(len(model.encoder_paths))],
            tf.constant(rows.X),
            tf.constant(rows.Y, tf.float32),
        )
        standardiser = Standardiser(arrays["mean"], arrays["std"], plan.log_outputs)
        scaling = arrays["centre"], arrays["scale"]
        return cls(plan, posterior, standardiser, record["columns"], scaling)


def _inducing(model: Any) -> np.ndarray:
    return np.asarray(model.latent_prior.inducing_variable.Z)


def draw(
    user: UserTable, mean: np.ndarray, variance: np.ndarray, out: pathlib.Path
) -> list[pathlib.Path]:
    """A figure for each output: what was there, what was filled in, and the 90 % interval."""
    paths = []
    for p, name in enumerate(user.table.output_names):
        count = min(_TASKS_DRAWN, len(user.tasks))
        figure, axes = plt.subplots(count, 1, figsize=(8, 2.2 * count), squeeze=False)
        for t, axis in enumerate(axes[:, 0]):
            real = user.rows[t] >= 0
            times = user.times.iloc[user.rows[t][real]].to_numpy()
            order = np.argsort(times)
            centre, scale = mean[t, real, p][order], np.sqrt(variance[t, real, p][order])
            values = user.table.Y[t, real, p][order]
            hole = np.isnan(values)
            low, high = centre - INTERVAL * scale, centre + INTERVAL * scale
            axis.plot(times[order], values, "k.", markersize=3, label="observed")
            axis.vlines(times[order][hole], low[hole], high[hole], color="C0", alpha=0.3)
            axis.plot(times[order][hole], centre[hole], "C0.", markersize=4, label="filled, 90 %")
            if np.issubdtype(times.dtype, np.datetime64):  # whole dates would overlap
                locator = mdates.AutoDateLocator()
                axis.xaxis.set_major_locator(locator)
                axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
            axis.set_ylabel(name)
            axis.set_title(user.tasks[t], fontsize=9, loc="left")
        axes[0, 0].legend(fontsize=8, ncols=2)
        figure.tight_layout()
        paths.append(out.with_name(f"{out.stem}_{name}.png"))
        figure.savefig(paths[-1], dpi=120)
        plt.close(figure)
    return paths
