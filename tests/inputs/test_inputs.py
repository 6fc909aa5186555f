"""Unknown inputs against NumPy: what is completed, what it costs, and kernels of it."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from gpflow_bae import bijectors, inputs
from gpflow_bae.data import pad_tasks
from gpflow_bae.inducing_variables import ObjectViewInducingPoints
from gpflow_bae.kernels import ObjectView

tfd = tfp.distributions
TURN = 2.0 * np.pi
SEED = tf.constant([3, 4], tf.int32)


def table(seed: int = 0, shape: tuple[int, ...] = (12, 3)) -> np.ndarray:
    """Inputs with some entries of columns 1 and 2 missing, in one point both."""
    X = np.random.default_rng(seed).normal(2.0, 1.5, shape)
    rows = X.reshape(-1, shape[-1])
    rows[[1, 4, 7], 1] = np.nan
    rows[[4, 5], 2] = np.nan
    return X


def missing(X: np.ndarray, **options: Any) -> inputs.MissingInputs:
    return inputs.MissingInputs(X, **({"periods": {1: TURN}} | options))


@pytest.mark.parametrize("shape", [(12, 3), (3, 4, 3)])
def test_holes_take_their_values_and_nothing_else_changes(shape: tuple[int, ...]) -> None:
    X = table(shape=shape)
    found = missing(X)
    angles, others = found.tables
    angles.values.assign([[10.0], [20.0], [30.0]])
    others.values.assign([[40.0], [50.0]])
    expected = X.copy().reshape(-1, 3)
    expected[[1, 4, 7], 1] = [10.0, 20.0, 30.0]
    expected[[4, 5], 2] = [40.0, 50.0]
    np.testing.assert_array_equal(found.filled(X), expected.reshape(shape))
    prepared = found.prepare(X)
    some = found.complete(prepared[..., 1:3, :]).numpy()  # a part of the points
    np.testing.assert_array_equal(some, expected.reshape(shape)[..., 1:3, :])
    other = np.ones((5, 3))
    for complete in (other, found.prepare(other), found.prepare_tensor(tf.constant(other))):
        np.testing.assert_array_equal(found.complete(complete), other)


def test_where_values_start() -> None:
    """A column without a period at the mean of what is known, with its spread as a prior."""
    X = table()
    found = missing(X, seed=5)
    known = X[~np.isnan(X[:, 2]), 2]
    np.testing.assert_allclose(found.tables[1].values.numpy(), np.full((2, 1), known.mean()))
    prior = found.tables[1].prior
    np.testing.assert_allclose([prior.loc, prior.scale], [known.mean(), known.std()])
    angles = found.tables[0].values.numpy()
    assert np.ptp(angles) > 0 and (angles >= 0).all() and (angles < TURN).all()
    np.testing.assert_array_equal(angles, missing(X, seed=5).tables[0].values.numpy())


def test_padding_has_no_entries() -> None:
    """Of a list of tasks, each entry and each known number is one of the rows that are there."""
    X = [table()[:8], table(1)[:5]]  # the last row of each has a hole
    whole = np.concatenate(X)
    found = missing(X, q="gaussian")
    prior = found.tables[1].prior
    known = whole[~np.isnan(whole[:, 2]), 2]
    np.testing.assert_allclose([prior.loc, prior.scale], [known.mean(), known.std()])
    assert [len(own.rows) for own in found.columns] == list(np.isnan(whole)[:, 1:].sum(0))
    for entries in found.tables:
        entries.mean.assign(10.0 + np.arange(len(entries.mean.numpy()))[:, None])
    filled, (padded, _) = found.filled(X), pad_tasks(X, is_input=True)
    for t, own in enumerate(X):
        holes = np.isnan(own)
        np.testing.assert_array_equal(filled[t, : len(own)][~holes], own[~holes])
        assert (filled[t, : len(own)][holes] >= 10.0).all()
        assert np.isnan(filled[t, len(own) :]).all()
    prepared = found.prepare(padded)
    assert np.isfinite(found.complete(prepared)).all()
    costs = sum(np.sum(entries.divergences(None)) for entries in found.tables)
    np.testing.assert_allclose(found.divergence(prepared, 1.0, 1.0), costs)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: np.where(np.isnan(X), 0.0, X), "no missing entry"),
        (lambda X: np.where(X == X[0, 0], np.inf, X), "infinity"),
        (lambda X: X[0], r"shape \[N, D\]"),
        (lambda X: np.where([False, False, True], np.nan, X), "Of column 2 .* give a prior"),
    ],
)
def test_tables_that_say_nothing_are_refused(change: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        missing(change(table()))


def test_options_that_do_not_go_together_are_refused() -> None:
    X = table()
    with pytest.raises(ValueError, match="a column of periods is 3"):
        inputs.MissingInputs(X, periods={3: 1.0})
    with pytest.raises(ValueError, match="both a period and a prior"):
        inputs.MissingInputs(X, {1: TURN}, {1: tfd.Normal(0.0, 1.0)})
    one = gpflow.utilities.to_default_float(1.0)
    for bounded in (tfd.Gamma(one, one), tfd.LogNormal(one, one), tfd.Uniform(-one, one)):
        with pytest.raises(ValueError, match="no density at"):
            inputs.MissingInputs(X, {1: TURN}, {2: bounded})
    with pytest.raises(TypeError, match="must be a TFP distribution.*got int"):
        inputs.MissingInputs(X, {1: TURN}, {2: 3})
    with pytest.raises(TypeError, match="flow must be a"):
        inputs.InputTable(np.ones((2, 2)), tfd.Normal(one, one), "gaussian", flow=3)
    with pytest.raises(ValueError, match="goes with q="):
        inputs.InputTable(np.ones((2, 2)), tfd.Normal(one, one), flow=bijectors.planar_flow(2, 1))


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.full((12, 3), np.nan), "NaN where there is no distribution.*a difference at"),
        (np.where(np.isnan(table()[:5]), np.nan, 1.0), r"has shape \(5, 3\)"),
        (np.ones((4, 2)), "has 2 columns, and the inputs with missing entries have 3"),
    ],
)
def test_other_holes_are_refused(X: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        missing(table()).prepare(X, "Xnew")


def test_ids_take_their_vectors() -> None:
    vectors = np.random.default_rng(1).normal(size=(4, 2))
    found = inputs.LearntVectors(vectors, column=1)
    X = np.array([[0.5, 3.0, 7.0], [1.5, 0.0, 8.0]])
    expected = np.concatenate([X[:, [0, 2]], vectors[[3, 0]]], 1)
    np.testing.assert_array_equal(found.complete(found.prepare(X)), expected)
    scale = float(found.table.prior.scale)
    np.testing.assert_allclose(scale, np.sqrt(np.mean(np.square(vectors))))
    for wrong in (4.0, -1.0, 0.5):
        with pytest.raises(ValueError, match="whole numbers from 0 to 3"):
            found.prepare(np.array([[0.0, wrong, 0.0]]))
    with pytest.raises(ValueError, match="holds NaN"):
        found.prepare(np.array([[0.0, np.nan, 0.0]]))
    with pytest.raises(ValueError, match="all 0"):
        inputs.LearntVectors(np.zeros((3, 2)))


def test_no_object_has_no_known_vector() -> None:
    """Rows that stand for a stream have NaN in a column whose values are all whole numbers."""
    vectors = np.random.default_rng(1).normal(size=(4, 2))
    X = np.array([[0.5, np.nan], [1.5, 3.0]])
    expected = [[0.5, np.nan, np.nan], [1.5, *vectors[3]]]
    np.testing.assert_array_equal(inputs.LearntVectors(vectors, column=1).known(X), expected)


def test_the_uniform_distribution_on_a_circle() -> None:
    circle = inputs.UniformOnCircle(TURN)
    x = tf.constant([[-1.0, 0.0, 9.0]], tf.float64)
    np.testing.assert_allclose(circle.log_prob(x), np.full((1, 3), -np.log(TURN)))
    draws = circle.sample([2000], seed=SEED).numpy()
    assert stats.kstest(draws, stats.uniform(0.0, TURN).cdf).pvalue > 1e-3
    np.testing.assert_allclose(circle.stddev(), TURN / np.sqrt(12.0))
    np.testing.assert_allclose(circle.wrap(x), np.mod(x, TURN))
    with pytest.raises(ValueError, match="period"):
        inputs.UniformOnCircle(0.0)


def gaussians(prior: Any, mean: Any, scale: Any, flow: Any = None) -> inputs.InputTable:
    found = inputs.InputTable(np.atleast_2d(mean), prior, q="gaussian", flow=flow)
    found.scale.assign(np.atleast_2d(scale))
    return found


def test_the_divergence_of_gaussians() -> None:
    """TFP's closed form, row by row."""
    prior = tfd.Normal(*(gpflow.utilities.to_default_float(v) for v in (0.5, 2.0)))
    mean, scale = np.array([[0.0, 1.0], [3.0, -2.0]]), np.array([[0.1, 0.5], [2.0, 3.0]])
    found = gaussians(prior, mean, scale)
    expected = tfd.kl_divergence(tfd.Normal(mean, scale), prior).numpy().sum(-1)
    np.testing.assert_allclose(found.divergences(SEED), expected)
    np.testing.assert_allclose(found.draw(), mean)

    many = gaussians(prior, np.full((1000, 1), 3.0), np.full((1000, 1), 2.0)).draw(SEED).numpy()
    assert stats.kstest(many[:, 0], stats.norm(3.0, 2.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize("scale", [0.05, 1.0, 2.5])
def test_the_divergence_of_an_angle_is_that_of_the_wrapped_gaussian(scale: float) -> None:
    """Against the integral over the circle; a wide one says nothing, and costs nothing."""
    found = gaussians(
        inputs.UniformOnCircle(TURN), np.full((500, 1), 6.0), np.full((500, 1), scale)
    )
    x = np.linspace(0.0, TURN, 4001)
    density = sum(stats.norm(6.0 + k * TURN, scale).pdf(x) for k in range(-4, 5))
    values = density * np.log(np.maximum(density * TURN, 1e-300))
    expected = np.sum(0.5 * (values[1:] + values[:-1]) * np.diff(x))
    draws = found.divergences(SEED).numpy()
    assert abs(draws.mean() - expected) < 5.0 * draws.std() / np.sqrt(len(draws)) + 1e-6


def test_the_divergence_of_a_flow() -> None:
    """An affine flow makes another Gaussian, whose divergence is known in closed form."""
    zero, one = (gpflow.utilities.to_default_float(v) for v in (0.0, 1.0))
    flow = tfp.bijectors.Chain(
        [
            tfp.bijectors.Permute([1, 0]),
            tfp.bijectors.Shift(tf.constant([1.0, -0.5], tf.float64)),
            tfp.bijectors.Scale(tf.constant([0.5, 2.0], tf.float64)),
        ]
    )
    mean, scale = np.tile([[0.2, 0.1]], (500, 1)), np.tile([[0.3, 0.6]], (500, 1))
    found = gaussians(tfd.Normal(zero, one), mean, scale, flow)
    moved = tfd.Normal(np.array([0.5 * 0.2 + 1.0, 2.0 * 0.1 - 0.5]), np.array([0.15, 1.2]))
    expected = float(tf.reduce_sum(tfd.kl_divergence(moved, tfd.Normal(zero, one))))
    draws = found.divergences(SEED).numpy()
    assert abs(draws.mean() - expected) < 5.0 * draws.std() / np.sqrt(500)
    drawn = found.draw(SEED).numpy()
    np.testing.assert_allclose(drawn.mean(0), moved.loc.numpy()[::-1], atol=0.3)


def completed(q: str = "point") -> tuple[np.ndarray, inputs.CompletedInputs]:
    X = table()
    base = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 2.0, 3.0])
    return X, inputs.CompletedInputs(base, missing(X, q=q))


def test_covariances_are_those_of_completed_inputs() -> None:
    X, kernel = completed()
    prepared, filled = kernel.inputs.prepare(X), kernel.inputs.filled(X)
    base, Z = kernel.kernel, gpflow.inducing_variables.InducingPoints(np.ones((2, 3)))
    np.testing.assert_allclose(kernel(prepared), base(filled))
    other = kernel.inputs.prepare(np.ones((2, 3)))  # inputs of one kernel have one width
    np.testing.assert_allclose(kernel(prepared, other), base(filled, np.ones((2, 3))))
    np.testing.assert_allclose(kernel(prepared, full_cov=False), base(filled, full_cov=False))
    np.testing.assert_allclose(
        gpflow.covariances.Kuf(Z, kernel, prepared), gpflow.covariances.Kuf(Z, base, filled)
    )
    np.testing.assert_allclose(
        gpflow.covariances.Kuu(Z, kernel, jitter=0.1), gpflow.covariances.Kuu(Z, base, jitter=0.1)
    )


def test_models_of_gpflow_take_them() -> None:
    """Regression has the evidence of the filled table, and a gradient by what fills it."""
    X, kernel = completed()
    prepared = kernel.inputs.prepare(X)
    Y = np.sin(np.nan_to_num(X)).sum(1, keepdims=True)
    model = gpflow.models.GPR((prepared, Y), kernel)
    values = kernel.inputs.tables[0].values

    def evidence() -> float:
        filled = (kernel.inputs.filled(X), Y)
        return float(gpflow.models.GPR(filled, kernel.kernel).log_marginal_likelihood())

    np.testing.assert_allclose(model.log_marginal_likelihood(), evidence())
    with tf.GradientTape() as tape:
        found = model.log_marginal_likelihood()
    slope = tape.gradient(found, values.unconstrained_variable).numpy()
    before, step = values.numpy(), 1e-5
    for i in range(3):
        ends = []
        for sign in (1.0, -1.0):
            values.assign(before + sign * step * np.eye(3)[:, [i]])
            ends.append(evidence())
        np.testing.assert_allclose(slope[i, 0], (ends[0] - ends[1]) / (2.0 * step), rtol=1e-4)
    values.assign(before)


def test_objects_seen_from_unknown_views() -> None:
    """The kernel inside may have inducing points of its own kind."""
    X = np.array([[0.0, 1.0], [1.0, np.nan], [1.0, 2.0]])
    base = ObjectView(np.array([[1.0, 0.5], [0.2, -1.0]]))
    kernel = inputs.CompletedInputs(base, inputs.MissingInputs(X, {1: TURN}))
    Z = ObjectViewInducingPoints(np.array([[0.3, 1.0, 0.0], [2.0, 0.0, 1.0]]))
    prepared, filled = kernel.inputs.prepare(X), kernel.inputs.filled(X)
    np.testing.assert_allclose(
        gpflow.covariances.Kuf(Z, kernel, prepared), gpflow.covariances.Kuf(Z, base, filled)
    )


def test_kernels_that_cannot_be_are_refused() -> None:
    X, kernel = completed()
    several = gpflow.kernels.SharedIndependent(kernel.kernel, 2)
    with pytest.raises(TypeError, match="of one output"):
        inputs.CompletedInputs(several, kernel.inputs)
    vectors = inputs.LearntVectors(np.ones((4, 2)), q="gaussian")
    with pytest.raises(ValueError, match="let those be the outermost"):
        inputs.CompletedInputs(inputs.CompletedInputs(kernel.kernel, vectors), kernel.inputs)
    for wrong in (X, kernel.kernel):
        with pytest.raises(TypeError, match="inputs must be"):
            inputs.CompletedInputs(kernel.kernel, wrong)


def test_shares_of_the_divergence() -> None:
    """Points' shares add up; of inputs that tasks share each batch has its part of the whole."""
    X, kernel = completed("gaussian")
    found = kernel.inputs.with_seed(SEED)
    prepared = tf.constant(kernel.inputs.prepare(X[None]))
    whole = float(found.divergence(prepared, 1.0, 1.0))
    parts = [
        float(found.divergence(prepared[:, rows], 2.0, 2.0)) for rows in (slice(0, 6), slice(6, 12))
    ]
    np.testing.assert_allclose(sum(parts), whole)
    assert parts[0] != parts[1] and whole > 0
    np.testing.assert_allclose(found.divergence(prepared, 1.0, 3.0), whole / 3.0)
    tasks = table(shape=(3, 4, 3))
    of_tasks = missing(tasks, q="gaussian").with_seed(SEED)
    prepared = tf.constant(of_tasks.prepare(tasks))
    whole = float(of_tasks.divergence(prepared, 1.0, 1.0))
    parts = [float(of_tasks.divergence(prepared[t : t + 1], 1.0, 3.0)) for t in range(3)]
    np.testing.assert_allclose(sum(parts), whole)
    vectors = inputs.LearntVectors(np.ones((4, 2)), q="gaussian").with_seed(SEED)
    whole = float(tf.reduce_sum(vectors.table.divergences(SEED)))
    np.testing.assert_allclose(vectors.divergence(prepared, 1.0, 5.0), whole / 5.0)


def test_a_flow_over_missing_entries() -> None:
    """One for all entries of a column: draws are its images of the Gaussians'."""
    X = np.array([[0.0], [1.0], [np.nan], [3.0], [np.nan]])
    flow = bijectors.planar_flow(1, 2)
    bent = inputs.MissingInputs(X, q="gaussian", flows={0: flow}).with_seed(SEED)
    plain = inputs.MissingInputs(X, q="gaussian").with_seed(SEED)
    prepared = bent.prepare(X)
    holes = np.isnan(X[:, 0])
    before, after = (m.complete(prepared).numpy() for m in (plain, bent))
    np.testing.assert_allclose(after[holes], flow.forward(before[holes]))
    np.testing.assert_array_equal(after[~holes], X[~holes])
    with pytest.raises(ValueError, match="with no period"):
        inputs.MissingInputs(X, {0: TURN}, q="gaussian", flows={0: flow})


def test_two_kinds_of_unknown_inputs() -> None:
    """Objects by their ids, seen from views of which some are missing."""
    X = np.array([[1.0, 0.5], [0.0, np.nan], [1.0, 2.0]])
    vectors = np.array([[1.0, -1.0], [0.3, 0.4]])
    base = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 2.0, 3.0])
    of_objects = inputs.CompletedInputs(base, inputs.LearntVectors(vectors))
    kernel = inputs.CompletedInputs(of_objects, inputs.MissingInputs(X, {1: TURN}))
    filled = kernel.inputs.filled(X)
    expected = np.concatenate([filled[:, 1:], vectors[[1, 0, 1]]], 1)
    np.testing.assert_allclose(kernel(kernel.inputs.prepare(X)), base(expected))


def test_a_column_of_one_value_up_to_rounding_says_nothing_of_others() -> None:
    X = np.stack([np.arange(6.0), 48.85 + 1e-14 * np.arange(6)], axis=-1)
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match="column 1 of X 5 entries are known, with a standard dev"):
        inputs.MissingInputs(X)
