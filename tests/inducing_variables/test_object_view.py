"""Inducing points in the space of views and object vectors, inside GPflow's sparse models."""

from __future__ import annotations

from collections.abc import Iterator

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.covariances import Kuf, Kuu

from gpflow_bae.core.functional import functional_copy, log_prior_density, unconstrained_values
from gpflow_bae.inducing_variables import (
    ObjectViewInducingPoints,
    as_inducing_points,
    object_view_points,
    uniform,
)
from gpflow_bae.kernels import ObjectView

tfd = tfp.distributions

VECTORS = np.random.default_rng(3).normal(size=(6, 2))  # 6 objects, H = 2
ANGLES = 2.0 * np.pi * np.arange(16) / 16


@pytest.fixture
def small_jitter() -> Iterator[None]:
    """A jitter far below the tolerances of comparisons with models that have none."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=1e-10)):
        yield


def _inputs(*shape: int, seed: int = 0) -> np.ndarray:
    """[object id, angle] of the given leading shape."""
    rng = np.random.default_rng(seed)
    ids, angles = rng.integers(0, len(VECTORS), shape), rng.uniform(0.0, 2.0 * np.pi, shape)
    return np.stack([ids.astype(float), angles], -1)


def _grid() -> np.ndarray:
    """Every object at every angle: [6 * 16, 2]."""
    ids, views = np.meshgrid(np.arange(float(len(VECTORS))), ANGLES, indexing="ij")
    return np.column_stack([ids.ravel(), views.ravel()])


def _data(num_points: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Noisy draws of a function that the kernel can represent."""
    X = _inputs(num_points, seed=1)
    noise = np.random.default_rng(2).normal(scale=0.1, size=num_points)
    Y = np.cos(X[:, 1]) * VECTORS[X[:, 0].astype(int), 0] + noise
    return X, Y[:, None]


# Covariances.


def test_points_that_are_embedded_inputs_have_the_inputs_covariances() -> None:
    """Kuu is K(Z) and Kuf K(Z, X) in GPflow's layout, batches included; jitter as GPflow's."""
    Z, X, kernel = _inputs(7), _inputs(2, 3, 4, seed=1), ObjectView(VECTORS)
    points = ObjectViewInducingPoints(kernel.embed(Z))
    np.testing.assert_allclose(Kuu(points, kernel), kernel(Z), rtol=1e-12)
    expected = kernel(Z) + 0.1 * np.eye(7)
    np.testing.assert_allclose(Kuu(points, kernel, jitter=0.1), expected, rtol=1e-12)
    cross = Kuf(points, kernel, X)
    assert cross.shape == (7, 2, 3, 4)
    np.testing.assert_allclose(cross, kernel(Z, X), rtol=1e-12)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_allclose(cross[:, i, j], kernel(Z, X[i, j]), rtol=1e-12)


def test_active_columns_are_chosen_of_inputs_and_not_of_points() -> None:
    X, kernel = _inputs(5), ObjectView(VECTORS)
    points = ObjectViewInducingPoints(kernel.embed(X))
    expected = Kuf(points, kernel, X)
    kernel.active_dims = [1, 2]
    np.testing.assert_allclose(Kuf(points, kernel, np.column_stack([np.ones(5), X])), expected)


@pytest.mark.usefixtures("small_jitter")
def test_nystrom_is_exact_with_every_angle_and_basis_vector() -> None:
    """On a grid the features are those of a linear model in o: 16 H points hold all of it."""
    kernel = ObjectView(VECTORS)
    kernel.view_kernel.base_kernel.lengthscales.assign(0.3)
    Z = np.array([[angle, *basis] for angle in ANGLES for basis in np.eye(2)])
    X, points = _grid(), ObjectViewInducingPoints(Z)
    cross = Kuf(points, kernel, X).numpy()
    nystrom = cross.T @ np.linalg.solve(Kuu(points, kernel), cross)
    np.testing.assert_allclose(nystrom, kernel(X), rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_with_parameters_replaced(jit_compile: bool) -> None:
    """What a sampler does: Z and the object vectors are plain tensors."""
    X, kernel = _inputs(2, 4), ObjectView(VECTORS)
    points = ObjectViewInducingPoints(kernel.embed(_inputs(7, seed=1)))

    @tf.function(jit_compile=jit_compile, autograph=False)
    def covariances(Z: tf.Tensor, vectors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        bound_points = functional_copy(points, {".Z": Z})
        bound_kernel = functional_copy(kernel, {".object_vectors": vectors})
        return Kuu(bound_points, bound_kernel, jitter=0.1), Kuf(bound_points, bound_kernel, X)

    Z, vectors = tf.constant(points.Z + 0.3), tf.constant(VECTORS - 0.2)
    results = covariances(Z, vectors)
    points.Z.assign(Z)
    kernel.object_vectors.assign(vectors)
    np.testing.assert_allclose(results[0], Kuu(points, kernel, jitter=0.1), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(results[1], Kuf(points, kernel, X), rtol=1e-10, atol=1e-12)


# GPflow's models.


@pytest.mark.usefixtures("small_jitter")
def test_sgpr_with_all_inputs_is_gpr() -> None:
    """Titsias' bound is tight where Z are the embedded training inputs; so are predictions."""
    X, Y = _data()
    kernel = ObjectView(VECTORS)
    points = ObjectViewInducingPoints(kernel.embed(X))
    sparse = gpflow.models.SGPR((X, Y), kernel, points, noise_variance=0.1)
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=0.1)
    np.testing.assert_allclose(sparse.elbo(), exact.log_marginal_likelihood(), rtol=0.0, atol=1e-4)
    Xnew = _inputs(5, seed=4)
    pairs = zip(sparse.predict_f(Xnew), exact.predict_f(Xnew), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("model_type", ["SVGP", "SGPR"])
def test_sparse_models_train(model_type: str) -> None:
    """All they hold is learnt: hyperparameters, object vectors and Z move."""
    X, Y = _data(60)
    kernel = ObjectView(VECTORS)
    points = ObjectViewInducingPoints(object_view_points(ANGLES[::4], VECTORS, 3))
    if model_type == "SVGP":
        model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(0.1), points)
        loss = model.training_loss_closure((X, Y), compile=False)
    else:
        model = gpflow.models.SGPR((X, Y), kernel, points, noise_variance=0.1)
        loss = model.training_loss_closure(compile=False)
    variables = model.trainable_variables
    before, start = [v.numpy() for v in variables], float(loss())
    gpflow.optimizers.Scipy().minimize(
        loss, variables, options={"maxiter": 10}, tf_fun_args={"autograph": False}
    )
    assert float(loss()) < start - 1.0
    for old, variable in zip(before, variables, strict=True):
        assert not np.allclose(old, variable, rtol=1e-6), variable.name
    mean, variance = model.posterior().predict_f(_inputs(5))
    assert np.isfinite(mean).all() and np.all(variance > 0.0)


def test_several_outputs_share_the_points() -> None:
    """GPflow's multi-output kernels reach the same covariances."""
    X, kernel = _inputs(5), ObjectView(VECTORS)
    points = ObjectViewInducingPoints(kernel.embed(_inputs(4, seed=1)))
    shared = gpflow.inducing_variables.SharedIndependentInducingVariables(points)
    outputs = gpflow.kernels.SharedIndependent(kernel, output_dim=2)
    np.testing.assert_allclose(Kuf(shared, outputs, X), Kuf(points, kernel, X), rtol=1e-12)
    np.testing.assert_allclose(Kuu(shared, outputs), Kuu(points, kernel), rtol=1e-12)


# The points and their prior.


def test_default_prior_is_a_normal_per_column() -> None:
    """Mean and twice the standard deviation of the initial values; 1 for a constant column."""
    Z = np.array([[0.0, 5.0], [1.0, 5.0], [5.0, 5.0]])
    points = ObjectViewInducingPoints(Z)
    np.testing.assert_array_equal(points.Z, Z)
    np.testing.assert_allclose(points.Z.prior.loc, [2.0, 5.0])
    np.testing.assert_allclose(points.Z.prior.scale, [2.0 * Z[:, 0].std(), 1.0])
    density = log_prior_density([points.Z], unconstrained_values([points.Z]))
    normal = tfd.Normal(np.array([2.0, 5.0]), np.array([2.0 * Z[:, 0].std(), 1.0]))
    np.testing.assert_allclose(density, normal.log_prob(Z).numpy().sum(), rtol=1e-12)


def test_other_priors() -> None:
    """None, a distribution, or that of a parameter which is passed on."""
    Z = np.array([[0.0, 5.0], [1.0, 6.0]])
    assert ObjectViewInducingPoints(Z, prior=None).Z.prior is None
    prior = tfd.Normal(np.float64(0.0), np.float64(9.0))
    assert ObjectViewInducingPoints(Z, prior=prior).Z.prior is prior
    boxed = uniform(Z).Z
    points = ObjectViewInducingPoints(boxed)
    assert points.Z is boxed and isinstance(points.Z.prior, tfd.Uniform)


def test_are_kept_by_as_inducing_points() -> None:
    points = ObjectViewInducingPoints(np.ones((3, 4)))
    assert as_inducing_points(points) is points
    assert list(gpflow.utilities.parameter_dict(points)) == [".Z"]


# Initial points.


def test_points_are_sorted_by_view_and_hold_likely_vectors() -> None:
    """num_per_view rows at each view, other vectors at each, spread as the objects' are.

    The density estimate widens the empirical variance by its squared bandwidth factor; medians
    and variances of 4000 draws come within 10 % of that.
    """
    Z = object_view_points([0.5, 2.0], VECTORS, 4000)
    assert Z.shape == (8000, 3) and Z.dtype == gpflow.default_float()
    np.testing.assert_array_equal(Z[:, 0], np.repeat([0.5, 2.0], 4000))
    assert not np.isclose(Z[:4000, 1:], Z[4000:, 1:]).any()
    bandwidth = len(VECTORS) ** (-1.0 / 5.0)  # Scott's factor in one dimension
    for column, coordinate in zip(Z[:, 1:].T, VECTORS.T, strict=True):
        variance = coordinate.var(ddof=1) * bandwidth**2 + coordinate.var()
        np.testing.assert_allclose(column.var(), variance, rtol=0.1)
        np.testing.assert_allclose(column.mean(), coordinate.mean(), atol=0.1 * column.std())


def test_coordinates_are_drawn_independently() -> None:
    """Also where the objects' coordinates are equal: the estimate is one per coordinate."""
    twins = np.repeat(VECTORS[:, :1], 2, axis=1)
    Z = object_view_points([0.0], twins, 4000)
    assert abs(np.corrcoef(Z[:, 1], Z[:, 2])[0, 1]) < 0.1


def test_seed_counts_on_with_the_view() -> None:
    """Equal seeds give equal points; view i at seed s is view i - 1 at seed s + 1."""
    Z = object_view_points(ANGLES, VECTORS, 3, seed=7)
    np.testing.assert_array_equal(object_view_points(ANGLES, VECTORS, 3, seed=7), Z)
    np.testing.assert_array_equal(object_view_points(ANGLES[1:], VECTORS, 3, seed=8), Z[3:])


def test_a_coordinate_without_spread_stays_constant() -> None:
    """There is no density estimate of it, nor of a single object."""
    vectors = np.column_stack([VECTORS[:, 0], np.full(6, 3.0)])
    np.testing.assert_array_equal(object_view_points([0.0], vectors, 4)[:, 2], 3.0)
    single = object_view_points([0.0, 1.0], VECTORS[:1], 1)
    np.testing.assert_array_equal(single, [[0.0, *VECTORS[0]], [1.0, *VECTORS[0]]])


# Errors.


@pytest.mark.parametrize(
    ("Z", "kwargs", "message"),
    [
        (np.zeros(3), {}, r"\[M, D \+ H\].*got \(3,\)"),
        (np.zeros((3, 1)), {}, r"\[view..., object vector\], got \(3, 1\)"),
        (np.array([[0.0, np.nan]]), {}, "Z holds NaN or infinity"),
        (np.ones((3, 2)), {"prior": "uniform"}, "must be \"normal\".*None.*got 'uniform'"),
    ],
)
def test_bad_points_are_refused(Z: np.ndarray, kwargs: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ObjectViewInducingPoints(Z, **kwargs)


@pytest.mark.parametrize(
    ("views", "vectors", "num_per_view", "message"),
    [
        ([0.0], VECTORS, 0, "num_per_view must be at least 1, got 0"),
        ([], VECTORS, 1, r"must not be empty, got shapes \(0,\) and \(6, 2\)"),
        ([np.nan], VECTORS, 1, "views hold NaN"),
        ([0.0], np.full((3, 2), np.inf), 1, "object_vectors hold NaN or infinity"),
    ],
)
def test_bad_settings_of_initial_points_are_refused(
    views: list, vectors: np.ndarray, num_per_view: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        object_view_points(np.array(views), vectors, num_per_view)


def test_object_vectors_of_the_wrong_width_are_refused() -> None:
    kernel = ObjectView(VECTORS)
    with pytest.raises(ValueError, match=r"shape \(3, 4\).*1 view column.*width 2 they need 3"):
        Kuf(ObjectViewInducingPoints(np.ones((3, 4))), kernel, _inputs(5))
    with pytest.raises(ValueError, match=r"\[view..., object vector\].*shape \(3, 2\)"):
        Kuu(ObjectViewInducingPoints(np.ones((3, 2))), kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        gpflow.kernels.RBF(),
        ObjectView(VECTORS) + gpflow.kernels.RBF(),
        gpflow.kernels.SharedIndependent(ObjectView(VECTORS), output_dim=2),
    ],
)
def test_other_kernels_are_refused(kernel: gpflow.kernels.Kernel) -> None:
    """GPflow would take the points for inputs."""
    points = ObjectViewInducingPoints(np.ones((3, 3)))
    message = f"need the kernel ObjectView, got {type(kernel).__name__}"
    with pytest.raises(TypeError, match=message):
        Kuu(points, kernel, jitter=1e-6)
    with pytest.raises(TypeError, match=message):
        Kuf(points, kernel, _inputs(5))


def test_inducing_points_that_are_inputs_are_refused() -> None:
    """Object ids would be sampled or optimised, without a gradient."""
    points, kernel = uniform(_inputs(4)), ObjectView(VECTORS)
    message = r"needs ObjectViewInducingPoints, got InducingPoints.*kernel.embed\(Z\)"
    with pytest.raises(TypeError, match=message):
        Kuu(points, kernel, jitter=1e-6)
    with pytest.raises(TypeError, match=message):
        Kuf(points, kernel, _inputs(5))


def test_a_prior_is_not_as_narrow_as_a_rounding_error() -> None:
    Z = np.stack([np.arange(5.0), 48.85 + 1e-14 * np.arange(5)], axis=-1)
    prior = ObjectViewInducingPoints(Z).Z.prior
    np.testing.assert_allclose(prior.scale, [2.0 * np.sqrt(2.0), 1.0], rtol=1e-12)
