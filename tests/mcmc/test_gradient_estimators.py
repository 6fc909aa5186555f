"""Minibatch gradients: the mean over all minibatches is the full gradient, and what they vary."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.mcmc.theory import gradient_estimators

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=[6, 3])
LABELS = np.sign(INPUTS @ [1.0, -2.0, 0.5] + 0.3 * RNG.normal(size=6))
DATA = (INPUTS, LABELS)


def log_prior(position: Any) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(position["w"] ** 2, -1) - 0.5 * position["b"] ** 2


def log_likelihood(position: Any, batch: Any) -> tf.Tensor:
    """Logistic regression; w [..., 3], b [...]; batches shared by chains."""
    inputs, labels = batch
    logits = tf.linalg.matvec(inputs, position["w"]) + position["b"][..., None]
    return tf.reduce_sum(tf.math.log_sigmoid(labels * logits), -1)


ARGUMENTS = (log_prior, log_likelihood, len(LABELS))
MODE = {"w": tf.constant([0.5, -1.0, 0.2], tf.float64), "b": tf.constant(0.1, tf.float64)}


def near_mode(distance: float) -> Any:
    """Two chains."""
    offsets = {"w": [[1.0, 0.0, -1.0], [0.5, 0.5, 0.5]], "b": [1.0, -1.0]}
    return {key: MODE[key] + distance * tf.constant(offsets[key], tf.float64) for key in MODE}


def control_variates() -> Any:
    full = gradient_estimators.minibatch(*ARGUMENTS)
    return gradient_estimators.control_variates(
        *ARGUMENTS, mode=MODE, full_gradient_at_mode=full(MODE, DATA)
    )


def over_all_minibatches(estimate: Any, position: Any, replace: bool) -> np.ndarray:
    """[minibatches, chains, 4]: every minibatch of 2 of the 6 data, each as likely."""
    pairs = (
        itertools.product(range(6), repeat=2) if replace else itertools.combinations(range(6), 2)
    )
    rows = []
    for pair in pairs:
        g = estimate(position, (INPUTS[list(pair)], LABELS[list(pair)]))
        rows.append(np.concatenate([g["w"], g["b"][..., None]], -1))
    return np.array(rows)


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("kind", ["minibatch", "control_variates"])
def test_the_mean_over_all_minibatches_is_the_full_gradient(kind: str, replace: bool) -> None:
    position = near_mode(1.3)
    # Independently: the gradient of logistic regression by hand.
    w, b = position["w"].numpy(), position["b"].numpy()
    residual = LABELS / (1 + np.exp(LABELS * (w @ INPUTS.T + b[:, None])))
    expected = np.concatenate(
        [residual @ INPUTS - w, residual.sum(1, keepdims=True) - b[:, None]], -1
    )
    minibatch = gradient_estimators.minibatch(*ARGUMENTS)
    full = minibatch(position, DATA)
    np.testing.assert_allclose(np.concatenate([full["w"], full["b"][:, None]], -1), expected)
    estimate = minibatch if kind == "minibatch" else control_variates()
    estimates = over_all_minibatches(estimate, position, replace)
    np.testing.assert_allclose(estimates.mean(0), expected, rtol=1e-10)
    assert np.all(estimates.std(0) > 1e-3)


def test_control_variates_vary_with_the_squared_distance_from_the_mode() -> None:
    variances = {}
    for distance in (0.0, 0.05, 0.1):
        position = near_mode(distance)
        controlled = over_all_minibatches(control_variates(), position, False)
        variances[distance] = controlled.var(0).sum(-1)
    plain = over_all_minibatches(gradient_estimators.minibatch(*ARGUMENTS), position, False)
    assert np.all(variances[0.1] < 0.01 * plain.var(0).sum(-1))
    assert np.all(variances[0.0] < 1e-25)
    np.testing.assert_allclose(variances[0.1] / variances[0.05], 4.0, rtol=0.15)


def test_a_minibatch_for_each_chain() -> None:
    # y [C, B] about a mean [C, 1]; the curvature is the same for each datum, so that control
    # variates give the full gradient from any minibatch. A mode without chains is broadcast.
    y = RNG.normal(size=[5, 4])
    functions = (
        lambda mean: -0.5 * mean[..., 0] ** 2,
        lambda mean, y: -0.5 * tf.reduce_sum((y - mean) ** 2, -1),
        20,
    )
    mean = tf.constant(RNG.normal(size=[5, 1]))
    estimate = gradient_estimators.minibatch(*functions, batch_axis=1)
    expected = -mean + 5 * np.sum(y - mean, axis=1, keepdims=True)
    np.testing.assert_allclose(estimate(mean, tf.constant(y)), expected)
    total = 3.0  # of all 20 data, supposedly
    estimate = gradient_estimators.control_variates(
        *functions,
        mode=tf.zeros([1], tf.float64),
        full_gradient_at_mode=tf.constant([total], tf.float64),
        batch_axis=1,
    )
    np.testing.assert_allclose(estimate(mean, tf.constant(y)), total - 21 * mean)


def test_batches_whose_size_is_known_only_at_run_time() -> None:
    estimate = gradient_estimators.minibatch(*ARGUMENTS)
    position = near_mode(0.5)

    @tf.function(
        input_signature=[tf.TensorSpec([None, 3], tf.float64), tf.TensorSpec([None], tf.float64)],
        autograph=False,
    )
    def compiled(inputs: tf.Tensor, labels: tf.Tensor) -> Any:
        return estimate(position, (inputs, labels))

    for size in (2, 5):
        batch = (INPUTS[:size], LABELS[:size])
        tf.nest.map_structure(
            np.testing.assert_allclose, compiled(*batch), estimate(position, batch)
        )


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="num_data.*must be >= 1, got 0"):
        gradient_estimators.minibatch(log_prior, log_likelihood, 0)
    estimate = gradient_estimators.minibatch(*ARGUMENTS)
    for batch in ((INPUTS[:2], LABELS[:3]), (INPUTS[:0], LABELS[:0])):
        with pytest.raises(ValueError, match="equal, positive lengths along axis 0"):
            estimate(MODE, batch)
    with pytest.raises(ValueError, match="structure of mode"):
        gradient_estimators.control_variates(*ARGUMENTS, mode=MODE, full_gradient_at_mode=[0.0])
    ignoring = gradient_estimators.minibatch(
        lambda position: tf.reduce_sum(position[0]), lambda position, batch: 0.0, 6
    )
    with pytest.raises(ValueError, match=r"no gradient with respect to leaves \[1\]"):
        ignoring([tf.ones(2), tf.ones(2)], DATA)
