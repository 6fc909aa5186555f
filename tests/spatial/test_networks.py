"""The decoder of rates: what each kind of channel does to it. The encoder of many genes."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_bae import decoders
from gpflow_bae.spatial.networks import cell_loadings, count_encoder, rate_decoder

RATES = np.array([0.5, 2.0, 8.0, 1.0])
SPACE, CELL, FEATURES = 3, 2, 1


def decoder(units: int | None, all_hidden: bool = False) -> decoders.ConditionalDecoder:
    network = rate_decoder(RATES, FEATURES, SPACE, CELL, units, all_hidden)
    return decoders.ConditionalDecoder(
        decoders.KerasDecoder(network, decoders.fan_in_prior()),
        lambda X: X[..., :FEATURES],
        FEATURES,
    )


@pytest.mark.parametrize("units", [None, 5])
def test_a_channel_of_cells_has_one_loading_for_each_gene(units: int | None) -> None:
    """It adds them to the logarithms of rates, whatever the channels of space are."""
    one = decoder(units)
    loadings = cell_loadings(one)
    assert loadings is not None and loadings.shape == (CELL, len(RATES))
    # Of the number of its own inputs, not of the hidden units beside it.
    np.testing.assert_allclose(loadings.prior.stddev(), CELL**-0.5, rtol=1e-6)
    rng = np.random.default_rng(0)
    codes, X = rng.normal(size=(6, SPACE + CELL)), rng.normal(size=(6, FEATURES))
    moved = codes.copy()
    moved[:, SPACE:] += 1.0
    difference = one(moved, X) - one(codes, X)
    expected = np.broadcast_to(loadings.numpy().sum(0), difference.shape)
    np.testing.assert_allclose(difference, expected, rtol=1e-4, atol=1e-5)  # float32
    moved[:, :SPACE] += 1.0
    bent = (one(moved, X) - one(codes, X) - expected).numpy()
    assert (np.ptp(bent, axis=0) > 1e-3).all() == (units is not None)  # a line moves all alike


def test_all_channels_through_the_layer() -> None:
    one = decoder(5, all_hidden=True)
    assert cell_loadings(one) is None
    rng = np.random.default_rng(0)
    codes, X = rng.normal(size=(6, SPACE + CELL)), rng.normal(size=(6, FEATURES))
    moved = codes.copy()
    moved[:, SPACE:] += 1.0
    assert (np.ptp((one(moved, X) - one(codes, X)).numpy(), axis=0) > 1e-3).all()


@pytest.mark.parametrize("number", [1, 9])
def test_a_covariate_has_one_effect_on_each_gene(number: int) -> None:
    """Whatever codes and features are, with a prior that does not depend on how many there are."""
    network = rate_decoder(RATES, FEATURES, SPACE, CELL, 5, num_covariates=number)
    width = FEATURES + number
    inside = decoders.KerasDecoder(network, decoders.fan_in_prior())
    one = decoders.ConditionalDecoder(inside, lambda X: X[..., :width], width)
    (weights,) = [w for w in inside.weights if w.shape == (number, len(RATES))]
    rng = np.random.default_rng(0)
    weights.assign(rng.normal(size=weights.shape))
    np.testing.assert_allclose(weights.prior.stddev() * number**0.5, 1.0, rtol=1e-6)
    codes, X = rng.normal(size=(6, SPACE + CELL)), rng.normal(size=(6, width))
    moved = X.copy()
    moved[:, -1] += 1.0
    difference = one(codes, moved) - one(codes, X)
    expected = np.broadcast_to(number**0.5 * weights.numpy()[-1], difference.shape)
    np.testing.assert_allclose(difference, expected, rtol=1e-4, atol=1e-5)  # float32


def test_rates_start_at_the_genes_own() -> None:
    """With codes at zero, and but for small weights of the features."""
    found = decoder(5)(np.zeros((1, SPACE + CELL)), np.zeros((1, FEATURES)))
    np.testing.assert_allclose(found, np.log(RATES)[None], atol=1e-6)


def test_units_of_the_encoder_move_as_far_whatever_the_number_of_genes() -> None:
    """At the start, and in a step of Adam, which changes each weight by the learning rate."""
    rng = np.random.default_rng(0)
    spreads, steps = [], []
    for number in (400, 20_000):
        counts = rng.poisson(1.0, (50, number)).astype(np.float32)
        means = np.full(number, np.log1p(counts).mean())
        network = count_encoder(means, np.ones(number), FEATURES, 2, 64)
        values = np.concatenate([counts, np.zeros((50, 1)), np.ones((50, number + 1))], 1)
        _, logs, first, *_ = network.layers
        seen = logs(values.astype(np.float32)).numpy()
        spreads.append(np.std(seen @ first.kernel.numpy()))
        steps.append(0.01 * np.abs(seen).sum(1).mean())
    # The variance of initial weights is 2 / (inputs + 64).
    assert spreads[1] / spreads[0] == pytest.approx((464 / 400) ** 0.5, rel=0.1)
    assert steps[1] / steps[0] == pytest.approx(1.0, rel=0.05)
