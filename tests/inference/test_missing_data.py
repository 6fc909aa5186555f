"""Sampling with missing observations: what the encoder is asked for, and with which mask."""

from __future__ import annotations

from typing import Any, ClassVar

import gpflow
import keras
import numpy as np
import tensorflow as tf

from gpflow_bae import inference, mcmc
from gpflow_bae.encoders import StochasticEncoder, partial_encoder
from gpflow_bae.likelihoods import Gaussian
from gpflow_bae.models import SGPBAE

T, N, P, L = 3, 6, 4, 2
SEED = tf.constant([1, 2])


def _data() -> tuple[np.ndarray, np.ndarray]:
    """Tasks with holes; the last is shorter than the others, and one point is wholly unseen."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-2.0, 2.0, (T, N, 1)), 1)
    Y = rng.normal(size=(T, N, P)).astype(np.float32)
    Y[rng.random(Y.shape) < 0.3] = np.nan
    Y[:, :, 0] = 0.5
    Y[0, 3] = Y[2, 4:] = np.nan
    return X, Y


def test_codes_of_unseen_points_are_not_drawn_by_the_encoder() -> None:
    """Steps of 1e-9 move nothing, so between rounds codes change where the encoder draws them."""
    X, Y = _data()
    partial = partial_encoder("zeros", P, L, (4,), "tanh", stochastic=True)
    decoder = keras.Sequential([keras.Input((L,)), keras.layers.Dense(P)])
    model = SGPBAE(gpflow.kernels.Matern32(), X[0, ::2], decoder, partial, Gaussian(0.4), L)
    settings = inference.AmortizedSettings(
        num_samples=2,
        burnin=0,
        thinning=1,
        num_sampler_steps=1,
        encoder=inference.EncoderSettings(num_steps=0),
        codes="encoder",
    )
    sampler = mcmc.adaptive_sghmc.build(step_size=1e-9)
    options: Any = {"jit_compile": False, "progress": False, "warm_start": None}
    posterior = inference.sample_amortized(model, (X, Y), settings, sampler=sampler, **options)
    moved = np.abs(np.diff(posterior.latents, axis=0))[0].max(-1) > 1e-4
    np.testing.assert_array_equal(moved, ~np.isnan(Y).all(-1))


class _Recording(StochasticEncoder):
    """A stochastic encoder that notes the shapes of what it is asked for."""

    calls: ClassVar[list[tuple[tuple[int, ...], tuple[int, ...] | None]]] = []

    def sample(
        self, Y: tf.Tensor, seed: tf.Tensor, mask: tf.Tensor | None = None, **side: Any
    ) -> tf.Tensor:
        self.calls.append((tuple(Y.shape), None if mask is None else tuple(mask.shape)))
        return super().sample(Y, seed, mask, **side)


def test_a_stochastic_partial_encoder_in_sampling() -> None:
    """A few rounds of Algorithm 1 with missing data: every call of the encoder brings the mask.

    These are the initial codes, the encoder's own steps (two draws for the energy), the draws for
    pseudo-observations, and those of ``encode``. All of its weights are trained.
    """
    X, Y = _data()
    partial = partial_encoder("indexnet", P, L, (4,), "tanh", stochastic=True)
    encoder = _Recording(partial.model, partial.noise_dim, takes_mask=True)
    encoder.calls.clear()
    before = [w.numpy() for w in encoder.weights]
    decoder = keras.Sequential([keras.Input((L,)), keras.layers.Dense(P)])
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.7)
    Z = np.linspace(-2.0, 2.0, 4)[:, None]
    model = SGPBAE(kernel, Z, decoder, encoder, Gaussian(0.4), L)
    settings = inference.AmortizedSettings(
        num_samples=1,
        burnin=2,
        thinning=2,
        num_sampler_steps=2,
        encoder=inference.EncoderSettings(num_steps=2, batch_size=8),
        codes="encoder",
    )
    posterior = inference.sample_amortized(
        model, (X, Y), settings, jit_compile=False, progress=False, warm_start=None
    )
    assert all(np.any(w.numpy() != b) for w, b in zip(encoder.weights, before, strict=True))
    filled, scale = posterior.impute(Y, X, num_draws=3)
    np.testing.assert_array_equal(filled[~np.isnan(Y)], Y[~np.isnan(Y)])
    assert np.all(np.isfinite(filled)) and np.all(scale[np.isnan(Y)] > 0.0)
    posterior.encode(Y, num_draws=1)
    whole, rows = (T, N, P), (8, P)
    shapes = [whole, whole, rows, rows, *[whole] * 4]
    assert encoder.calls == [(shape, shape) for shape in shapes]
    # A point without observations says nothing, however the encoder draws there.
    mask = ~np.isnan(Y)
    observed = np.where(mask, Y, 0.0)
    _, variance = model.pseudo_observations(X, observed, SEED, mask=mask)
    seen = mask.any(-1)
    assert np.all(variance.numpy()[~seen] > 1e9) and np.all(variance.numpy()[seen] < 1e6)
