"""Embeddings of places: the scale that genes are on, and distances between places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.likelihoods import NegativeBinomial, Poisson, ZeroInflatedNegativeBinomial
from gpflow_bae.spatial import SpatialBAE, SpatialPlan, places
from gpflow_bae.spatial.places import places_embedded, stabilised
from tests.spatial.tissues import made

LOGS = np.array([[-3.0, 1.0], [0.0, 4.0], [2.5, -1.0]], np.float32)
CENTRE = np.array([-0.5, 2.0], np.float32)


def test_poisson_counts_are_on_a_scale_of_roots() -> None:
    """2 sqrt(mean), from the centre on; by a grid of a sixteenth of a nat."""
    found = stabilised(Poisson(), tf.constant(LOGS), tf.constant(CENTRE))
    expected = 2.0 * (np.exp(0.5 * LOGS) - np.exp(0.5 * CENTRE))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


def test_dispersed_counts_are_on_a_bent_scale() -> None:
    """2 asinh(sqrt(alpha mean)) / sqrt(alpha) of a negative binomial (Anscombe 1948)."""
    alpha = np.array([0.3, 2.0])
    found = stabilised(NegativeBinomial(alpha), tf.constant(LOGS), tf.constant(CENTRE))

    def scale(logs: np.ndarray) -> np.ndarray:
        return 2.0 * np.arcsinh(np.sqrt(alpha * np.exp(logs))) / np.sqrt(alpha)

    np.testing.assert_allclose(found, scale(LOGS) - scale(CENTRE), rtol=2e-3, atol=2e-3)


def test_counts_with_more_zeros_differ_less() -> None:
    """Zeros scatter too, so the same means are fewer standard deviations apart."""
    arguments = tf.constant(LOGS), tf.constant(CENTRE)
    few = stabilised(NegativeBinomial(np.ones(2)), *arguments)
    many = stabilised(ZeroInflatedNegativeBinomial(np.ones(2), 0.5 * np.ones(2)), *arguments)
    assert (np.abs(many) < np.abs(few)).all()


@pytest.fixture(scope="module")
def fitted() -> tuple[Any, SpatialBAE]:
    adata = made(200, num_slices=2).adata
    plan = SpatialPlan(
        likelihood="nb", num_inducing=20, parameters="point", space_first=0.0, num_restarts=1
    )
    model = SpatialBAE(2, 2, slice_key="slice", plan=plan, num_steps=200, progress=False)
    return adata, model.fit(adata)


def test_distances_are_those_of_expected_counts(fitted: tuple[Any, SpatialBAE]) -> None:
    """By NumPy: on Anscombe's scale, channels of cells at zero, one size and one slice for all."""
    adata, model = fitted
    posterior = model.posterior_
    assert posterior is not None
    X = np.array(posterior.data.X[0])
    X[:, -2], X[:, -1] = 1.0, 0.0
    codes = posterior.latent_samples().mean[0].copy()
    codes[:, 2:] = 0.0
    alpha: Any = posterior.model.likelihood.dispersion.numpy()
    power = posterior.model.likelihood.power
    exponent = np.full(24, 2.0) if power is None else power.numpy()
    found = adata.obsm["X_gpbae_space"]
    assert found.shape == (200, 16)
    rates = np.exp(posterior.model.decode(X, codes).numpy().astype(float))
    # Along straight lines between two places the scale is an integral: in fine steps of the logs.
    one, other = np.log(rates[3]), np.log(rates[90])
    means = np.exp(np.linspace(one, other, 2001))
    slope = means / np.sqrt(means + alpha * means**exponent)
    apart = slope.mean(0) * (other - one)
    order = model._read(adata)[0].order()
    difference = np.linalg.norm(found[order[3]] - found[order[90]])
    # The sixteen first components hold all but what a hidden layer of sixteen units bends away.
    np.testing.assert_allclose(difference, np.linalg.norm(apart), rtol=0.02)


def test_components_of_many_genes_are_those_of_few(
    fitted: tuple[Any, SpatialBAE], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found in a random subspace, and in blocks of cells, as where genes are thousands."""
    adata, model = fitted
    posterior = model.posterior_
    assert posterior is not None
    means = posterior.latent_samples().mean
    exact = places_embedded(posterior, means, 2)
    monkeypatch.setattr(places, "_EXACT_GENES", 0)
    monkeypatch.setattr(places, "_SKETCH", 20)
    monkeypatch.setattr(places, "_BYTES", 8 * 24 * 64)
    found = places_embedded(posterior, means, 2)
    np.testing.assert_allclose(np.abs(found[:, :3]), np.abs(exact[:, :3]), atol=1e-2)


def test_axes_of_many_cells_are_those_of_some(
    fitted: tuple[Any, SpatialBAE], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distances between all places by the axes of every other one, in blocks."""
    posterior = fitted[1].posterior_
    assert posterior is not None
    means = posterior.latent_samples().mean
    exact = places_embedded(posterior, means, 2)
    genes = posterior.model.decoder.output_dim
    monkeypatch.setattr(places, "_FOR_AXES", len(exact) * genes // 2)
    monkeypatch.setattr(places, "_BYTES", 8 * genes * 50)
    found = places_embedded(posterior, means, 2)
    assert len(found) == len(exact)
    apart = [np.linalg.norm(v[1:] - v[:-1], axis=1) for v in (found, exact)]
    np.testing.assert_allclose(*apart, rtol=1e-3, atol=1e-4)


def test_few_samples_embed_large_tissues_alike(
    fitted: tuple[Any, SpatialBAE], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one sample instead of all: distances between places hardly change."""
    posterior = fitted[1].posterior_
    assert posterior is not None
    means = posterior.latent_samples().mean
    of_all = places_embedded(posterior, means, 2)
    monkeypatch.setattr(places, "_DECODED", 1)
    of_few = places_embedded(posterior, means, 2)
    assert of_few.shape == of_all.shape
    apart = [np.linalg.norm(v[:, None] - v, axis=-1).ravel() for v in (of_few, of_all)]
    assert np.corrcoef(*apart)[0, 1] > 0.95
