"""Cells are known by what they hold: in other rows, types and files, on resuming and on loading."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse

from gpflow_bae.posteriors import Posterior
from gpflow_bae.spatial import NetworkPlan, SpatialBAE, SpatialPlan, fitted
from tests.spatial.tissues import anndata, made

PLAN = SpatialPlan(
    likelihood="nb",
    networks=NetworkPlan(np.int32(8), np.int64(4)),  # type: ignore[arg-type]
    space_first=np.float32(0.0),
    num_inducing=np.int64(6),
    parameters="point",
    num_restarts=np.int64(1),
)
ANSWERS = ("obsm/X_gpbae", "obsm/X_gpbae_space", "layers/gpbae_mean", "layers/gpbae_upper")


def tissue() -> Any:
    """Cells 0 and 1 have one place and total and other counts, 2 and 3 one place and one count."""
    adata = made(24, 6).adata
    counts = adata.X.toarray()
    counts[0] = [40, 0, 3, 0, 0, 1]
    counts[1] = [0, 40, 0, 3, 1, 0]
    counts[3] = counts[2]
    adata.X = scipy.sparse.csr_matrix(counts)
    for one, other in ((1, 0), (3, 2)):
        adata.obsm["spatial"][one] = adata.obsm["spatial"][other]
    adata.obs["half"] = np.where(np.isin(np.arange(24), [0, 2, 7, 8, 9, 11]), "a", "b")
    return adata


def estimator(**options: Any) -> SpatialBAE:
    settings = {"num_steps": np.int64(5), "seed": np.int64(3), "progress": False, "plan": PLAN}
    return SpatialBAE(np.int64(1), np.int32(1), **settings, **options)


class Run(NamedTuple):
    """A fit, what it was given and what it wrote, and the folder of its checkpoints."""

    model: SpatialBAE
    adata: Any
    folder: pathlib.Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, adata = tmp_path_factory.mktemp("run"), tissue()
    return Run(estimator().fit(adata, out_dir=folder), adata, folder)


def answers(adata: Any) -> list[np.ndarray]:
    """What a fit wrote, in the order of the cells' names."""
    rows = np.argsort(adata.obs_names)
    return [getattr(adata, part)[name][rows] for part, name in (v.split("/") for v in ANSWERS)]


def test_a_fit_goes_on_with_the_same_cells(run: Run, tmp_path: pathlib.Path) -> None:
    """In another order, another type of counts, and a file; each has the answers that it had."""
    other = tissue()[::-1].copy()
    other.X = scipy.sparse.csc_matrix(other.X, dtype=np.float32)
    other.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    estimator().fit(backed, out_dir=run.folder, resume=True)
    for found, expected in zip(answers(backed), answers(run.adata), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_cells_are_asked_for_in_any_order(run: Run) -> None:
    order = np.random.default_rng(1).permutation(24)
    adata, other = run.adata, tissue()[order].copy()
    np.testing.assert_array_equal(
        run.model.denoised(other, ["gene 4", "gene 1"]).mean,
        adata.layers["gpbae_mean"][order][:, [4, 1]],
    )
    np.testing.assert_array_equal(
        run.model.log_density_of_fit(other), run.model.log_density_of_fit(adata)[order]
    )
    one, two = (
        run.model.differential_expression(a, "half", "a", num_draws=4) for a in (adata, other)
    )
    np.testing.assert_array_equal(one.to_numpy(float), two.to_numpy(float))
    # Genes are known by their names.
    with pytest.raises(ValueError, match=r"in another order: take adata\[:, model.genes_\]"):
        run.model.denoised(other[:, ::-1])
    other.X = other.X[:, ::-1]  # of the same places and totals
    with pytest.raises(ValueError, match="other cells than the 24 of the fit, or other counts"):
        run.model.denoised(other)


@pytest.mark.parametrize("kind", ["genes", "names", "counts", "places", "slices"])
def test_a_fit_does_not_go_on_with_other_data(run: Run, kind: str) -> None:
    adata, options, words = tissue(), {}, "cells"
    if kind == "genes":
        adata, words = adata[:, ::-1].copy(), "names of genes and cells"
    elif kind == "names":
        adata.var_names, words = adata.var_names[::-1], "names of genes"
    elif kind == "counts":
        adata.X = scipy.sparse.csr_matrix(adata.X.toarray()[:, [0, 1, 2, 3, 5, 4]])
    elif kind == "places":
        adata.obsm["spatial"] = adata.obsm["spatial"][::-1].copy()
    else:
        adata.obs["slice"] = "A"
        options = {"slice_key": "slice"}
    with pytest.raises(ValueError, match=f"a fit of other data: its {words} are not those"):
        estimator(**options).fit(adata, out_dir=run.folder, resume=True)


def test_a_new_folder_takes_other_data(run: Run, tmp_path: pathlib.Path) -> None:
    """Notes of a run that never began do not stand in the way of another."""
    fitted.check_same_data(tmp_path, {"counts": "1"}, False)
    fitted.check_same_data(tmp_path, {"counts": "2"}, False)
    (tmp_path / "variational").mkdir()
    fitted.check_same_data(tmp_path, {"counts": "3"}, False)  # the folder of a run says so itself
    fitted.check_same_data(tmp_path, {"counts": "2"}, True)
    with pytest.raises(ValueError, match="other data: its counts are not"):
        fitted.check_same_data(tmp_path, {"counts": "1"}, True)


@pytest.mark.parametrize("at", ["before", "posterior", "record", "name"])
def test_a_save_that_is_stopped(
    run: Run, tmp_path: pathlib.Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaves the earlier fit, or the new one: under ``~``, with NumPy's numbers in settings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    model = run.model
    posterior: Any = model.posterior_
    model.save("~/kept")
    bank = dataclasses.replace(posterior.bank, seconds={"another": 1.0})
    other = dataclasses.replace(model, num_steps=99)
    other._keep(Posterior(posterior.model, bank, posterior.data), model._fitted)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    if at != "before":
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            if at == "posterior":
                patched.setattr(fitted, "_checksum", stop)
            elif at == "record":
                patched.setattr(fitted, "write_atomically", stop)
            else:
                patched.setattr(fitted.os, "replace", _only_of_records(fitted.os.replace))
            other.save("~/kept")
    again = SpatialBAE.load("~/kept")
    assert again.num_steps == (99 if at == "name" else 5)
    np.testing.assert_allclose(
        again.denoised(run.adata, ["gene 2"]).mean[:, 0],
        run.adata.layers["gpbae_mean"][:, 2],
        rtol=1e-5,
    )
    # And the next save finds its way.
    other.save("~/kept")
    assert SpatialBAE.load("~/kept").num_steps == 99
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == [
        "posterior.npz",
        "spatial.json",
    ]


def _only_of_records(replace: Any) -> Any:
    def replaced(source: Any, target: Any) -> None:
        if str(target).endswith("posterior.npz"):
            raise KeyboardInterrupt
        replace(source, target)

    return replaced


def test_draws_of_large_counts(run: Run) -> None:
    """Beyond 2^31, whose signs were lost; and what no integer holds is refused."""
    place = run.adata.obsm["spatial"][:1]
    rates = run.model.predict(place, 1e10).mean
    draws = run.model.sample(place, 1e10, num_samples=200)
    assert draws.min() >= 0 and draws.max() > 2**31
    np.testing.assert_allclose(draws.mean((0, 1)), rates[0], rtol=0.5)
    with pytest.raises(ValueError, match=r"sizes are up to 1e\+30, and counts at them more than"):
        run.model.sample(place, 1e30)


def test_a_far_origin_of_places(run: Run) -> None:
    """A hundred thousandth as large and 1e7 away: the same answers, to what float64 resolves."""
    adata = tissue()
    adata.obsm["spatial"] = 1e-5 * adata.obsm["spatial"] + 1e7
    model = estimator().fit(adata)
    for found, expected in zip(answers(adata)[2:], answers(run.adata)[2:], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    places = np.array([[200.0, 500.0]])
    np.testing.assert_allclose(
        model.predict(1e-5 * places + 1e7).mean, run.model.predict(places).mean, rtol=1e-3
    )
    with pytest.raises(ValueError, match="places are up to 1e.07 from the centre of their slice"):
        model.predict(places)
