"""Ways to fit: in any order, to a stop, from a checkpoint, and parameters with distributions."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpflow_bae.inference.starts.restarts import restart_seed
from gpflow_bae.spatial import SpatialBAE, SpatialPlan, held_out, plans, tissue
from gpflow_bae.spatial.fitting import check_descended, counts_per_gene
from tests.spatial.tissues import made

QUICK: dict[str, Any] = {"num_spatial": 1, "num_cell": 1, "progress": False}
PLAN = SpatialPlan(likelihood="nb", num_inducing=10, parameters="point", num_restarts=1)


def test_the_order_of_cells_changes_nothing() -> None:
    adata = made(60).adata
    other = adata[np.random.default_rng(0).permutation(60)].copy()
    one, two = (SpatialBAE(**QUICK, plan=PLAN, num_steps=50).fit(a) for a in (adata, other))
    back = other[adata.obs_names]
    np.testing.assert_array_equal(back.obsm["X_gpbae"], adata.obsm["X_gpbae"])
    np.testing.assert_array_equal(back.layers["gpbae_mean"], adata.layers["gpbae_mean"])
    density = two.log_density_of_fit(other)[
        [list(other.obs_names).index(n) for n in adata.obs_names]
    ]
    # Equal numbers, whose logarithms and exponentials depend on where in memory they lie.
    np.testing.assert_allclose(density, one.log_density_of_fit(adata), rtol=1e-6)


def test_counts_may_stay_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where they are many: all is the same, with counts that are hidden and places held back."""
    found = []
    for most in (2**27, 0):
        monkeypatch.setattr(tissue, "_MOST_DENSE", most)
        adata = made(60).adata
        hidden = scipy.sparse.random(*adata.shape, 0.1, format="csr", random_state=0)
        adata.layers["hidden"] = hidden.astype(bool)
        plan = dataclasses.replace(PLAN, batch_size=20, space_first=0.0)
        options = QUICK | {"hidden_layer": "hidden", "early_stopping": True}
        model = SpatialBAE(**options, plan=plan, num_steps=50, denoise=bool(most)).fit(adata)
        assert model.posterior_ is not None and model.posterior_.data.is_compressed != bool(most)
        assert ("gpbae_mean" in adata.layers) == bool(most)
        adata.obs["half"] = np.where(np.arange(60) < 30, "a", "b")
        table = model.differential_expression(adata, "half", "a", num_draws=2)
        found.append((adata.obsm["X_gpbae"], table["lfc_mean"], adata.uns["gpbae"]["losses"]))
    for one, other in zip(*found, strict=True):
        # Sums over threads may differ in the last bit.
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_early_stopping_keeps_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit at too large a rate soon gets worse at places that it does not see."""
    monkeypatch.setattr(plans, "_LEARNING_RATE", 0.1)
    monkeypatch.setattr(held_out, "_PATIENCE", 2)
    adata = made(80).adata
    plan = dataclasses.replace(PLAN, space_first=0.0)
    model = SpatialBAE(**QUICK, plan=plan, num_steps=2000, early_stopping=True).fit(adata)
    record = adata.uns["gpbae"]
    scores = record["held_out_log_density"]
    assert len(scores) == len(record["losses"]) < 40
    assert np.argmax(scores) == len(scores) - 3
    drawn = np.random.default_rng([0, 0x4E1D]).permutation(80)
    order = model._read(adata)[0].order()  # of cells in the fit

    def cells(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        some = model._known_tissue(adata[order[np.sort(rows)]].copy(), hidden=True)
        return model._fitted.inputs_of(some), some.rows(slice(None))

    held, seen = cells(drawn[:8]), cells(drawn[8:])
    found = model._posterior().predict_cell_log_density(held, given=seen, num_codes=256)
    # By other draws of the codes, with which it varies by some thousandths. Given the held cells
    # themselves it may be lower: encoders have not seen them.
    assert abs(found.mean() - scores.max()) < 0.02
    with pytest.raises(ValueError, match="leave out_dir or early_stopping out"):
        model.fit(adata, out_dir="anywhere")


def test_a_fit_goes_on_from_its_checkpoint(tmp_path: pathlib.Path) -> None:
    """Bit by bit, and what is in the folder is not begun anew unasked."""
    adata = made(40).adata
    model = SpatialBAE(**QUICK, plan=PLAN, num_steps=50)
    model.fit(adata, out_dir=tmp_path)
    codes = adata.obsm["X_gpbae"]
    model.fit(adata, out_dir=tmp_path, resume=True)
    np.testing.assert_array_equal(adata.obsm["X_gpbae"], codes)
    with pytest.raises(ValueError, match="resume=True"):
        model.fit(adata, out_dir=tmp_path)


def test_a_fit_goes_on_between_its_parts(tmp_path: pathlib.Path) -> None:
    """Interrupted when channels of space were found and those of cells were not yet there."""
    adata = made(40).adata
    plan = dataclasses.replace(PLAN, parameters="gaussian", num_draws=2)
    SpatialBAE(**QUICK, plan=plan, num_steps=100).fit(adata, out_dir=tmp_path)
    codes, losses = adata.obsm["X_gpbae"], adata.uns["gpbae"]["losses"]
    assert len(losses) == 3 and {p.name for p in tmp_path.iterdir() if p.is_dir()} == {
        "space",
        "variational",
    }
    shutil.rmtree(tmp_path / "variational")
    SpatialBAE(**QUICK, plan=plan, num_steps=100).fit(adata, out_dir=tmp_path, resume=True)
    np.testing.assert_array_equal(adata.obsm["X_gpbae"], codes)
    np.testing.assert_array_equal(adata.uns["gpbae"]["losses"], losses)


def test_restarts_are_chains(tmp_path: pathlib.Path) -> None:
    """Each is a fit by itself; codes that are written are of the first, predictions of all."""
    adata = made(40).adata
    plan = dataclasses.replace(PLAN, num_inducing=40, space_first=0.0, num_restarts=2)
    model = SpatialBAE(**QUICK, plan=plan, num_steps=50, seed=12).fit(adata, out_dir=tmp_path)
    codes = adata.obsm["X_gpbae"]
    assert {p.name for p in tmp_path.iterdir() if p.is_dir()} == {"variational", "restart_1"}
    alone = [
        SpatialBAE(
            **QUICK, plan=dataclasses.replace(plan, num_restarts=1), num_steps=50, seed=seed
        ).fit(adata.copy())
        for seed in (12, restart_seed(12, 1))
    ]
    both = model.posterior_
    assert both is not None and both.bank.num_chains == 2
    for number, one in enumerate(alone):
        for values, own in zip(both.parameters, one.posterior_.parameters, strict=True):
            np.testing.assert_array_equal(values[number], own[0])
    mean, _ = alone[0].posterior_.predict_latent()
    order = model._read(adata)[0].order()
    np.testing.assert_array_equal(codes[order], mean)
    # A mixture is at least as likely as its parts are on average, up to draws of the codes.
    found = [each.log_density(adata).mean() for each in (model, *alone)]
    assert found[0] > np.mean(found[1:]) - 1e-3
    model.save(tmp_path / "kept")
    again = SpatialBAE.load(tmp_path / "kept")
    np.testing.assert_array_equal(again.denoised(adata).mean, model.denoised(adata).mean)


def test_smaller_tissues_have_more_fits() -> None:
    """Which share draws and samples; and as many as are asked for of any tissue."""
    for cells, number in ((2, 4), (2000, 4), (2001, 2), (20_000, 2), (20_001, 1)):
        found = SpatialPlan().of_restarts(cells)
        assert len(found) == number
        assert all(plan.num_draws * number == 16 for plan in found)
        assert all(plan.sampling.num_samples * number == 40 for plan in found)
        three = SpatialPlan(num_restarts=3).of_restarts(cells)
        assert [plan.num_draws for plan in three] == [6, 6, 6]


def test_seeds_of_restarts_are_seeds() -> None:
    """That an estimator takes, too, and different ones."""
    found = [restart_seed(seed, number) for seed in range(500) for number in range(3)]
    assert len(set(found)) == len(found)
    for seed in found:
        assert SpatialBAE(seed=seed).seed == seed


def test_channels_of_cells_come_last() -> None:
    """They hold nothing where they have come in for a few steps only."""
    adata = made(150).adata
    for first, holds in ((0.95, False), (0.0, True)):
        plan = dataclasses.replace(PLAN, space_first=first)
        SpatialBAE(**QUICK, plan=plan, num_steps=400).fit(adata)
        assert (adata.uns["gpbae"]["channel_information"][1] > 0.3) == holds
    with pytest.raises(ValueError, match="space_first must be below 1"):
        SpatialPlan(space_first=1.0)


@pytest.mark.parametrize("method", ["variational", "sampled"])
def test_parameters_have_distributions(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As wide as so few cells leave them, and predictions average over their draws.

    Those that are sampled are of counts that stay sparse.
    """
    if method == "sampled":
        monkeypatch.setattr(tissue, "_MOST_DENSE", 0)
    adata = made(60).adata
    sampling = dataclasses.replace(SpatialPlan().sampling, burnin=100, num_samples=6, thinning=25)
    plan = SpatialPlan(
        likelihood="nb", num_inducing=10, num_restarts=1, num_draws=6, sampling=sampling
    )
    model = SpatialBAE(**QUICK, plan=plan, num_steps=100, method=method).fit(adata)
    posterior = model.posterior_
    assert posterior is not None and posterior.num_samples == 6
    assert posterior.data.is_compressed == (method == "sampled")
    (bias,) = [v for v in posterior.parameters if v.shape == (6, 24) and v.dtype == np.float32]
    # The rate of a gene that is counted k times in all is known to about k ** -0.5.
    sure = adata.X.toarray().sum(0) ** -0.5
    ratio = bias.std(0) / sure
    assert 0.2 < np.median(ratio) < 5.0
    assert np.isfinite(model.log_density(adata)).all()
    assert ("temperatures" in adata.uns["gpbae"]) == (method == "sampled")


def test_minibatches_by_the_numbers_of_cells_and_genes() -> None:
    """All of few cells; else a thousand, or as many as have eight million counts."""
    plan = SpatialPlan()
    sizes = [
        plan.settings(cells, genes, 10).batch_size
        for cells, genes in (
            (1500, 170),
            (5000, 170),
            (39_000, 26_000),
            (1500, 26_000),
        )
    ]
    assert sizes == [None, 1000, 307, 307]
    assert dataclasses.replace(plan, batch_size=600).rounds(39_000, 26_000).batch_size == 600


def test_a_fit_that_ends_higher_than_it_began_is_an_error() -> None:
    """Though its loss is finite; and not one whose loss has hardly changed."""
    check_descended(np.array([100.0, 101.0, 99.0, 100.5]))
    with pytest.raises(FloatingPointError, match="diverged: its loss per cell rose from 100 to 1e"):
        check_descended(np.array([100.0, 90.0, 1e6]))


def test_what_was_chosen_is_said() -> None:
    plan = SpatialPlan()
    assert plan.summary(948, 166, 300.0, 800) == (
        "SpatialBAE: 948 cells and 166 genes; 4 fits of 800 steps, each of all cells, with "
        "Gaussians of the parameters."
    )
    assert "; 1 fit of 1,500 steps, each of 1,000 cells, with a mode of the parameters." in (
        plan.summary(580_000, 2000, 145_000.0, 1500)
    )
    # Many cells in which each gene is rare.
    assert "307 cells, with Gaussians of the" in plan.summary(39_000, 26_000, 750.0, 1500)
    assert counts_per_gene(np.array([[1.0, np.nan], [2.0, 4.0]])) == 3.5
    assert counts_per_gene(scipy.sparse.csr_matrix([[1.0, 0.0], [2.0, 4.0]])) == 3.5
