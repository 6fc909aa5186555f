"""Coordinates in which the prior is a standard normal, against dense algebra."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import decoders, inference, latent_priors, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.chain_state import Point
from gpflow_bae.inference.engines.amortized import AmortizedSampling
from gpflow_bae.inference.preconditioning import (
    FisherPreconditioner,
    KroneckerMap,
    PointMap,
    Preconditioner,
)
from gpflow_bae.inference.preconditioning.fisher import FisherMetric
from gpflow_bae.mcmc import Target
from tests.inference.amortized_models import L, P, network, random_data, sgp_bae

X = np.random.default_rng(0).uniform(-2.0, 2.0, (3, 5, 1))


def prior_map(model: models.SGPBAE, X: np.ndarray) -> PointMap:
    data = prepare_data(model, (X, np.zeros((*X.shape[:2], P))), None)
    fitted = Preconditioner(model, data, model.sampled.paths)
    return fitted.map_at((), model.sampled.values(), tf.constant(X))


@pytest.mark.parametrize("num_kernels", [1, L])
@pytest.mark.parametrize("kind", ["exact", "sparse"])
def test_codes_are_white_under_their_prior(kind: str, num_kernels: int) -> None:
    """log N(F u; 0, F F^T) = log N(u; 0, I) - log |F|: so the gradient by u is -u, exactly. The
    jitter of 1e-6 in the covariance is all that rounding has to do with.
    """
    kernels = [gpflow.kernels.Matern32(lengthscales=1.0 + i) for i in range(num_kernels)]
    model = sgp_bae()
    if kind == "exact":
        model.latent_prior = latent_priors.GP(kernels, L, 0.05)
    else:
        model.latent_prior = latent_priors.SparseGP(
            kernels, model.latent_prior.inducing_variable, L, 0.05
        )
    found = prior_map(model, X)
    u = tf.constant(np.random.default_rng(1).standard_normal((3, 5, L)))
    point = Point(tuple(tf.zeros_like(v) for v in model.sampled.values()), u)
    natural = found.forward(point)
    with tf.GradientTape() as tape:
        tape.watch(natural.codes)
        density = tf.reduce_sum(model.latent_prior.log_prob(X, natural.codes))
    slope = Point(point.parameters, tape.gradient(density, natural.codes))
    np.testing.assert_allclose(found.pullback(slope).codes, -u, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.inverse(natural).codes, u, rtol=1e-8, atol=1e-9)


def test_weights_are_in_units_of_their_prior() -> None:
    model = sgp_bae()
    model.decoder = decoders.KerasDecoder(network(L, P), decoders.fan_in_prior(0.6))
    sampled = model.sampled
    found = prior_map(model, X)
    scales = {q: f.scale for q, f in zip(sampled.paths, found.parameters, strict=True)}
    np.testing.assert_allclose(scales[".decoder.weights[2]"], 0.6 / np.sqrt(4), rtol=1e-6)
    np.testing.assert_allclose(scales[".decoder.weights[1]"], 0.6, rtol=1e-6)
    assert float(scales[".latent_prior.kernels[0].variance"]) == 1.0


def test_a_sampler_sees_the_gradient_of_its_own_coordinates() -> None:
    """By the chain rule, which automatic differentiation knows."""
    model = sgp_bae()
    values = model.sampled.values()
    to_value = prior_map(model, X)
    rng = np.random.default_rng(2)
    u = Point(
        tuple(tf.constant(rng.standard_normal(v.shape), v.dtype) for v in values),
        tf.constant(rng.standard_normal((3, 5, L))),
    )

    def density(point: Point) -> tf.Tensor:
        leaves = tf.nest.flatten(point)
        return tf.add_n([tf.reduce_sum(tf.cast(tf.sin(v), tf.float64)) for v in leaves])

    def slope(point: Point, seed: object) -> Point:
        return tf.nest.map_structure(tf.cos, point)

    found = to_value.target(Target(slope)).gradient(u, None)
    with tf.GradientTape() as tape:
        tape.watch(u)
        value = density(to_value.forward(u))
    expected = tape.gradient(value, u)
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_coordinates_that_steps_would_change_are_refused() -> None:
    model = sgp_bae()
    data = prepare_data(model, random_data(3, 5), None)

    def build(sampler: mcmc.SamplingAlgorithm, **changes: Any) -> AmortizedSampling:
        settings = inference.AmortizedSettings(coordinates="prior")
        return AmortizedSampling(model, data, settings, sampler, **changes)

    for changes in ({"moves": ()}, {"point_estimates": (".decoder",)}):
        with pytest.raises(ValueError, match=r"depend on \.latent_prior\.kernels"):
            build(mcmc.sghmc.build(), **changes)
    with pytest.raises(ValueError, match=r"depend on \.latent_prior\.kernels"):
        build(mcmc.sghmc.build(temperature=0.5))
    assert "prior_parameters" in {move.name for move in build(mcmc.sghmc.build()).moves}
    build(mcmc.sghmc.build(), moves=("prior_parameters",))
    long = prepare_data(sgp_bae(inducing_outputs="sampled"), random_data(1, 60), 20)
    settings = inference.AmortizedSettings(coordinates="prior", batch_size=20)
    with pytest.raises(ValueError, match="mix the codes of all points"):
        AmortizedSampling(sgp_bae(), long, settings, mcmc.sghmc.build())
    # Given inducing outputs codes have no covariance to be whitened by, and points may be few.
    split = sgp_bae(inducing_outputs="sampled")
    AmortizedSampling(split, long, settings, mcmc.sghmc.build())
    with pytest.raises(ValueError, match="coordinates must be"):
        inference.AmortizedSettings(coordinates="posterior")  # type: ignore[arg-type]


@pytest.mark.parametrize("num_kernels", [1, L])
def test_codes_are_white_under_their_posterior(num_kernels: int) -> None:
    """The gradient of log N(Z; 0, K) - Z^T D Z / 2, D = blockdiag(D_n), is -u in coordinates that
    whiten K^-1 + D; the jitter of 1e-6 in K is all that rounding has to do with.
    """
    kernels = [gpflow.kernels.Matern32(lengthscales=1.0 + i) for i in range(num_kernels)]
    model = sgp_bae()
    model.latent_prior = latent_priors.GP(kernels, L, 0.05)
    rng = np.random.default_rng(4)
    roots = rng.standard_normal((3, 5, L, L)) * np.geomspace(1e-2, 1e2, 3)[:, None, None, None]
    information = tf.constant(roots @ np.swapaxes(roots, -1, -2))
    values = model.sampled.values()
    maps = tuple(KroneckerMap(tf.ones_like(v)) for v in values)
    metric = FisherMetric(maps, information)
    data = prepare_data(model, (X, np.zeros((3, 5, P))), None)
    fitted = FisherPreconditioner(model, data, 0, lambda position: None, model.sampled.paths)  # type: ignore[arg-type, return-value]
    found = fitted.map_at(metric, values, tf.constant(X))
    u = tf.constant(rng.standard_normal((3, 5, L)))
    natural = found.forward(Point(values, u))
    with tf.GradientTape() as tape:
        tape.watch(natural.codes)
        Z = natural.codes[..., None]
        informed = tf.reduce_sum(tf.linalg.matmul(Z, information @ Z, transpose_a=True))
        density = tf.reduce_sum(model.latent_prior.log_prob(X, natural.codes)) - informed / 2.0
    slope = Point(values, tape.gradient(density, natural.codes))
    np.testing.assert_allclose(found.pullback(slope).codes, -u, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.inverse(natural).codes, u, rtol=1e-6, atol=1e-7)
    which = [2, 0]
    some = fitted.map_at(metric, values, tf.constant(X[which]), tf.constant(which))
    codes = some.forward(Point(values, tf.gather(u, which))).codes
    np.testing.assert_allclose(codes, natural.codes.numpy()[which], rtol=1e-9)
