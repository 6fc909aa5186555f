"""What the driver of counts in tissue runs."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import scipy.sparse

from experiments.common import plans
from experiments.common.driver import Options, Outcome
from experiments.spatial_omics import baselines, figures, scores
from experiments.spatial_omics.data import Split
from gpflow_bae.spatial import SpatialBAE, SpatialPlan

__all__ = ["Plan", "run"]

HELD_OUT = "held_out"  # layer of the counts that are hidden
_CLUSTERINGS = 5


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a run, but the seed and the data."""

    model: str
    num_spatial: int = 6
    num_cell: int = 4
    num_steps: int | None = None
    hide_counts: bool = False  # the layer "held_out", which is scored then
    spatial: SpatialPlan | None = None


def run(plan: Plan, split: Split, options: Options) -> Outcome:
    """Fit, score the cells that were held back, and draw the tissue."""
    if plan.model == "spatial_bae":
        return _spatial_bae(plan, split, options)
    return _baseline(plan, split)


def _counts(adata: Any) -> np.ndarray:
    return np.asarray(adata.X.todense(), float)


def _baseline(plan: Plan, split: Split) -> Outcome:
    started = time.process_time()
    train, test = (_counts(part) for part in split)
    median = np.median(train.sum(1))
    sizes, new_sizes = train.sum(1) / median, test.sum(1) / median
    if plan.model == "gene_mean":
        found = baselines.gene_mean(train, sizes, new_sizes)
    else:
        places, new_places = (part.obsm["spatial"] for part in split)
        found = baselines.neighbours(places, train, sizes, new_places, new_sizes)
    density = baselines.log_density(test, found.mean, found.number).mean()
    metrics = {"log_density": float(density), **scores.of_means(test, found.mean, new_sizes)}
    return Outcome(
        metrics=metrics | found.chosen,
        num_parameters=2 * train.shape[1],
        seconds={"cpu": time.process_time() - started},
    )


def _spatial_bae(plan: Plan, split: Split, options: Options) -> Outcome:
    started = time.process_time()
    train, test = split
    model = SpatialBAE(
        plan.num_spatial,
        plan.num_cell,
        slice_key="slice" if train.obs["slice"].nunique() > 1 else None,
        hidden_layer=HELD_OUT if plan.hide_counts else None,
        num_steps=plan.num_steps,
        seed=options.seed,
        plan=plan.spatial,
        progress=options.progress,
    )
    model.fit(train)
    seconds = time.process_time() - started
    record = train.uns["gpbae"]
    metrics = _at_places(model, test)
    if plan.hide_counts:
        metrics |= _hidden(model, train)
    codes = train.obsm["X_gpbae"]
    labels = train.obs["domain"].to_numpy()
    number = len(np.unique(labels))
    found = [scores.clusters(codes, number, seed) for seed in range(_CLUSTERINGS)]
    metrics["adjusted_rand"] = float(np.mean([scores.adjusted_rand(labels, c) for c in found]))
    spread = np.mean(np.square(train.obsm["X_gpbae_sd"]), 0)
    # 1 is the prior's: a channel in which the counts say nothing.
    metrics["collapsed_channels"] = float((spread > 0.9).sum())
    posterior = model.posterior_
    assert posterior is not None
    outcome = Outcome(
        metrics=metrics,
        num_parameters=plans.count(posterior.model.trainable_parameters),
        seconds={"cpu": seconds},
        curves={"loss": [float(v) for v in record["losses"]]},
        posterior=posterior,
    )
    figures.draw(outcome, train, found[0])
    return outcome


def _at_places(model: SpatialBAE, test: Any) -> dict[str, float]:
    """Of cells that were held back, given their places and sizes."""
    sizes, counts = model.sizes(test, hidden=False), _counts(test)
    slices = test.obs["slice"].astype(str).to_numpy() if len(model.slices_) > 1 else None
    found = model.predict(test.obsm["spatial"], sizes, slices)
    inside = (found.lower <= counts) & (counts <= found.upper)
    draws = model.sample(test.obsm["spatial"], sizes, slices, num_samples=200)
    density = model.log_density(test, hidden=False)
    return {
        "log_density": float(density.mean()),
        "coverage_90": scores.randomised_coverage(counts, draws, 0.9, 0),
        "coverage_90_whole": float(inside.mean()),
        **scores.of_means(counts, found.mean, sizes),
    }


def _hidden(model: SpatialBAE, train: Any) -> dict[str, float]:
    """Of counts of training cells that were hidden, given the cells' other counts."""
    hidden = scipy.sparse.csr_matrix(train.layers[HELD_OUT]).toarray().astype(bool)
    density = model.log_density_of_fit(train)
    return {"log_density_hidden": float(density[hidden].mean())}
