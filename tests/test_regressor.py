"""Regression by sampled networks: against closed forms, known noise, and changes of units."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf
from sklearn.utils.estimator_checks import check_estimator

from gpflow_bae.datasets import tabular
from gpflow_bae.estimators import BayesianMLPRegressor, network_chains

SMALL: dict[str, Any] = {"hidden_layer_sizes": (4,), "num_chains": 1, "num_steps": 300}


@pytest.mark.parametrize(
    ("energy_variance", "batch_size", "low", "high"),
    [
        pytest.param(None, None, 0.75, 1.25, id="all rows"),
        pytest.param(0.5, None, 1.4, 2.5, id="large steps"),
        pytest.param(None, 60, 0.75, 1.25, id="minibatches"),
    ],
)
def test_a_linear_network_has_the_posterior_of_bayesian_linear_regression(
    energy_variance: float | None,
    batch_size: int | None,
    low: float,
    high: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With constant noise, which the network finds, means of y are Gaussian in closed form.

    Chains are biased by their steps: variances may be a quarter too large, and with the steps of
    burn-in they are more than that. Means of samples that follow each other lie within 0.4 of a
    posterior deviation.
    """
    if energy_variance is not None:
        monkeypatch.setattr(network_chains, "_SAMPLING", energy_variance)
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(300, 2)), rng.normal(size=(50, 2))
    y = 1.0 + X @ [0.5, -1.0] + 0.3 * rng.normal(size=300)
    # Chains of minibatches climb from their starts more slowly.
    num_steps = 6000 if batch_size is None else 15_000
    fitted = BayesianMLPRegressor((), num_chains=4, num_steps=num_steps, batch_size=batch_size)
    fitted.fit(X, y)
    F, G = (np.column_stack([np.asarray(fitted._features(V)), np.ones(len(V))]) for V in (X, new))
    z = (y - y.mean()) / y.std()
    noise = np.var(z - F @ np.linalg.lstsq(F, z, rcond=None)[0])
    precision = F.T @ F / noise + np.eye(F.shape[1])
    mean = G @ np.linalg.solve(precision, F.T @ z / noise)
    variance = np.einsum("nf,fn->n", G, np.linalg.solve(precision, G.T))
    means = np.concatenate([m for m, _ in fitted._moments(new)], 1)
    means = (means - y.mean()) / y.std()
    assert np.max(np.abs(means.mean(0) - mean) / np.sqrt(variance)) < 0.4
    assert low < np.median(means.var(0) / variance) < high
    predicted, deviation = fitted.predict(new, return_std=True)
    ratio = deviation / y.std() / np.sqrt(noise + variance)
    np.testing.assert_allclose(np.median(ratio), 1.0, atol=0.05)  # noise of 300 rows: 0.04
    np.testing.assert_allclose(predicted, y.mean() + y.std() * means.mean(0), rtol=1e-6)


def test_noise_is_a_function_of_the_inputs() -> None:
    """The right half of the line has ten times the noise of the left, and intervals say so."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (800, 1))
    spread = np.where(X[:, 0] > 0.0, 0.5, 0.05)
    y = np.sin(3.0 * X[:, 0]) + spread * rng.normal(size=800)
    fitted = BayesianMLPRegressor((16,), num_chains=2, num_steps=5000).fit(X[:400], y[:400])
    mean, deviation = fitted.predict(X[400:], return_std=True)
    far = np.abs(X[400:, 0]) > 0.2  # the change itself is smooth
    np.testing.assert_allclose(
        [np.median(deviation[far & right]) for right in (X[400:, 0] < 0.0, X[400:, 0] > 0.0)],
        [0.05, 0.5],
        rtol=0.3,
    )
    # 400 rows: a standard error of 0.015.
    inside = np.mean(np.abs(y[400:] - mean) < 1.645 * deviation)
    assert 0.84 < inside < 0.96
    # No better than the truth, and not far behind it: the network's noise has no jump.
    z = (y[400:] - np.sin(3.0 * X[400:, 0])) / spread[400:]
    truth = np.mean(-0.5 * np.square(z) - np.log(spread[400:]) - 0.5 * np.log(2.0 * np.pi))
    found = fitted.predict_log_density(X[400:], y[400:]).mean()
    assert truth - 0.2 < found < truth + 0.02


def test_units_do_not_matter() -> None:
    """Factors are powers of two, so that standardised values are the same bits."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=30)
    here = BayesianMLPRegressor(**SMALL).fit(X, y)
    there = BayesianMLPRegressor(**SMALL).fit(1024.0 * X, 0.25 * y)
    for a, b in zip(here.weights_, there.weights_, strict=True):
        np.testing.assert_array_equal(a, b)
    ours, theirs = here.predict(X, return_std=True), there.predict(1024.0 * X, return_std=True)
    np.testing.assert_allclose(0.25 * np.array(ours), theirs, rtol=1e-12)
    density = here.predict_log_density(X, y) - there.predict_log_density(1024.0 * X, 0.25 * y)
    np.testing.assert_allclose(density, np.log(0.25), rtol=1e-9)
    again = pickle.loads(pickle.dumps(here))
    np.testing.assert_array_equal(again.predict(X), here.predict(X))


def test_chains_are_those_of_their_seeds() -> None:
    """One chain less changes nothing in the others, and predictions take rows in parts."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 2))
    two = BayesianMLPRegressor(**SMALL | {"num_chains": 2}).fit(X, X[:, 0])
    one = BayesianMLPRegressor(**SMALL).fit(X, X[:, 0])
    for a, b in zip(one.weights_, two.weights_, strict=True):
        np.testing.assert_array_equal(a, b[:1])
        assert np.abs(b[0] - b[1]).max() > 0.0
    many = np.tile(X, (80, 1))  # more rows than one call has
    np.testing.assert_allclose(two.predict(many), np.tile(two.predict(X), 80), rtol=1e-5)


def test_a_minibatch_of_all_rows_is_a_full_batch() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(20, 2))
    fits = [BayesianMLPRegressor(**SMALL, batch_size=b).fit(X, X[:, 0]) for b in (None, 20)]
    for full, same in zip(*(f.weights_ for f in fits), strict=True):
        np.testing.assert_array_equal(full, same)


def test_a_chain_that_does_not_move_is_no_part_of_predictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is where the noise is the least there is, far from y, with a gradient that is huge."""
    start = [tf.zeros([2, 2]), tf.constant([0.0, -50.0])]
    monkeypatch.setattr(network_chains.NetworkChains, "_start", lambda self, seed: tuple(start))
    X = np.arange(6.0)[:, None]
    linear = BayesianMLPRegressor(**SMALL | {"hidden_layer_sizes": (), "num_steps": 900})
    with pytest.raises(FloatingPointError, match="is stuck after 300 steps: .* few rows"):
        linear.fit(X, X[:, 0])


def test_predictions_that_are_wider_than_y_are_warned_of() -> None:
    """Of 10 rows of noise; 300 rows of a line are no reason."""
    rng = np.random.default_rng(0)
    few, deep = rng.normal(size=(10, 2)), BayesianMLPRegressor(num_chains=2, num_steps=600)
    with pytest.warns(UserWarning, match="times that of y: 10 rows are too few"):
        deep.fit(few, rng.normal(size=10))
    X = rng.normal(size=(300, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        linear = BayesianMLPRegressor((), num_chains=1, num_steps=3000)
        linear.fit(X, X[:, 0] + 0.3 * rng.normal(size=300))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_layer_sizes": 16}, "hidden_layer_sizes must be a sequence"),
        ({"hidden_layer_sizes": (16, 0)}, r"hidden_layer_sizes\[1\] is 0"),
        ({"activation": "sigmoidal"}, "activation must be the name of a Keras activation"),
        ({"num_chains": 0}, "num_chains is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"num_steps": 200}, "num_steps is 200; it must be an integer of at least 300"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BayesianMLPRegressor(**SMALL | changes).fit(np.ones((4, 1)), np.ones(4))


def test_a_density_needs_as_many_numbers_as_rows() -> None:
    fitted = BayesianMLPRegressor(**SMALL).fit(np.arange(6.0)[:, None], np.arange(6.0))
    with pytest.raises(ValueError, match=r"\[6, 5\]"):
        fitted.predict_log_density(np.arange(6.0)[:, None], np.arange(5.0))


def test_checks_of_scikit_learn() -> None:
    found = check_estimator(BayesianMLPRegressor(**SMALL), on_fail=None, on_skip=None)
    failed = {c["check_name"]: str(c["exception"]) for c in found if c["status"] == "failed"}
    assert not failed


def test_tables_are_split_as_the_benchmark_splits_them() -> None:
    """A fifth of the rows is the test, and none of these serves a choice of settings."""
    data = tabular.regression("diabetes", "")
    X, y = sklearn.datasets.load_diabetes(return_X_y=True)
    assert data.test_X.shape == (89, 10)
    rows = {tuple(row) for row in np.column_stack([X, y])}
    parts = [np.column_stack(pair) for pair in (data[:2], data[2:])]
    assert {tuple(row) for part in parts for row in part} == rows
    chosen = tabular.regression("diabetes", "", validation_fold=1)
    held = {tuple(row) for row in np.column_stack(chosen[2:])}
    assert held < {tuple(row) for row in parts[0]}
    with pytest.raises(ValueError, match="name is 'boston'"):
        tabular.regression("boston", "")
    with pytest.raises(FileNotFoundError, match=r"sklearn-contrib-bde 1\.0\.2 on PyPI"):
        tabular.regression("airfoil", "nowhere")
