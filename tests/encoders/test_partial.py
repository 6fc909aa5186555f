"""Partial inference networks: sums over the observed outputs, and nothing of the others."""

from __future__ import annotations

import logging
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.encoders import (
    Encoder,
    GaussianEncoder,
    StochasticEncoder,
    partial_encoder,
)

P, L, E = 5, 2, 3
SEED = tf.constant([3, 4])
KINDS = ("zeros", "pointnet", "pointnet_one_hot", "indexnet", "factornet")
CASES = [(kind, False) for kind in KINDS] + [(kind, True) for kind in KINDS[:-1]]
UNORDERED = [case for case in CASES if case[0] != "pointnet"]  # which numbers the outputs
PartialEncoder = GaussianEncoder | StochasticEncoder


def _make(kind: str, stochastic: bool, num_outputs: int = P) -> PartialEncoder:
    noise_dim = E if stochastic else None
    return partial_encoder(
        kind, num_outputs, L, (7, 6), "tanh", stochastic=stochastic, noise_dim=noise_dim
    )


def _random(kind: str, stochastic: bool) -> PartialEncoder:
    """An encoder no weight of which is zero, as those of the log standard deviations start."""
    encoder = _make(kind, stochastic)
    rng = np.random.default_rng(1)
    for weight in encoder.weights:
        weight.assign(rng.normal(0.0, 0.4, weight.shape))
    return encoder


def _with_outputs(encoder: PartialEncoder, kind: str, outputs: list[int]) -> PartialEncoder:
    """The encoder of these outputs of ``encoder`` only, in this order, with their weights."""
    stochastic = isinstance(encoder, StochasticEncoder)
    result = _make(kind, stochastic, len(outputs))
    for new, old in zip(result.weights, encoder.weights, strict=True):
        values = old.numpy()
        if len(values) == P:
            values = values[outputs]
        elif kind == "zeros" and stochastic and len(values) == P + E:  # its noise comes last
            values = values[[*outputs, *range(P, P + E)]]
        new.assign(values)
    return result


def _emit(encoder: PartialEncoder, Y: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Everything an encoder says: mean and variance, or codes given fixed noise."""
    if isinstance(encoder, GaussianEncoder):
        return np.concatenate(encoder(Y, mask=mask), -1)
    noise = np.random.default_rng(2).normal(size=(*Y.shape[:-1], E))
    return encoder(Y, noise, mask).numpy()


def _data(num_rows: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and a mask with an empty row, a complete one, and all in between."""
    rng = np.random.default_rng(0)
    mask = np.arange(P) < np.arange(num_rows)[:, None] % (P + 1)
    return rng.normal(size=(num_rows, P)), rng.permuted(mask, axis=1)


@pytest.mark.parametrize("kind, stochastic", CASES)
def test_what_is_under_the_mask_does_not_matter(kind: str, stochastic: bool) -> None:
    """Zeros, 1e6 or infinity there: the same numbers, bit by bit, and the same gradients."""
    encoder = _random(kind, stochastic)
    Y, mask = _data()
    outputs = []
    for hidden_value in (0.0, 1e6, np.inf):
        values = tf.constant(np.where(mask, Y, hidden_value))
        with tf.GradientTape() as tape:
            tape.watch(values)
            total = tf.reduce_sum(encoder.sample(values, SEED, mask=mask))
        gradients = tape.gradient(total, [values, *encoder.trainable_variables])
        outputs.append([_emit(encoder, values, mask), *(g.numpy() for g in gradients)])
        assert np.all(gradients[0].numpy()[~mask] == 0.0)
    for other in outputs[1:]:
        for a, b in zip(outputs[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert np.abs(_emit(encoder, 1.1 * Y, mask) - outputs[0][0])[1:].max() > 1e-3


@pytest.mark.parametrize("kind, stochastic", UNORDERED)
def test_masking_an_output_is_deleting_it(kind: str, stochastic: bool) -> None:
    """The encoder without the output, of the same weights. Float32 sums in another order: 1e-5."""
    encoder = _random(kind, stochastic)
    Y, mask = _data()
    mask[:, 1] = False
    rest = [0, 2, 3, 4]
    smaller = _with_outputs(encoder, kind, rest)
    expected = _emit(smaller, Y[:, rest], mask[:, rest])
    np.testing.assert_allclose(_emit(encoder, Y, mask), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind, stochastic", UNORDERED)
def test_the_order_of_the_outputs_does_not_matter(kind: str, stochastic: bool) -> None:
    """Outputs permuted together with their weights; float32 sums in another order: 1e-5."""
    encoder = _random(kind, stochastic)
    Y, mask = _data()
    order = [3, 0, 4, 2, 1]
    permuted = _with_outputs(encoder, kind, order)
    np.testing.assert_allclose(
        _emit(permuted, Y[:, order], mask[:, order]),
        _emit(encoder, Y, mask),
        rtol=1e-5,
        atol=1e-5,
    )
    assert np.abs(_emit(encoder, Y[:, order], mask[:, order]) - _emit(encoder, Y, mask)).max() > 0.1


@pytest.mark.parametrize("kind, stochastic", CASES)
def test_without_a_mask_everything_is_observed(kind: str, stochastic: bool) -> None:
    """None is a mask of True, with any leading dimensions; a mask-taking encoder says so."""
    encoder = _random(kind, stochastic)
    assert isinstance(encoder, Encoder) and encoder.takes_mask and encoder.latent_dim == L
    Y = np.random.default_rng(0).normal(size=(2, 3, 4, P))
    complete = np.ones(Y.shape, bool)
    np.testing.assert_array_equal(_emit(encoder, Y, None), _emit(encoder, Y, complete))


@pytest.mark.parametrize("kind", ["pointnet", "pointnet_one_hot", "indexnet"])
def test_sums_over_the_observed_outputs_by_loops(kind: str) -> None:
    """The networks output by output and row by row, in NumPy, from the weights; float32: 1e-5."""
    encoder = _random(kind, False)
    weights = [w.numpy() for w in encoder.weights]
    if kind == "indexnet":  # kernel and bias of three layers, for each output
        (W0, b0, W1, b1, W2, b2), rest = weights[:6], weights[6:]
    elif kind == "pointnet":
        (index, value, b0, W1, b1, W2, b2), rest = weights[:7], weights[7:]
    else:
        (index, value, W1, b1, W2, b2), rest = weights[:6], weights[6:]

    def of_one_output(p: int, y: float) -> np.ndarray:
        if kind == "indexnet":
            h = np.tanh(y * W0[p, 0] + b0[p, 0])
            return np.tanh(h @ W1[p] + b1[p, 0]) @ W2[p] + b2[p, 0]
        if kind == "pointnet":  # the pair (p, y) itself
            h = np.tanh(np.array([p, y]) @ np.stack([index, value]) + b0)
            return np.tanh(h @ W1 + b1) @ W2 + b2
        # [one-hot of p, y] in the first layer; what follows is the same for all outputs.
        h = np.tanh(np.append(np.eye(P)[p], y) @ np.concatenate([index, value[None]]))
        return np.tanh(h @ W1 + b1) @ W2 + b2

    Y, mask = _data()
    sums = [
        sum((of_one_output(p, y[p]) for p in np.flatnonzero(seen)), np.zeros(6))
        for y, seen in zip(Y, mask, strict=True)
    ]
    (V0, c0, V1, c1), heads = rest[:4], rest[4:]
    h = np.tanh(np.tanh(np.array(sums) @ V0 + c0) @ V1 + c1)
    mean, variance = encoder(Y, mask=mask)
    np.testing.assert_allclose(mean, h @ heads[0] + heads[1], rtol=1e-5, atol=1e-5)
    log_scale = h @ heads[2] + heads[3]
    np.testing.assert_allclose(variance, np.exp(2.0 * log_scale), rtol=1e-5, atol=1e-5)


def test_the_factors_of_a_row_multiply() -> None:
    """Natural parameters of the row are the sums of those of single-output encoders, in NumPy."""
    encoder = _random("factornet", False)
    Y, mask = _data()
    precision, shift = np.zeros((len(Y), L)), np.zeros((len(Y), L))
    for p in range(P):
        mean, variance = (v.numpy() for v in _with_outputs(encoder, "factornet", [p])(Y[:, [p]]))
        precision += mask[:, [p]] / variance
        shift += mask[:, [p]] * mean / variance
    seen = mask.any(1)
    mean, variance = (v.numpy() for v in encoder(Y, mask=mask))
    np.testing.assert_allclose(variance[seen], 1.0 / precision[seen], rtol=1e-5)
    expected = shift[seen] / precision[seen]
    np.testing.assert_allclose(mean[seen], expected, rtol=1e-5, atol=1e-6)
    # Where nothing is observed: mean 0, and the largest variance that the encoder may emit.
    assert not seen.all()
    np.testing.assert_array_equal(mean[~seen], 0.0)
    np.testing.assert_allclose(variance[~seen], 1e3, rtol=1e-9)
    unclipped = GaussianEncoder(encoder.model, max_variance=1e9, takes_mask=True)
    variance = unclipped(Y, mask=mask)[1].numpy()
    np.testing.assert_allclose(variance[~seen], 1e6, rtol=1e-5)


@pytest.mark.parametrize("hidden", [(), (20,), (20, 20)])
@pytest.mark.parametrize("num_outputs", [3, 600])
@pytest.mark.parametrize("kind", KINDS)
def test_untrained_gaussian_encoders(kind: str, num_outputs: int, hidden: tuple[int, ...]) -> None:
    """The variance of a complete row is initial_variance, and means are of the codes' size.

    Means of standard normal rows: at most 3 in root mean square, whatever P; a sum of 600
    networks of the usual initial size would have 10 or more.
    """
    encoder = partial_encoder(kind, num_outputs, L, hidden, initial_variance=0.05)
    mean, variance = encoder(np.random.default_rng(0).normal(size=(50, num_outputs)))
    np.testing.assert_allclose(variance, 0.05, rtol=1e-4)
    assert 1e-3 < np.sqrt(np.mean(np.square(mean))) < 3.0


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_noise_enters_after_the_sum(kind: str) -> None:
    """A row without observations still has a spread; and the energy's gradient meets all weights.

    Noise in the sums over outputs would be masked with them.
    """
    encoder = _random(kind, True)
    empty = np.zeros((1, P), bool)
    draws = [encoder.sample(np.zeros((1, P)), [1, i], mask=empty) for i in range(5)]
    assert np.std(draws, 0).min() > 1e-2
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(encoder.sample(_data()[0], SEED))
    gradients = tape.gradient(total, encoder.trainable_variables)
    assert len(gradients) == len(encoder.weights)
    assert all(np.abs(g).max() > 0.0 for g in gradients)


def test_a_factornet_is_gaussian_in_sampled_models_too() -> None:
    """It has draws and a density, so ``stochastic`` changes nothing."""
    encoder = partial_encoder("factornet", P, L, stochastic=True)
    assert isinstance(encoder, GaussianEncoder)
    Y, mask = _data()
    mean, variance = encoder(Y, mask=mask)
    draw = encoder.sample(Y, SEED, mask=mask)
    expected = -0.5 * np.sum(np.log(2 * np.pi * variance) + (draw - mean) ** 2 / variance, -1)
    np.testing.assert_allclose(encoder.log_prob(Y, draw, mask=mask), expected, rtol=1e-10)


@pytest.mark.parametrize("kind, stochastic", CASES)
def test_networks_are_saved(kind: str, stochastic: bool, tmp_path: pathlib.Path) -> None:
    """Keras writes and reads them, layers and weights."""
    encoder = _random(kind, stochastic)
    network = keras.models.clone_model(encoder.model)
    for variable, weight in zip(network.trainable_variables, encoder.weights, strict=True):
        variable.assign(weight)
    network.save(tmp_path / "encoder.keras")
    read = keras.models.load_model(tmp_path / "encoder.keras")
    width = encoder.num_inputs
    rows = np.random.default_rng(0).normal(size=(4, width)).astype(np.float32)
    rows[:, P : 2 * P] = rows[:, P : 2 * P] > 0
    expected = encoder.apply(rows)
    for model in (network, read):
        np.testing.assert_allclose(model(rows), expected, rtol=1e-6, atol=1e-6)


def test_many_networks_are_announced(caplog: pytest.LogCaptureFixture) -> None:
    """Above 10,000 outputs, with the number of parameters that the sum then has; not below."""
    with caplog.at_level(logging.WARNING, "gpflow_bae"):
        partial_encoder("indexnet", 10_000, 1, hidden=(1,))
        assert not caplog.records
        model = partial_encoder("indexnet", 10_001, 1, hidden=(1,)).model
    (layer,) = [v for v in model.layers if v.name.startswith("sum_of_output_networks")]
    assert f"each of 10001 outputs, {layer.count_params()} parameters" in caplog.text


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"kind": "factor"}, "kind must be one of .*'factornet'.*, got 'factor'"),
        ({"kind": "free"}, "got 'free'; codes of their own .* FreeFormEncoder"),
        ({"num_outputs": 0}, "num_outputs must be at least 1, got 0"),
        ({"latent_dim": 0}, "latent_dim must be at least 1, got 0"),
        (
            {"hidden": (20, 0)},
            r"hidden must be .*each entry an integer of at least 1, got \(20, 0\)",
        ),
        ({"noise_dim": 3}, "noise_dim is 3, but this encoder has no noise"),
        ({"noise_dim": 0, "kind": "zeros", "stochastic": True}, "noise_dim must be at least 1"),
        ({"initial_variance": 1e-9}, "initial_variance must lie between min_variance = 1e-06"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        partial_encoder(**({"kind": "factornet", "num_outputs": P, "latent_dim": L} | arguments))


def test_observations_of_another_width_are_refused() -> None:
    """Eight columns of a network of [y, mask] for five outputs."""
    for stochastic in (False, True):
        with pytest.raises(ValueError, match="Y has P = 8 columns, .* mask of 5 outputs"):
            _make("zeros", stochastic).sample(np.zeros((2, 8)), SEED)
