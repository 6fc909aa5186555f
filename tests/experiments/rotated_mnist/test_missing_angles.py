"""Angles of rotated MNIST that are hidden, and the scores of what is inferred of them."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest

from experiments.rotated_mnist import angles
from gpflow_bae import likelihoods, models, posteriors
from gpflow_bae.datasets.rotated_mnist import Images, RotatedMNIST


def task(num_objects: int = 10, num_views: int = 6) -> RotatedMNIST:
    views = np.linspace(0.0, 2.0 * np.pi, num_views, endpoint=False)
    X = np.stack([np.repeat(np.arange(num_objects), num_views), np.tile(views, num_objects)], 1)
    images = Images(X.astype(float), np.zeros((len(X), 4), np.float32))
    return RotatedMNIST(images, images, images, np.eye(num_objects), views, images.Y)


def test_hidden_angles_are_nested() -> None:
    """Ids stay, and a larger share hides all that a smaller one does."""
    data = task()
    hidden = {}
    for share in (0.1, 0.3):
        X = angles.hide(data, share).train.X
        hidden[share] = np.isnan(X[:, 1])
        assert hidden[share].sum() == round(share * 60)
        np.testing.assert_array_equal(X[:, 0], data.train.X[:, 0])
        np.testing.assert_array_equal(X[~hidden[share]], data.train.X[~hidden[share]])
    assert (hidden[0.3] >= hidden[0.1]).all()
    assert not np.isnan(data.train.X).any()
    for share in (0.001, 1.0):
        with pytest.raises(ValueError, match="must hide one, and leave each object one"):
            angles.hide(data, share)


def test_errors_of_angles() -> None:
    """The half-normal's median and mean of 0.1 radians, also across the cut at 0."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.0, 2.0 * np.pi, 2000)
    truth[:200] = 0.01
    estimate = np.mod(truth + 0.1 * rng.standard_normal(2000), 2.0 * np.pi)
    found = angles.circular_errors(estimate, truth)
    np.testing.assert_allclose(found["angle_error_median"], np.rad2deg(0.06745), rtol=0.06)
    np.testing.assert_allclose(found["angle_error_mean"], np.rad2deg(0.07979), rtol=0.05)
    assert found["angle_error_above_30"] == 0.0
    assert angles.circular_errors(estimate + np.pi, truth)["angle_error_above_30"] == 1.0


def test_further_angles_say_how_wide_intervals_are() -> None:
    """Of draws that know nothing and are sure of it: intervals become as wide as it takes."""
    data = task(20, 12)
    hidden = angles.hide(data, 0.4)
    kernel = gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(active_dims=[1]))
    kernel = angles.with_missing_angles(kernel, hidden, bayesian=True)
    encoder = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    decoder = keras.Sequential([keras.Input((1,)), keras.layers.Dense(4)])
    model = models.SVGPVAE(
        kernel, np.zeros((1, 2)), decoder, encoder, likelihoods.Gaussian(1.0), latent_dim=1
    )
    data_of_fit = (hidden.train.X[None], hidden.train.Y[None])
    posterior = posteriors.Posterior.from_point(model, data_of_fit)
    found = angles.scores(posterior, data, 0.2)
    assert found["num_missing_angles"] == 48
    # 0.1 radians wide around values anywhere on the circle.
    assert found["angle_coverage_90"] < 0.3 and found["angle_interval_scale"] > 5.0
    assert found["angle_coverage_90_calibrated"] > 0.7
    assert 250.0 < found["angle_width_90_calibrated"] <= 360.0
    assert "angle_interval_scale" not in angles.scores(posterior, data, 0.4)
