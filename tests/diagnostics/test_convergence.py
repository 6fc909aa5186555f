"""R-hat and effective sample sizes against theory, in function and weight space."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from gpflow_bae import diagnostics
from tests.diagnostics.chains import C, S, independent

arviz = pytest.importorskip("arviz")


def autoregressive(rho: float, num_draws: int, num_outputs: int, seed: int = 0) -> np.ndarray:
    """Stationary N(0, 1) with correlation rho between neighbours."""
    noise = np.random.default_rng(seed).standard_normal((C, num_draws, num_outputs))
    values = np.empty_like(noise)
    values[:, 0] = noise[:, 0]
    for s in range(1, num_draws):
        values[:, s] = rho * values[:, s - 1] + math.sqrt(1 - rho**2) * noise[:, s]
    return values


def largest_rhat_of_independent_chains(num_draws: int, num_outputs: int) -> float:
    """Of rank-normalised values, split: R^2 = 1 + (F - 1) / n, with F of 2 C - 1 and 2 C (n - 1).

    The bulk's and the folded one's largest of ``num_outputs``, exceeded once in a thousand times.
    """
    n = num_draws // 2
    F = stats.f.isf(1e-3 / (2 * num_outputs), 2 * C - 1, 2 * C * (n - 1))
    return math.sqrt(1 + (F - 1) / n)


# ------------------------------------------------------------------------------ R-hat


def test_rhat_of_independent_chains() -> None:
    """Between sqrt(1 - 1/n), n = 250 draws of a half, and the bound of the F distribution.

    The mean over outputs of either R-hat is 1 and its standard deviation sqrt(2 / 7) / (2 n) =
    0.001, so the larger of two is 0.0006 above 1 on average.
    """
    rhat = diagnostics.rank_normalised_rhat(independent(10, 20))
    assert rhat.shape == (10, 20)
    assert rhat.min() >= math.sqrt(1 - 1 / 250)
    assert rhat.max() < largest_rhat_of_independent_chains(S, 200)
    assert rhat.mean() == pytest.approx(1.0006, abs=0.0004)


def test_rhat_of_a_shifted_chain() -> None:
    """One chain of four moved by a standard deviation: R^2 = 1 + the variance of the means.

    The means of the 8 halves are 0 six times and 1 twice: their variance is 6 / 28. Normalising the
    ranks of the mixture bends this a little: R = 1.10 within 0.03.
    """
    values = independent(20)
    values[0] += 1.0
    rhat = diagnostics.rank_normalised_rhat(values)
    np.testing.assert_allclose(rhat, math.sqrt(1 + 6 / 28), atol=0.03)
    values[0] += 1.0  # two standard deviations: 1.36
    assert diagnostics.rank_normalised_rhat(values).min() > 1.1


def test_rhat_sees_a_difference_in_scale() -> None:
    """Which the ordinary split R-hat does not, and the folded one does."""
    values = independent()
    values[0] *= 4.0
    assert arviz.rhat(values, method="split") < 1.02
    assert diagnostics.rank_normalised_rhat(values) > 1.1


def test_stuck_chains() -> None:
    """Each at its own value: no variance within. Together they are worth a draw or so each."""
    values = np.repeat(np.arange(C)[:, None], 100, axis=1)
    assert diagnostics.rank_normalised_rhat(values) > 1e6
    assert 1 < diagnostics.effective_sample_size(values) < 2 * C
    assert 1 < diagnostics.effective_sample_size(values, "tail") < 2 * C


# -------------------------------------------------------------------------------- ESS


@pytest.mark.parametrize("method", ["bulk", "tail"])
def test_ess_of_independent_chains(method: str) -> None:
    """C S, short of up to 5 per cent: the sum of the lags is truncated where it is noise.

    One estimate scatters by 6 per cent: four standard deviations below the mean.
    """
    ess = diagnostics.effective_sample_size(independent(100), method)
    assert ess.shape == (100,)
    np.testing.assert_allclose(ess.mean(), C * S, rtol=0.07)
    assert ess.min() > 0.7 * C * S


@pytest.mark.parametrize("rho", [-0.3, 0.5, 0.9])
def test_bulk_ess_of_autoregressive_chains(rho: float) -> None:
    """N (1 - rho) / (1 + rho).

    At rho = 0.9 one estimate scatters by 10 per cent and the mean of 20 by 2.2; the tolerances are
    three standard deviations of the mean and four of one estimate.
    """
    num_draws = 2000
    ess = diagnostics.effective_sample_size(autoregressive(rho, num_draws, 20))
    expected = C * num_draws * (1 - rho) / (1 + rho)
    np.testing.assert_allclose(ess.mean(), expected, rtol=0.07)
    np.testing.assert_allclose(ess, expected, rtol=0.4)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_tail_ess_of_autoregressive_chains(rho: float) -> None:
    """N / (1 + 2 sum_t c_t), c_t = corr(1{x_0 < q}, 1{x_t < q}) from the bivariate normal, 5 %.

    The smaller of two estimates (5 and 95 per cent), each of which scatters by 15 per cent at
    rho = 0.9, lies 0.56 standard deviations below it on average: 8 per cent.
    """
    num_draws, level = 2000, 0.05
    q = stats.norm.ppf(level)
    correlations = []
    for t in range(1, 60):
        covariance = [[1.0, rho**t], [rho**t, 1.0]]
        both = stats.multivariate_normal.cdf([q, q], cov=covariance)
        correlations.append((both - level**2) / (level * (1 - level)))
    expected = C * num_draws / (1 + 2 * sum(correlations))
    ess = diagnostics.effective_sample_size(autoregressive(rho, num_draws, 20), "tail")
    np.testing.assert_allclose(ess.mean(), expected, rtol=0.15)


# -------------------------------------------------- through ArviZ, and constant outputs


def test_agrees_with_arviz_on_each_scalar() -> None:
    """To the last digit, in the outputs' places."""
    values = autoregressive(0.7, 101, 6).reshape(C, 101, 2, 3)
    rhat = diagnostics.rank_normalised_rhat(values)
    bulk = diagnostics.effective_sample_size(values)
    tail = diagnostics.effective_sample_size(values, "tail")
    for i in np.ndindex(2, 3):
        scalar = values[(..., *i)]
        assert rhat[i] == arviz.rhat(scalar, method="rank")
        assert bulk[i] == arviz.ess(scalar, method="bulk")
        assert tail[i] == arviz.ess(scalar, method="tail", prob=(0.05, 0.95))


@pytest.mark.parametrize(
    "function", [diagnostics.rank_normalised_rhat, diagnostics.effective_sample_size]
)
def test_constant_outputs_are_nan(function: Callable) -> None:
    """And change nothing for the others. The middle one of 9 draws belongs to neither half."""
    values = independent(6)
    values[..., [1, 4]] = [0.0, 0.3]
    found = function(values)
    np.testing.assert_array_equal(np.isnan(found), [False, True, False, False, True, False])
    others = [0, 2, 3, 5]
    np.testing.assert_array_equal(found[others], function(values[..., others]))
    middle = np.zeros((2, 9))
    middle[0, 4] = 1.0
    assert np.isnan(function(middle))


def test_bad_chains_are_refused() -> None:
    values = independent(3)
    with pytest.raises(ValueError, match=r"at least 2 chain\(s\) of 4 draws.*= \[1, 500\]"):
        diagnostics.rank_normalised_rhat(values[:1])
    with pytest.raises(ValueError, match=r"at least 1 chain\(s\) of 4 draws.*= \[4, 3\]"):
        diagnostics.effective_sample_size(values[:, :3])
    values[2, 7, 1] = np.nan
    values[3, 0, 0] = np.inf
    with pytest.raises(ValueError, match=r"NaN or infinity in chains \[2, 3\]"):
        diagnostics.rank_normalised_rhat(values)
    with pytest.raises(ValueError, match="method must be"):
        diagnostics.effective_sample_size(independent(), "mean")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- summaries


def network(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """One hidden layer of tanh: outputs [C, S, N] at inputs [N]."""
    hidden = np.tanh(x[:, None] * weights["W"][:, :, None] + weights["b"][:, :, None])
    return np.einsum("csnh,csh->csn", hidden, weights["V"])


def test_relabelled_hidden_units_change_weights_but_not_functions() -> None:
    """Every chain draws from one mode, relabelled by its own permutation and signs of the units.

    So the chains of a weight do not overlap, and hold a quarter of the ranks each. Their normal
    scores have the means of the normal's quarters, m: R^2 = 1 + B / W with W = 1 - mean(m^2) within
    and B = 8 / 7 mean(m^2), of two halves of each chain; R = 2.8. No more can be had of 4 chains.
    The functions are those of the mode, to rounding.
    """
    rng = np.random.default_rng(1)
    centre = {"W": [0.5, 1.5, 2.5, 3.5], "b": [-1.5, -0.5, 1.0, 2.0], "V": [1.0, 2.0, 3.0, 4.0]}
    mode = {name: c + 0.05 * rng.standard_normal((C, S, 4)) for name, c in centre.items()}
    relabelled = {name: values.copy() for name, values in mode.items()}
    for chain in range(C):
        order = np.roll(np.arange(4), chain)
        signs = rng.choice([-1.0, 1.0], size=4)
        for name, values in mode.items():
            relabelled[name][chain] = values[chain][:, order] * signs
    x = np.linspace(-2.0, 2.0, 15)

    weights = diagnostics.weight_space_diagnostics(relabelled)
    quarters = 4 * -np.diff(stats.norm.pdf(stats.norm.ppf(np.linspace(0.0, 1.0, 5))))
    between = np.mean(quarters**2)
    expected = math.sqrt(1 + 8 / 7 * between / (1 - between))
    assert expected == pytest.approx(2.8, abs=0.05)
    np.testing.assert_allclose(weights.rhat, np.full(12, expected), rtol=0.02)
    functions = diagnostics.function_space_diagnostics(network(relabelled, x))
    assert functions.rhat.max() < largest_rhat_of_independent_chains(S, 15)
    assert functions.ess_bulk.min() > 0.75 * C * S
    # Sums in another order round otherwise, which can only swap draws that all but tie.
    of_the_mode = diagnostics.function_space_diagnostics(network(mode, x))
    np.testing.assert_allclose(functions.rhat, of_the_mode.rhat, rtol=1e-6)
    assert diagnostics.weight_space_diagnostics(mode).rhat.max() < 1.02


def test_summary_of_known_values() -> None:
    """Percentiles are values themselves, the worse neighbour; NaN is left out, infinity is not."""
    hundred = np.append(np.arange(1.0, 101.0), np.nan)
    summary = diagnostics.ConvergenceDiagnostics(
        rhat=np.where(hundred > 95, np.inf, hundred),
        ess_bulk=hundred,
        ess_tail=10 * hundred,
        indices=np.arange(101),
        num_outputs=5000,
        num_chains=3,
        num_draws=40,
    )
    assert summary.num_constant == 1
    assert (summary.rhat_median, summary.rhat_q95) == (51.0, np.inf)
    assert (summary.ess_bulk_median, summary.ess_bulk_q05) == (51.0, 5.0)
    assert (summary.ess_tail_median, summary.ess_tail_q05) == (510.0, 50.0)
    assert str(summary).splitlines() == [
        "3 chains of 40 draws, 101 of 5000 scalars, 1 of them constant",
        "            median   95 % have",
        "R-hat       51.000   at most  inf",
        "bulk ESS        51   at least 5",
        "tail ESS       510   at least 50",
    ]


def test_all_outputs_constant() -> None:
    """A summary of nothing is NaN, and can be printed."""
    summary = diagnostics.function_space_diagnostics(np.ones((2, 10, 3), np.float32))
    assert summary.num_constant == 3
    assert math.isnan(summary.rhat_median) and math.isnan(summary.ess_tail_q05)
    assert "3 of 3 scalars, 3 of them constant" in str(summary)


def test_a_part_of_many_outputs() -> None:
    """A seeded choice without replacement: each is what it would be among all."""
    predictions = independent(5, 8).astype(np.float32)
    everything = diagnostics.function_space_diagnostics(predictions, max_outputs=None)
    np.testing.assert_array_equal(everything.indices, np.arange(40))
    np.testing.assert_array_equal(
        everything.rhat, diagnostics.rank_normalised_rhat(predictions).ravel()
    )
    assert (everything.num_outputs, everything.num_chains, everything.num_draws) == (40, C, S)
    part = diagnostics.function_space_diagnostics(predictions, max_outputs=10, seed=3)
    assert part.num_outputs == 40 and np.all(np.diff(part.indices) > 0)
    for name in ("rhat", "ess_bulk", "ess_tail"):
        np.testing.assert_array_equal(
            getattr(part, name), getattr(everything, name)[part.indices], err_msg=name
        )
    again = diagnostics.function_space_diagnostics(predictions, max_outputs=10, seed=3)
    other = diagnostics.function_space_diagnostics(predictions, max_outputs=10, seed=4)
    np.testing.assert_array_equal(again.indices, part.indices)
    assert np.any(other.indices != part.indices)


def test_rows_that_a_task_does_not_have_are_left_out() -> None:
    """NaN in all draws; the summary is that of the other outputs, with their indices."""
    values = np.random.default_rng(0).standard_normal((2, 20, 3, 2))
    values[:, :, 1] = np.nan
    found = diagnostics.function_space_diagnostics(values)
    others = diagnostics.function_space_diagnostics(values[:, :, [0, 2]])
    np.testing.assert_array_equal(found.rhat, others.rhat)
    np.testing.assert_array_equal(found.indices, [0, 1, 4, 5])
    assert found.num_outputs == 4
    values[0, 3, 0, 0] = np.nan
    for wrong in (values, np.full_like(values, np.nan)):
        with pytest.raises(ValueError, match="was given NaN or infinity in chains"):
            diagnostics.function_space_diagnostics(wrong)


def test_weights_lie_side_by_side() -> None:
    """In the mapping's order; a scalar parameter [C, S] is one of them."""
    values = independent(7)
    samples = {
        "W": values[..., :4].reshape(C, S, 2, 2),
        "scale": values[..., 4],
        "b": values[..., 5:],
    }
    found = diagnostics.weight_space_diagnostics(samples)
    np.testing.assert_array_equal(found.rhat, diagnostics.rank_normalised_rhat(values))
    with pytest.raises(ValueError, match="was given NaN or infinity in chains"):  # no padding
        diagnostics.weight_space_diagnostics({**samples, "other": np.full((C, S), np.nan)})
    part = diagnostics.weight_space_diagnostics(samples, max_outputs=5)
    np.testing.assert_array_equal(part.ess_tail, found.ess_tail[part.indices])


def test_bad_summaries_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'a' has \[C, S\] = \[4, 500\], 'b' has \[4, 499\]"):
        diagnostics.weight_space_diagnostics({"a": independent(2), "b": independent()[:, 1:]})
    with pytest.raises(ValueError, match="samples is empty"):
        diagnostics.weight_space_diagnostics({})
    with pytest.raises(ValueError, match="predictions hold no scalars"):
        diagnostics.function_space_diagnostics(independent(0))
    with pytest.raises(ValueError, match="max_outputs is 0"):
        diagnostics.function_space_diagnostics(independent(2), max_outputs=0)
