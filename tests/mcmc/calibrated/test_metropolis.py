"""The accept-reject step: what is not finite is rejected and counted; detailed balance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc.calibrated import adaptive_langevin, hmc, langevin, random_walk, targets
from tests.mcmc.theory import mutations

SEED = tf.constant([4, 5])
KERNELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "random_walk": (random_walk, {"noise_scale": 1.0}),
    "langevin": (langevin, {"noise_scale": 1.0}),
    "langevin, at times": (langevin, {"noise_scale": 1.0, "gradient_probability": 0.5}),
    "adaptive_langevin": (
        adaptive_langevin,
        {"noise_scale": 1.0, "learning_rate": 0.2, "adapt": True},
    ),
    "hmc": (hmc, {"step_size": 0.6, "max_leapfrog_steps": 3}),
}
kernels = pytest.mark.parametrize("name", KERNELS)


@tf.custom_gradient
def normal_with_bad_gradient_on_the_right(x: tf.Tensor) -> Any:
    """log N(x | 0, I), [C, D] to [C]; the gradient is NaN where x_0 > 1, infinite below -1."""

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        bad = tf.where(x[:, :1] > 1, np.nan, tf.where(x[:, :1] < -1, np.inf, 0.0))
        return upstream[:, None] * (-x + tf.cast(bad, x.dtype))

    return -0.5 * tf.reduce_sum(x**2, axis=-1), gradient


def normal_that_is(value: float) -> Any:
    """log N(x | 0, I), but ``value`` where x_0 > 1."""

    def log_prob(x: tf.Tensor) -> tf.Tensor:
        return tf.where(x[:, 0] > 1, tf.constant(value, x.dtype), normal(x))

    return log_prob


def normal(x: tf.Tensor) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(x**2, axis=-1)


def box(x: tf.Tensor) -> tf.Tensor:
    """log N(x | 0, I) where |x_0| < 1 and x_1 < 1; infinite, minus infinite or NaN beyond."""
    value = tf.where(x[:, 0] > 1, np.inf, tf.where(x[:, 0] < -1, -np.inf, normal(x)))
    return tf.where(x[:, 1] > 1, np.nan, value)


def run(name: str, target: targets.TargetFn, num_steps: int = 25) -> tuple[Any, list[Any]]:
    """The last state of 300 chains from the origin, and the states on the way."""
    module, settings = KERNELS[name]
    update = tf.function(
        lambda state, seed: module.update(state, target, seed, **settings), autograph=False
    )
    states = [module.init(tf.zeros([300, 2]), target)]
    for i in range(num_steps):
        states.append(update(states[-1], tf.random.fold_in(SEED, i, alg="philox")))
    return states[-1], states


@kernels
def test_a_density_that_is_not_finite_is_rejected_and_counted(name: str) -> None:
    # Part of the proposals fall out of the box; the truncated normal is what is left.
    state, states = run(name, targets.target(box, with_gradient=name != "random_walk"))
    assert_only_finite_were_accepted(states)
    counts = state.counts
    assert np.all(counts.num_proposed == 25) and np.sum(counts.num_nonfinite) > 300
    x = np.asarray(state.position)
    assert np.all(np.abs(x[:, 0]) <= 1) and np.all(x[:, 1] <= 1)
    assert np.mean(counts.num_accepted) > 5


def assert_only_finite_were_accepted(states: list[Any]) -> None:
    for before, after in zip(states[:-1], states[1:], strict=True):
        old, new = before.counts, after.counts
        rejected = np.asarray(new.num_nonfinite - old.num_nonfinite, bool)
        np.testing.assert_array_equal(np.isneginf(new.log_accept_ratio), rejected)
        assert not np.any(new.is_accepted.numpy() & rejected)
        np.testing.assert_array_equal(after.position[rejected], before.position[rejected])
        np.testing.assert_array_equal(new.num_accepted - old.num_accepted, new.is_accepted)
        for leaf in tf.nest.flatten((after.position, after.evaluation)):
            assert np.all(np.isfinite(leaf))


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "random_walk"])
def test_a_gradient_that_is_not_finite_is_rejected_and_counted(name: str) -> None:
    state, states = run(name, targets.target(normal_with_bad_gradient_on_the_right))
    assert_only_finite_were_accepted(states)
    assert np.sum(state.counts.num_nonfinite) > 300
    assert np.max(np.abs(state.position[:, 0])) <= 1 and np.mean(state.counts.num_accepted) > 5


def test_what_is_not_finite_is_counted_exactly() -> None:
    # One step from the origin, of known numbers: the proposals are the noise itself.
    target = targets.target(normal_that_is(np.inf), with_gradient=False)
    seen = []

    def recorded(x: tf.Tensor) -> targets.Evaluation:
        seen.append(x.numpy())
        return target(x)

    state = random_walk.update(
        random_walk.init(tf.zeros([300, 2]), target), recorded, SEED, noise_scale=1.0
    )
    np.testing.assert_array_equal(state.counts.num_nonfinite, seen[0][:, 0] > 1)
    assert 30 < np.sum(state.counts.num_nonfinite) < 65  # 300 (1 - Phi(1)) = 47.6
    inside = seen[0][:, 0] <= 1
    np.testing.assert_allclose(
        state.counts.log_accept_ratio[inside],
        -0.5 * np.sum(seen[0][inside] ** 2, axis=-1),
        rtol=1e-6,
    )


@kernels
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_an_initial_position_without_a_finite_density_is_refused(name: str, value: float) -> None:
    module, _ = KERNELS[name]
    position = tf.constant([[0.0, 0.0], [2.0, 0.0], [3.0, 1.0]])
    with pytest.raises(
        ValueError, match=r"log likelihood is not finite .* of 2 chain.*the first at \[\(1,\), \(2,"
    ):
        module.init(position, targets.target(normal_that_is(value)))
    with pytest.raises(ValueError, match="log prior is not finite .* of 2 chain"):
        module.init(position, targets.target(normal, normal_that_is(value)))


def test_an_initial_position_without_a_finite_gradient_is_refused() -> None:
    # The density is finite there, but no proposal is: the chain would stay for ever.
    position = tf.constant([[0.0, 0.0], [0.5, 0.0], [3.0, 1.0]])
    with pytest.raises(
        ValueError, match=r"likelihood's gradient is not finite .* 1 chain.*at \[\(2,\)\]"
    ):
        langevin.init(position, targets.target(normal_with_bad_gradient_on_the_right))
    with pytest.raises(ValueError, match="log prior's gradient is not finite"):
        hmc.init(
            position,
            targets.target(
                lambda x: -tf.reduce_sum(x**2, -1), normal_with_bad_gradient_on_the_right
            ),
        )
    random_walk.init(position, targets.target(lambda x: x[:, 0], with_gradient=False))


# Detailed balance on a grid, with the proposals' densities computed by NumPy.

BETA, SIGMA, ETA = 0.7, 0.8, 0.2
GRID = np.linspace(-2.5, 3.0, 23)
FIRST_MOMENT, SECOND_MOMENT, NUM_UPDATES = 0.4, 1.7, 3


def log_likelihood(x: Any) -> Any:
    return -0.25 * x**4 + 0.6 * x**3 - 0.5 * x


def log_prior(x: Any) -> Any:
    return -0.5 * (x - 0.3) ** 2


def uphill(x: np.ndarray) -> np.ndarray:
    return BETA * (-(x**3) + 1.8 * x**2 - 0.5) - (x - 0.3)


def adam(x: np.ndarray) -> np.ndarray:
    g, t = uphill(x), NUM_UPDATES + 1
    m_hat = (0.9 * FIRST_MOMENT + 0.1 * g) / (1 - 0.9**t)
    v_hat = (0.999 * SECOND_MOMENT + 0.001 * g**2) / (1 - 0.999**t)
    return ETA * m_hat / (np.sqrt(v_hat) + 1e-8)


# What is added to the position before the noise, as NumPy has it.
DRIFTS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "random_walk": (random_walk, {"noise_scale": SIGMA}, np.zeros_like),
    "mala": (langevin, {"noise_scale": SIGMA}, lambda x: SIGMA**2 / 2 * uphill(x)),
    "langevin": (
        langevin,
        {"noise_scale": SIGMA, "learning_rate": ETA},
        lambda x: ETA * uphill(x),
    ),
    "langevin, random walk": (
        langevin,
        {"noise_scale": SIGMA, "gradient_probability": 0.0},
        np.zeros_like,
    ),
    "adaptive_langevin": (
        adaptive_langevin,
        {"noise_scale": SIGMA, "learning_rate": ETA, "adapt": False},
        adam,
    ),
    "hmc of one step": (
        hmc,
        {"step_size": SIGMA, "max_leapfrog_steps": 1},
        lambda x: SIGMA**2 / 2 * uphill(x),
    ),
}


def log_ratios(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """log r(x_i -> x_j) as the kernel has it, and log q(x_j | x_i): [G, G] each."""
    module, settings, drift = DRIFTS[name]
    x, y = (each.reshape(-1) for each in np.meshgrid(GRID, GRID, indexing="ij"))
    xi = (y - x - drift(x)) / SIGMA
    owner = module if hasattr(module, "noise_like") else langevin
    monkeypatch.setattr(owner, "noise_like", lambda *_: tf.constant(xi[:, None]))
    target = targets.target(lambda x: log_likelihood(x)[:, 0], lambda x: log_prior(x)[:, 0])
    state = module.init(tf.constant(x[:, None]), target)
    if module is adaptive_langevin:
        filled = tf.ones_like(state.position)
        state = state._replace(
            first_moment=FIRST_MOMENT * filled,
            second_moment=SECOND_MOMENT * filled,
            num_updates=tf.constant(NUM_UPDATES),
        )
    exact = {k: tf.constant(v, tf.float64) if k in FLOATS else v for k, v in settings.items()}
    after = module.update(
        state, target, SEED, inverse_temperature=tf.constant(BETA, tf.float64), **exact
    )
    moved = after.counts.is_accepted.numpy()
    np.testing.assert_allclose(after.position[moved][:, 0], y[moved], rtol=0, atol=1e-12)
    shape = [GRID.size, GRID.size]
    log_q = -0.5 * xi**2 - np.log(SIGMA * np.sqrt(2 * np.pi))
    return after.counts.log_accept_ratio.numpy().reshape(shape), log_q.reshape(shape)


FLOATS = ("noise_scale", "learning_rate", "step_size", "gradient_probability")


@pytest.mark.parametrize("name", DRIFTS)
def test_detailed_balance_on_a_grid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log_r, log_q = log_ratios(name, monkeypatch)
    log_pi = BETA * log_likelihood(GRID) + log_prior(GRID)
    textbook = (log_pi[None, :] - log_pi[:, None]) + (log_q.T - log_q)
    np.testing.assert_allclose(log_r, textbook, rtol=1e-10, atol=1e-10)
    # The flux from i to j is the one from j to i.
    flux = np.exp(log_pi[:, None] + log_q + np.minimum(log_r, 0))
    assert flux.max() > 0.1
    np.testing.assert_allclose(flux, flux.T, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", ["mala", "langevin", "adaptive_langevin"])
def test_detailed_balance_fails_with_the_wrong_sign(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutations.wrong_sign_of_the_asymmetry(monkeypatch)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_detailed_balance_on_a_grid(name, monkeypatch)


def test_the_correction_keeps_its_digits_in_many_dimensions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In a million dimensions the two squared distances are near 1e6, where neighbouring float32
    # numbers are 0.06 apart; written with s = 4e-4, what they differ by is a sum of small numbers.
    sigma, drift = 0.5, 1e-4
    xi = np.random.default_rng(0).normal(size=[1, 1_000_000]).astype(np.float32)
    monkeypatch.setattr(langevin, "noise_like", lambda *_: tf.constant(xi))
    target = targets.target(lambda x: tf.reduce_sum(0.0 * x, -1))
    state = langevin.propose_and_accept(
        langevin.init(tf.zeros_like(xi), target),
        target,
        SEED,
        lambda _: tf.fill(xi.shape, drift),
        noise_scale=sigma,
    )
    back = xi.astype(float) + 2 * drift / sigma
    expected = 0.5 * np.sum(xi.astype(float) ** 2) - 0.5 * np.sum(back**2)
    assert abs(expected) > 0.05
    np.testing.assert_allclose(state.counts.log_accept_ratio, [expected], rtol=0, atol=1e-3)
