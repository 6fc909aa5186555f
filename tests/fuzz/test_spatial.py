"""Settings of SpatialBAE, and calls of a fitted one, with an argument that is wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from gpflow_bae.spatial import SpatialBAE, SpatialPlan
from tests.fuzz.answers import answered, cases
from tests.fuzz.strategies import SCALARS, arrays
from tests.fuzz.test_calls import no_nan
from tests.spatial.tissues import made

GENES = 6
PLAN: dict[str, Any] = {
    "likelihood": "nb",
    "dispersion_power": True,
    "encoder_units": 8,
    "decoder_units": 4,
    "hidden_channels": "space",
    "weight_scale": 1.0,
    "space_first": 0.0,
    "num_inducing": 4,
    "batch_size": 10,
    "learning_rate": 0.01,
    "final_learning_rate_fraction": 0.05,
    "parameters": "point",
    "num_restarts": 1,
    "num_draws": 2,
    "validation_fraction": 0.1,
    "patience": 2,
    "step_size": 0.01,
    "num_samples": 2,
    "burnin": 25,
    "thinning": 25,
}


@functools.cache
def fitted() -> tuple[SpatialBAE, Any]:
    adata = made(20, GENES).adata
    plan = SpatialPlan(**PLAN)
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
@cases(12)
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
    name = data.draw(st.sampled_from(sorted(PLAN)))
    value = data.draw(SCALARS)
    plan = answered(lambda: SpatialPlan(**{**PLAN, name: value}))
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
