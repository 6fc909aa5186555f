"""Biases of rows and columns, as a mean function of the GPLVM's decoder."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import decoders, encoders, inference, models
from gpflow_bae.data import SparseTable

P, L, M = 6, 3, 4


def decoder(mean_function: object, q_diag: bool = False) -> decoders.GPDecoder:
    rng = np.random.default_rng(0)
    kernel = gpflow.kernels.SquaredExponential(active_dims=[0, 1])
    Z = rng.standard_normal((M, L))
    found = decoders.GPDecoder(kernel, Z, P, q_diag, mean_function)
    found.q_mu.assign(rng.standard_normal((M, P)))
    return found


def biases() -> decoders.Biases:
    found = decoders.Biases(P, row_dimension=2, row_scale=0.7)
    found.columns.assign(np.arange(P) / 10.0)
    return found


@pytest.mark.parametrize("q_diag", [False, True])
def test_moments_are_those_of_the_process_and_the_biases(q_diag: bool) -> None:
    """For all columns, the same ones everywhere, and each row's own."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((2, 5, L))
    expected = 0.7 * X[..., 2:] + np.arange(P) / 10.0
    own = rng.integers(0, P, (5, 3))
    with_biases, without = decoder(biases(), q_diag), decoder(None, q_diag)
    for columns in (None, [4, 1], own):
        chosen = None if columns is None else tf.constant(columns)
        mean, variance = with_biases.moments(X, chosen)
        process, same_variance = without.moments(X, chosen)
        if columns is None:
            level = expected
        elif columns is own:
            level = np.take_along_axis(expected, np.tile(own[None], (2, 1, 1)), -1)
        else:
            level = expected[..., columns]
        np.testing.assert_allclose(mean - process, level, rtol=1e-10)
        np.testing.assert_array_equal(variance, same_variance)


def test_any_mean_function_of_gpflow_is_taken() -> None:
    rng = np.random.default_rng(2)
    linear = gpflow.functions.Linear(rng.standard_normal((L, P)), rng.standard_normal(P))
    X, own = rng.standard_normal((2, 5, L)), rng.integers(0, P, (5, 3))
    added = (
        decoder(linear).moments(X, tf.constant(own))[0]
        - decoder(None).moments(X, tf.constant(own))[0]
    )
    everything = X @ linear.A.numpy() + linear.b.numpy()
    expected = np.take_along_axis(everything, np.tile(own[None], (2, 1, 1)), -1)
    np.testing.assert_allclose(added, expected, rtol=1e-9)
    constant = decoder(gpflow.functions.Constant([2.0]))
    added = constant.moments(X, tf.constant([1]))[0] - decoder(None).moments(X, tf.constant([1]))[0]
    np.testing.assert_allclose(added, np.full((2, 5, 1), 2.0), rtol=1e-9)


def test_the_optimal_inducing_outputs_are_known_without_a_mean_alone() -> None:
    with pytest.raises(ValueError, match="mean zero alone"):
        decoder(biases()).assign_optimal(np.zeros((3, M)), np.eye(M), np.zeros((3, P)), 1.0)


def test_biases_refuse_what_they_cannot_be() -> None:
    with pytest.raises(ValueError, match="column_scale is -1.0; it must be a positive"):
        decoders.Biases(P, column_scale=-1.0)
    with pytest.raises(ValueError, match="row_dimension must be at least 0, got -1"):
        decoders.Biases(P, row_dimension=-1)
    with pytest.raises(ValueError, match="row_dimension is 7, and codes have 3 dimensions"):
        decoders.Biases(P, row_dimension=7)(np.zeros((2, L)))


def test_a_fit_finds_the_biases_that_made_a_table() -> None:
    """Rows and columns that differ in level alone: both come back, and new rows' too.

    With 20 of 40 cells seen and noise 0.2 a row's mean is known to 0.2 / sqrt(20) = 0.04, and a
    column's better; 0.15 leaves room for the prior and for what the process takes.
    """
    rng = np.random.default_rng(3)
    num_rows, num_columns = 60, 40
    of_rows, of_columns = rng.standard_normal(num_rows), rng.standard_normal(num_columns)
    rows, columns = np.nonzero(rng.random((num_rows, num_columns)) < 0.5)
    values = of_rows[rows] + of_columns[columns] + 0.2 * rng.standard_normal(len(rows))
    table = SparseTable(rows, columns, values, num_rows, num_columns, num_columns)
    codes = rng.standard_normal((num_rows, 2))
    model = models.StochasticGPLVM(
        encoders.FreeFormEncoder(1, num_rows, 2, codes[None], 0.1),
        gpflow.kernels.SquaredExponential(variance=0.01, active_dims=[0]),
        codes[:5],
        gpflow.likelihoods.Gaussian(0.1),
        num_columns,
        mean_function=decoders.Biases(num_columns, row_dimension=1),
    )
    gpflow.set_trainable(model.decoder.kernel, False)  # or it explains some of the levels
    settings = inference.VariationalSettings(num_steps=600, learning_rate=0.03)
    inference.fit_variational(model, table, settings, steps_per_call=300, progress=False)
    mean_function = model.decoder.mean_function
    found = mean_function.row_scale.numpy() * model.guide.encoder.mean.numpy()[:, 1]
    # A level that all rows and columns share may be either's.
    assert np.std(found - of_rows) < 0.15
    assert np.std(mean_function.columns.numpy() - of_columns) < 0.15
    assert abs(found.mean() + mean_function.columns.numpy().mean() - values.mean()) < 0.1
    relevance = model.relevance()
    np.testing.assert_array_equal(relevance, [1.0, 0.0])
