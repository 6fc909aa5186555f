"""Deep sparse GP: one layer is SparseGP, quadrature over the hidden draw, split over points."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.inducing_variables import uniform
from gpflow_bae.latent_priors import DeepSparseGP, SparseGP
from tests.reference.latent_gaussian import LatentGaussian, squared_exponential

NOISE = 0.05
Z = np.linspace(-2.0, 2.0, 4)[:, None]


def _kernel(lengthscale: float = 0.8, variance: float = 1.3) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=lengthscale, variance=variance)


def _two_layers(variance: float = 0.3, num_hidden: int = 1, **changes: Any) -> DeepSparseGP:
    """One input, one hidden output, two channels; inducing outputs from N(0, 1)."""
    settings: dict[str, Any] = {"latent_dim": 2, "code_noise_variance": NOISE} | changes
    hidden = [_kernel(0.5, variance) for _ in range(num_hidden)]
    prior = DeepSparseGP([*hidden, _kernel()], [*[Z] * num_hidden, 1.2 * Z], **settings)
    rng = np.random.default_rng(0)
    for layer in (*prior.hidden_layers, prior.last_layer):
        layer.whitened_inducing.assign(rng.normal(size=layer.whitened_inducing.shape))
    return prior


def _data(num_points: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    shape = (1, num_points, 2)
    X = rng.uniform(-2.5, 2.5, (1, num_points, 1))
    return X, rng.normal(size=shape), rng.uniform(0.1, 1.0, shape)


def _quadrature(prior: DeepSparseGP, X: np.ndarray) -> tuple[np.ndarray, ...]:
    """Gauss-Hermite nodes over the one hidden draw: weights [S], means, variances [S, 1, N, L]."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    noise = np.broadcast_to(nodes[:, None, None, None], (60, *X.shape[:-1], 1))
    moments = prior.last_layer.given_inducing_outputs(prior.propagate(X[None], [noise]))
    return weights / weights.sum(), *(m.numpy() for m in moments)


def _normal_log_density(residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return -0.5 * (np.log(2 * np.pi * variance) + residual**2 / variance).sum(-1)


def test_one_layer_is_a_sparse_gp() -> None:
    """No hidden layer, nothing drawn: every method agrees with SparseGP's, to rounding."""
    X, mean, variance = _data()
    nu = np.random.default_rng(2).normal(size=(2, 4))
    deep = DeepSparseGP([_kernel()], [Z], 2, code_noise_variance=NOISE)
    shallow = SparseGP(_kernel(), Z, 2, NOISE, inducing_outputs="sampled")
    for prior in (deep, shallow):
        prior.whitened_inducing.assign(nu)
    Xnew = np.array([[[0.3], [4.0]]])
    pairs = [
        (deep.log_prob(X, mean), shallow.log_prob(X, mean)),
        (deep.marginal_variance(X), shallow.marginal_variance(X)),
        (deep.code_noise, shallow.code_noise),
        *zip(deep.condition(X, mean, variance), shallow.condition(X, mean, variance), strict=True),
        *zip(
            deep.predict(Xnew, X, mean, variance),
            shallow.predict(Xnew, X, mean, variance),
            strict=True,
        ),
        *zip(deep.given_inducing_outputs(X), shallow.given_inducing_outputs(X), strict=True),
    ]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert deep.splits_over_points and deep.needs_inputs


@pytest.mark.parametrize("num_hidden", [1, 2])
def test_flat_hidden_layers_leave_the_last_one(num_hidden: int) -> None:
    """Hidden variance to zero: h = x by the identity mean, whatever the hidden draws.

    In each layer h differs from its input by 1e-5 (variance 1e-10, jitter as much); the slopes of
    means and log densities in h are at most 100 here.
    """
    X, mean, variance = _data()
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=1e-10)):
        deep = _two_layers(1e-10, num_hidden)
        shallow = SparseGP(_kernel(), 1.2 * Z, 2, NOISE, inducing_outputs="sampled")
        shallow.whitened_inducing.assign(deep.whitened_inducing)
        pairs = [(deep.log_prob(X, mean), shallow.log_prob(X, mean))]
        for prediction in ("condition", "predict"):
            arguments = (X, mean, variance) if prediction == "condition" else (X, X, mean, variance)
            pairs += zip(
                getattr(deep, prediction)(*arguments),
                getattr(shallow, prediction)(*arguments),
                strict=True,
            )
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=2e-3)


def test_moments_through_two_layers_against_numpy() -> None:
    """2 inputs, 3 hidden functions (a zero column added to the mean), one channel.

    NumPy draws h from the FITC conditional by dense solves with u = L nu, and again the code's
    conditional moments at each h. 20,000 draws on either side; five standard errors of both.
    """
    rng = np.random.default_rng(3)
    S, X = 20000, rng.uniform(-1.5, 1.5, (3, 2))
    Z0, Z1 = rng.uniform(-2, 2, (5, 2)), rng.uniform(-2, 2, (6, 3))
    prior = DeepSparseGP(
        [_kernel(1.1, 0.4), _kernel(1.4, 0.9)], [Z0, Z1], 1, [3], num_prediction_draws=S
    )
    nus = [rng.normal(size=(3, 5)), rng.normal(size=(1, 6))]
    for layer, nu in zip((prior.hidden_layers[0], prior.last_layer), nus, strict=True):
        layer.whitened_inducing.assign(nu)
    found = prior.predict(X[None], X[None], np.zeros((1, 3, 1)), np.ones((1, 3, 1)))

    def conditional(
        H: np.ndarray, points: np.ndarray, lengthscale: float, variance: float, nu: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        k = squared_exponential(lengthscale, variance)
        Kzz = k(points, points) + gpflow.default_jitter() * np.eye(len(points))
        u = np.linalg.cholesky(Kzz) @ nu.T
        projection = np.linalg.solve(Kzz, k(points, H)).T
        return projection @ u, variance - (projection * k(H, points)).sum(1)

    mean, left = conditional(X, Z0, 1.1, 0.4, nus[0])
    mean = mean + np.pad(X, ((0, 0), (0, 1)))
    hidden = mean + np.sqrt(left)[:, None] * rng.normal(size=(S, 3, 3))
    m, v = conditional(hidden.reshape(-1, 3), Z1, 1.4, 0.9, nus[1])
    m, v = m[:, 0].reshape(S, 3), v.reshape(S, 3)
    assert np.all(m.var(0) > 0.01), "the hidden draw must matter"
    error = 5 * np.sqrt(2 / S)
    np.testing.assert_array_less(np.abs(found[0][0, :, 0] - m.mean(0)), error * m.std(0))
    total = v + (m - m.mean(0)) ** 2
    np.testing.assert_array_less(np.abs(found[1][0, :, 0] - total.mean(0)), error * total.std(0))


def test_log_prob_is_the_average_of_logs_or_the_log_of_an_average() -> None:
    """One draw: its mean is E log p, by quadrature. Many draws: log E p.

    2000 copies of each point, which have draws of their own (five standard errors); 40,000 draws,
    whose logarithm has an error of their relative spread over 200, five of which are asked to be
    below 0.1 for each point.
    """
    X, latents, _ = _data(3)
    prior = _two_layers()
    weights, mean, variance = _quadrature(prior, X)
    log_density = _normal_log_density(latents - mean, variance)[:, 0]  # [S, N]
    average_of_logs = weights @ log_density
    density = np.exp(log_density)
    averages = weights @ density
    log_of_average = np.log(averages).sum()
    variance_of_logs = weights @ (log_density - average_of_logs) ** 2
    error = 5 * np.sqrt(variance_of_logs.sum() / 2000)
    found = prior.log_prob(*(np.tile(v, (1, 2000, 1)) for v in (X, latents))) / 2000
    np.testing.assert_allclose(found, [average_of_logs.sum()], rtol=0.0, atol=error)
    assert log_of_average > average_of_logs.sum() + 2 * error
    many = _two_layers(num_draws=40000).log_prob(X, latents)
    spread = np.sqrt(weights @ (density - averages) ** 2) / averages
    error = 5 * spread.max() / np.sqrt(40000)
    assert error < 0.1
    np.testing.assert_allclose(many, [log_of_average], atol=len(averages) * error)


def test_condition_is_the_mixture_over_the_hidden_draw() -> None:
    """Moments and evidence against quadrature: weights are the densities of the pseudo-observation.

    Of 40,000 draws the effective number is above 1000 (asserted); five standard errors.
    """
    X, observed, noise = _data(4)
    noise = 0.1 * noise
    prior = _two_layers(num_prediction_draws=40000)
    weights, m, v = _quadrature(prior, X)
    log_density = _normal_log_density(observed - m, v + noise)
    density = np.exp(log_density)
    averages = np.einsum("s,stn->tn", weights, density)
    posterior = weights[:, None, None] * density / averages
    effective = 40000 * averages**2 / np.einsum("s,stn->tn", weights, density**2)
    assert effective.min() > 1000
    gain = v / (v + noise)
    means, variances = m + gain * (observed - m), (1 - gain) * v
    mean = np.einsum("stn,stnl->tnl", posterior, means)
    total = np.einsum("stn,stnl->tnl", posterior, variances + means**2) - mean**2
    found = prior.condition(X, observed, noise)
    error = 5 / np.sqrt(effective)[..., None]
    np.testing.assert_array_less(np.abs(found.mean - mean), error * np.sqrt(total))
    np.testing.assert_array_less(np.abs(found.variance - total), 2 * error * total)
    np.testing.assert_allclose(found.log_marginal, np.log(averages).sum(-1), atol=error.sum())


def test_marginal_variance_averages_over_the_hidden_draw() -> None:
    """With a linear last kernel it is s^2 E h^2 + noise, with E h^2 by quadrature: 40,000 draws,
    five standard errors.
    """
    X, _, _ = _data(3)
    kernels = [_kernel(1.0, 0.3), gpflow.kernels.Linear(0.7)]
    prior = DeepSparseGP(kernels, [Z, Z], 1, None, NOISE, num_prediction_draws=40000)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    hidden = prior.propagate(X[None], [np.broadcast_to(nodes[:, None, None, None], (20, 1, 3, 1))])
    squares = np.einsum("s,stnd->tnd", weights / weights.sum(), hidden.numpy() ** 2)
    # h^2 of a normal h has a standard deviation of at most sqrt(2) E h^2 here.
    np.testing.assert_allclose(
        prior.marginal_variance(X), 0.7 * squares + NOISE, rtol=5 * np.sqrt(2 / 40000)
    )


def test_hidden_layers_far_from_their_inducing_inputs_add_their_variances() -> None:
    """There h = x + v_1^(1/2) e_1 + v_2^(1/2) e_2, so three layers are two with v_1 + v_2.

    Under a linear last kernel the variance is s^2 (x^2 + v_1 + v_2) + noise; 40,000 draws, five
    standard errors, of h^2 with a standard deviation of at most sqrt(2) E h^2.
    """
    X, far = np.array([[[0.0], [0.4], [-0.9]]]), Z + 100.0
    kernels = [_kernel(0.5, 0.3), _kernel(0.7, 0.2), gpflow.kernels.Linear(0.7)]
    prior = DeepSparseGP(kernels, [far, far, Z], 1, None, NOISE, num_prediction_draws=40000)
    for layer in prior.hidden_layers:
        layer.whitened_inducing.assign(np.ones((1, 4)))
    expected = 0.7 * (np.square(X) + 0.3 + 0.2) + NOISE
    np.testing.assert_allclose(prior.marginal_variance(X), expected, rtol=5 * np.sqrt(2 / 40000))


class _DrawnByPlace(DeepSparseGP):
    """The hidden draw of a point is a function of where it is, so minibatches can share it."""

    def _hidden_noise(self, X: tf.Tensor, num_draws: int) -> list[tf.Tensor]:
        return [tf.sin(37.0 * X)[None] * tf.ones([num_draws, 1, 1, 1], X.dtype)]


def test_density_splits_over_points_given_the_draws() -> None:
    """The densities of a partition add up to that of all, so N/B times a batch's is unbiased."""
    X, latents, _ = _data(6)
    for num_draws in (1, 3):
        prior = _DrawnByPlace([_kernel(), _kernel()], [Z, Z], 2, num_draws=num_draws)
        prior.whitened_inducing.assign(np.ones((2, 4)))
        order = np.random.default_rng(0).permutation(6).reshape(3, 2)
        parts = [prior.log_prob(X[:, rows], latents[:, rows]) for rows in order]
        np.testing.assert_allclose(np.mean(parts) * 3, prior.log_prob(X, latents)[0], rtol=1e-12)


class _SeveralByPlace(DeepSparseGP):
    """As above, with other draws each time."""

    def _hidden_noise(self, X: tf.Tensor, num_draws: int) -> list[tf.Tensor]:
        phases = tf.reshape(tf.range(float(num_draws), dtype=X.dtype), [-1] + [1] * (X.shape.rank))
        return [tf.sin(37.0 * X + phases) for _ in self.hidden_layers]


@pytest.mark.parametrize("shared_inputs", [True, False])
def test_integrated_outputs_are_each_tasks_own(shared_inputs: bool) -> None:
    """Three tasks, three draws, two hidden layers: FITC of each draw's inputs as dense matrices.

    The density is the logarithm of the draws' average, for a task; posteriors and predictions are
    mixtures of the draws, weighted by the evidence of all of a task's pseudo-observations.
    """
    rng = np.random.default_rng(3)
    T, N, S, L = 3, 5, 3, 2
    X = rng.uniform(-2.0, 2.0, (N, 1) if shared_inputs else (T, N, 1))
    Xnew, target = np.array([[0.3], [-1.0]]), 0.5 * rng.normal(size=(T, N, L))
    noise = rng.uniform(0.3, 1.0, (T, N, L))
    own_noise = rng.uniform(0.0, 0.2, (T, N, 1))
    prior = _SeveralByPlace(
        [_kernel(0.5, 0.3), _kernel(0.7, 0.2), _kernel()],
        [Z, Z, 1.2 * Z],
        L,
        None,
        NOISE,
        num_draws=S,
        num_prediction_draws=S,
        inducing_outputs="integrated",
    )
    assert prior.whitened_inducing is None and not prior.splits_over_points
    for layer in prior.hidden_layers:
        layer.whitened_inducing.assign(rng.normal(size=(1, 4)))
    hidden = np.broadcast_to(prior._draw(X, S).numpy().reshape(S, -1, N, 1), (S, T, N, 1))
    new_hidden = prior._draw(Xnew, S).numpy()
    k, jitter = squared_exponential(0.8, 1.3), gpflow.default_jitter()
    found_log_prob = prior.log_prob(X, target, own_noise)
    found, predicted = prior.condition(X, target, noise), prior.predict(Xnew, X, target, noise)
    for t in range(T):
        draws = [
            LatentGaussian.fitc(k, hidden[s, t], new_hidden[s], 1.2 * Z, NOISE, jitter)
            for s in range(S)
        ]
        of_channel = [(target[t, :, c], noise[t, :, c]) for c in range(L)]
        densities = [
            sum(d.condition(y, own_noise[t, :, 0])[2] for y, _ in of_channel) for d in draws
        ]
        np.testing.assert_allclose(found_log_prob[t], np.log(np.mean(np.exp(densities))))
        given = [[d.condition(*pseudo) for pseudo in of_channel] for d in draws]
        evidence = np.exp([sum(channel[2] for channel in d) for d in given])
        np.testing.assert_allclose(found.log_marginal[t], np.log(np.mean(evidence)))
        weights = evidence / evidence.sum()
        assert weights.max() < 0.9  # all draws count
        new = [[d.predict(*pseudo) for pseudo in of_channel] for d in draws]
        for c in range(L):
            moments = [(d[c][0], np.diag(d[c][1])) for d in given], [d[c] for d in new]
            for (mean, variance), each in zip((found[:2], predicted), moments, strict=True):
                m, v = (np.array(values) for values in zip(*each, strict=True))
                expected = weights @ m
                np.testing.assert_allclose(mean[t, :, c], expected, rtol=1e-6)
                spread = weights @ (v + (m - expected) ** 2)
                np.testing.assert_allclose(variance[t, :, c], spread, rtol=1e-6)


def test_integrated_outputs_need_no_points_of_their_own() -> None:
    """One layer is SparseGP with integrated outputs; there are no moments given the outputs."""
    X, mean, variance = _data()
    deep = DeepSparseGP([_kernel()], [Z], 2, None, NOISE, inducing_outputs="integrated")
    shallow = SparseGP(_kernel(), Z, 2, NOISE)
    many = [np.tile(v, (3, 1, 1)) for v in (X, mean, variance)]
    np.testing.assert_allclose(deep.log_prob(*many[:2]), shallow.log_prob(*many[:2]), rtol=1e-12)
    for ours, theirs in zip(deep.condition(*many), shallow.condition(*many), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    with pytest.raises(ValueError, match='has inducing_outputs="integrated"; it needs "sampled"'):
        deep.given_inducing_outputs(X)


def test_seeds_decide_the_draws_and_nothing_else() -> None:
    """Equal seeds equal draws, another seed others; the prior itself keeps its fixed ones."""
    X, latents, _ = _data()
    prior = _two_layers()
    own = prior.log_prob(X, latents).numpy()
    first, again, other = (
        prior.with_seed(tf.constant([1, s])).log_prob(X, latents).numpy() for s in (2, 2, 3)
    )
    assert first == again and len({float(v[0]) for v in (own, first, other)}) == 3
    np.testing.assert_array_equal(prior.log_prob(X, latents), own)
    # Points at one place have draws of their own.
    mean, _ = prior.given_inducing_outputs(np.zeros((1, 5, 1)))
    assert len(np.unique(mean[0, :, 0])) == 5
    # The same in a graph that knows no shapes.
    open_shapes = [tf.TensorSpec([1, None, d], tf.float64) for d in (1, 2)]
    compiled = tf.function(prior.log_prob, open_shapes, autograph=False)
    np.testing.assert_allclose(compiled(X, latents), own, rtol=1e-12)


def test_gradients_are_finite_where_a_hidden_layer_is_certain() -> None:
    """A linear kernel is zero at 0, and the root of a hidden variance of zero has no slope."""
    prior = DeepSparseGP([gpflow.kernels.Linear(), _kernel()], [Z, Z], 2)
    rng = np.random.default_rng(0)
    for layer in (*prior.hidden_layers, prior.last_layer):
        layer.whitened_inducing.assign(rng.normal(size=layer.whitened_inducing.shape))
    X, latents = np.array([[[0.0], [1.0]]]), rng.normal(size=(1, 2, 2))
    with tf.GradientTape() as tape:
        density = prior.log_prob(X, latents)
    for variable, gradient in zip(
        prior.trainable_variables,
        tape.gradient(density, prior.trainable_variables),
        strict=True,
    ):
        assert np.isfinite(gradient).all() and np.any(gradient != 0), variable.name


def test_mean_functions() -> None:
    """Identity, zero padding, and the leading principal components of the inducing inputs."""
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(20, 3)) * [0.1, 5.0, 1.0] + 7.0
    kernels = [_kernel() for _ in range(4)]
    prior = DeepSparseGP(kernels, wide, 2, hidden_dims=[3, 1, 2])
    identity, projection, padding = (layer.mean_weights for layer in prior.hidden_layers)
    np.testing.assert_array_equal(identity, np.eye(3))
    values, vectors = np.linalg.eigh(np.cov(wide.T))
    np.testing.assert_allclose(np.abs(projection), np.abs(vectors[:, -1:]), atol=1e-9)
    np.testing.assert_array_equal(padding, [[1.0, 0.0]])
    # One array of inducing inputs: the others are its images, inside of their boxes.
    expected = np.pad(wide @ projection, ((0, 0), (0, 1)))
    np.testing.assert_allclose(prior.last_layer.inducing_variable.Z, expected, rtol=1e-9, atol=1e-9)
    assert prior.kernels == kernels


def test_parameters_and_their_priors() -> None:
    """All inducing outputs are under N(0, 1); noise is the last layer's alone; boxes widen."""
    prior = _two_layers(0.25)
    hidden, last = prior.hidden_layers[0], prior.last_layer
    for layer, shape in ((hidden, (1, 4)), (last, (2, 4))):
        assert layer.whitened_inducing.shape == shape
        np.testing.assert_array_equal(layer.whitened_inducing.prior.stddev(), 1.0)
    assert hidden.code_noise_variance is None and prior.whitened_inducing is last.whitened_inducing
    paths = gpflow.utilities.parameter_dict(prior)
    assert len(paths) == 4 + 5 and ".last_layer.code_noise_variance" in paths
    own, wide = (layer.inducing_variable.Z.prior for layer in (hidden, last))
    np.testing.assert_allclose(own.low, uniform(Z).Z.prior.low)
    np.testing.assert_allclose(wide.low, uniform(1.2 * Z).Z.prior.low - 3 * 0.5)
    np.testing.assert_allclose(wide.high, uniform(1.2 * Z).Z.prior.high + 3 * 0.5)
    points = uniform(Z, -9.0, 9.0)
    kept = DeepSparseGP([_kernel(), _kernel()], [Z, points], 1)
    assert kept.last_layer.inducing_variable is points


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernels": _kernel()}, "kernels must be a sequence.*got <gpflow.*SquaredExponential"),
        ({"kernels": []}, "one entry for each layer, at least one, got 0 and 2"),
        ({"inducing_variables": [Z]}, "one entry for each layer, at least one, got 2 and 1"),
        ({"inducing_variables": [Z, Z[:, 0]]}, r"must have shape \[M, D\], got \(4,\)"),
        ({"hidden_dims": [1, 1]}, r"hidden_dims must be 1 positive widths.*got \[1, 1\]"),
        ({"hidden_dims": [0]}, r"hidden_dims must be 1 positive widths.*got \[0\]"),
        ({"hidden_dims": [2]}, r"inducing_variables\[1\] must have the 2 columns.*\(4, 1\)"),
        ({"kernels": [[_kernel()] * 3, _kernel()]}, r"kernels\[0\].*each of the 1 outputs.*got 3"),
        ({"kernels": [_kernel(), [_kernel()] * 3]}, r"kernels\[1\].*each of the 2 outputs.*got 3"),
        ({"num_draws": 0}, "num_draws must be at least 1, got 0"),
        ({"latent_dim": 0}, "latent_dim must be at least 1"),
    ],
)
def test_layers_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    """At construction, by the argument's name."""
    arguments = {"kernels": [_kernel(), _kernel()], "inducing_variables": [Z, Z], "latent_dim": 2}
    with pytest.raises((TypeError, ValueError), match=message):
        DeepSparseGP(**(arguments | change))


def test_inputs_that_do_not_fit_are_refused() -> None:
    """No inputs, inputs of another width, several tasks; and there is no variational bound."""
    prior, (X, latents, variance) = _two_layers(), _data()
    for call in (
        lambda: prior.log_prob(None, latents),
        lambda: prior.condition(None, latents, variance),
        lambda: prior.given_inducing_outputs(None),
    ):
        with pytest.raises(ValueError, match="X is needed, got None"):
            call()
    with pytest.raises(ValueError, match="must have the 1 columns.*got 2"):
        prior.log_prob(np.tile(X, (1, 1, 2)), latents)
    many = [np.tile(v, (3, 1, 1)) for v in (X, latents)]
    with pytest.raises(ValueError, match="for one long task; got codes of 3 tasks.*integrated"):
        prior.log_prob(*many)
    with pytest.raises(ValueError, match="for one long task; got inputs X of 3 tasks"):
        prior.given_inducing_outputs(many[0])
    with pytest.raises(NotImplementedError, match="no variational bound.*PriorMeanStart"):
        prior.condition_batch(X, latents, variance, 1.0)
