"""Counts in tissue: baselines against the data's own figures, scores, and a small run."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

pytest.importorskip("anndata", reason="anndata is not installed (extra spatial)")

from experiments.spatial_omics import __main__ as command
from experiments.spatial_omics import alignment, baselines, data, factors, scores, study
from experiments.spatial_omics import made as made_tissue
from tests.experiments.commands import call
from tests.spatial.tissues import made

_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]
DATA_DIR = next(
    (d for d in _CANDIDATES if d and (pathlib.Path(d) / "spatial/starmap_mpfc.h5ad").exists()), None
)


def test_numbers_are_the_likeliest() -> None:
    """Of made counts: near those they were made with, and no other is likelier."""
    rng = np.random.default_rng(0)
    mean, number = rng.uniform(1.0, 9.0, (4000, 2)), np.array([0.5, 3.0])
    counts = rng.negative_binomial(number, number / (number + mean))
    found = baselines._numbers(counts, mean)
    np.testing.assert_allclose(found, number, rtol=0.1)  # a few percent of standard error
    best = baselines.log_density(counts, mean, found).sum(0)
    for factor in (0.95, 1.05):
        assert (baselines.log_density(counts, mean, factor * found).sum(0) < best).all()


def test_coverage_is_exact_where_the_model_is_right() -> None:
    """Of counts that are mostly zero, too, for which whole intervals hold more."""
    rng = np.random.default_rng(1)
    counts, draws = rng.poisson(0.4, (100, 50)), rng.poisson(0.4, (199, 100, 50))
    # Four standard errors of five thousand.
    assert scores.randomised_coverage(counts, draws, 0.9, 0) == pytest.approx(0.9, abs=0.017)
    too_narrow = np.full_like(draws, 1)
    assert scores.randomised_coverage(counts, too_narrow, 0.9, 0) < 0.4


def test_scores_of_means() -> None:
    rng = np.random.default_rng(2)
    sizes, rates = rng.uniform(0.5, 2.0, 30), rng.uniform(1.0, 9.0, (30, 3))
    counts = sizes[:, None] * rates
    counts[:, 2] = 0.0
    constant = np.ones_like(rates) * sizes[:, None]
    found = scores.of_means(counts, constant, sizes)
    assert found["spearman"] == 0.0
    found = scores.of_means(counts, sizes[:, None] * rates**2, sizes)
    assert found["spearman"] == pytest.approx(1.0)  # of the two genes that vary


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any) -> data.Split:
        adata = made(120, num_genes=8).adata
        adata.obs["domain"] = np.where(adata.obsm["spatial"][:, 0] < 500, "left", "right")
        adata.layers["held_out"] = adata.X.copy() * 0 > 0
        hidden = np.zeros(adata.shape, bool)
        hidden[::7, 2] = True
        adata.layers["held_out"] = hidden
        held = np.arange(120) % 6 == 0
        return data.Split(adata[~held].copy(), adata[held].copy())

    monkeypatch.setattr(data, "load", load)


@pytest.mark.parametrize("model", ["gene_mean", "neighbours"])
def test_baselines_run(small: None, tmp_path: pathlib.Path, model: str) -> None:
    found = call(command.STUDY, tmp_path, f"--model={model}")
    assert np.isfinite(list(found["metrics"].values())).all()
    assert found["variant"] == "starmap BZ9"


@pytest.mark.parametrize("model", ["gene_mean", "neighbours"])
def test_baselines_do_not_look_at_hidden_counts(small: None, model: str) -> None:
    """Other numbers in their place change what is scored there, and nothing else."""
    plan, found = study.Plan(model, hide_counts=True), []
    for more in (0, 3):
        split = data.load(None, "starmap")
        hidden = scipy.sparse.csr_matrix(split.train.layers["held_out"].astype(int))
        split.train.X = split.train.X + more * hidden
        found.append(study._baseline(plan, split).metrics)
    one, other = found
    assert one.pop("log_density_hidden") != other.pop("log_density_hidden")
    assert one == other


@pytest.mark.parametrize("model", ["gene_mean", "neighbours"])
def test_slices_have_baselines_of_their_own(small: None, model: str) -> None:
    """Cells of another slice at the same places, with counts of other genes, change nothing."""
    import anndata

    split, plan = data.load(None, "starmap"), study.Plan(model)
    other = split.train.copy()
    other.X = other.X[::-1][:, ::-1]
    other.obs["slice"] = "another"
    both = anndata.concat([split.train, other], index_unique="-")
    found = study._baseline(plan, data.Split(both, split.test)).metrics
    alone = study._baseline(plan, split).metrics
    for name in ("log_density", "spearman"):
        assert found[name] == pytest.approx(alone[name], rel=1e-6)
    with pytest.raises(ValueError, match="nsf is of one slice"):
        study.run(study.Plan("nsf"), data.Split(both, split.test), None)  # type: ignore[arg-type]


def test_components_of_niches() -> None:
    """Two regions are the first component, and the number of neighbours is what the counts choose:
    many where a region is one, few where neighbours soon differ.
    """
    rng = np.random.default_rng(6)
    places, slices = rng.uniform(0.0, 9.0, (1200, 2)), np.repeat(["a", "b"], 600)
    for width, many in ((4.5, True), (1.0, False)):
        region = np.floor(places[:, 0] / width) % 2
        counts = rng.poisson(np.where(region[:, None] > 0, [8.0, 1.0, 3.0], [1.0, 8.0, 3.0]))
        counts[600:] *= 7  # slices are centred
        found, number = baselines.niche_pca(places, counts, np.ones(1200), slices)
        assert found.shape == (1200, 3) and (number >= 25) == many
        if many:
            assert abs(np.corrcoef(found[:, 0], region)[0, 1]) > 0.85
    with pytest.raises(ValueError, match="Slice b has 50 cells; niche_pca needs more than 100"):
        baselines.niche_pca(places[:650], counts[:650], np.ones(650), slices[:650])


def test_moran_by_permutation() -> None:
    """p-values of genes without structure are uniform, and I and its moments are those of
    permutations; a gradient is found.
    """
    rng = np.random.default_rng(8)
    places = rng.uniform(size=(150, 2))
    counts = rng.poisson(np.full((150, 400), 9.0))
    p_values = baselines.moran(places, counts, 6)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    counts[:, 0] = rng.poisson(np.exp(1.0 + places[:, 0]))
    p_values = baselines.moran(places, counts, 6)
    assert p_values[0] < 1e-3
    logs = np.log1p(counts / (counts.sum(1, keepdims=True) / np.median(counts.sum(1))))[:, 1]
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    near = np.argsort(apart, 1)[:, 1:7]

    def statistic(values: np.ndarray) -> float:
        values = values - values.mean()
        return float(values @ values[near].mean(1) / (values @ values))

    drawn = [statistic(rng.permutation(logs)) for _ in range(2000)]
    # Five standard errors of a share of 2000.
    assert p_values[1] == pytest.approx(np.mean(np.array(drawn) >= statistic(logs)), abs=0.055)


def test_made_tissues_and_discoveries(tmp_path: pathlib.Path) -> None:
    """Rank sums find most of what differs; nearly none is false, as they ask for differences that
    are beyond chance and large.
    """
    found = call(command.STUDY, tmp_path, "--dataset=made", "--model=rank_sums")["metrics"]
    assert found["power"] > 0.5 and found["false_discoveries"] < 0.15
    made_smaller = ("--dataset=made", "--model=moran", "--cells=500", "--genes=60")
    found = call(command.STUDY, tmp_path / "moran", *made_smaller)
    assert found["variant"] == "made cells 500 genes 60"
    # As few cells say less, more neighbours find more.
    few, many = (found["metrics"][f"spatial_power{v}"] for v in ("", "_25_neighbours"))
    assert 0.1 < few < many and found["metrics"]["spatial_false_discoveries"] < 0.15
    # Batches change counts alone, in all layers; and what is known holds for them too.
    plain, batches = (data.load(None, "made", seed=1, batches=b).train for b in (1, 2))
    assert "batch" not in plain.obs and set(batches.obs["batch"]) == {"batch 0", "batch 1"}
    np.testing.assert_array_equal(plain.var["true_lfc"], batches.var["true_lfc"])
    logs = np.log1p(batches.X.toarray())
    assert scores.predictability(logs, batches.obs["batch"].to_numpy()) > 0.9
    noise = np.random.default_rng(0).normal(size=(len(logs), 3))
    # Four standard errors of some 1170 cells.
    assert abs(scores.predictability(noise, batches.obs["batch"].to_numpy()) - 0.5) < 0.06
    # One false gene among five different ones, in the third place: a sixth of all.
    truth = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    score = np.arange(6.0)[::-1]
    for fdr, power in ((0.05, 0.4), (0.2, 1.0), (0.17, 1.0), (0.16, 0.4)):
        assert scores.power_of_ranking(score, truth, 0.25, fdr) == pytest.approx(power)
    assert scores.power_of_ranking(-score, truth, 0.25, 0.05) == pytest.approx(0.6)
    assert scores.power_of_ranking(score, 0.0 * truth, 0.25, 0.05) == 0.0
    called, truth = np.array([True, True, False, False]), np.array([1.0, 0.1, -0.5, 0.0])
    scored = scores.discoveries(called, truth, 0.25)
    assert scored == {"discoveries": 2.0, "false_discoveries": 0.5, "power": 0.5}


def test_tissues_of_many_genes_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells count some 500 whatever the number of genes, and what they count follows the truth."""
    monkeypatch.setattr(made_tissue, "_AT_ONCE", 300_000)
    monkeypatch.setattr(made_tissue, "_POPULATION", 3000)
    adata = made_tissue.made(0, num_cells=900, num_genes=1000)
    counts = adata.X.toarray()
    assert "true_rate" not in adata.layers and counts.shape == (900, 1000)
    assert np.median(counts.sum(1)) == pytest.approx(500.0, rel=0.25)
    shares = counts / counts.sum(1, keepdims=True)
    first = (adata.obs["domain"] == "layer 1").to_numpy()
    found = np.log2((shares[first].mean(0) + 1e-6) / (shares[~first].mean(0) + 1e-6))
    often = counts.sum(0) > 300
    assert np.corrcoef(found[often], adata.var["true_lfc"].to_numpy()[often])[0, 1] > 0.9
    assert "true_rate" in made_tissue.made(0, num_cells=200, num_genes=12).layers


def test_embeddings_are_compared_as_they_may_turn() -> None:
    """A turned and mirrored one is the same; with as much noise they agree to 0.5 ** 0.5."""
    rng = np.random.default_rng(3)
    codes = rng.normal(size=(4000, 3))
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    assert scores.aligned_correlation(codes, codes @ turn + 5.0) == pytest.approx(1.0)
    noisy = codes @ turn + rng.normal(size=codes.shape)
    # Five standard errors of 12,000 numbers.
    assert scores.aligned_correlation(codes, noisy) == pytest.approx(np.sqrt(0.5), abs=0.025)


def test_the_command_of_alignment(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of places, which agree here up to a turn, and of channels, the last of which does not."""
    rng = np.random.default_rng(0)
    places, codes = rng.normal(size=(500, 4)), rng.normal(size=(500, 3))
    turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    others = np.concatenate([codes[:, :2], rng.normal(size=(500, 1))], 1)
    for name, arrays in (("a", (places, codes)), ("b", (places @ turn, others))):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "arrays.npz", places=arrays[0], codes=arrays[1], num_spatial=2)
    alignment.main(["", str(tmp_path / "a"), str(tmp_path / "b")])
    found = [line.split(": ") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in found] == ["places", "channels of space", "all channels"]
    assert float(found[0][1]) == float(found[1][1]) == 1.0
    assert 0.5 < float(found[2][1]) < 0.8


def test_ours_runs(small: None, tmp_path: pathlib.Path) -> None:
    flags = ("--num_steps=20", "--num_spatial=2", "--num_cell=1", "--hide_counts")
    found = call(command.STUDY, tmp_path, *flags)
    assert found["variant"] == "starmap BZ9 num_spatial=2 num_cell=1 num_steps=20 counts hidden"
    assert {"log_density", "log_density_hidden", "adjusted_rand"} <= set(found["metrics"])
    for name in ("domains", "gene", "loss"):
        assert (tmp_path / f"{name}.png").exists()


@pytest.mark.parametrize("model", ["nsf", "svgp_vae"])
def test_peers_run(small: None, tmp_path: pathlib.Path, model: str) -> None:
    found = call(command.STUDY, tmp_path, f"--model={model}", "--num_steps=20", "--hide_counts")
    assert {"log_density", "log_density_hidden", "adjusted_rand"} <= set(found["metrics"])
    assert np.isfinite(list(found["metrics"].values())).all()
    assert found["variant"] == "starmap BZ9 counts hidden"


def test_nonnegative_factors_are_found() -> None:
    """Of counts of two places: the rates of their genes, at cells that were not seen."""
    rng = np.random.default_rng(4)
    places, sizes = rng.uniform(0.0, 9.0, (300, 2)), np.ones(300)
    shape = np.where(places[:, :1] < 4.5, [8.0, 1.0, 3.0], [1.0, 8.0, 3.0])
    counts = rng.poisson(shape).astype(float)
    counts[::9, 2] = np.nan
    found = factors.fit(places, counts, sizes, num_factors=2, num_steps=600, seed=0)
    assert found.losses[-1] < found.losses[0]
    X = found.inputs(np.array([[1.0, 4.0], [8.0, 4.0]]), np.array([1.0, 2.0]))
    seen = np.array([[8.0, 1.0, 3.0], [2.0, 16.0, 6.0]])
    density, expected, draws = found.predicted(X, seen, 0)
    np.testing.assert_allclose(expected, seen, rtol=0.25)  # of some seventy cells around each
    np.testing.assert_allclose(draws.mean(0), expected, rtol=0.35)  # 256 of them
    # Negative binomials around rates that are not sure are wider than Poisson's at its mode.
    at_mode = stats.poisson(seen).logpmf(seen)
    assert (density < at_mode + 0.05).all() and (density > at_mode - 1.0).all()


@pytest.mark.skipif(DATA_DIR is None, reason="no spatial/starmap_mpfc.h5ad: set GPFLOW_BAE_DATA")
def test_the_split_gives_the_figures_of_the_data() -> None:
    """Gene means of BZ9: the figure that comes with the data, to its three digits."""
    split = data.load(DATA_DIR, "starmap")
    assert (split.train.n_obs, split.test.n_obs) == (948, 105)
    found = study._baseline(study.Plan("gene_mean"), split).metrics
    assert found["log_density"] == pytest.approx(-1.066, abs=5e-4)
    chosen = data.load(DATA_DIR, "starmap", validation=0)
    assert set(chosen.test.obs_names) < set(split.train.obs_names)
