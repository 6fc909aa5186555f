"""Where the tabular study's networks start."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.tabular import networks


def test_spectral_networks_start_as_principal_component_analysis() -> None:
    rng = np.random.default_rng(0)
    widths = networks.SIZES["coil2000"]
    rows = 0.5 + 0.1 * rng.standard_normal((400, widths[0])) @ np.diag(rng.random(widths[0]))
    encoder, decoder = networks.build("coil2000", rows, "spectral", seed=1)
    reconstructed = decoder(encoder(rows)).numpy()
    centred = rows - rows.mean(0)
    components = np.linalg.svd(centred, full_matrices=False)[2][: widths[-1]]
    best = centred @ components.T @ components + rows.mean(0)
    # A sigmoid bends z by z^2 / 12 of itself, and z = 0.3 is one standard deviation of the first
    # component: below one per cent in each of six layers, and less in the other components.
    assert np.sqrt(np.mean((reconstructed - best) ** 2)) < 0.08 * centred.std()


@pytest.mark.parametrize("dataset", sorted(networks.SIZES))
def test_isometric_networks_do_not_start_as_constants(dataset: str) -> None:
    width = networks.SIZES[dataset][0]
    rows = np.random.default_rng(0).random((50, width))
    spread = {}
    for initial in ("glorot", "isometric"):
        encoder, decoder = networks.build(dataset, rows, initial, seed=1)
        spread[initial] = decoder(encoder(rows)).numpy().std(0).mean()
    assert spread["isometric"] > 5 * spread["glorot"]
    assert encoder.count_params() + decoder.count_params() == sum(
        (a + 1) * b + (b + 1) * a
        for a, b in zip(networks.SIZES[dataset], networks.SIZES[dataset][1:], strict=False)
    )
