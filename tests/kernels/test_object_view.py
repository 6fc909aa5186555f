"""Objects seen from views: the covariance of the papers, learnt object vectors, and errors."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae.core.functional import functional_copy, log_prior_density, unconstrained_values
from gpflow_bae.kernels import NormalizedLinear, ObjectView
from gpflow_bae.models import set_default_kernel_priors

tfd = tfp.distributions

AMPLITUDE, LENGTHSCALE = 1.4, 0.9  # of the paper's formula
VECTORS = np.random.default_rng(3).normal(size=(5, 3))  # 5 objects, H = 3


def _inputs(*shape: int, seed: int = 0) -> np.ndarray:
    """[object id, angle] of the given leading shape."""
    rng = np.random.default_rng(seed)
    ids, angles = rng.integers(0, len(VECTORS), shape), rng.uniform(0.0, 2.0 * np.pi, shape)
    return np.stack([ids.astype(float), angles], -1)


def _kernel() -> ObjectView:
    """The default kernel at the values above."""
    kernel = ObjectView(VECTORS)
    kernel.view_kernel.base_kernel.variance.assign(AMPLITUDE**2)
    kernel.view_kernel.base_kernel.lengthscales.assign(LENGTHSCALE / 2.0)
    return kernel


def _formula(X: np.ndarray, X2: np.ndarray, vectors: np.ndarray = VECTORS) -> np.ndarray:
    """Jazbec et al. (2021), section 4.2, pair by pair."""
    K = np.empty((len(X), len(X2)))
    for i, (a, angle) in enumerate(X):
        for j, (b, angle2) in enumerate(X2):
            sine = np.sin(np.abs(angle - angle2) / 2.0)
            view = AMPLITUDE**2 * np.exp(-2.0 * sine**2 / LENGTHSCALE**2)
            K[i, j] = view * np.dot(vectors[int(a)], vectors[int(b)])
    return K


def test_is_the_formula_of_the_paper() -> None:
    """GPflow's lengthscale is half of the paper's, and only the view kernel has an amplitude."""
    X, X2, kernel = _inputs(9), _inputs(7, seed=1), _kernel()
    np.testing.assert_allclose(kernel(X), _formula(X, X), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(kernel(X, X2), _formula(X, X2), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(kernel(X, full_cov=False), np.diag(_formula(X, X)), rtol=1e-10)


def test_views_repeat_after_a_full_turn() -> None:
    X, kernel = _inputs(6), _kernel()
    np.testing.assert_allclose(kernel(X, X + [0.0, 2.0 * np.pi]), kernel(X), rtol=1e-10)


def test_embedding_is_the_view_then_the_object_vector() -> None:
    """Also with several view columns, and inputs of any float or integer type of NumPy."""
    X = np.array([[2, 7, 8], [0, 9, 10]])
    expected = np.column_stack([X[:, 1:], VECTORS[[2, 0]]])
    for dtype in (np.int64, np.float32, np.float64):
        np.testing.assert_array_equal(ObjectView(VECTORS).embed(X.astype(dtype)), expected)


def test_embedded_covariances_are_those_of_the_inputs() -> None:
    X, X2, kernel = _inputs(6), _inputs(4, seed=1), _kernel()
    A, A2 = kernel.embed(X), kernel.embed(X2)
    np.testing.assert_allclose(kernel.K_embedded(A), kernel(X), rtol=1e-12)
    np.testing.assert_allclose(kernel.K_embedded(A, A2), kernel(X, X2), rtol=1e-12)
    batch = np.stack([X2, _inputs(4, seed=2)])
    np.testing.assert_allclose(kernel.K_between(A, batch), kernel(X, batch), rtol=1e-12)


def test_known_views_cost_no_gradient() -> None:
    """The gradient of object vectors leaves the cosine of the periodic kernel's sine out."""
    kernel, X = ObjectView(VECTORS), tf.constant(_inputs(5))
    A = kernel.embed(_inputs(3, seed=1))

    @tf.function(autograph=False)
    def gradient(X: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(kernel.object_vectors.unconstrained_variable)
            total = tf.reduce_sum(kernel.K_between(A, X)) + tf.reduce_sum(kernel(X))
        return tape.gradient(total, kernel.object_vectors.unconstrained_variable)

    operations = {op.type for op in gradient.get_concrete_function(X).graph.get_operations()}
    assert "Sin" in operations
    assert "Cos" not in operations


def test_positive_semi_definite_of_rank_views_times_vector_width() -> None:
    """On a grid K is K_view (16 x 16) kron O O^T (rank H): rank at most 16 H."""
    vectors = np.random.default_rng(4).normal(size=(9, 2))
    angles = 2.0 * np.pi * np.arange(16) / 16
    ids, views = np.meshgrid(np.arange(9.0), angles, indexing="ij")
    X = np.column_stack([ids.ravel(), views.ravel()])
    kernel = ObjectView(vectors)
    kernel.view_kernel.base_kernel.lengthscales.assign(0.2)
    eigenvalues = np.linalg.eigvalsh(kernel(X))[::-1]
    assert eigenvalues.min() > -1e-10 * eigenvalues.max()
    assert np.all(eigenvalues[: 16 * 2] > 1e-6)
    np.testing.assert_allclose(eigenvalues[16 * 2 :], 0.0, atol=1e-10 * eigenvalues.max())


def test_other_kernels_for_views_and_objects() -> None:
    """Two view columns, of which the kernel sees one; cosines of objects."""
    X = np.column_stack([_inputs(6), np.linspace(-1.0, 1.0, 6)])
    view = gpflow.kernels.Linear(active_dims=[1])  # its diagonal depends on the column
    kernel = ObjectView(VECTORS, view, NormalizedLinear())
    vectors = VECTORS[X[:, 0].astype(int)]
    expected = view(X[:, 1:]) * NormalizedLinear()(vectors)
    np.testing.assert_allclose(kernel(X), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel(X, full_cov=False), np.diag(expected), rtol=1e-12)


def test_combines_with_gpflows_kernels() -> None:
    """A sum, and columns chosen by active_dims."""
    X = _inputs(6)
    shifted = np.column_stack([np.linspace(0.0, 1.0, 6), X])
    kernel = _kernel()
    kernel.active_dims = [1, 2]
    total = kernel + gpflow.kernels.RBF(active_dims=[0])
    expected = _formula(X, X) + gpflow.kernels.RBF()(shifted[:, :1])
    np.testing.assert_allclose(total(shifted), expected, rtol=1e-10, atol=1e-12)


def test_batches_equal_a_loop() -> None:
    """As in GPflow: K(X) keeps the batch, K(X, X2) pairs every batch with every other."""
    X, X2, kernel = _inputs(2, 3, 4), _inputs(5, 6, seed=1), _kernel()
    full, cross, diagonal = kernel(X), kernel(X, X2), kernel(X, full_cov=False)
    assert full.shape == (2, 3, 4, 4) and cross.shape == (2, 3, 4, 5, 6)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_allclose(full[i, j], kernel(X[i, j]), rtol=1e-12)
        np.testing.assert_allclose(diagonal[i, j], np.diag(full[i, j]), rtol=1e-12)
        for k in range(5):
            np.testing.assert_allclose(cross[i, j, :, k], kernel(X[i, j], X2[k]), rtol=1e-12)


# The learnt object vectors.


def _loss(kernel: ObjectView, X: np.ndarray, X2: np.ndarray) -> tf.Tensor:
    """Some smooth function of all that the kernel returns."""
    parts = (kernel(X), kernel(X, X2), kernel(X, full_cov=False))
    return tf.add_n([tf.reduce_sum(tf.sin(part)) for part in parts])


def test_gradients_by_object_vectors_are_dense_and_right() -> None:
    """Central differences; objects seen twice add up, and object 4, never seen, gets zeros."""
    X, X2, kernel = _inputs(2, 6), _inputs(3, seed=1), _kernel()
    X[..., 0], X2[..., 0] = X[..., 0] % 4, X2[..., 0] % 4
    with tf.GradientTape() as tape:
        loss = _loss(kernel, X, X2)
    gradient = tape.gradient(loss, kernel.object_vectors.unconstrained_variable)
    assert isinstance(gradient, tf.Tensor)
    step, expected = 1e-5, np.empty_like(VECTORS)
    for index in np.ndindex(*VECTORS.shape):
        ends = []
        for sign in (1.0, -1.0):
            moved = VECTORS.copy()
            moved[index] += sign * step
            kernel.object_vectors.assign(moved)
            ends.append(float(_loss(kernel, X, X2)))
        expected[index] = (ends[0] - ends[1]) / (2.0 * step)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(gradient[4], 0.0)


def test_second_derivatives() -> None:
    """The gradient can be differentiated again: here the loss is |o_1|^2, its Hessian 2 I."""
    kernel, X = ObjectView(VECTORS), np.array([[1.0, 0.3]])
    vectors = kernel.object_vectors.unconstrained_variable
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = tf.reduce_sum(kernel(X))
        slope = tf.reduce_sum(inner.gradient(loss, vectors))
    expected = np.zeros_like(VECTORS)
    expected[1] = 2.0
    np.testing.assert_allclose(outer.gradient(slope, vectors), expected, rtol=1e-12)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_with_parameters_replaced(jit_compile: bool) -> None:
    """What a sampler does: value and dense gradient at plain tensors, as eagerly."""
    X, X2, kernel = _inputs(2, 6), _inputs(3, seed=1), _kernel()
    moved = tf.constant(VECTORS + 0.5)

    def value_and_gradient(vectors: tf.Tensor, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            bound = functional_copy(kernel, {".object_vectors": vectors})
            value = _loss(bound, inputs, X2)
        return value, tape.gradient(value, vectors)

    compiled = tf.function(value_and_gradient, jit_compile=jit_compile, autograph=True)
    results = zip(
        compiled(moved, tf.constant(X)), value_and_gradient(moved, tf.constant(X)), strict=True
    )
    for ours, eager in results:
        assert isinstance(ours, tf.Tensor)
        np.testing.assert_allclose(ours, eager, rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(kernel.object_vectors, VECTORS)  # nothing was assigned
    kernel.object_vectors.assign(moved)
    np.testing.assert_allclose(_loss(kernel, X, X2), value_and_gradient(moved, X)[0], rtol=1e-10)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_chains_as_a_vectorised_map(jit_compile: bool) -> None:
    """Object vectors with a chain dimension: gradients equal a loop over the chains."""
    X, kernel = _inputs(6), _kernel()
    chains = tf.constant(np.random.default_rng(5).normal(size=(4, *VECTORS.shape)))

    def gradient(vectors: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            bound = functional_copy(kernel, {".object_vectors": vectors})
            value = tf.reduce_sum(tf.sin(bound(X)))
        return tape.gradient(value, vectors)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def all_chains(chains: tf.Tensor) -> tf.Tensor:
        return tf.vectorized_map(gradient, chains, fallback_to_while_loop=False)

    expected = tf.stack([gradient(vectors) for vectors in chains])
    np.testing.assert_allclose(all_chains(chains), expected, rtol=1e-9, atol=1e-10)


def test_inputs_of_unknown_size() -> None:
    """A function traced once for all sizes: the width is checked where it is known."""
    X, kernel = _inputs(6), _kernel()
    for signature in ([None, 2], [None, None]):
        traced = tf.function(
            kernel, input_signature=[tf.TensorSpec(signature, tf.float64)], autograph=False
        )
        np.testing.assert_allclose(traced(X), _formula(X, X), rtol=1e-10, atol=1e-12)


def test_ids_survive_rounding() -> None:
    """An id that arithmetic left an epsilon below a whole number is that number, once traced."""
    kernel = ObjectView(VECTORS)
    X = tf.constant([[3.0 - 1e-9, 0.5]], tf.float64)
    np.testing.assert_array_equal(tf.function(kernel.embed, autograph=False)(X)[0, 1:], VECTORS[3])


# Parameters and priors.


def test_parameters_and_what_is_fixed() -> None:
    """The period and the second amplitude are fixed; the rest is learnt."""
    kernel = ObjectView(VECTORS)
    parameters = gpflow.utilities.parameter_dict(kernel)
    assert {path: p.trainable for path, p in parameters.items()} == {
        ".object_vectors": True,
        ".view_kernel.base_kernel.variance": True,
        ".view_kernel.base_kernel.lengthscales": True,
        ".view_kernel.period": False,
        ".object_kernel.variance": False,
    }
    np.testing.assert_allclose(kernel.view_kernel.period, 2.0 * np.pi)
    np.testing.assert_allclose(kernel.object_kernel.variance, 1.0)
    assert (kernel.num_objects, kernel.object_dim) == VECTORS.shape


def test_default_prior_has_the_size_of_the_vectors() -> None:
    """Normal(0, root mean square); the models' default priors cover all that is left."""
    kernel = ObjectView(VECTORS)
    prior = kernel.object_vectors.prior
    assert prior.dtype == gpflow.default_float()
    np.testing.assert_allclose([prior.loc, prior.scale], [0.0, np.sqrt((VECTORS**2).mean())])
    set_default_kernel_priors(kernel)
    assert kernel.object_vectors.prior is prior
    sampled = kernel.trainable_parameters
    assert len(sampled) == 3 and np.isfinite(
        log_prior_density(sampled, unconstrained_values(sampled))
    )


def test_a_prior_that_is_given() -> None:
    """It is kept, and vectors that are all 0 are then possible."""
    prior = tfd.StudentT(np.float64(4.0), np.float64(0.0), np.float64(2.0))
    assert ObjectView(np.zeros((3, 2)), object_vectors_prior=prior).object_vectors.prior is prior


def test_kernels_can_share_object_vectors() -> None:
    """A kernel per latent channel, one set of vectors, with the prior it has."""
    prior = tfd.Normal(np.float64(0.0), np.float64(7.0))
    first = ObjectView(VECTORS, object_vectors_prior=prior)
    second = ObjectView(first.object_vectors, gpflow.kernels.RBF())
    assert second.object_vectors is first.object_vectors
    assert second.object_vectors.prior is prior


def test_float32() -> None:
    """GPflow's float is read when the kernel is made."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        kernel = ObjectView(VECTORS)
        K = kernel(_inputs(4).astype(np.float32))
    assert K.dtype == kernel.object_vectors.prior.dtype == tf.float32


# Errors.


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ObjectView(np.zeros(3)), ValueError, r"shape \[num_objects, H\], got \(3,\)"),
        (lambda: ObjectView(np.zeros((3, 0))), ValueError, r"\[num_objects, H\], got \(3, 0\)"),
        (lambda: ObjectView([[1.0], [np.nan]]), ValueError, "object_vectors hold NaN or infinity"),
        (lambda: ObjectView([[1.0], [np.inf]]), ValueError, "object_vectors hold NaN or infinity"),
        (lambda: ObjectView(np.zeros((3, 2))), ValueError, "all 0.*pass object_vectors_prior"),
        (
            lambda: ObjectView(VECTORS, view_kernel="periodic"),
            TypeError,
            "view_kernel must be a GPflow kernel of one output, got str",
        ),
        (
            lambda: ObjectView(VECTORS, object_kernel=np.dot),
            TypeError,
            "object_kernel must be a GPflow kernel of one output, got",
        ),
        (
            lambda: ObjectView(
                VECTORS, gpflow.kernels.SharedIndependent(gpflow.kernels.RBF(), output_dim=2)
            ),
            TypeError,
            "view_kernel must be a GPflow kernel of one output, got SharedIndependent",
        ),
    ],
)
def test_bad_arguments_are_refused(
    make: Callable[[], ObjectView], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


def test_inputs_without_a_view_are_refused() -> None:
    with pytest.raises(ValueError, match=r"columns \[object id, view...\].*got shape \(4, 1\)"):
        ObjectView(VECTORS)(np.zeros((4, 1)))


def test_embedded_points_without_a_view_are_refused() -> None:
    kernel = ObjectView(VECTORS)
    with pytest.raises(ValueError, match=r"\[view..., object vector\].*3 of.*shape \(4, 3\)"):
        kernel.K_embedded(np.zeros((4, 3)))


@pytest.mark.parametrize("bad", [-1.0, 5.0, 1.5, np.nan, np.inf])
def test_ids_that_are_no_rows_are_refused(bad: float) -> None:
    """Eagerly, and for an array inside a function that is being traced."""
    X = np.array([[0.0, 0.1], [bad, 0.2]])
    kernel = ObjectView(VECTORS)
    message = f"object id {bad:g} in column 0.*whole numbers from 0 to 4"
    with pytest.raises(ValueError, match=message):
        kernel(X)
    with pytest.raises(ValueError, match=message):
        kernel(np.array([[0.0, 0.1]]), tf.constant(X))
    with pytest.raises(ValueError, match=message):
        tf.function(lambda: kernel(X), autograph=False)()
