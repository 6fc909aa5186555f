"""Batches and numbers of cells: their effects are found, and codes hold none of them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import warnings
from typing import Any

import numpy as np
import pandas
import pytest

from gpflow_bae.core.files import to_json
from gpflow_bae.spatial import SpatialBAE, SpatialPlan
from gpflow_bae.spatial.covariates import Covariates, reference_inputs, warn_of_confounding
from tests.spatial.tissues import made_batches

PLAN = SpatialPlan(
    likelihood="nb", num_inducing=25, parameters="point", num_restarts=1, space_first=0.2
)
KEYS: dict[str, Any] = {"batch_key": "donor", "covariate_keys": ["age"]}


def fit(adata: Any, num_steps: int = 200, **options: Any) -> SpatialBAE:
    return SpatialBAE(2, 2, plan=PLAN, num_steps=num_steps, progress=False, **options).fit(adata)


def accuracy_of_batches(codes: np.ndarray, batches: Any) -> float:
    """Balanced accuracy of a classifier of the batch, by cross-validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    found = cross_val_score(LogisticRegression(), codes, batches, cv=5, scoring="balanced_accuracy")
    return float(found.mean())


def agreement(adata: Any) -> float:
    """Adjusted Rand index of layers and clusters of places."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    regions = KMeans(3, n_init=10, random_state=0).fit_predict(adata.obsm["X_gpbae_space"])
    return float(adjusted_rand_score(adata.obs["layer"], regions))


def effects_of(model: SpatialBAE) -> np.ndarray:
    """Effects of the columns of covariates on log rates [K, P]."""
    posterior: Any = model.posterior_
    X = np.repeat(reference_inputs(posterior.data.X[0].numpy()[:1], 3), 4, 0)
    X[1:, 2:5] = np.eye(3)
    logs = posterior.model.decode(X, np.zeros((4, 4))).numpy()
    return np.asarray(logs[1:] - logs[0])


@pytest.fixture(scope="module")
def cells() -> Any:
    return made_batches()


@pytest.fixture(scope="module")
def fitted(cells: Any) -> SpatialBAE:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*[Bb]atch")  # they lie among each other
        return fit(cells, **KEYS)


def test_codes_hold_no_batch(cells: Any, fitted: SpatialBAE) -> None:
    """A classifier is at chance, and layers and kinds are found as without batches.

    Counts tell the batch.
    """
    pytest.importorskip("sklearn")
    counts = cells.X.toarray()
    logs = np.log1p(counts / (counts.sum(1, keepdims=True) / np.median(counts.sum(1))))
    assert accuracy_of_batches(logs, cells.obs["donor"]) > 0.9
    # A balanced accuracy of 240 cells has a standard error of 0.03.
    assert abs(accuracy_of_batches(cells.obsm["X_gpbae"], cells.obs["donor"]) - 0.5) < 0.1
    assert accuracy_of_batches(cells.obsm["X_gpbae"], cells.obs["kind"]) > 0.8
    assert agreement(cells) > 0.9


def test_effects_are_found(cells: Any, fitted: SpatialBAE) -> None:
    """Of each gene; sizes take up the part that genes have in common."""
    effects = effects_of(fitted)
    of_age = effects[2] / cells.obs["age"].std(ddof=0)
    for found, name in ((effects[1] - effects[0], "effect"), (of_age, "slope")):
        truth = cells.var[name].to_numpy()
        # Each of some hundred cells' counts, whose logarithms scatter by 0.7: errors of 0.1, of
        # effects of 0.8 between batches and of 0.3 per standard deviation of age.
        assert np.corrcoef(found, truth)[0, 1] > 0.85
        assert 0.7 < found.std() / truth.std() < 1.3


def test_columns_are_zero_on_average(cells: Any) -> None:
    covariates = Covariates.of(cells, "donor", ["age"])
    columns = covariates.columns_of(cells)
    np.testing.assert_allclose(columns.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(columns[:, 2].std(), 1.0)
    first = (cells.obs["donor"] == "donor 0").to_numpy()
    np.testing.assert_allclose(columns[:, 0], first - first.mean())
    again = Covariates.from_dict(json.loads(to_json(dataclasses.asdict(covariates))))
    np.testing.assert_array_equal(again.columns_of(cells), columns)
    assert Covariates.of(cells, None, ()).columns_of(cells).shape == (240, 0)
    one = cells[first].copy()
    assert Covariates.of(one, "donor", ()).columns_of(one).shape == (len(one), 0)
    with pytest.raises(ValueError, match="The fit has no covariates: leave covariates out"):
        Covariates().columns_at({"donor": "A"}, 2)
    with pytest.raises(TypeError, match="covariate_keys must be a string, or a sequence"):
        SpatialBAE(covariate_keys=5)  # type: ignore[arg-type]


def test_denoised_counts_are_of_the_average_batch(cells: Any, fitted: SpatialBAE) -> None:
    """Whatever a cell's own batch is: the mean over cells of log rates with all batches."""
    posterior: Any = fitted.posterior_
    X = posterior.data.X[0].numpy()
    code = np.repeat(posterior.predict_latent()[0][:1], len(X), 0)
    own = X[:1].repeat(len(X), 0)
    own[:, 2:5] = X[:, 2:5]
    mean = posterior.model.decode(own, code).numpy().mean(0)
    at = reference_inputs(X, 3, keep_slices=True)
    np.testing.assert_array_equal(at[:, 2:], np.tile([0.0, 0.0, 0.0, 1.0, 0.0], (len(X), 1)))
    at[0, 5] = X[0, 5]  # of equal sizes
    np.testing.assert_allclose(posterior.model.decode(at[:1], code[:1])[0], mean, atol=1e-5)


def test_predictions_of_batches(cells: Any, fitted: SpatialBAE) -> None:
    """One of the fit, by name, or their average if that is asked for; others are refused."""
    model, adata = fitted, cells.copy()
    places = adata.obsm["spatial"][:3]
    assert model.batches_ == ["donor 0", "donor 1"]
    ages = [30.0, 40.0, 50.0]
    given = {"donor": "donor 1", "age": ages}
    one = model.predict(places, covariates=given).mean
    frame = pandas.DataFrame({"age": ages, "donor": ["donor 1"] * 3})
    np.testing.assert_array_equal(model.predict(places, covariates=frame).mean, one)
    other = model.predict(places, covariates=given | {"donor": "donor 0"}).mean
    mean = model.predict(places, covariates="average").mean
    assert not np.allclose(one, other) and not np.allclose(one, mean)
    assert model.sample(places, covariates="average", num_samples=2).shape == (2, 3, 30)
    with pytest.raises(ValueError, match="covariates is None: set it to .'donor': one of .'donor"):
        model.predict(places)
    for wrong, words in (
        ({"donor": "donor 1"}, r"has \['donor'\]; expected values of \['age', 'donor'\]"),
        (given | {"donor": "donor 7"}, r"has \['donor 7'\], which are not of the fit.* 'average'"),
        (given | {"age": [1.0, 2.0]}, r"covariates\['age'\] has shape \(2,\); expected a value"),
        (given | {"age": np.nan}, "covariates must be finite"),
        (given | {"age": "old"}, r"covariates\['age'\] is no array of numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            model.sample(places, covariates=wrong)
    unknown = adata.copy()
    unknown.obs["donor"] = "donor 7"
    with pytest.raises(ValueError, match=r"batches that the model was not fitted to \(donor 7\)"):
        model.log_density(unknown)


def test_cells_are_known_by_their_batch(
    cells: Any, fitted: SpatialBAE, tmp_path: pathlib.Path
) -> None:
    model, adata = fitted, cells.copy()
    model.save(tmp_path)
    again = SpatialBAE.load(tmp_path)
    np.testing.assert_allclose(again.denoised(adata).mean, adata.layers["gpbae_mean"], rtol=1e-5)
    np.testing.assert_allclose(again.log_density(adata), model.log_density(adata), rtol=1e-5)
    adata.obs["group"] = np.where(adata.obs["kind"] == 0, "a", "b")
    table = again.differential_expression(adata, "group", "a", num_draws=2)
    assert np.isfinite(table["lfc_mean"]).all() and len(again.spatial_genes(num_draws=2)) == 30
    donors = sorted(set(adata.obs["donor"]))
    with pytest.raises(ValueError, match="groups of 'donor' have no value of 'donor' .batch_key"):
        again.differential_expression(adata, "donor", donors[0], donors[1])
    adata.obs["sick"] = np.where(adata.obs["donor"] == donors[0], "sick", "well")
    with pytest.raises(ValueError, match=r"groups of 'sick'.*pseudobulk"):
        again.differential_expression(adata, "sick", "sick")
    other = adata.copy()
    other.obs["donor"] = other.obs["donor"].to_numpy()[::-1]
    with pytest.raises(ValueError, match="other cells than the 240 of the fit"):
        model.denoised(other)


def test_what_is_said_of_confounding() -> None:
    """One batch, batches that are slices, those that lie apart, and columns that follow from
    others.
    """
    adata = made_batches(120)
    adata.obs["one"] = "A"
    adata.obs["side"] = np.where(adata.obsm["spatial"][:, 0] < 500.0, "left", "right")
    adata.obs["twice"] = 2.0 * adata.obs["age"] - 3.0
    adata.obs["depth"] = (adata.obs["donor"] == "donor 1").astype(float)
    for options, words in (
        ({"batch_key": "one"}, r"adata.obs\['one'\] names one batch \(A\), so there is no effect"),
        (
            {"batch_key": "donor", "slice_key": "donor"},
            "Each slice has cells of one batch only.* cannot be told apart",
        ),
        ({"batch_key": "side"}, "Batches .batch_key='side'. lie apart: .* set slice_key too"),
        ({"covariate_keys": ["age", "twice"]}, r"Effects of \['age', 'twice'\] cannot be told"),
        (
            {"batch_key": "donor", "covariate_keys": "depth"},
            r"Effects of \['donor', 'depth'\] cannot be told apart from each other:",
        ),
        (
            {"slice_key": "donor", "covariate_keys": "depth"},
            r"Effects of \['depth'\] cannot be told apart .* or from those of slices \(donor\)",
        ),
    ):
        model = SpatialBAE(**options)
        tissue, _, covariates = model._read(adata)
        with pytest.warns(UserWarning, match=words):
            warn_of_confounding(covariates, tissue, model.slice_key)


def test_what_is_refused() -> None:
    adata = made_batches(30)
    adata.obs["name"] = [f"cell {n}" for n in range(30)]
    adata.obs["lost"] = adata.obs["age"].where(adata.obs["age"] > 40.0)
    adata.obs["same"] = 3.0
    adata.obs["nobody"] = adata.obs["donor"].where(adata.obs["age"] > 40.0)
    for options, words in (
        ({"batch_key": "run"}, "adata.obs has no column 'run'.* set batch_key to that which names"),
        ({"batch_key": "nobody"}, r"adata.obs\['nobody'\] names no batch of \d+ cells"),
        ({"batch_key": "name"}, "names 30 batches of 30 cells: set batch_key to a column of few"),
        ({"covariate_keys": ["weight"]}, "adata.obs has no column 'weight'.* set covariate_keys"),
        ({"covariate_keys": ["donor"]}, "are columns of numbers: set batch_key to"),
        ({"covariate_keys": ["lost"]}, r"adata.obs\['lost'\] has no value of \d+ cells"),
        ({"covariate_keys": "same"}, r"adata.obs\['same'\] has one value in all cells"),
    ):
        with pytest.raises(ValueError, match=words):
            fit(adata, 1, **options)
