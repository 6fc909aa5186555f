"""Where inducing inputs are while a model is fitted or sampled, and that ids among them stay."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.inducing_variables import InducingPoints

from gpflow_bae import inference, latent_priors, likelihoods, models
from gpflow_bae.core.functional import log_prior_of_mode
from gpflow_bae.data import prepare_data
from gpflow_bae.inducing_variables import bounded, uniform
from gpflow_bae.kernels import Categorical
from gpflow_bae.models.default_priors import set_default_priors

P, L = 3, 2
TIMES, IDS = np.tile(np.linspace(0.0, 6.0, 8), 4), np.repeat(np.arange(4.0), 8)
X = np.stack([TIMES, IDS], 1)
Z = X[::3]
Y = np.sin(TIMES + 0.5 * IDS)[:, None] * [1.0, -0.5, 0.8]


def net(num_inputs: int, num_outputs: int) -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def kernel(of_ids: Any = None) -> gpflow.kernels.Kernel:
    if of_ids is None:
        of_ids = gpflow.kernels.Coregion(4, 2, active_dims=[1])
        of_ids.W.assign(np.random.default_rng(0).normal(size=(4, 2)))
    return gpflow.kernels.Matern52(active_dims=[0]) * of_ids


def svgp_vae(points: Any, of_times_and_ids: Any = None) -> models.SVGPVAE:
    parts = net(L, P), net(P, 2 * L), likelihoods.Gaussian(0.1), L
    return models.SVGPVAE(of_times_and_ids or kernel(), points, *parts)


def sgp_bae(points: Any, of_times_and_ids: Any = None) -> models.SGPBAE:
    of_times_and_ids = of_times_and_ids or gpflow.kernels.Matern52(active_dims=[0])
    parts = net(L, P), net(2 * P, L), likelihoods.Gaussian(0.1), L
    return models.SGPBAE(of_times_and_ids, points, *parts)


def test_an_array_in_a_variational_model_is_gpflows_inducing_points() -> None:
    """The same fit to the bit, ids where they were, and other columns free to move."""
    settings = inference.VariationalSettings(num_steps=30, learning_rate=3e-2)
    found = []
    for points in (Z, InducingPoints(Z)):
        model = svgp_vae(points)
        at = model.inducing_variable.Z
        assert at.prior is None and isinstance(at.transform, tfp.bijectors.Identity)
        losses = inference.fit_variational(
            model, (X, Y), settings, steps_per_call=30, progress=False
        )
        found.append((losses, at.numpy()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])
    np.testing.assert_array_equal(found[0][1][:, 1], Z[:, 1])
    assert np.abs(found[0][1][:, 0] - Z[:, 0]).max() > 0.01


def test_a_fit_to_a_mode_does_not_see_the_jacobian_of_a_box() -> None:
    """Its loss is that without a box: of the density nothing but a constant is left there."""
    seed, settings = tf.constant([1, 2]), inference.VariationalSettings()
    found = []
    for points in (InducingPoints(Z), uniform(Z)):
        model = svgp_vae(points)
        data = prepare_data(model, (X, Y))
        fit = inference.VariationalFit(model, data, settings, seed=0)
        found.append(fit.batch_loss(data.gather(None), seed, fit.carried, None)[0])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    noise = likelihoods.Gaussian(0.1).variance
    expected = log_prior_of_mode([noise])
    np.testing.assert_allclose(log_prior_of_mode([uniform(Z).Z, noise]), expected, rtol=1e-12)


def test_a_start_of_a_chain_does_not_draw_points_to_the_middle() -> None:
    """Of a sampled model a mode's prior has no gradient by points, and a chain's has one."""
    model = sgp_bae(Z)
    parameters, variable = model.sampled.parameters, model.inducing_variable.Z
    variable = variable.unconstrained_variable
    with tf.GradientTape(persistent=True) as tape:
        of_mode = log_prior_of_mode(parameters)
        of_chain = model.sampled.log_prior([p.unconstrained_variable for p in parameters])
    assert tape.gradient(of_mode, variable) is None
    assert np.abs(tape.gradient(of_chain, variable)).max() > 0.1


@pytest.mark.parametrize("points", [Z, InducingPoints(Z), uniform(Z)])
@pytest.mark.parametrize("of_ids", [None, Categorical(active_dims=[1])])
def test_ids_are_never_sampled(of_ids: Any, points: Any) -> None:
    """Whatever a chain proposes, in the other columns alone, and inside of their box."""
    of_times_and_ids = kernel(of_ids)
    if of_ids is None:
        for parameter in of_times_and_ids.kernels[1].parameters:
            gpflow.set_trainable(parameter, False)
    model = sgp_bae(points, of_times_and_ids)
    (path,) = (p for p in model.sampled.paths if "inducing_variable" in p)
    values = list(model.sampled.values())
    place = model.sampled.paths.index(path)
    assert values[place].shape == (len(Z), 1)
    prior = model.sampled.parameters[place].prior
    low, high = np.asarray(prior.low), np.asarray(prior.high)
    values[place] += np.random.default_rng(0).normal(0.0, 30.0, (len(Z), 1))
    moved = model.bind(values).inducing_variable.Z.numpy()
    np.testing.assert_array_equal(moved[:, 1], Z[:, 1])
    assert np.ptp(moved[:, 0]) > 4.0 and (moved[:, 0] >= low).all() and (moved[:, 0] <= high).all()
    np.testing.assert_allclose(model.inducing_variable.Z, Z, atol=1e-12)
    at_start = model.latent_prior.log_prob(X, np.zeros((len(X), L)))
    same = latent_priors.SparseGP(model.kernel, InducingPoints(Z), L)
    np.testing.assert_allclose(at_start, same.log_prob(X, np.zeros((len(X), L))), rtol=1e-9)


def test_points_of_gpflow_get_a_box_in_a_sampled_model_alone() -> None:
    """In place of an error after the whole start; yours stay as they are."""
    yours = InducingPoints(Z)
    model = sgp_bae(yours)
    assert isinstance(model.inducing_variable.Z.prior, tfp.distributions.Uniform)
    assert yours.Z.prior is None
    fixed = InducingPoints(Z)
    gpflow.set_trainable(fixed, False)
    assert sgp_bae(fixed).inducing_variable.Z.prior is None
    low = [-9.0, -9.0]
    np.testing.assert_allclose(sgp_bae(uniform(Z, low)).inducing_variable.Z.prior.low, low)


def test_a_bound_that_is_sampled_has_a_normal_prior_of_points() -> None:
    """Around each column's mean, of twice its deviation, and none of ids, which would move."""
    model = svgp_vae(Z, gpflow.kernels.Matern52(active_dims=[0]))
    set_default_priors(model.latent_prior)
    prior = model.inducing_variable.Z.prior
    np.testing.assert_allclose(prior.loc, Z.mean(0))
    np.testing.assert_allclose(prior.scale, 2.0 * Z.std(0))
    with pytest.raises(ValueError, match=r"column\(s\) \[1\] as ids"):
        set_default_priors(svgp_vae(Z, kernel(Categorical(active_dims=[1]))).latent_prior)


def test_what_is_between_ids_is_refused() -> None:
    """GPflow would cut 1.5 off to 1."""
    means = Z + [0.0, 0.5]
    with pytest.raises(ValueError, match=r"Z holds 0.5 in column 1.*numbers from 0 to 3"):
        svgp_vae(means)
    with pytest.raises(ValueError, match=r"X holds 4 in column 1.*numbers from 0 to 3"):
        prepare_data(svgp_vae(Z), (X + [0.0, 1.0], Y))


def test_a_prior_of_all_columns_says_nothing_of_some() -> None:
    points = InducingPoints(Z)
    points.Z.prior = tfp.distributions.Normal(np.zeros(2), np.ones(2))
    with pytest.raises(ValueError, match=r"Normal prior, by which column\(s\) \[1\].*ids"):
        bounded(points, [1])
    assert bounded(points) is points
