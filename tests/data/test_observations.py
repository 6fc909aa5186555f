"""Checks of the data against the model: one clear error each, before anything is computed."""

import functools
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference, latent_priors, likelihoods, models
from gpflow_bae.data import draw_indices, memory, prepare_data

T, N, P, L = 3, 4, 5, 2


def dense(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


@functools.cache
def model(kind: str = "sgp_bae", num_outputs: int = P, **kwargs: Any) -> models.BayesianAutoencoder:
    common: dict[str, Any] = {
        "decoder": dense(L, num_outputs),
        "encoder": dense(2 * P, L),
        "likelihood": likelihoods.Gaussian(0.1),
        "latent_dim": L,
    }
    if kind == "bae":
        return models.BAE(**common)
    kernel = gpflow.kernels.SquaredExponential()
    if kind == "gp_bae":
        return models.GPBAE(kernel=kernel, **common)
    Z = np.array([[0.0], [1.0]])
    return models.SGPBAE(kernel=kernel, inducing_variable=Z, **common, **kwargs)


def data(num_tasks: int = T) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_tasks, N, 1))
    return X, rng.standard_normal((num_tasks, N, P))


def test_missing_entries_become_a_mask() -> None:
    """NaN to zeros and False, everything else as it was; a full data set has no mask."""
    X, Y = data()
    Y[1, 2, 3] = Y[0, 0, 0] = np.nan
    prepared = prepare_data(model(), (X, Y))
    np.testing.assert_array_equal(prepared.mask, ~np.isnan(Y))
    np.testing.assert_array_equal(prepared.Y, np.nan_to_num(Y.astype(np.float32)))
    np.testing.assert_array_equal(prepared.to_numpy()[1], Y.astype(np.float32))
    np.testing.assert_array_equal(prepared.X, X)
    assert prepare_data(model(), data()).mask is None


def test_inputs_shared_by_all_tasks_are_stored_once() -> None:
    """So that kernel matrices are computed once; [N, D] and [N, P] are a single task."""
    X, Y = data()
    X = np.tile(X[:1], (T, 1, 1))
    assert prepare_data(model(), (X, Y)).X.shape == (1, N, 1)
    single = prepare_data(model(), (X[0], Y[0]))
    assert single.X.shape == (1, N, 1) and single.Y.shape == (1, N, P)


@pytest.mark.parametrize("num_tasks, axis", [(T, 0), (1, 1)])
def test_gather_takes_inputs_observations_and_mask_together(num_tasks: int, axis: int) -> None:
    """Tasks where there are several, else points."""
    X, Y = data(num_tasks)
    Y[..., 1, 3] = np.nan
    prepared = prepare_data(model(inducing_outputs="sampled"), (X, Y))
    assert prepared.axis == axis and prepared.num_items == (T if axis == 0 else N)
    batch = prepared.gather(tf.constant([2, 1]))
    whole = (X, np.nan_to_num(Y), ~np.isnan(Y))
    for found, everything in zip(batch[:3], whole, strict=True):
        np.testing.assert_allclose(found, np.take(everything, [2, 1], axis=axis), rtol=1e-6)
    # Two of N points stand for N / 2 each; whole tasks stand for themselves within a task.
    assert batch.point_scale == (1.0 if axis == 0 else N / 2)
    np.testing.assert_array_equal(batch.indices, [2, 1])


def test_minibatches_are_uniform_subsets() -> None:
    """Distinct items, each with probability B / N: five standard errors over 2000 draws."""
    draw = tf.function(lambda seed: draw_indices(7, 3, seed), autograph=False)
    draws = np.stack([draw(tf.constant([0, i])).numpy() for i in range(2000)])
    assert all(len(set(row)) == 3 for row in draws)
    frequency = np.bincount(draws.ravel(), minlength=7) / 2000
    np.testing.assert_allclose(frequency, 3 / 7, atol=5 * np.sqrt(3 / 7 * 4 / 7 / 2000))
    assert draw_indices(7, 7, tf.constant([0, 0])) is None


def with_nan(array: np.ndarray, where: Any, value: float = np.nan) -> np.ndarray:
    array = array.copy()
    array[where] = value
    return array


X, Y = data()


@pytest.mark.parametrize(
    "bad, message",
    [
        ((with_nan(X, (1, 2)), Y), r"X holds NaN or infinity \(first in task 1, point 2\)"),
        ((with_nan(X, (2, 0), np.inf), Y), r"X holds NaN or infinity \(first in task 2, point 0"),
        ((X, with_nan(Y, (1, 2, 3), -np.inf)), r"Y holds infinity .*task 1, point 2, column 3"),
        ((X, with_nan(Y, 1)), r"no observation at all in task\(s\) \[1\]; drop"),
        ((X, with_nan(Y, (..., 4))), r"no observation at all in column\(s\) \[4\]; drop"),
        ((X[:, :3], Y), r"same number of tasks and points, got X of shape \(3, 3, 1\) and"),
        ((X[:2], Y), r"same number of tasks and points, got X of shape \(2, 4, 1\) and"),
        ((X[..., None], Y), r"X must have shape \[N, D\] or \[T, N, D\], got \(3, 4, 1, 1\)"),
        ((X, Y[0, 0]), r"Y must have shape \[N, P\] or \[T, N, P\], got \(5,\)"),
        ((None, Y), "SparseGP is a prior over inputs: X is needed, got None"),
    ],
)
def test_bad_data_are_refused(bad: tuple[Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_data(model(), bad)


def test_a_model_without_inputs_takes_none() -> None:
    assert prepare_data(model("bae"), (None, Y)).X is None


def test_a_decoder_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="decoder returns 6 outputs per point, but Y has P = 5"):
        prepare_data(model(num_outputs=6), (X, Y))


@pytest.mark.parametrize("batch_size", [-1, 0, T + 1])
def test_a_batch_size_out_of_range_is_refused(batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"between 1 and the 3 tasks, got {batch_size}"):
        prepare_data(model(), (X, Y), batch_size)


@pytest.mark.parametrize("kind", ["sgp_bae", "gp_bae"])
def test_minibatches_of_points_need_a_density_that_splits(kind: str) -> None:
    """Integrated inducing outputs, and the exact GP, couple all points of a task."""
    with pytest.raises(ValueError, match="cannot take the points of a single task in minibatches"):
        prepare_data(model(kind), (X[0], Y[0]), batch_size=2)
    # These do split: sampled inducing outputs, no inputs at all.
    prepare_data(model(inducing_outputs="sampled"), (X[0], Y[0]), batch_size=2)
    prepare_data(model("bae"), (None, Y[0]), batch_size=2)


def test_nll_needs_an_encoder_with_a_density() -> None:
    settings = inference.AmortizedSettings(encoder=inference.EncoderSettings(loss="nll"))
    with pytest.raises(ValueError, match='StochasticEncoder has none; use "energy"'):
        inference.sample_amortized(model(), (X, Y), settings, progress=False, warm_start=None)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r'The presets are "auto", "paper" and "ensemble", got \'slow\'',
    ):
        inference.sample_amortized(model(), (X, Y), "slow", progress=False, warm_start=None)


def test_matrices_that_fit_into_no_memory_are_refused_before_they_are_made() -> None:
    """The exact GP over a million points: two matrices of 8 TB. The sparse one takes them."""
    X, Y = np.zeros((10**6, 1)), np.zeros((10**6, P), np.float32)
    with pytest.raises(ValueError, match="GP over 1000000 points.*1 task.*at least 16000 GB"):
        prepare_data(model("gp_bae"), (X, Y))
    assert prepare_data(model(), (X, Y)).num_points == 10**6


def test_priors_without_matrices_of_all_points_take_a_million() -> None:
    kernel = gpflow.kernels.Matern32()
    memory.check_memory(latent_priors.MarkovGP(kernel, 1), 1, 10**6)
    near = latent_priors.NearestNeighbourGP(kernel, np.eye(3), 1, 2)
    memory.check_memory(near, 1, 10**6)


def test_what_fits_is_counted_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A covariance and its factor of each task in a batch, N^2 numbers of 8 bytes each."""
    one_task = 2 * N**2 * 8.0
    monkeypatch.setattr(memory, "total_memory", lambda: 2.0 * one_task)
    assert prepare_data(model("gp_bae"), data(), batch_size=2).num_items == T
    with pytest.raises(ValueError, match="for 3 task"):
        prepare_data(model("gp_bae"), data())
    X, Y = data()
    assert prepare_data(model("gp_bae"), (X[0], Y)).num_items == T  # shared inputs


def test_memory_is_that_of_this_machine() -> None:
    assert 1e8 < memory.total_memory() < 1e15
