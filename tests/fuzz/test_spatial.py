"""Settings of SpatialBAE, and calls of a fitted one, with an argument that is wrong; and cells in
other rows, in other types of counts, and at places of another origin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis
import numpy as np
import pytest
import scipy.sparse
from hypothesis import strategies as st

from gpflow_bae.spatial import NetworkPlan, SpatialBAE, SpatialPlan
from gpflow_bae.spatial.tissue import Coordinates, read_tissue
from tests.fuzz.answers import answered, cases
from tests.fuzz.strategies import SCALARS, arrays
from tests.fuzz.test_calls import no_nan
from tests.spatial.tissues import anndata, made

GENES = 6
PLAN: dict[str, Any] = {
    "likelihood": "nb",
    "dispersion_power": True,
    "space_first": 0.0,
    "num_inducing": 4,
    "batch_size": 10,
    "parameters": "point",
    "num_restarts": 1,
    "num_draws": 2,
}
NETWORKS: dict[str, Any] = {
    "encoder_units": 8,
    "decoder_units": 4,
    "hidden_channels": "space",
    "weight_scale": 1.0,
}


@functools.cache
def fitted() -> tuple[SpatialBAE, Any]:
    adata = made(20, GENES).adata
    plan = SpatialPlan(**PLAN, networks=NetworkPlan(**NETWORKS))
    model = SpatialBAE(1, 1, plan=plan, num_steps=10, progress=False).fit(adata)
    adata.obs["half"] = np.where(np.arange(20) < 10, "a", "b")
    return model, adata


def calls() -> dict[str, tuple[Callable[..., Any], Mapping[str, Any]]]:
    """By name, with arguments that are right."""
    model, adata = fitted()
    places = np.array([[10.0, 20.0], [30.0, 900.0]])
    at = {"places": places, "sizes": 1.5, "slices": None}
    draws = {"num_draws": 2}
    return {
        "predict": (model.predict, at | draws | {"level": 0.8}),
        "sample": (model.sample, at | {"num_samples": 2}),
        "sizes": (model.sizes, {"adata": adata, "hidden": True}),
        "log_density": (model.log_density, {"adata": adata, "hidden": True, **draws}),
        "log_density_of_fit": (model.log_density_of_fit, {"adata": adata, **draws}),
        "denoised": (model.denoised, {"adata": adata, "genes": ["gene 2"], "level": 0.8}),
        "spatial_genes": (model.spatial_genes, draws),
        "differential_expression": (
            model.differential_expression,
            {
                "adata": adata,
                "groupby": "half",
                "group1": "a",
                "group2": "b",
                "delta": 0.2,
                "fdr": 0.1,
                **draws,
            },
        ),
    }


NAMES = (
    "predict", "sample", "sizes", "log_density", "log_density_of_fit", "denoised",
    "spatial_genes", "differential_expression",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@hypothesis.given(st.data())
@cases(8)
def test_wrong_arguments_of_a_fit(name: str, data: st.DataObject) -> None:
    function, right = calls()[name]
    wrong = data.draw(st.sampled_from(sorted(right)))
    arguments = {**right, wrong: data.draw(SCALARS | arrays())}
    found = answered(lambda: function(**arguments))
    values = getattr(found, "to_numpy", lambda: found)()
    assert found is None or no_nan(values), (arguments, found)


def test_right_arguments_of_a_fit() -> None:
    """Wrong ones are refused for what they are, not for their neighbours."""
    assert sorted(calls()) == sorted(NAMES)
    for function, right in calls().values():
        found = function(**right)
        assert no_nan(getattr(found, "to_numpy", lambda found=found: found)())


@hypothesis.given(st.data())
@cases(60)
def test_wrong_settings(data: st.DataObject) -> None:
    """Those that are taken, make a fit or are refused there."""
    kind: Any
    kind, right = data.draw(st.sampled_from([(SpatialPlan, PLAN), (NetworkPlan, NETWORKS)]))
    name = data.draw(st.sampled_from(sorted(right)))
    value = data.draw(SCALARS)
    plan = answered(lambda: kind(**{**right, name: value}))
    if plan is not None:
        assert getattr(plan, name) == value or value != value


@hypothesis.given(st.data())
@cases(60)
def test_wrong_arguments_of_an_estimator(data: st.DataObject) -> None:
    right = {"num_spatial": 1, "num_cell": 1, "num_steps": 5, "seed": 0, "method": "variational"}
    right |= {"layer": None, "spatial_key": "spatial", "slice_key": None, "hidden_layer": None}
    right |= {"early_stopping": False, "denoise": True, "progress": False, "plan": None}
    name = data.draw(st.sampled_from(sorted(right)))
    answered(lambda: SpatialBAE(**{**right, name: data.draw(SCALARS)}))


KINDS = ["uint8", "uint16", "int32", "int64", "float32", "float64"]
CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "dense": lambda v: v,
    "csr": scipy.sparse.csr_matrix,
    "csc": scipy.sparse.csc_matrix,
    "csr array": scipy.sparse.csr_array,
}


def cells(counts: np.ndarray, places: np.ndarray, names: list[str], container: str) -> Any:
    adata = anndata.AnnData(np.zeros(counts.shape, np.float32))
    adata.obs_names = names
    adata.layers["raw"] = CONTAINERS[container](counts)
    adata.obsm["spatial"] = places
    return adata


@hypothesis.given(st.data())
@cases(60)
def test_cells_in_other_rows_and_types(data: st.DataObject) -> None:
    """Of few places and counts, so that many are alike: each comes at the same place of the fit,
    with the same inputs, or all are refused.
    """
    number = data.draw(st.integers(2, 6))
    numbers = st.lists(st.integers(0, 2), min_size=2 * number, max_size=2 * number)
    counts = np.array(data.draw(numbers)).reshape(number, 2)
    spots = np.array(data.draw(numbers)).reshape(number, 2) * data.draw(st.sampled_from([0.0, 0.3]))
    places, names = spots + 14.62, [f"cell {n}" for n in range(number)]
    order = data.draw(st.permutations(range(number)))
    shift = data.draw(st.sampled_from([0.0, 1e7, -1e7]))
    kind, container = data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from([*CONTAINERS]))
    found = []
    for adata in (
        cells(counts, places, names, "dense"),
        cells(
            counts[order].astype(kind), places[order] + shift, [names[n] for n in order], container
        ),
    ):

        def inputs(adata: Any = adata) -> tuple[Any, ...]:
            tissue, _ = read_tissue(adata, layer="raw")
            tissue = tissue.taken(tissue.order())
            X = Coordinates.of(tissue).inputs(tissue.places, tissue.slices)
            return list(tissue.names), tissue.digest_of_counts(), X

        found.append(answered(inputs))
    one, other = found
    assert (
        (one is None) == (other is None) == (not counts.any(1).all() or not np.ptp(spots, 0).any())
    )
    if one is not None:
        assert one[:2] == other[:2]
        np.testing.assert_allclose(one[2], other[2], atol=1e-6)


@pytest.mark.parametrize("name", ["sizes", "log_density_of_fit", "denoised"])
@hypothesis.given(st.data())
@cases(3)
def test_answers_of_cells_in_other_rows(name: str, data: st.DataObject) -> None:
    function, right = calls()[name]
    order = data.draw(st.permutations(range(20)))
    other = right["adata"][order].copy()
    counts = other.X.toarray().astype(data.draw(st.sampled_from(KINDS)))
    other.X = CONTAINERS[data.draw(st.sampled_from([*CONTAINERS]))](counts)
    expected, found = function(**right), function(**{**right, "adata": other})
    if name == "denoised":
        expected, found = expected.mean, found.mean
    np.testing.assert_allclose(found, expected[order], rtol=1e-5)
    with pytest.raises(ValueError, match="in another order"):
        function(**{**right, "adata": other[:, ::-1]})
