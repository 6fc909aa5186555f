"""The runs of the driver of counts in tissue."""

from __future__ import annotations

import dataclasses
import resource
import time
from typing import Any

import numpy as np
import scipy.sparse
from scipy import stats

from experiments.common import plans
from experiments.common.driver import Options, Outcome
from experiments.spatial_omics import baselines, factors, figures, scores
from experiments.spatial_omics.data import Split
from experiments.spatial_omics.made import DOMAINS
from gpflow_bae.spatial import SpatialBAE, SpatialPlan

HELD_OUT = "held_out"  # layer of the counts that are hidden
TRUTH = "true_lfc"  # column of made genes
TRUE_SD = "true_sd"  # column of made genes
TRUE_RATE = "true_rate"  # layer of made cells
BATCH = "batch"  # column of made cells
_CLUSTERINGS = 5
_FACTOR_STEPS = 1500
_FIRST = DOMAINS[0]
_DELTA, _FDR = 0.25, 0.05  # base 2 logarithms that count, and false ones among those called
_LEAST_SD = 0.1  # standard deviation over places of log rates that counts
_MORAN_NEIGHBOURS = (6, 25)
_MOST_DENOISED = 100_000_000  # counts of larger tissues have no layers of expected ones
_DRAWN = 100_000_000  # draws of counts that coverage is of, at most
_DRAWS = 200


@dataclasses.dataclass(frozen=True)
class Plan(plans.Plan):
    """Everything that decides the outcome of a run, but the seed and the data."""

    model: str
    num_spatial: int = 6
    num_cell: int = 4
    num_steps: int | None = None
    method: str = "variational"
    early_stopping: bool = False
    hide_counts: bool = False  # the layer "held_out", which is scored then
    spatial: SpatialPlan | None = None


def run(plan: Plan, split: Split, options: Options) -> Outcome:
    """Fit, score the cells that were held back, and draw the tissue."""
    if plan.model in ("spatial_bae", "svgp_vae"):
        return _spatial_bae(plan, split, options)
    if plan.model == "nsf":
        return _factors(plan, split, options)
    if plan.model == "niche_pca":
        return _niche_pca(plan, split)
    return _baseline(plan, split)


def _counts(adata: Any) -> np.ndarray:
    return np.asarray(adata.X.todense(), float)


def _with_sizes(plan: Plan, split: Split) -> tuple[np.ndarray, ...]:
    """Counts of the cells that are fitted to, NaN where hidden, and sizes; the same of others."""
    train, test = (_counts(part) for part in split)
    hidden = _hidden_counts(split.train) if plan.hide_counts else np.zeros(train.shape, bool)
    seen = np.where(hidden, np.nan, train)
    shares = np.nansum(seen, 0) / np.nansum(seen)
    totals = np.nansum(seen, 1) / (1.0 - hidden @ shares)
    median = np.median(totals)
    return seen, totals / median, test, test.sum(1) / median


def _baseline(plan: Plan, split: Split) -> Outcome:
    started = time.process_time()
    if plan.model in ("rank_sums", "moran"):
        metrics = (_rank_sums if plan.model == "rank_sums" else _moran)(split.train)
        return Outcome(
            metrics=metrics, num_parameters=0, seconds={"cpu": time.process_time() - started}
        )
    seen, sizes, test, new_sizes = _with_sizes(plan, split)
    train, hidden = _counts(split.train), np.isnan(seen)
    places, new_places = (part.obsm["spatial"] for part in split)
    slices, new_slices = (part.obs["slice"].to_numpy().astype(str) for part in split)
    density, mean, of_hidden = np.zeros(test.shape), np.zeros(test.shape), np.zeros(train.shape)
    # Slices have levels and scatter of their own.
    for name in np.unique(slices):
        own, new = slices == name, new_slices == name
        if plan.model == "gene_mean":
            found = baselines.gene_mean(seen[own], sizes[own], new_sizes[new])
        else:
            found = baselines.neighbours(
                places[own], seen[own], sizes[own], new_places[new], new_sizes[new]
            )
        mean[new] = found.mean
        density[new] = baselines.log_density(test[new], found.mean, found.number)
        of_hidden[own] = baselines.log_density(train[own], found.of_fitted, found.number)
    metrics = {"log_density": float(density.mean()), **scores.of_means(test, mean, new_sizes)}
    if plan.hide_counts:
        metrics["log_density_hidden"] = float(of_hidden[hidden].mean())
    one = len(np.unique(slices)) == 1
    return Outcome(
        metrics=metrics | (found.chosen if one else {}),
        num_parameters=2 * train.shape[1] * len(np.unique(slices)),
        seconds={"cpu": time.process_time() - started},
    )


def _niche_pca(plan: Plan, split: Split) -> Outcome:
    started = time.process_time()
    seen, sizes, *_ = _with_sizes(plan, split)
    if np.isnan(seen).any():
        raise ValueError("niche_pca takes all counts: leave --hide_counts out.")
    slices = split.train.obs["slice"].to_numpy().astype(str)
    found, number = baselines.niche_pca(split.train.obsm["spatial"], seen, sizes, slices)
    seconds = time.process_time() - started
    labels = split.train.obs["domain"].to_numpy()
    metrics = {"adjusted_rand_regions": _agreement(labels, found), "neighbours": float(number)}
    if TRUE_RATE in split.train.layers:
        # What k-means makes of the rates themselves, in units of Poisson noise.
        noiseless = 2.0 * np.sqrt(split.train.layers[TRUE_RATE])
        metrics["adjusted_rand_truth"] = _agreement(labels, noiseless)
    return Outcome(
        metrics=metrics,
        num_parameters=found.shape[1] * seen.shape[1],
        seconds={"cpu": seconds},
    )


def _factors(plan: Plan, split: Split, options: Options) -> Outcome:
    if split.train.obs["slice"].nunique() > 1:
        raise ValueError("nsf is of one slice: set --slices to one.")
    started = time.process_time()
    seen, sizes, test, new_sizes = _with_sizes(plan, split)
    places, new_places = (part.obsm["spatial"] for part in split)
    found = factors.fit(
        places,
        seen,
        sizes,
        num_factors=plan.num_spatial,
        num_steps=plan.num_steps or _FACTOR_STEPS,
        seed=options.seed,
    )
    seconds = time.process_time() - started
    density, expected, draws = found.predicted(
        found.inputs(new_places, new_sizes), test, options.seed
    )
    metrics = {
        "log_density": float(density.mean()),
        "coverage_90": scores.randomised_coverage(test, draws, 0.9, 0),
        **scores.of_means(test, expected, new_sizes),
        "adjusted_rand": _agreement(split.train.obs["domain"].to_numpy(), found.at(places)),
    }
    if plan.hide_counts:
        counts = _counts(split.train)
        density, *_ = found.predicted(found.inputs(places, sizes), counts, options.seed)
        metrics["log_density_hidden"] = float(density[np.isnan(seen)].mean())
    return Outcome(
        metrics=metrics,
        num_parameters=plans.count(found.model.trainable_parameters),
        seconds={"cpu": seconds},
        curves={"loss": found.losses},
    )


def _spatial_bae(plan: Plan, split: Split, options: Options) -> Outcome:
    started = time.process_time()
    train, test = split
    model = SpatialBAE(
        plan.num_spatial,
        plan.num_cell,
        slice_key="slice" if train.obs["slice"].nunique() > 1 else None,
        batch_key=BATCH if BATCH in train.obs else None,
        hidden_layer=HELD_OUT if plan.hide_counts else None,
        method=plan.method,  # type: ignore[arg-type]
        early_stopping=plan.early_stopping,
        num_steps=plan.num_steps,
        seed=options.seed,
        plan=plan.spatial,
        progress=options.progress,
        denoise=train.n_obs * train.n_vars <= _MOST_DENOISED,
    )
    began = time.perf_counter()
    model.fit(train)
    seconds = {"cpu": time.process_time() - started, "fit": time.perf_counter() - began}
    peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # gigabytes
    record = train.uns["gpbae"]
    metrics = _at_places(model, test) | {"peak_memory_gb": peak_memory}
    if plan.hide_counts:
        metrics |= _hidden(model, train)
    if TRUTH in train.var:
        table = model.differential_expression(train, "domain", _FIRST, delta=_DELTA, fdr=_FDR)
        table = table.loc[train.var_names]
        truth = train.var[TRUTH].to_numpy()
        metrics |= scores.discoveries(table["is_de"].to_numpy(), truth, _DELTA)
        metrics["rmse_lfc"] = float(np.sqrt(np.mean(np.square(table["lfc_mean"] - truth))))
        inside = (table["lfc_lower"] <= truth) & (truth <= table["lfc_upper"])
        metrics["coverage_lfc_90"] = float(inside.mean())
        genes = model.spatial_genes().loc[train.var_names]
        metrics["spatial_ranking_power"] = scores.power_of_ranking(
            genes["spatial_sd"].to_numpy(), train.var[TRUE_SD].to_numpy(), _LEAST_SD, _FDR
        )
    labels = train.obs["domain"].to_numpy()
    number = len(np.unique(labels))
    # Domains are regions, so of what varies over space, where anything does.
    codes = train.obsm["X_gpbae"]
    regions = train.obsm.get("X_gpbae_space", codes)
    metrics["adjusted_rand"] = _agreement(labels, codes[:, : plan.num_spatial or None])
    metrics["adjusted_rand_regions"] = _agreement(labels, regions)
    if BATCH in train.obs:
        metrics["batch_accuracy"] = scores.predictability(codes, train.obs[BATCH].to_numpy())
    information = record["channel_information"]
    metrics["collapsed_channels"] = float((information < 0.1).sum())
    metrics["collapsed_cell_channels"] = float((information[plan.num_spatial :] < 0.1).sum())
    posterior = model.posterior_
    assert posterior is not None
    metrics |= plans.chain_temperatures(posterior)
    outcome = Outcome(
        metrics=metrics,
        num_parameters=plans.count(posterior.model.trainable_parameters),
        seconds=seconds,
        curves={"loss": [float(v) for v in record["losses"]]},
        posterior=posterior,
        arrays={
            "codes": codes,
            "places": regions,
            "num_spatial": np.array(plan.num_spatial),
        },
    )
    figures.draw(outcome, train, scores.clusters(regions, number, 0))
    return outcome


def _agreement(labels: np.ndarray, embedding: np.ndarray) -> float:
    """Agreement of domains with k-means of several seeds."""
    number = len(np.unique(labels))
    found = [scores.clusters(embedding, number, seed) for seed in range(_CLUSTERINGS)]
    return float(np.mean([scores.adjusted_rand(labels, clusters) for clusters in found]))


def _rank_sums(train: Any) -> dict[str, float]:
    if TRUTH not in train.var:
        raise ValueError("rank_sums is scored by known differences: set --dataset=made.")
    first = (train.obs["domain"] == _FIRST).to_numpy()
    called = baselines.rank_sums(_counts(train), first, _DELTA, _FDR)
    return scores.discoveries(called, train.var[TRUTH].to_numpy(), _DELTA)


def _moran(train: Any) -> dict[str, float]:
    if TRUE_SD not in train.var:
        raise ValueError("moran is scored by known variation over space: set --dataset=made.")
    found, truth = {}, train.var[TRUE_SD].to_numpy()
    for number in _MORAN_NEIGHBOURS:
        p_values = baselines.moran(train.obsm["spatial"], _counts(train), number)
        called = stats.false_discovery_control(p_values) <= _FDR
        scored = scores.discoveries(called, truth, _LEAST_SD)
        scored["ranking_power"] = scores.power_of_ranking(-p_values, truth, _LEAST_SD, _FDR)
        of_number = "" if number == _MORAN_NEIGHBOURS[0] else f"_{number}_neighbours"
        found |= {f"spatial_{name}{of_number}": value for name, value in scored.items()}
    return found


def _at_places(model: SpatialBAE, test: Any) -> dict[str, float]:
    """Scores of cells that were held back, given their places and sizes."""
    sizes, counts = model.sizes(test, hidden=False), _counts(test)
    slices = test.obs["slice"].astype(str).to_numpy() if len(model.slices_) > 1 else None
    batches = {BATCH: test.obs[BATCH].to_numpy()} if model.batches_ else None
    at = (test.obsm["spatial"], sizes, slices, batches)
    found = model.predict(*at)
    inside = (found.lower <= counts) & (counts <= found.upper)
    some = slice(0, max(1, _DRAWN // (_DRAWS * counts.shape[1])))
    of_some = {name: values[some] for name, values in batches.items()} if batches else None
    draws = model.sample(
        at[0][some],
        sizes[some],
        None if slices is None else slices[some],
        of_some,
        num_samples=_DRAWS,
    )
    density = model.log_density(test, hidden=False)
    return {
        "log_density": float(density.mean()),
        "coverage_90": scores.randomised_coverage(counts[some], draws, 0.9, 0),
        "coverage_90_whole": float(inside.mean()),
        **scores.of_means(counts, found.mean, sizes),
    }


def _hidden_counts(train: Any) -> np.ndarray:
    found: np.ndarray = scipy.sparse.csr_matrix(train.layers[HELD_OUT]).toarray().astype(bool)
    return found


def _hidden(model: SpatialBAE, train: Any) -> dict[str, float]:
    """Scores of hidden counts of training cells, given the cells' other counts."""
    hidden = _hidden_counts(train)
    density = model.log_density_of_fit(train)
    return {"log_density_hidden": float(density[hidden].mean())}
