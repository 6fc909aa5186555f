"""Tables that are mostly zeros stay compressed, and fits to them are as if they did not."""

from __future__ import annotations

import pickle
import sys

import gpflow
import keras
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from gpflow_bae import data, inference, likelihoods, models
from gpflow_bae.core import row_blocks
from gpflow_bae.data import CompressedRows, dense_rows, prepare_data
from gpflow_bae.inference.checks.fit_check import largest_fall, share_explained
from gpflow_bae.posteriors import Posterior

N, P = 40, 6
SETTINGS = inference.VariationalSettings(num_steps=6, batch_size=16, learning_rate=0.05)


def _table() -> np.ndarray:
    """Counts, most of them zero, one row and the end of another without any."""
    rng = np.random.default_rng(3)
    found = rng.poisson(0.4, (N, P)).astype(np.float32)
    found[7] = 0.0
    return found


def _with_holes() -> np.ndarray:
    table = _table()
    table[::3, 1] = np.nan
    return table


def _sparse(table: np.ndarray) -> scipy.sparse.csr_matrix:
    """NaN is an entry like others."""
    return scipy.sparse.csr_matrix(table)


def _inputs() -> np.ndarray:
    return np.linspace(0.0, 3.0, N)[:, None]


def _model() -> models.SVGPVAE:
    keras.utils.set_random_seed(1)
    encoder = keras.Sequential([keras.Input((P,)), keras.layers.Dense(2)])
    decoder = keras.Sequential([keras.Input((1,)), keras.layers.Dense(P)])
    kernel = gpflow.kernels.Matern32()
    return models.SVGPVAE(
        kernel, np.linspace(0, 3, 5)[:, None], decoder, encoder, likelihoods.Poisson(), 1
    )


@pytest.mark.parametrize("is_mask", [False, True])
def test_rows_and_blocks_are_those_of_the_table(is_mask: bool) -> None:
    """As are all rows; in a compiled function, with numbers that are not known there."""
    table = _table()
    expected = table == 0 if is_mask else table
    rows = CompressedRows.of(_sparse(table), is_mask)
    assert rows.shape == (1, N, P) and rows.dtype == expected.dtype
    numbers = np.array([7, 39, 0, 7, 12])
    taken = tf.function(lambda rows, numbers: rows.take(numbers), autograph=False)(
        rows, tf.constant(numbers)
    )
    np.testing.assert_array_equal(taken[0], expected[numbers])
    block = tf.function(lambda rows, i: rows[..., i : i + 16, :], autograph=False)
    for start in (0, 16, 32):
        np.testing.assert_array_equal(block(rows, tf.constant(start))[0], expected[start:][:16])
    np.testing.assert_array_equal(dense_rows(rows)[0], expected)
    np.testing.assert_array_equal((rows.table() != 0).toarray(), table != 0)


def test_blocks_have_complete_rows_alone() -> None:
    rows = CompressedRows.of(_sparse(_table()))
    with pytest.raises(TypeError, match="complete rows"):
        rows[..., 0:3, 0:2]


def test_what_is_prepared_is_what_a_dense_table_is() -> None:
    """NaN are holes, a stored zero is a zero, and entries that are there twice are their sum."""
    model, table = _model(), _with_holes()
    dense = prepare_data(model, (_inputs(), table))
    found = prepare_data(model, (_inputs(), _sparse(table)))
    assert found.is_compressed and not dense.is_compressed and not found.has_tasks
    assert found.num_observed == dense.num_observed == np.isfinite(table).sum()
    assert found.describe() == dense.describe()
    for one, other in zip(found.to_numpy(), dense.to_numpy(), strict=True):
        np.testing.assert_array_equal(one, other)
    rows = tf.constant([5, 3, 9])
    for one, other in zip(found.gather(rows)[:3], dense.gather(rows)[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    assert not data.in_memory(found).is_compressed
    twice = scipy.sparse.coo_matrix((np.ones(P + 1), ([0] * (P + 1), [0, *range(P)])), shape=(N, P))
    values = dense_rows(prepare_data(model, (_inputs(), twice)).Y)[0]
    np.testing.assert_array_equal(values[0], [2, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(values[1:], 0.0)


@pytest.fixture(scope="module", name="fits")
def _fits() -> list[tuple[np.ndarray, Posterior]]:
    """Losses and posterior of a fit to a dense table, and to a sparse one."""
    found = []
    for Y in (_with_holes(), _sparse(_with_holes())):
        model = _model()
        losses = inference.fit_variational(
            model, (_inputs(), Y), SETTINGS, seed=4, steps_per_call=3, progress=False
        )
        found.append((losses, Posterior.from_point(model, (_inputs(), Y))))
    return found


def test_a_fit_to_a_sparse_table_is_that_to_a_dense_one(fits) -> None:
    """To the bit: minibatches are the same numbers."""
    (losses, dense), (others, sparse) = fits
    assert sparse.data.is_compressed
    np.testing.assert_array_equal(losses, others)
    for one, other in zip(dense.parameters, sparse.parameters, strict=True):
        np.testing.assert_array_equal(one, other)


def test_predictions_are_those_of_a_dense_table(fits, monkeypatch) -> None:
    """To the bit where all rows are encoded at once, and to rounding in blocks of them."""
    (_, dense), (_, sparse) = fits
    Xnew = np.array([[0.3], [1.7]])
    for one, other in zip(dense.predict(Xnew), sparse.predict(Xnew), strict=True):
        np.testing.assert_array_equal(one, other)
    expected = dense.latent_samples().mean
    np.testing.assert_array_equal(sparse.latent_samples().mean, expected)
    assert share_explained(sparse) == share_explained(dense)
    assert largest_fall(sparse) == 0.0  # without a trace
    monkeypatch.setattr(row_blocks, "ROWS", 16)
    in_blocks = Posterior.from_point(sparse.model, sparse.data)
    np.testing.assert_allclose(in_blocks.latent_samples().mean, expected, rtol=1e-5, atol=1e-6)


def test_files_and_pickles_hold_the_entries(fits, tmp_path) -> None:
    _, (_, sparse) = fits
    expected = sparse.predict_y(np.array([[1.0]]))[0]
    sparse.save(tmp_path / "fit.npz")
    loaded = Posterior.load(tmp_path / "fit.npz", _model())
    for found in (loaded, pickle.loads(pickle.dumps(sparse))):
        assert found.data.is_compressed
        np.testing.assert_array_equal(found.data.to_numpy()[1][0], _with_holes())
        np.testing.assert_array_equal(found.predict_y(np.array([[1.0]]))[0], expected)


def test_fit_starts_from_some_rows(recwarn, monkeypatch) -> None:
    """One call, as for other data; here with few steps."""
    monkeypatch.setattr(sys.modules[inference.fit.__module__], "_VARIATIONAL_STEPS", 50)
    posterior = inference.fit(_model(), (_inputs(), _sparse(_table())), progress=False)
    assert posterior.data.is_compressed
    assert np.isfinite(posterior.predict_y(_inputs())[0]).all()


def test_models_that_need_all_rows_refuse_a_sparse_table() -> None:
    decoder = keras.Sequential([keras.Input((1,)), keras.layers.Dense(P)])
    model = models.SGPBAE(
        gpflow.kernels.Matern32(),
        np.linspace(0, 3, 5)[:, None],
        decoder,
        keras.Sequential([keras.Input((2 * P,)), keras.layers.Dense(1)]),
        likelihoods.Gaussian(0.1),
        latent_dim=1,
    )
    with pytest.raises(ValueError, match=r"sparse Y .* SGPBAE needs a dense one"):
        prepare_data(model, (_inputs(), _sparse(_table())))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.where(np.arange(P) == 2, np.nan, _table()), r"column\(s\) \[2\]"),
        (np.where(np.arange(P) == 2, np.inf, _table()), "infinity"),
        (_table()[:-1], "same number of tasks and points"),
    ],
)
def test_bad_tables_are_refused(table: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_data(_model(), (_inputs(), _sparse(table)))
