import math

import numpy as np
import pytest
from check_shapes.exceptions import ShapeMismatchError
from scipy import stats

from gpflow_bae import metrics

NAN = float("nan")
TRUTH = np.array([[1.0, 10.0], [2.0, NAN], [4.0, 30.0]])
PREDICTION = np.array([[1.0, 13.0], [0.0, NAN], [5.0, 26.0]])
# Errors: 0, 2, -1 and -3, 4.


def test_rmse_and_mae_by_hand() -> None:
    expected = (math.sqrt(5 / 3) + math.sqrt(25 / 2)) / 2
    assert metrics.rmse(TRUTH, PREDICTION) == pytest.approx(expected, rel=1e-14)
    assert metrics.mae(TRUTH, PREDICTION) == pytest.approx((1.0 + 3.5) / 2, rel=1e-14)


def test_smse_by_hand() -> None:
    variance = np.var([1.0, 2.0, 4.0]), np.var([10.0, 30.0])
    expected = (5 / 3 / variance[0] + 25 / 2 / variance[1]) / 2
    assert metrics.smse(TRUTH, PREDICTION) == pytest.approx(expected, rel=1e-14)


def test_constant_predictor_has_smse_one() -> None:
    truth = np.random.default_rng(0).normal([3.0, -50.0], [0.1, 20.0], size=(4, 25, 2))
    constant = np.broadcast_to(truth.mean(axis=(0, 1)), truth.shape)
    assert metrics.smse(truth, constant) == pytest.approx(1.0, rel=1e-12)


def test_nll_is_scipys() -> None:
    variance = np.array([[0.5, 2.0], [1.5, NAN], [3.0, 10.0]])
    entries = -stats.norm.logpdf(TRUTH, PREDICTION, np.sqrt(variance))
    expected = np.mean([np.mean(entries[:, 0]), np.mean(entries[[0, 2], 1])])
    assert metrics.nll(TRUTH, PREDICTION, variance) == pytest.approx(expected, rel=1e-14)


def test_nll_of_a_gaussians_log_density_is_nll() -> None:
    """And NaN is left out, of the truth and of what is said there."""
    variance = np.array([[0.5, 2.0], [1.5, NAN], [3.0, 10.0]])
    entries = stats.norm.logpdf(TRUTH, PREDICTION, np.sqrt(variance))
    expected = metrics.nll(TRUTH, PREDICTION, variance)
    assert metrics.nll_from_log_density(TRUTH, entries) == pytest.approx(expected, rel=1e-14)


def test_coverage_from_intervals_counts_both_ends() -> None:
    truth = np.array([[1.0], [2.0], [3.0], [4.0], [NAN]])
    lower, upper = np.full((5, 1), 2.0), np.full((5, 1), 3.5)
    assert metrics.coverage_from_intervals(truth, lower, upper) == 0.5
    quantiles = (stats.norm.ppf(q) * np.ones((5, 1)) for q in (0.05, 0.95))
    assert metrics.coverage_from_intervals(truth, *quantiles) == metrics.coverage(
        truth, np.zeros((5, 1)), np.ones((5, 1))
    )


def test_nll_of_the_true_density_is_its_entropy() -> None:
    truth = np.random.default_rng(1).normal(2.0, 3.0, size=(20_000, 1))
    nll = metrics.nll(truth, np.full_like(truth, 2.0), np.full_like(truth, 9.0))
    entropy = 0.5 * math.log(2 * math.pi * math.e * 9.0)
    # -log p has standard deviation 1 / sqrt(2); four standard errors.
    assert nll == pytest.approx(entropy, abs=4 / math.sqrt(2 * 20_000))


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_coverage_of_a_calibrated_prediction(level: float) -> None:
    rng = np.random.default_rng(2)
    mean = rng.normal(size=(5000, 2))
    std = np.exp(rng.normal(size=(5000, 2)))
    truth = mean + std * rng.standard_normal(mean.shape)
    standard_error = math.sqrt(level * (1 - level) / truth.size)
    got = metrics.coverage(truth, mean, std**2, level)
    assert got == pytest.approx(level, abs=4 * standard_error)


def test_coverage_interval_is_central() -> None:
    edge = stats.norm.ppf(0.95) * 2.0
    truth = 1.0 + edge * np.array([[-1.001], [-0.999], [0.999], [1.001], [NAN]])
    same = np.ones_like(truth)
    assert metrics.coverage(truth, same, 4.0 * same) == 0.5


@pytest.mark.parametrize(
    "metric",
    [
        metrics.rmse,
        metrics.mae,
        metrics.smse,
        lambda truth, mean: metrics.nll(truth, mean, np.ones_like(mean)),
        metrics.nll_from_log_density,
        lambda truth, mean: metrics.coverage(truth, mean, np.ones_like(mean)),
        lambda truth, mean: metrics.coverage_from_intervals(truth, mean - 1.0, mean + 1.0),
    ],
)
class TestEveryMetric:
    def test_missing_entries_do_not_count(self, metric) -> None:
        rng = np.random.default_rng(3)
        truth, mean = rng.normal(size=(2, 6, 3))
        padded = np.concatenate([truth, np.full((2, 3), np.nan)])
        wild = np.concatenate([mean, np.full((2, 3), 1e6)])
        assert metric(padded, wild) == pytest.approx(metric(truth, mean), rel=1e-13)

    def test_leading_axes_are_points(self, metric) -> None:
        truth, mean = np.random.default_rng(4).normal(size=(2, 4, 5, 3))
        flat = metric(truth.reshape(20, 3), mean.reshape(20, 3))
        assert metric(truth, mean) == pytest.approx(flat, rel=1e-14)

    def test_column_without_observation_is_named(self, metric) -> None:
        truth = np.array([[1.0, NAN], [2.0, NAN]])
        with pytest.raises(ValueError, match=r"no observed entry in column\(s\) \[1\]"):
            metric(truth, np.zeros((2, 2)))

    def test_bad_prediction_is_refused(self, metric) -> None:
        with pytest.raises(ValueError, match=r"NaN or infinite in \d of the \d entries"):
            metric(np.arange(4.0).reshape(2, 2), np.array([[0.0, 0.0], [0.0, np.nan]]))

    def test_infinite_truth_is_refused(self, metric) -> None:
        with pytest.raises(ValueError, match="truth holds infinite"):
            metric(np.array([[np.inf], [1.0]]), np.zeros((2, 1)))

    def test_vector_is_refused(self, metric) -> None:
        with pytest.raises(ValueError, match=r"truth\[:, None\]"):
            metric(np.arange(3.0), np.zeros(3))

    def test_shapes_are_checked(self, metric) -> None:
        with pytest.raises(ShapeMismatchError):
            metric(np.zeros((3, 2)), np.zeros((2, 2)))


def test_smse_refuses_constant_truth() -> None:
    truth = np.full((3, 1), 0.1)  # its mean is not exactly 0.1
    with pytest.raises(ValueError, match=r"constant in column\(s\) \[0\]"):
        metrics.smse(truth, np.zeros((3, 1)))
    truth = np.array([[0.3], [0.1 + 0.2], [0.3]])  # two numbers, one rounding apart
    with pytest.raises(ValueError, match=r"constant in column\(s\) \[0\]"):
        metrics.smse(truth, np.zeros((3, 1)))


@pytest.mark.parametrize("metric", [metrics.nll, metrics.coverage])
def test_variance_must_be_positive(metric) -> None:
    with pytest.raises(ValueError, match="variance is -1 at its smallest"):
        metric(np.ones((2, 1)), np.ones((2, 1)), np.array([[1.0], [-1.0]]))


@pytest.mark.parametrize("level", [0.0, 1.0, 90])
def test_level_must_be_a_probability(level: float) -> None:
    ones = np.ones((2, 1))
    with pytest.raises(ValueError, match="level is"):
        metrics.coverage(ones, ones, ones, level)


def test_fit_affine_finds_the_map() -> None:
    rng = np.random.default_rng(5)
    weights, offset = rng.normal(size=(3, 2)), np.array([100.0, -3.0])
    source = rng.normal(5.0, [1e-3, 1.0, 1e3], size=(4, 30, 3))
    affine = metrics.fit_affine(source, source @ weights + offset)
    np.testing.assert_allclose(affine.weights, weights, rtol=1e-8)
    np.testing.assert_allclose(affine(source), source @ weights + offset, atol=1e-8)
    np.testing.assert_allclose(affine.residual_variance, 0.0, atol=1e-16)


def test_fit_affine_solves_the_normal_equations() -> None:
    rng = np.random.default_rng(6)
    source, target = rng.normal(size=(50, 2)), rng.normal(size=(50, 3))
    affine = metrics.fit_affine(source, target)
    design = np.concatenate([source, np.ones((50, 1))], axis=1)
    expected = np.linalg.solve(design.T @ design, design.T @ target)
    np.testing.assert_allclose(affine.weights, expected[:2], atol=1e-12)
    np.testing.assert_allclose(affine.offset, expected[2], atol=1e-12)
    residual = target - design @ expected
    np.testing.assert_allclose(affine.residual_variance, np.mean(residual**2, axis=0), rtol=1e-12)


def test_mapped_variance_is_that_of_mapped_draws() -> None:
    rng = np.random.default_rng(7)
    affine = metrics.Affine(
        weights=np.array([[2.0, 0.0], [1.0, -3.0]]),
        offset=np.zeros(2),
        residual_variance=np.array([10.0, 20.0]),
    )
    variance = np.array([0.25, 4.0])
    np.testing.assert_allclose(affine.map_variance(variance), [5.0, 36.0])
    np.testing.assert_allclose(affine.map_variance(variance, include_residual=True), [15.0, 56.0])
    draws = affine(np.sqrt(variance) * rng.standard_normal((100_000, 2)))
    np.testing.assert_allclose(np.var(draws, axis=0), [5.0, 36.0], rtol=0.03)


@pytest.mark.parametrize(
    "source",
    [
        np.zeros((20, 2)),
        np.full((20, 2), 1e8 / 3.0),
        np.full((20, 2), 0.1) * (1.0 + 1e-16 * np.arange(20)[:, None]),
    ],
    ids=["zero", "large", "rounding"],
)
def test_fit_affine_to_constant_source_is_the_mean(source: np.ndarray) -> None:
    target = np.random.default_rng(8).normal(size=(20, 2))
    affine = metrics.fit_affine(source, target)
    np.testing.assert_array_equal(affine.weights, 0.0)
    np.testing.assert_allclose(affine(source), np.tile(target.mean(axis=0), (20, 1)))


def test_fit_affine_with_collinear_source() -> None:
    rng = np.random.default_rng(9)
    one = rng.normal(size=(20, 1))
    affine = metrics.fit_affine(np.concatenate([one, -2.0 * one], axis=1), 3.0 * one)
    np.testing.assert_allclose(affine(np.array([[1.0, -2.0]])), [[3.0]], rtol=1e-9)
    assert np.max(np.abs(affine.weights)) < 3.0


@pytest.mark.parametrize("bad", ["source", "target"])
def test_fit_affine_refuses_nan(bad: str) -> None:
    arrays = {"source": np.zeros((3, 2)), "target": np.zeros((3, 2))}
    arrays[bad][1, 1] = np.nan
    with pytest.raises(ValueError, match=f"{bad} holds 1 NaN or infinite entries of 6"):
        metrics.fit_affine(**arrays)


def test_fit_affine_refuses_nothing() -> None:
    with pytest.raises(ValueError, match="without any entry"):
        metrics.fit_affine(np.zeros((0, 2)), np.zeros((0, 2)))


def test_aligned_rmse_by_hand() -> None:
    truth = np.zeros((2, 3, 2))
    truth[0, 1] = [3.0, 4.0]
    identity = metrics.Affine(np.eye(2), np.zeros(2), np.zeros(2))
    got = metrics.aligned_trajectory_rmse(np.zeros_like(truth), truth, identity)
    assert got == pytest.approx(math.sqrt(25.0 / 12.0), rel=1e-14)


def test_aligned_rmse_does_not_see_an_affine_map() -> None:
    rng = np.random.default_rng(10)
    truth = rng.normal(size=(5, 30, 2))
    latents = truth + 0.3 * rng.normal(size=truth.shape)
    mapped = latents @ np.array([[0.0, 7.0], [-2.0, 1.0]]) + [4.0, -40.0]
    expected = metrics.aligned_trajectory_rmse(latents, truth)
    assert metrics.aligned_trajectory_rmse(mapped, truth) == pytest.approx(expected, rel=1e-10)
    # Regression onto noisy codes leaves variance 1 / (1 + 1 / 0.09) per coordinate.
    assert expected == pytest.approx(math.sqrt(0.09 / 1.09), rel=0.1)


def test_aligned_rmse_uses_the_given_map() -> None:
    rng = np.random.default_rng(11)
    train, test = rng.normal(size=(2, 4, 30, 2))
    affine = metrics.fit_affine(2.0 * train + 1.0, train)
    assert metrics.aligned_trajectory_rmse(2.0 * test + 1.0, test, affine) < 1e-12
    assert metrics.aligned_trajectory_rmse(2.0 * test, test, affine) == pytest.approx(0.5)


def test_constant_codes_score_about_one() -> None:
    truth = np.random.default_rng(12).normal(size=(35, 30, 2))
    score = metrics.aligned_trajectory_rmse(np.zeros((35, 30, 3)), truth)
    assert score == pytest.approx(np.sqrt(np.mean(np.var(truth, axis=(0, 1)))), rel=1e-12)
    assert score == pytest.approx(1.0, abs=0.06)


def test_aligned_rmse_refuses_a_map_of_other_codes() -> None:
    affine = metrics.fit_affine(np.eye(3), np.eye(3)[:, :2])
    with pytest.raises(ValueError, match=r"affine has weights of shape \(3, 2\)"):
        metrics.aligned_trajectory_rmse(np.zeros((1, 4, 2)), np.zeros((1, 4, 2)), affine)


def test_a_truth_without_points_is_refused() -> None:
    with pytest.raises(ValueError, match=r"truth has shape \(1, 0\), without any entry"):
        metrics.smse(np.zeros((1, 0)), np.zeros((1, 0)))


def test_crps_is_the_integral_of_the_squared_distance_of_distributions() -> None:
    variance = np.array([[0.5, 2.0], [1.5, NAN], [3.0, 10.0]])

    def score(truth: float, mean: float, deviation: float) -> float:
        grid = np.linspace(mean - 12.0 * deviation - 10.0, mean + 12.0 * deviation + 10.0, 400_001)
        distance = stats.norm.cdf(grid, mean, deviation) - (grid >= truth)
        return float(np.sum(distance**2) * (grid[1] - grid[0]))

    entries = np.vectorize(score)(TRUTH, PREDICTION, np.sqrt(variance))
    expected = np.mean([np.mean(entries[:, 0]), np.mean(entries[[0, 2], 1])])
    # The step at the truth lies within one cell of the grid, at most 3e-4 wide.
    assert metrics.crps(TRUTH, PREDICTION, variance) == pytest.approx(expected, abs=3e-4)


def test_crps_without_uncertainty_is_the_absolute_error() -> None:
    certain = np.full(TRUTH.shape, 1e-20)
    assert metrics.crps(TRUTH, PREDICTION, certain) == pytest.approx(
        metrics.mae(TRUTH, PREDICTION), abs=1e-9
    )
