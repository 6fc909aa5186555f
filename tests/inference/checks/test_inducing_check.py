"""Inducing points that are too few for the kernel are named, with the number that would do."""

from __future__ import annotations

import warnings

import gpflow
import keras
import numpy as np
import pytest

from gpflow_bae import Posterior, likelihoods, models
from gpflow_bae.inference.checks import inducing_check

L = 2
X = np.array([[0.0], [0.5], [2.0], [3.0]])


def posterior(Z: np.ndarray, lengthscale: float = 1.0, X: np.ndarray = X) -> Posterior:
    """Of an SVGP-VAE at its initial values, with one kernel of variance 0.3."""

    def network(inputs: int, outputs: int) -> keras.Model:
        return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(outputs)])

    kernel = gpflow.kernels.SquaredExponential(variance=0.3, lengthscales=lengthscale)
    model = models.SVGPVAE(
        kernel, Z, network(L, 3), network(3, 2 * L), likelihoods.Gaussian(), latent_dim=L
    )
    return Posterior.from_point(model, (X, np.zeros((len(X), 3))))


def test_the_share_of_one_point_is_its_squared_correlation() -> None:
    """q(x, x) / k(x, x) = exp(-(x - z)^2 / l^2) for a single z; the jitter is 1e-6 of a variance.

    Points at all inputs leave nothing.
    """
    share = inducing_check.explained_by_inducing(posterior(np.array([[0.7]]), 1.3))
    expected = np.mean(np.exp(-(((X - 0.7) / 1.3) ** 2)))
    assert share == pytest.approx(expected, rel=1e-5)
    assert inducing_check.explained_by_inducing(posterior(X)) == pytest.approx(1.0, abs=1e-5)


def test_the_number_needed_is_that_of_independent_groups() -> None:
    """Inputs 100 lengthscales apart are independent: 95 % of 41 are 39 of them.

    With each input three times 1e-4 lengthscales apart the number is the same.
    """
    far = 100.0 * np.arange(41)[:, None]
    groups = (far + [0.0, 1e-4, 2e-4]).reshape(-1, 1)
    kernel = gpflow.kernels.SquaredExponential()
    for inputs in (far, groups):
        assert inducing_check.num_inducing_needed(kernel, inputs) == 39
    assert inducing_check.num_inducing_needed(gpflow.kernels.Constant(), far) == 1


def test_too_few_are_warned_of_and_enough_are_not() -> None:
    """Frames of the ball: 10 points explain 92% at a lengthscale of 2, and 15 explain 99 %."""
    frames = np.arange(30.0)[:, None]
    few, enough = (np.linspace(0.0, 29.0, number)[:, None] for number in (10, 15))
    with pytest.warns(UserWarning, match="The 10 inducing points .*explain 92% .*at least 1[1-5] "):
        inducing_check.warn_of_inducing(posterior(few, 2.0, frames))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inducing_check.warn_of_inducing(posterior(enough, 2.0, frames))


def test_priors_without_inducing_points_have_no_share() -> None:
    model = models.VAE(
        keras.Sequential([keras.Input((L,)), keras.layers.Dense(3)]),
        keras.Sequential([keras.Input((3,)), keras.layers.Dense(2 * L)]),
        likelihoods.Gaussian(),
        L,
    )
    assert (
        inducing_check.explained_by_inducing(Posterior.from_point(model, (None, np.zeros((4, 3)))))
        is None
    )
