"""Standardised noise: its moments, and the same numbers in every way of running it."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_bae.mcmc import noise

SEED = (3, 14)


@pytest.mark.parametrize("kind, kurtosis", [("gaussian", 3.0), ("binomial", 2.875)])
def test_moments(kind: str, kurtosis: float) -> None:
    n = 400_000
    x = noise.standard_noise([n], SEED, tf.float64, kind).numpy()
    # Five standard errors of the sample moments of a standard normal: sqrt(E x^2k - (E x^k)^2).
    for power, expected, spread in [
        (1, 0.0, 1.0),
        (2, 1.0, np.sqrt(2.0)),
        (3, 0.0, np.sqrt(15.0)),
        (4, kurtosis, np.sqrt(96.0)),
    ]:
        assert abs(np.mean(x**power) - expected) < 5 * spread / np.sqrt(n), power


def test_gaussian_has_the_normal_distribution() -> None:
    # Kolmogorov-Smirnov: 1.95 / sqrt(n) is exceeded with probability 0.001.
    x = noise.standard_noise([200_001], SEED, tf.float32).numpy()  # odd: the last pair is halved
    assert x.shape == (200_001,)
    assert stats.kstest(x, "norm").statistic < 1.95 / np.sqrt(x.size)
    # The two halves are the cosines and sines of the same pairs: independent, squares too.
    half = x.size // 2
    first, second = x[:half], x[half + 1 :]
    for power in (1, 2):
        assert abs(np.corrcoef(first**power, second**power)[0, 1]) < 5 / np.sqrt(half)


def test_gaussian_shapes_and_half_precision() -> None:
    assert noise.standard_noise([], SEED).shape == ()
    assert noise.standard_noise([0, 3], SEED).shape == (0, 3)
    x = noise.standard_noise([3, 1, 5], SEED, tf.bfloat16)
    assert x.shape == (3, 1, 5) and x.dtype == tf.bfloat16
    np.testing.assert_array_equal(x, tf.cast(noise.standard_noise([3, 1, 5], SEED), tf.bfloat16))


def test_binomial_is_the_standardised_binomial_of_16() -> None:
    # 17 equidistant values, 1 / 2 apart, with the probabilities comb(16, k) / 2^16.
    n = 100_001  # odd: of the last word one half is used
    counts = 2 * noise.standard_noise([n], SEED, tf.float64, "binomial").numpy() + 8
    np.testing.assert_array_equal(counts, np.round(counts))
    found = np.bincount(counts.astype(int), minlength=17)
    expected = n * stats.binom.pmf(np.arange(17), 16, 0.5)
    # Pearson's statistic of 17 values: exceeded with probability 0.001.
    assert np.sum((found - expected) ** 2 / expected) < stats.chi2.isf(0.001, 16)
    # Neighbours are the halves of one word: independent, and so are those of different words.
    for pairs in (counts[:-1].reshape(-1, 2), counts[1:].reshape(-1, 2)):
        assert abs(np.corrcoef(pairs.T)[0, 1]) < 5 / np.sqrt(n / 2)


@pytest.mark.parametrize("kind", noise.KINDS)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
# The seed is an argument: one that is a constant would be folded before XLA sees the draw.
def test_eager_graph_and_xla_draw_the_same(kind: str, dtype: tf.DType) -> None:
    def draw(seed: tf.Tensor) -> tf.Tensor:
        return noise.standard_noise([1000], seed, dtype, kind)

    seed = tf.constant(SEED)
    eager = draw(seed).numpy()
    np.testing.assert_array_equal(tf.function(draw, autograph=False)(seed).numpy(), eager)
    # The random bits are equal; log, sin and cos of the normals may round differently, and float32
    # has numbers up to 6.8 in steps of 5e-7.
    atol = 0 if kind == "binomial" else 2e-6
    np.testing.assert_allclose(
        tf.function(draw, jit_compile=True, autograph=False)(seed).numpy(), eager, rtol=0, atol=atol
    )


def test_same_seed_same_numbers_other_seed_others() -> None:
    one = noise.standard_noise([100], [0, 1]).numpy()
    np.testing.assert_array_equal(one, noise.standard_noise([100], [0, 1]).numpy())
    assert not np.any(one == noise.standard_noise([100], [0, 2]).numpy())


@pytest.mark.parametrize("dtype", [tf.uint32, tf.uint64])
def test_bits_are_tensorflows(dtype: tf.DType) -> None:
    """Those of ``stateless_uniform`` with Philox, for seeds with and without a sign."""
    for seed in ([1, 2], [-5, 2**31 - 1], [12345678, -987654]):
        expected = tf.random.stateless_uniform([3, 5], seed, None, None, dtype, alg="philox")
        np.testing.assert_array_equal(noise._bits([3, 5], seed, dtype), expected)


def test_seeds_are_tensorflows() -> None:
    for seed in ([1, 2], [-5, 2**31 - 1], [12345678, -987654]):
        expected = tf.random.split(seed, 4, alg="philox")
        np.testing.assert_array_equal(noise.split(seed, 4), expected)
        expected = tf.random.fold_in(seed, -7, alg="philox")
        np.testing.assert_array_equal(noise.fold_in(seed, -7), expected)


def test_split_gives_distinct_seeds_the_same_under_xla() -> None:
    seeds = noise.split(SEED, 50)
    assert seeds.shape == (50, 2)
    assert len(np.unique(seeds.numpy(), axis=0)) == 50
    compiled = tf.function(lambda s: noise.split(s, 50), jit_compile=True, autograph=False)
    np.testing.assert_array_equal(compiled(tf.constant(SEED)).numpy(), seeds.numpy())


@pytest.mark.parametrize("kind", noise.KINDS)
def test_noise_like_has_the_structure_and_independent_leaves(kind: str) -> None:
    n = 20_000
    position = {"b": tf.zeros([n], tf.float64), "a": (tf.zeros([n]), tf.zeros([2, 3]))}
    draws = noise.noise_like(position, SEED, kind)
    tf.nest.assert_same_structure(draws, position)
    for draw, leaf in zip(tf.nest.flatten(draws), tf.nest.flatten(position), strict=True):
        assert draw.shape == leaf.shape and draw.dtype == leaf.dtype
    # Uncorrelated: five standard errors of a correlation of independent numbers.
    assert abs(np.corrcoef(draws["b"], draws["a"][0])[0, 1]) < 5 / np.sqrt(n)


@pytest.mark.parametrize("kind", noise.KINDS)
def test_small_leaves_share_no_numbers(kind: str) -> None:
    """Pieces of one draw for each dtype: 300 leaves of 4, between which nothing is correlated."""
    position = [tf.zeros([2, 2], (tf.float32, tf.float64)[i % 2]) for i in range(300)]
    draws = np.stack([tf.cast(d, tf.float64) for d in noise.noise_like(position, SEED, kind)])
    correlations = np.corrcoef(draws.reshape(300, 4).T)[np.triu_indices(4, 1)]
    neighbours = np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]
    types = np.corrcoef(draws[::2].ravel(), draws[1::2].ravel())[0, 1]
    # Five standard errors of correlations of so many independent numbers.
    assert np.abs(correlations).max() < 5 / np.sqrt(300)
    assert max(abs(neighbours), abs(types)) < 5 / np.sqrt(600)
    assert abs(np.mean(draws**2) - 1.0) < 5 * np.sqrt(2 / 1200)


@pytest.mark.parametrize("kind", noise.KINDS)
def test_noise_like_where_the_shape_is_known_only_at_run_time(kind: str) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    def draw(position: tf.Tensor) -> tf.Tensor:
        return noise.noise_like(position, SEED, kind)

    np.testing.assert_array_equal(
        draw(tf.zeros([5, 3])).numpy(), noise.noise_like(tf.zeros([5, 3]), SEED, kind).numpy()
    )


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"noise must be one of .*got 'cauchy'"):
        noise.standard_noise([1], SEED, kind="cauchy")
