"""Factors of one direction each: what the network emits, by loops, and how it starts."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from gpflow_bae.encoders import RankOneEncoder, factor_net, partial_encoder, rank_one_factor_net
from gpflow_bae.inference import seed_networks

P, L, N = 5, 3, 6


def encoder_of(hidden: tuple[int, ...] = (4,), num_outputs: int = P) -> RankOneEncoder:
    encoder = partial_encoder("rank_one", num_outputs, L, hidden, "tanh")
    assert isinstance(encoder, RankOneEncoder)
    return encoder


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    mask = rng.uniform(size=(2, N, P)) < 0.6
    mask[0, 0] = False
    return rng.normal(size=(2, N, P)).astype(np.float32), mask


def test_each_output_has_a_factor_of_its_own() -> None:
    """Its network, in NumPy; float32: 1e-5. Where it is missing the factor says nothing."""
    encoder = encoder_of()
    rng = np.random.default_rng(1)
    for weight in encoder.weights:
        weight.assign(0.5 * rng.normal(size=weight.shape))
    W, b, mean_W, mean_b, scale_W, scale_b, directions = (w.numpy() for w in encoder.weights)
    Y, mask = data()
    mean, variance, emitted = (v.numpy() for v in encoder(Y, mask=mask))
    assert mean.shape == variance.shape == (2, N, P) and emitted.shape == (2, N, P, L)
    for t, n, p in np.ndindex(2, N, P):
        np.testing.assert_allclose(emitted[t, n, p], directions[p], rtol=1e-6)
        if not mask[t, n, p]:
            assert (mean[t, n, p], variance[t, n, p]) == (0.0, 1e10)
            continue
        h = np.tanh(Y[t, n, p] * W[p, 0] + b[p, 0])
        np.testing.assert_allclose(mean[t, n, p], h @ mean_W[p, :, 0] + mean_b[p, 0, 0], atol=1e-5)
        log_scale = h @ scale_W[p, :, 0] + scale_b[p, 0, 0]
        np.testing.assert_allclose(variance[t, n, p], np.exp(2 * log_scale), rtol=1e-5)
    under = np.where(mask, Y, np.inf)
    for one, other in zip(encoder(under, mask=mask), (mean, variance, emitted), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(encoder(Y), encoder(Y, mask=np.ones_like(mask)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("num_outputs", [2, 3, 7])
def test_a_complete_row_starts_with_the_initial_variance(num_outputs: int) -> None:
    """In every direction that it tells of: eigenvalues of sum_p a_p a_p^T / s_p^2 are 10."""
    encoder = encoder_of(num_outputs=num_outputs)
    _, variance, A = (v.numpy() for v in encoder(np.ones((1, 1, num_outputs))))
    precision = np.einsum("pl,p,pk->lk", A[0, 0], 1.0 / variance[0, 0], A[0, 0])
    expected = np.full(L, 10.0)
    expected[: max(L - num_outputs, 0)] = 0.0
    np.testing.assert_allclose(np.linalg.eigvalsh(precision), expected, rtol=1e-4, atol=1e-4)


def test_directions_come_from_the_seed_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpflow_bae.inference.seeding._keras_is_seeded", lambda: False)
    one, other, third = (encoder_of() for _ in range(3))
    for encoder, seed in ((one, 3), (other, 3), (third, 4)):
        seed_networks(encoder, seed)
    for a, b in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.allclose(one.weights[-1], third.weights[-1])


def test_it_goes_through_keras_files(tmp_path: object) -> None:
    encoder = encoder_of()
    path = f"{tmp_path}/net.keras"
    encoder.to_keras().save(path)
    again = RankOneEncoder(keras.saving.load_model(path), L)
    Y, mask = data()
    for one, other in zip(encoder(Y, mask=mask), again(Y, mask=mask), strict=True):
        np.testing.assert_array_equal(one, other)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"returns P \(2 \+ L\).*takes 10 and returns 6"):
        RankOneEncoder(factor_net(P, L), L)
    with pytest.raises(ValueError, match="latent_dim L = 2"):
        RankOneEncoder(rank_one_factor_net(P, L), 2)
    with pytest.raises(ValueError, match="'rank_one' draws no codes"):
        partial_encoder("rank_one", P, L, stochastic=True)
    with pytest.raises(ValueError, match="Y has P = 4 columns"):
        encoder_of()(np.zeros((1, 2, 4)))
    with pytest.raises(NotImplementedError, match="no distribution of codes before a prior"):
        encoder_of().sample(np.zeros((1, 2, P)), [0, 1])
