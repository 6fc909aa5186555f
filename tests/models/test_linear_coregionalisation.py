"""The linear model of coregionalisation: dense algebra, GPflow's own, and its posterior."""

from __future__ import annotations

import pathlib
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import gpflow_bae
from gpflow_bae import inference, models
from gpflow_bae.data.blocks import Block, joined
from gpflow_bae.models import LinearCoregionalisation
from gpflow_bae.models import linear_coregionalisation as model_module
from gpflow_bae.posteriors import CoregionalisationPosterior

NUM_COLUMNS, CHANNELS = 3, 2


def small_model(deviation: float = 0.0) -> LinearCoregionalisation:
    rng = np.random.default_rng(0)
    kernels = [gpflow.kernels.Matern32(lengthscales=[2.0]), gpflow.kernels.Matern12()]
    found = LinearCoregionalisation(
        kernels,
        rng.standard_normal((NUM_COLUMNS, CHANNELS)),
        rng.uniform(0.3, 1.0, (3, CHANNELS)),
        np.array([0.1, 0.2, 0.3]),
        deviation,
    )
    if found.deviations is not None:
        found.deviations.assign(rng.standard_normal(found.deviations.shape))
    return found


def some_cells(num_rows: int = 6) -> tuple[np.ndarray, ...]:
    """Inputs, and row and column of every cell of a table, in mixed order."""
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0.0, 5.0, (num_rows, 1)), axis=0)
    cells = rng.permutation(np.argwhere(np.ones((num_rows, NUM_COLUMNS))))
    return X, cells[:, 0].astype(np.int32), cells[:, 1].astype(np.int32)


@pytest.mark.parametrize("deviation", [0.0, 0.5])
def test_the_covariance_is_that_of_decoded_codes(deviation: float) -> None:
    """Written out as the sum over kernels and channels of the equation in the docstring."""
    model, (X, row, column) = small_model(deviation), some_cells()
    W, s = model.decoder.numpy(), model.scales.numpy()
    mixing = s[:, None, :] * W
    if model.deviations is not None:
        mixing = mixing + deviation * model.deviations.numpy()
    of_rows = [k(X).numpy() for k in model.kernels] + [np.eye(len(X))]
    expected = np.diag(model.noise_variance.numpy()[column])
    for K, A in zip(of_rows, mixing, strict=True):
        expected = expected + K[np.ix_(row, row)] * (A @ A.T)[np.ix_(column, column)]
    np.testing.assert_allclose(model.covariance(X, row, column), expected, atol=1e-12)


def test_one_kernel_without_code_noise_is_gpflows_coregionalised_regression() -> None:
    X, row, column = some_cells()
    y = np.random.default_rng(2).standard_normal(len(row))
    model = small_model()
    smooth = LinearCoregionalisation(
        [model.kernels[0]],
        model.decoder.numpy(),
        np.stack([np.ones(CHANNELS), np.full(CHANNELS, 1e-9)]),
        np.full(NUM_COLUMNS, 0.25),
    )
    kernel = gpflow.kernels.Matern32(lengthscales=[2.0], active_dims=[0])
    columns = gpflow.kernels.Coregion(NUM_COLUMNS, CHANNELS, active_dims=[1])
    columns.W.assign(model.decoder)
    columns.kappa.assign(np.full(NUM_COLUMNS, 1e-12))
    inputs = np.column_stack([X[row], column])
    seen, asked = slice(0, 12), slice(12, None)
    regression = gpflow.models.GPR(
        (inputs[seen], y[seen, None]), kernel * columns, noise_variance=0.25
    )
    found = smooth.log_marginal(X, row[seen], column[seen], y[seen])
    np.testing.assert_allclose(found, regression.log_marginal_likelihood(), rtol=1e-8)
    moments = smooth.predict(X, row[seen], column[seen], y[seen], row[asked], column[asked])
    for moment, expected in zip(moments, regression.predict_y(inputs[asked]), strict=True):
        np.testing.assert_allclose(moment, expected[:, 0], rtol=1e-6)


def test_predictions_are_conditional_gaussians_of_the_covariance() -> None:
    """So is the density; a cell of an observed row is told of by the code noise too."""
    model, (X, row, column) = small_model(0.5), some_cells()
    y = np.random.default_rng(3).standard_normal(len(row))
    K = model.covariance(X, row, column).numpy()
    np.testing.assert_allclose(
        model.log_marginal(X, row, column, y),
        scipy.stats.multivariate_normal.logpdf(y, cov=K),
        rtol=1e-10,
    )
    seen, asked = np.arange(11), np.arange(11, len(row))
    gain = np.linalg.solve(K[np.ix_(seen, seen)], K[np.ix_(seen, asked)])
    mean, variance = model.predict(X, row[seen], column[seen], y[seen], row[asked], column[asked])
    np.testing.assert_allclose(mean, gain.T @ y[seen], atol=1e-10)
    left = K[np.ix_(asked, asked)] - gain.T @ K[np.ix_(seen, asked)]
    np.testing.assert_allclose(variance, np.diag(left), atol=1e-10)


def test_gradients_in_closed_form_are_those_of_the_algebra() -> None:
    """Along a random symmetric direction, by central differences."""
    rng = np.random.default_rng(0)
    B = rng.standard_normal((9, 9))
    whole = B @ B.T + np.eye(9)
    y, weights = rng.standard_normal(6), rng.standard_normal((2, 3))
    arguments = [tf.constant(a) for a in (whole[:6, :6], whole[:6, 6:], y)]
    directions = [rng.standard_normal(a.shape) for a in arguments]
    directions[0] = directions[0] + directions[0].T

    def predicted(K: tf.Tensor, k: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        mean, explained = model_module._condition(K, k, value)
        return tf.reduce_sum(weights[0] * mean) + tf.reduce_sum(weights[1] * explained**2)

    def density(K: tf.Tensor, k: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        return model_module._negative_log_density(K, value)

    for function in (predicted, density):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = function(*arguments)
        slopes = tape.gradient(value, arguments, unconnected_gradients="zero")
        for i, (slope, direction) in enumerate(zip(slopes, directions, strict=True)):
            ends = []
            for sign in (1.0, -1.0):
                moved = list(arguments)
                moved[i] = moved[i] + sign * 1e-5 * direction
                ends.append(float(function(*moved)))
            numeric = (ends[0] - ends[1]) / 2e-5
            # The second difference of these smooth functions is below 1e-6 of the first.
            assert float(tf.reduce_sum(slope * direction)) == pytest.approx(numeric, rel=1e-5)


# Of a user's own data.


def data(num_rows: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A table with holes, and no row without any observation."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0.0, 5.0, (num_rows, 1)), axis=0)
    codes = np.concatenate([np.sin(2.0 * X), np.cos(X)], axis=1)
    Y = codes @ rng.standard_normal((2, NUM_COLUMNS)) + 0.1 * rng.standard_normal((num_rows, 3))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    Y[:, 0] = np.where(np.isnan(Y).all(1), 0.0, Y[:, 0])
    return X, Y


def dense(
    model: LinearCoregionalisation, X: np.ndarray, Y: np.ndarray, Xnew: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Moments [N', P] of new rows by NumPy, from the covariance of the docstring's equation."""
    mixing = model.scales.numpy()[:, None, :] * model.decoder.numpy()
    whole, N = np.concatenate([X, Xnew]), len(X)
    K = sum(np.kron(k(whole).numpy(), A @ A.T) for k, A in zip(model.kernels, mixing, strict=False))
    K = K + np.kron(np.eye(len(whole)), mixing[-1] @ mixing[-1].T)
    K = K + np.diag(np.tile(model.noise_variance.numpy(), len(whole)))
    seen = np.flatnonzero(~np.isnan(Y).ravel())
    new = np.arange(N * NUM_COLUMNS, len(K))
    gain = np.linalg.solve(K[np.ix_(seen, seen)], K[np.ix_(seen, new)])
    variance = np.diag(K[np.ix_(new, new)] - gain.T @ K[np.ix_(seen, new)])
    shape = (len(Xnew), NUM_COLUMNS)
    return (gain.T @ Y.ravel()[seen]).reshape(shape), variance.reshape(shape)


def test_predictions_at_new_rows_are_those_of_dense_algebra() -> None:
    """Of the model itself, and of the posterior, whose one block holds all cells."""
    model, (X, Y) = small_model(), data()
    Xnew = np.array([[0.3], [2.0], [7.0]])
    expected = dense(model, X, Y, Xnew)
    for found in (
        model.predict_y(Xnew, given=(X, Y)),
        CoregionalisationPosterior((model,)).predict_y(Xnew, given=(X, Y)),
    ):
        for moment, known in zip(found, expected, strict=True):
            np.testing.assert_allclose(moment, known, rtol=1e-8, atol=1e-10)


def test_the_objective_is_gpflows_and_so_are_its_verbs() -> None:
    """The density of the observed cells; the loss has the decoder's prior too."""
    model, (X, Y) = small_model(), data()
    row, column = (i.astype(np.int32) for i in np.nonzero(~np.isnan(Y)))
    K = model.covariance(X, row, column).numpy()
    expected = scipy.stats.multivariate_normal.logpdf(Y[row, column], cov=K)
    objective = model.maximum_log_likelihood_objective((X, Y))
    np.testing.assert_allclose(objective, expected, rtol=1e-10)
    prior = scipy.stats.norm.logpdf(model.decoder.numpy()).sum()
    loss = model.training_loss_closure((X, Y), compile=False)
    np.testing.assert_allclose(loss(), -expected - prior, rtol=1e-10)
    np.testing.assert_allclose(model.training_loss((X, Y)), loss())


def test_a_model_with_own_kernels_is_fitted_saved_and_fills(tmp_path: pathlib.Path) -> None:
    """Better than at the start, exactly as dense algebra with the fitted values says."""
    X, Y = data()

    def build(channels: int = CHANNELS, **of_slow: Any) -> LinearCoregionalisation:
        slow = of_slow.pop("kernel", gpflow.kernels.SquaredExponential)
        kernels = [slow(**of_slow), gpflow.kernels.Matern12()]
        for kernel in kernels:
            gpflow.set_trainable(kernel.variance, False)
        return LinearCoregionalisation(kernels, models.principal_directions(Y, channels))

    model = build()
    before = float(model.training_loss((X, Y)))
    posterior = gpflow_bae.fit(model, (X, Y), progress=False)
    assert float(model.training_loss((X, Y))) < before - 10.0
    mean, variance = posterior.predict_y(X[:3] + 0.05)
    for moment, known in zip((mean, variance), dense(model, X, Y, X[:3] + 0.05), strict=True):
        np.testing.assert_allclose(moment, known, rtol=1e-6, atol=1e-9)
    filled, spread = posterior.impute()
    holes = np.isnan(Y)
    np.testing.assert_array_equal(filled[~holes], Y[~holes])
    assert np.isfinite(filled).all() and (spread[holes] > 0.0).all() and not spread[~holes].any()
    of_rows = model.predict_y(None, given=(X, Y))
    np.testing.assert_allclose(filled[holes], of_rows[0].numpy()[holes], rtol=1e-8)
    posterior.save(tmp_path / "fit.npz")
    again = CoregionalisationPosterior.load(tmp_path / "fit.npz", build())
    np.testing.assert_allclose(again.impute()[0], filled, rtol=1e-10)
    for other, words in (
        (build(kernel=gpflow.kernels.Matern52), r"Matern52 at \.kernels\[0\]"),
        (build(active_dims=[0]), r"at \.kernels\[0\]\._active_dims"),
        (LinearCoregionalisation([gpflow.kernels.Matern12()], model.decoder), r"kernels\[0\]"),
        (build(CHANNELS - 1), "The file is of another model"),
    ):
        with pytest.raises(ValueError, match=words):
            CoregionalisationPosterior.load(tmp_path / "fit.npz", other)


def test_rows_and_outputs_come_in_any_order() -> None:
    """Predictions go along with both, and masked values are missing ones."""
    X, Y = data()
    model, rng = small_model(), np.random.default_rng(4)
    rows, columns = rng.permutation(len(X)), rng.permutation(NUM_COLUMNS)
    found, spread = CoregionalisationPosterior((model,)).impute(given=(X, Y))
    moved = LinearCoregionalisation(
        model.kernels,
        model.decoder.numpy()[columns],
        model.scales.numpy(),
        model.noise_variance.numpy()[columns],
    )
    hidden = np.ma.array(np.where(np.isnan(Y), 99.0, Y), mask=np.isnan(Y))
    given = X[rows], hidden[np.ix_(rows, columns)]
    again, spread_again = CoregionalisationPosterior((moved,)).impute(given=given)
    np.testing.assert_allclose(again, found[np.ix_(rows, columns)], rtol=1e-8)
    np.testing.assert_allclose(spread_again, spread[np.ix_(rows, columns)], rtol=1e-7)


def test_inputs_whose_digits_are_lost_are_refused() -> None:
    X, Y = data()
    model, far = small_model(), X + 1e12
    posterior = CoregionalisationPosterior((model,))
    for call in (
        lambda: inference.fit_coregionalisation(model, (far, Y), progress=False),
        lambda: model.training_loss((far, Y)),
        lambda: model.predict_y(far, given=(X, Y)),
        lambda: posterior.predict_y(far, given=(X, Y)),
        lambda: posterior.impute(given=(far, Y)),
    ):
        with pytest.raises(ValueError, match=r"X(new)? lies around 1e\+12 in column 0"):
            call()


def test_tasks_know_nothing_of_each_other() -> None:
    """Each has the prediction that it has alone, and shapes keep the axis of tasks."""
    model, tasks = small_model(), [data(seed=seed) for seed in (0, 1)]
    X, Y = (np.stack(part) for part in zip(*tasks, strict=True))
    posterior = CoregionalisationPosterior((model,))
    mean, _ = posterior.predict_y(np.array([[1.0]]), given=(X, Y))
    assert mean.shape == (2, 1, NUM_COLUMNS)
    for t, task in enumerate(tasks):
        alone, _ = posterior.predict_y(np.array([[1.0]]), given=task)
        np.testing.assert_allclose(mean[t], alone, rtol=1e-10)


@pytest.mark.parametrize("cells_per_block", [900, 8])
def test_tasks_of_unequal_lengths_are_filled_as_each_alone(cells_per_block: int) -> None:
    """Also where a task is more than one block, of which padding must be no part."""
    X, Y = data(12)
    Y[3:5, 0] = Y[9, 1] = np.nan
    posterior = CoregionalisationPosterior((small_model(),), cells_per_block)
    tasks, new = ([X[:7], X[7:]], [Y[:7], Y[7:]]), [X[:2] + 0.1, X[2:5] + 0.1]
    of_tasks = (
        posterior.impute(given=tasks),
        posterior.predict_y(given=tasks),
        posterior.predict_y(new, given=tasks),
    )
    for task, given in enumerate(zip(*tasks, strict=True)):
        alone = (
            posterior.impute(given=given),
            posterior.predict_y(given=given),
            posterior.predict_y(new[task], given=given),
        )
        for found, expected in zip(of_tasks, alone, strict=True):
            for of_all, of_one in zip(found, expected, strict=True):
                np.testing.assert_allclose(of_all[task, : len(of_one)], of_one, atol=1e-10)
                assert np.isnan(of_all[task, len(of_one) :]).all()


def test_joined_blocks_of_tasks_are_independent() -> None:
    """The density of a joined block is the sum of its parts, and predictions are those of each."""
    model, seen = small_model(0.5), 11
    rng = np.random.default_rng(4)
    blocks = []
    for number in range(9):
        X, row, column = some_cells()
        cells = row[:seen], column[:seen], rng.standard_normal(seen), row[seen:], column[seen:]
        blocks.append(Block(X + 0.1 * number, np.zeros(len(X), np.int32), *cells))
    groups = joined([*blocks, blocks[0]._replace(value=np.zeros(500))])
    assert [len(members) for _, members in groups] == [9, 1]  # of a few and of many cells
    (X, task, *cells), members = groups[0]
    density = sum(model.log_marginal(b.X, b.row, b.column, b.value) for b in blocks)
    np.testing.assert_allclose(model.log_marginal(X, *cells[:3], task), density, rtol=1e-10)
    found = model.predict(X, *cells, task)
    apart = [model.predict(b.X, *b[2:]) for b in blocks]
    for moment, own in zip(found, zip(*apart, strict=True), strict=True):
        np.testing.assert_allclose(moment, np.concatenate(own), rtol=1e-9, atol=1e-12)


def test_what_cannot_be_is_refused() -> None:
    kernel, W = gpflow.kernels.Matern12(), np.ones((3, 2))
    with pytest.raises(ValueError, match="Got 0 kernels and a decoder of shape"):
        LinearCoregionalisation([], W)
    with pytest.raises(TypeError, match="kernels must be a sequence, each entry a gpflow Kernel"):
        LinearCoregionalisation([W], W)
    with pytest.raises(ValueError, match=r"scales has shape \(1, 2\); expected \(2, 2\)"):
        LinearCoregionalisation([kernel], W, np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"noise_variance has shape \(2,\)"):
        LinearCoregionalisation([kernel], W, noise_variance=np.ones(2))
    with pytest.raises(ValueError, match="scales must hold finite numbers above 0"):
        LinearCoregionalisation([kernel], W, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="latent_dim is 4 for 3 outputs"):
        models.principal_directions(np.ones((5, 3)), 4)
    model = LinearCoregionalisation([kernel], W)
    with pytest.raises(ValueError, match=r"expected \[N, D\] and \[N, 3\]"):
        model.predict_y(None, given=(np.ones((4, 1)), np.ones((4, 2))))
    with pytest.raises(ValueError, match="Y has 2 outputs; the model has 3"):
        inference.fit_coregionalisation(model, (np.arange(4.0)[:, None], np.ones((4, 2))))
    with pytest.raises(ValueError, match="Y has no observation"):
        inference.fit_coregionalisation(model, (np.arange(4.0)[:, None], np.full((4, 3), np.nan)))
    posterior = CoregionalisationPosterior((model,))
    with pytest.raises(ValueError, match=r"does not have its data: pass given=\(X, Y\)"):
        posterior.predict_y(np.ones((1, 1)))
    with pytest.raises(ValueError, match=r"Xnew has shape \(1, 2\); expected rows of 1 inputs"):
        posterior.predict_y(np.ones((1, 2)), given=(np.arange(4.0)[:, None], np.ones((4, 3))))


def test_more_outputs_are_fitted_to_more_cells() -> None:
    settings = inference.BlockFit()
    found = [settings.for_outputs(number).cells_in_fit for number in (1, 6, 10, 20, 200)]
    assert found == [8_000, 8_000, 12_000, 24_000, 24_000]
    assert inference.BlockFit(cells_in_fit=500).for_outputs(20).cells_in_fit == 500
