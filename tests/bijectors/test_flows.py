"""Round trips, Jacobians against autodiff, batching and compilation of every map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae import bijectors
from gpflow_bae.bijectors import elementwise

FLOWS: dict[str, Callable[[int], Any]] = {
    "planar": lambda d: bijectors.planar_flow(d, 5),
    "radial": lambda d: bijectors.radial_flow(d, 5),
    "real_nvp": lambda d: bijectors.real_nvp_flow(d, 3, (8,)),
    "iaf": lambda d: bijectors.inverse_autoregressive_flow(d, 2, (8,)),
    "spline": lambda d: bijectors.neural_spline_flow(d, 3, 5, hidden_widths=(8,)),
}


def _strong(flow: Any, scale: float = 1.0, seed: int = 0) -> Any:
    """The flow with parameters far from the identity."""
    rng = np.random.default_rng(seed)
    for variable in flow.trainable_variables:
        variable.assign_add(scale * rng.standard_normal(variable.shape))
    return flow


@pytest.mark.parametrize(
    ("name", "dim"), [("planar", 3), ("radial", 2), ("real_nvp", 3), ("iaf", 3), ("spline", 2)]
)
def test_inverse_and_jacobian(name: str, dim: int) -> None:
    flow = _strong(FLOWS[name](dim))
    x = np.random.default_rng(1).standard_normal((4, 7, dim)) * 2.0
    y = flow.forward(x)
    assert y.shape == x.shape
    # 1e-6: a spline or a planar map can be steep, and its inverse loses what the slope takes.
    again = flow.inverse(tf.identity(y))
    np.testing.assert_allclose(again, x, atol=1e-6)
    flat = tf.constant(x.reshape(-1, dim))
    with tf.GradientTape(persistent=True) as tape:  # batch_jacobian loops over outputs
        tape.watch(flat)
        image = flow.forward(flat)
    jacobian = tape.batch_jacobian(image, flat, experimental_use_pfor=False)
    expected = np.linalg.slogdet(jacobian)[1].reshape(4, 7)
    np.testing.assert_allclose(flow.forward_log_det_jacobian(x, 1), expected, atol=1e-8)
    np.testing.assert_allclose(
        flow.inverse_log_det_jacobian(tf.identity(y), 1), -expected, atol=1e-5
    )
    assert np.abs(expected).max() > 0.1  # a flow of identities would pass all of the above


@pytest.mark.parametrize("num_layers", [2, 3])
@pytest.mark.parametrize(
    "build",
    [
        bijectors.planar_flow,
        bijectors.radial_flow,
        bijectors.real_nvp_flow,
        bijectors.inverse_autoregressive_flow,
        bijectors.neural_spline_flow,
    ],
)
def test_a_flow_starts_near_the_identity(build: Callable[..., Any], num_layers: int) -> None:
    """So that it can be put on codes that a Gaussian has found, and takes nothing apart.

    Layers move a point by some hundredths; components that came out in another order, as after the
    one reversal between two layers, would be units away.
    """
    x = np.random.default_rng(0).standard_normal((50, 3))
    y = build(3, num_layers, seed=1).forward(tf.constant(x))
    np.testing.assert_allclose(y, x, atol=0.2)
    assert np.abs(np.asarray(y) - x).max() > 1e-5  # and is none: nothing would train it


@pytest.mark.parametrize("name", FLOWS)
def test_densities_integrate_to_one(name: str) -> None:
    flow = _strong(FLOWS[name](2), 0.3)
    base = tfp.distributions.MultivariateNormalDiag(tf.zeros(2, tf.float64), tf.ones(2, tf.float64))
    density = tfp.distributions.TransformedDistribution(base, flow)
    draws = flow.forward(base.sample(2000, seed=[0, 1])).numpy()
    centre, reach = draws.mean(0), np.abs(draws - draws.mean(0)).max(0) + 2.0
    side = 801
    axes = [np.linspace(c - r, c + r, side) for c, r in zip(centre, reach, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    # Two per cent: a sum over cells of a density with ridges that are a few cells wide.
    total = np.exp(density.log_prob(grid)).sum() * cell
    np.testing.assert_allclose(total, 1.0, atol=0.02)


@pytest.mark.parametrize("name", FLOWS)
def test_every_parameter_is_seen_and_trained_under_xla(name: str) -> None:
    flow = _strong(FLOWS[name](2), 0.3)
    assert flow.trainable_variables
    x = tf.constant(np.random.default_rng(2).standard_normal((50, 2)))

    @tf.function(jit_compile=True, autograph=False)
    def value_and_gradients(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            y = flow.forward(x)
            log_det = flow.forward_log_det_jacobian(x, 1)
            loss = tf.reduce_sum(tf.square(y)) - tf.reduce_sum(log_det)
        return loss, tape.gradient(loss, flow.trainable_variables)

    loss, gradients = value_and_gradients(x)
    plain = tf.reduce_sum(tf.square(flow.forward(x)))
    plain -= tf.reduce_sum(flow.forward_log_det_jacobian(x, 1))
    np.testing.assert_allclose(loss, plain, rtol=1e-9)
    for gradient in gradients:
        assert gradient is not None
        assert np.isfinite(gradient).all()


def test_log_prob_has_the_gradient_of_the_inverse() -> None:
    """The bisection is differentiated implicitly: against finite differences."""
    flow = _strong(bijectors.planar_flow(2, 2))
    variable = next(v for v in flow.trainable_variables if v.shape.rank == 1)
    y = tf.constant(np.random.default_rng(3).standard_normal((6, 2)))

    def total() -> tf.Tensor:
        x = flow.inverse(tf.identity(y))
        return tf.reduce_sum(tf.sin(x))

    with tf.GradientTape() as tape:
        value = total()
    gradient = tape.gradient(value, variable).numpy()
    step = 1e-6
    for index in np.ndindex(*gradient.shape):
        start = variable.numpy()
        values = []
        for sign in (1.0, -1.0):
            moved = start.copy()
            moved[index] += sign * step
            variable.assign(moved)
            values.append(float(total()))
        variable.assign(start)
        difference = (values[0] - values[1]) / (2.0 * step)
        np.testing.assert_allclose(gradient[index], difference, rtol=1e-5, atol=1e-7)


def test_planar_maps_are_invertible_whatever_their_parameters_are() -> None:
    rng = np.random.default_rng(4)
    for scale in (0.0, 1e-8, 1.0, 100.0):
        u, w, b = (scale * rng.standard_normal(s) for s in ((200, 3), (200, 3), (200,)))
        flow = bijectors.Planar(u, w, b)
        x = rng.standard_normal((200, 3))
        log_det = flow.forward_log_det_jacobian(x, 1).numpy()
        assert np.isfinite(log_det).all()
        y = flow.forward(x)
        assert np.isfinite(y).all()
        if scale <= 1.0:
            np.testing.assert_allclose(flow.inverse(tf.identity(y)), x, atol=1e-6)
    # Straight against the direction: w^T u = -1e4 would fold space a thousand times over.
    steep = bijectors.Planar(np.array([-100.0, 0.0]), np.array([100.0, 0.0]), np.array(0.0))
    x = np.stack([np.linspace(-0.05, 0.05, 1001), np.zeros(1001)], -1)
    assert (np.diff(steep.forward(x)[:, 0]) > 0.0).all()


def test_training_cannot_make_a_planar_map_fold() -> None:
    """Gradient steps that push w^T u to minus infinity leave the map monotone."""
    flow = bijectors.Planar.random(2, np.random.default_rng(5))
    x = tf.zeros([1, 2], tf.float64)  # where the slope is: elsewhere b would escape to infinity
    for _ in range(300):
        with tf.GradientTape() as tape:
            # Towards a collapse; of a fresh tensor, because bijectors remember what they mapped.
            loss = tf.reduce_sum(flow.forward_log_det_jacobian(tf.identity(x), 1))
        for variable, g in zip(
            flow.trainable_variables, tape.gradient(loss, flow.trainable_variables), strict=True
        ):
            variable.assign_sub(0.1 * g)
    log_det = flow.forward_log_det_jacobian(tf.identity(x), 1).numpy()
    assert log_det.min() < -2.0
    assert np.isfinite(log_det).all()


def test_batched_parameters() -> None:
    """One planar map for each point, as an amortised flow has them."""
    rng = np.random.default_rng(7)
    u, w, b = rng.standard_normal((5, 2)), rng.standard_normal((5, 2)), rng.standard_normal(5)
    x = rng.standard_normal((3, 5, 2))
    batched = bijectors.Planar(u, w, b)
    for n in range(5):
        single = bijectors.Planar(u[n], w[n], b[n])
        np.testing.assert_allclose(batched.forward(x)[:, n], single.forward(x[:, n]), rtol=1e-12)
        np.testing.assert_allclose(
            batched.forward_log_det_jacobian(x, 1)[:, n],
            single.forward_log_det_jacobian(x[:, n], 1),
            rtol=1e-10,
        )


def test_what_is_no_flow_is_refused() -> None:
    with pytest.raises(ValueError, match="event_dim=2"):
        bijectors.check_flow(bijectors.planar_flow(3, 2), 2)
    with pytest.raises(TypeError, match=r"must be a tfp\.bijectors\.Bijector"):
        bijectors.check_flow(lambda x: x, 2)
    foreign = tfp.bijectors.AutoregressiveNetwork(params=2, event_shape=[2], hidden_units=[4])
    for network in (foreign, keras.layers.Dense(2)):
        flow = tfp.bijectors.Chain([tfp.bijectors.MaskedAutoregressiveFlow(network)])
        with pytest.raises(TypeError, match="whose weights would not be trained"):
            bijectors.check_flow(flow, 2)
    with pytest.raises(ValueError, match="event_dim of this flow must be at least 2"):
        bijectors.real_nvp_flow(1)
    with pytest.raises(ValueError, match="u and w of a planar map"):
        bijectors.Planar(np.zeros(2), np.zeros(3), np.zeros(()))
    for make in FLOWS.values():
        bijectors.check_flow(make(2), 2)


def test_splines_are_those_of_tensorflow_probability() -> None:
    """Against an independent implementation, inside and outside of the box, in both directions."""
    rng = np.random.default_rng(8)
    spline, K, bound = elementwise.SplineMap(6, 2.5), 6, 2.5
    parameters = rng.standard_normal((40, 3, spline.num_parameters))
    widths, heights = (spline._bins(tf.constant(parameters[..., i : i + K]))[0] for i in (0, K))
    shift = np.log(np.expm1(1.0 - 1e-3))
    reference = tfp.bijectors.RationalQuadraticSpline(
        widths, heights, tf.nn.softplus(parameters[..., 2 * K :] + shift) + 1e-3, -bound
    )
    x = tf.constant(rng.uniform(-4.0, 4.0, (40, 3)))
    y, slope = spline.forward(x, tf.constant(parameters))
    np.testing.assert_allclose(y, reference.forward(x), atol=1e-12)
    np.testing.assert_allclose(slope, reference.forward_log_det_jacobian(x, 0), atol=1e-10)
    again, slope = spline.inverse(tf.identity(y), tf.constant(parameters))
    np.testing.assert_allclose(again, x, atol=1e-10)
    np.testing.assert_allclose(slope, reference.forward_log_det_jacobian(x, 0), atol=1e-8)


def test_an_autoregressive_layer_is_a_masked_autoregressive_flow() -> None:
    """Its maps are affine with the shift and the log scale that the network gives."""
    (inverse,) = _strong(bijectors.inverse_autoregressive_flow(3, 1, (8,)), 0.3).bijectors
    layer = inverse.bijector

    def shift_and_log_scale(y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        shift, raw = tf.unstack(layer.network(y), axis=-1)
        return shift, 5.0 * tf.tanh(raw / 5.0)

    reference = tfp.bijectors.MaskedAutoregressiveFlow(shift_and_log_scale)
    x = tf.constant(np.random.default_rng(9).standard_normal((5, 3)))
    np.testing.assert_allclose(layer.forward(x), reference.forward(x), rtol=1e-12)
    np.testing.assert_allclose(
        layer.forward_log_det_jacobian(x, 1), reference.forward_log_det_jacobian(x, 1), rtol=1e-10
    )
