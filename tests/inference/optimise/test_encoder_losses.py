"""The scores that fit an encoder: NumPy formulas, and where their minima are."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.base import Batch
from gpflow_bae.encoders import DensityEncoder, FreeFormEncoder, GaussianEncoder
from gpflow_bae.inference import EncoderSettings, encoder_loss
from gpflow_bae.inference.optimise.encoder_fit import EncoderFit
from gpflow_bae.inference.optimise.encoder_losses import check_encoder_loss

SEED = tf.constant([2, 7])


class ScaledNoise(DensityEncoder):
    """z = shift + scale * normal noise of the shape of y, as an encoder."""

    def __init__(self, scale: float | tf.Tensor, shift: float = 0.0):
        super().__init__(name=None)
        self.scale, self.shift = scale, shift

    def sample(self, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        noise = tf.random.stateless_normal(tf.shape(Y), seed, dtype=tf.float64)
        return self.shift + self.scale * noise

    def log_prob(self, Y: tf.Tensor, latents: tf.Tensor) -> tf.Tensor:
        z = (latents - self.shift) / self.scale
        log_scale = tf.cast(tf.math.log(self.scale), z.dtype)
        return tf.reduce_sum(-0.5 * (z**2 + np.log(2 * np.pi)) - log_scale, -1)


def test_energy_score_of_its_draws() -> None:
    """E|z' - z| - E|z' - z''| / 2 of the very draws, in NumPy; two draws share the first term."""
    encoder = ScaledNoise(0.8, 0.3)
    Y = np.zeros((2, 5, 3))
    codes = np.random.default_rng(0).standard_normal(Y.shape)
    first = encoder.sample(Y, SEED).numpy()
    second = encoder.sample(Y, tf.random.fold_in(SEED, 1, alg="philox")).numpy()
    assert not np.any(first == second)
    to_code = [np.linalg.norm(draw - codes, axis=-1) for draw in (first, second)]
    between = np.linalg.norm(first - second, axis=-1)
    expected = np.mean(0.5 * (to_code[0] + to_code[1]) - 0.5 * between)
    np.testing.assert_allclose(encoder_loss(encoder, Y, codes, SEED), expected, rtol=1e-9)


@pytest.mark.parametrize("latent_dim", [1, 2])
def test_energy_score_in_closed_form(latent_dim: int) -> None:
    """Codes N(0, I), encoder N(0, s^2 I): (sqrt(1 + s^2) - s / sqrt(2)) E|N(0, I)|, least at s = 1.

    E|N(0, I)| is sqrt(2 / pi) in one dimension and sqrt(pi / 2) in two (half-normal, Rayleigh).
    Monte Carlo with 200,000 pairs: standard deviation of a pair below 1.2, so 5 standard errors
    are 0.013.
    """
    norm = np.sqrt(2 / np.pi) if latent_dim == 1 else np.sqrt(np.pi / 2)
    codes = tf.constant(np.random.default_rng(1).standard_normal((200_000, latent_dim)))
    losses = {}
    for s in (0.0, 0.5, 1.0, 1.5):
        losses[s] = float(encoder_loss(ScaledNoise(s), codes, codes, SEED))
        exact = norm * (np.sqrt(1 + s**2) - s / np.sqrt(2))
        np.testing.assert_allclose(losses[s], exact, atol=0.013)
    assert min(losses, key=losses.__getitem__) == 1.0


def test_squared_error_and_its_minimum_without_spread() -> None:
    """E|z' - z|^2 = L (1 + s^2), least at s = 0: the reason for the collapse. 5 standard errors."""
    codes = tf.constant(np.random.default_rng(1).standard_normal((200_000, 2)))
    for s in (0.0, 0.7):
        loss = float(encoder_loss(ScaledNoise(s), codes, codes, SEED, "mse"))
        # |N(0, v I)|^2 in two dimensions has mean and standard deviation 2 v.
        np.testing.assert_allclose(loss, 2 * (1 + s**2), atol=5 * 2 * (1 + s**2) / np.sqrt(2e5))


def test_nll_is_the_mean_negative_log_density() -> None:
    """log s + (z^2 / s^2 + log 2 pi) / 2 per channel, in NumPy."""
    codes = np.random.default_rng(2).standard_normal((4, 3, 2))
    s = 1.7
    expected = np.mean(np.sum(np.log(s) + 0.5 * (codes**2 / s**2 + np.log(2 * np.pi)), -1))
    loss = encoder_loss(ScaledNoise(s), codes, tf.constant(codes), SEED, "nll")
    np.testing.assert_allclose(loss, expected, rtol=1e-6)  # float32 log of the scale


def test_energy_gradient_is_finite_where_draws_coincide() -> None:
    """A point mass on the code: all three distances are 0, where a norm has no gradient."""
    scale = tf.constant(0.0, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(scale)
        loss = encoder_loss(ScaledNoise(scale), np.zeros((3, 2)), tf.zeros([3, 2]), SEED)
    assert np.isfinite(tape.gradient(loss, scale))


@pytest.mark.parametrize("kind", ["energy", "mse", "nll"])
def test_an_encoder_that_takes_the_mask_gets_it(kind: str) -> None:
    """Codes that are the mask: the error of a draw that is the mask too is zero, in each score.

    Two equal draws at the code have an energy of half of the shift in their roots, 1e-6; the
    density here is the negative squared error.
    """

    class Mask(DensityEncoder):
        takes_mask = True

        def sample(self, Y: tf.Tensor, seed: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
            return tf.cast(mask, tf.float64)

        def log_prob(self, Y: tf.Tensor, latents: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
            return -tf.reduce_sum((tf.cast(mask, tf.float64) - latents) ** 2, -1)

    mask = np.random.default_rng(0).random((2, 5, 3)) < 0.5
    Y = np.zeros(mask.shape)
    for codes, close in ((mask, True), (~mask, False)):
        loss = encoder_loss(Mask(), Y, codes.astype(float), SEED, kind, mask)
        assert (abs(float(loss)) < 1e-5) == close


@pytest.mark.parametrize("batch_size", [None, 8])
def test_rows_without_observations_are_not_learnt_from(batch_size: int | None) -> None:
    """With padding an encoder gets the weights that it gets without; the density needs no noise."""
    keras.utils.set_random_seed(0)
    network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    settings = EncoderSettings(num_steps=5, loss="nll", batch_size=batch_size)
    rng = np.random.default_rng(0)
    Y, codes = rng.normal(size=(2, 6, 3)).astype(np.float32), rng.normal(size=(2, 6, 2))
    mask = np.ones(Y.shape, bool)
    mask[1, 2] = [True, False, False]  # a hole is no empty row

    def trained(more: int) -> tuple[np.ndarray, ...]:
        longer = [np.pad(v, [(0, 0), (0, more), (0, 0)]) for v in (Y, mask)]
        targets = np.pad(codes, [(0, 0), (0, more), (0, 0)], constant_values=9.0)
        batch = Batch(None, *map(tf.constant, longer))
        fit = EncoderFit(GaussianEncoder(network), settings)
        state, loss = fit.fit(fit.initial_state(), batch, tf.constant(targets), None, SEED)
        return *(w.numpy() for w in state.weights), loss.numpy()

    for found, expected in zip(trained(20), trained(0), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_codes_of_the_training_data_are_no_encoder_to_fit() -> None:
    """A sampled model has such codes already."""
    with pytest.raises(ValueError, match="FreeFormEncoder holds codes .* model samples itself"):
        check_encoder_loss("energy", FreeFormEncoder(1, 2, 3))
