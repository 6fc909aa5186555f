"""What few inducing points do to the lengthscale: nothing under FITC, and stretch Titsias's bound.

Tran et al. (2023, figure 3) and Jazbec et al. (2021, figure 3) see lengthscales grow where points
are few. Of paths that are given, as the codes of the moving ball nearly are, one prior here has
its maximum near the true lengthscale and the other far above.
"""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.latent_priors import SparseGP, TitsiasGP

TRUE, FRAMES, PATHS = 2.0, 30, 70
NOISE = 0.01  # variance around the paths, small beside their own of 1
LENGTHSCALES = np.geomspace(1.0, 12.0, 16)


def _paths() -> np.ndarray:
    """Paths [1, 30, 70] of the ball's kernel, one for each channel."""
    times = np.arange(FRAMES)
    covariance = np.exp(-0.5 * np.square((times[:, None] - times) / TRUE))
    factor = np.linalg.cholesky(covariance + 1e-8 * np.eye(FRAMES))
    return (factor @ np.random.default_rng(0).standard_normal((FRAMES, PATHS)))[None]


def _best(density: Callable[[gpflow.kernels.Kernel], tf.Tensor]) -> float:
    found = []
    for lengthscale in LENGTHSCALES:
        kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)
        found.append(float(density(kernel)))
    return float(LENGTHSCALES[np.argmax(found)])


@pytest.mark.parametrize("num_points", [5, 30])
def test_few_points_stretch_the_bound_and_not_fitc(num_points: int) -> None:
    """FITC gives frames the variance that points leave as noise of their own; the bound subtracts
    it, over twice the noise. With a point at each frame both are the exact density.
    """
    X, paths = np.arange(FRAMES, dtype=float)[None, :, None], _paths()
    Z = np.linspace(0.0, FRAMES - 1.0, num_points)[:, None]
    variance = np.full(paths.shape, NOISE)

    def fitc(kernel: gpflow.kernels.Kernel) -> tf.Tensor:
        prior = SparseGP(kernel, Z, PATHS, NOISE, inducing_outputs="integrated")
        return tf.reduce_sum(prior.log_prob(X, paths))

    def bound(kernel: gpflow.kernels.Kernel) -> tf.Tensor:
        prior = TitsiasGP(kernel, Z, PATHS)
        return tf.reduce_sum(prior.condition(X, paths, variance).log_marginal)

    of_fitc, of_bound = _best(fitc), _best(bound)
    assert of_fitc == pytest.approx(TRUE, rel=0.2)  # the grid's steps are of 18 %
    if num_points == 5:
        assert of_bound > 2.5 * TRUE
    else:
        assert of_bound == pytest.approx(of_fitc)
