"""Langevin proposals: the correction is the textbook's; one leapfrog step is the same kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc.calibrated import adaptive_langevin, hmc, langevin, targets

NUM_CHAINS, SIGMA, ETA = 200, 0.3, 0.02
BETA = tf.constant(0.6, tf.float64)


def log_likelihood(position: dict[str, tf.Tensor]) -> tf.Tensor:
    """a [C, 3], b [C]: coupled, not Gaussian."""
    a, b = position["a"], position["b"]
    return -tf.reduce_sum(tf.cosh(a), axis=-1) - b**2 * (1 + a[:, 0] ** 2)


def log_prior(position: dict[str, tf.Tensor]) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(position["a"] ** 2, axis=-1) - 0.5 * (position["b"] - 1) ** 2


TARGET = targets.target(log_likelihood, log_prior)


def start() -> dict[str, tf.Tensor]:
    rng = np.random.default_rng(0)
    return {
        "a": tf.constant(rng.normal(size=[NUM_CHAINS, 3])),
        "b": tf.constant(rng.normal(size=[NUM_CHAINS])),
    }


def flat(position: dict[str, tf.Tensor]) -> np.ndarray:
    return np.concatenate([position["a"], np.asarray(position["b"])[:, None]], axis=1)


def numpy_log_density(x: np.ndarray) -> np.ndarray:
    a, b = x[:, :3], x[:, 3]
    likelihood = -np.cosh(a).sum(axis=1) - b**2 * (1 + a[:, 0] ** 2)
    return float(BETA) * likelihood - 0.5 * (a**2).sum(axis=1) - 0.5 * (b - 1) ** 2


def numpy_gradient(x: np.ndarray) -> np.ndarray:
    a, b = x[:, :3], x[:, 3]
    likelihood = np.concatenate([-np.sinh(a), (-2 * b * (1 + a[:, 0] ** 2))[:, None]], axis=1)
    likelihood[:, 0] -= 2 * a[:, 0] * b**2
    return float(BETA) * likelihood - np.concatenate([a, (b - 1)[:, None]], axis=1)


def log_normal(y: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return -0.5 * np.sum((y - mean) ** 2, axis=1) / SIGMA**2


def recorded(seen: list[Any]) -> targets.TargetFn:
    def target(position: Any) -> targets.Evaluation:
        seen.append(position)
        return TARGET(position)

    return target


@pytest.mark.parametrize("learning_rate", [None, ETA])
@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_the_acceptance_ratio_is_the_textbooks(
    learning_rate: float | None, probability: float
) -> None:
    seen: list[Any] = []
    before = langevin.init(start(), TARGET)
    after = langevin.update(
        before,
        recorded(seen),
        tf.constant([8, 1]),
        noise_scale=SIGMA,
        learning_rate=learning_rate,
        inverse_temperature=BETA,
        gradient_probability=probability,
    )
    x, y = flat(before.position), flat(seen[0])
    eta = SIGMA**2 / 2 if learning_rate is None else learning_rate
    difference = numpy_log_density(y) - numpy_log_density(x)
    asymmetry = log_normal(x, y + eta * numpy_gradient(y)) - log_normal(
        y, x + eta * numpy_gradient(x)
    )
    got = after.counts.log_accept_ratio.numpy()
    # Each proposal is of one kind or of the other, and is judged as such. The noise has a variance
    # of sigma ** 2 about the mean of its own kind.
    followed = np.isclose(got, difference + asymmetry, rtol=1e-8, atol=1e-8)
    walked = np.isclose(got, difference, rtol=1e-8, atol=1e-8)
    assert np.all(followed ^ walked)
    assert (
        abs(followed.mean() - probability)
        < 5 * np.sqrt(0.25 / NUM_CHAINS) * (probability == 0.5) + 1e-12
    )
    xi = (y - x - followed[:, None] * eta * numpy_gradient(x)) / SIGMA
    assert abs(np.mean(xi**2) - 1) < 5 * np.sqrt(2 / xi.size)
    np.testing.assert_array_equal(
        seen[0]["b"][after.counts.is_accepted], after.position["b"][after.counts.is_accepted]
    )


def test_settings_per_chain() -> None:
    # Each chain is what it would be alone: noise of its own size, and its own temperature.
    scales = tf.constant(np.linspace(0.05, 1.0, NUM_CHAINS))
    betas = tf.constant(np.linspace(0.0, 1.0, NUM_CHAINS))
    state = langevin.init(start(), TARGET)
    seed = tf.constant([8, 2])
    together = langevin.update(state, TARGET, seed, noise_scale=scales, inverse_temperature=betas)
    for i in (0, 77, NUM_CHAINS - 1):
        alone = langevin.update(
            state, TARGET, seed, noise_scale=scales[i], inverse_temperature=betas[i]
        )
        np.testing.assert_array_equal(
            together.counts.log_accept_ratio[i], alone.counts.log_accept_ratio[i]
        )
        np.testing.assert_array_equal(together.position["a"][i], alone.position["a"][i])


def test_one_leapfrog_step_is_langevin() -> None:
    # One seed gives both the same noise and the same uniform.
    one, other = langevin.init(start(), TARGET), hmc.init(start(), TARGET)
    proposal = tf.function(
        lambda state, seed: langevin.update(
            state, TARGET, seed, noise_scale=0.7, inverse_temperature=BETA
        ),
        autograph=False,
    )
    leapfrog = tf.function(
        lambda state, seed: hmc.update(
            state, TARGET, seed, step_size=0.7, max_leapfrog_steps=1, inverse_temperature=BETA
        ),
        autograph=False,
    )
    for i in range(20):
        seed = tf.constant([9, i])
        one, other = proposal(one, seed), leapfrog(other, seed)
        np.testing.assert_allclose(
            one.counts.log_accept_ratio, other.counts.log_accept_ratio, rtol=1e-9, atol=1e-9
        )
    np.testing.assert_array_equal(one.counts.num_accepted, other.counts.num_accepted)
    np.testing.assert_allclose(flat(one.position), flat(other.position), rtol=1e-9, atol=1e-9)
    rate = float(tf.reduce_mean(one.counts.acceptance_rate))
    assert 0.3 < rate < 0.9


def test_hmc_is_reversible_and_draws_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    # From the end, with the momentum turned, the same number of steps leads back.
    calls: list[Any] = []
    momenta: list[Any] = []
    original = hmc.noise_like

    def noise(position: Any, seed: Any) -> Any:
        return original(position, seed) if len(momenta) == 0 else momenta[-1]

    monkeypatch.setattr(hmc, "noise_like", noise)
    lengths = set()
    for i in range(12):
        calls.clear()
        momenta.clear()
        seed = tf.constant([10, i])
        common = {"step_size": 0.2, "max_leapfrog_steps": 4, "inverse_temperature": BETA}
        begin = hmc.init(start(), TARGET)
        p = noise(begin.position, tf.unstack(tf.random.split(seed, 3, alg="philox"))[0])
        hmc.update(begin, recorded(calls), seed, **common)
        lengths.add(len(calls))
        # The momentum at the end, from the last positions: q_n - q_{n-1} = h (p_n - h/2 g(q_n)).
        ends = [begin.position, *calls]
        gradient = targets.gradient(TARGET(ends[-1]), BETA)
        momenta.append(
            tf.nest.map_structure(
                lambda q, q_before, g: -((q - q_before) / 0.2 + 0.1 * g),
                ends[-1],
                ends[-2],
                gradient,
            )
        )
        number = len(calls)
        back: list[Any] = []
        hmc.update(hmc.init(ends[-1], TARGET), recorded(back), seed, **common)
        assert len(back) == number
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9),
            back[-1],
            begin.position,
        )
        assert p["a"].shape == [NUM_CHAINS, 3]
    assert lengths == {1, 2, 3, 4}


def test_adam_statistics_follow_the_chain_until_they_are_frozen() -> None:
    state = adaptive_langevin.init(start(), TARGET)
    m = v = np.zeros([NUM_CHAINS, 4])
    eta, t = 0.05, 0
    for i in range(6):
        adapt = i < 4
        x, seen = flat(state.position), []
        state = adaptive_langevin.update(
            state,
            recorded(seen),
            tf.constant([11, i]),
            noise_scale=SIGMA,
            learning_rate=tf.constant(eta, tf.float64),
            adapt=tf.constant(adapt),
            inverse_temperature=BETA,
        )
        y = flat(seen[0])

        def drift(x: np.ndarray, m: np.ndarray = m, v: np.ndarray = v, t: int = t) -> np.ndarray:
            g = numpy_gradient(x)
            m_hat = (0.9 * m + 0.1 * g) / (1 - 0.9 ** (t + 1))
            v_hat = (0.999 * v + 0.001 * g**2) / (1 - 0.999 ** (t + 1))
            return eta * m_hat / (np.sqrt(v_hat) + 1e-8)

        expected = numpy_log_density(y) - numpy_log_density(x)
        expected += log_normal(x, y + drift(y)) - log_normal(y, x + drift(x))
        np.testing.assert_allclose(state.counts.log_accept_ratio, expected, rtol=1e-8, atol=1e-8)
        if adapt:
            g = numpy_gradient(x)
            m, v, t = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2, t + 1
        np.testing.assert_allclose(flat(state.first_moment), m, rtol=1e-10)
        np.testing.assert_allclose(flat(state.second_moment), v, rtol=1e-10)
        assert int(state.num_updates) == t
    assert t == 4


@pytest.mark.parametrize(
    "setting, value, message",
    [
        ("noise_scale", 0.0, "noise_scale must be positive"),
        ("learning_rate", -1.0, "learning_rate must be finite and not negative, got -1.0"),
        ("inverse_temperature", np.inf, "inverse_temperature must be finite"),
        ("gradient_probability", 1.1, r"gradient_probability must be in \[0, 1\], got 1.1"),
    ],
)
def test_bad_settings_are_refused(setting: str, value: float, message: str) -> None:
    state = langevin.init(start(), TARGET)
    settings = {"noise_scale": 0.1, setting: value}
    with pytest.raises(ValueError, match=message):
        langevin.update(state, TARGET, tf.constant([0, 0]), **settings)


def test_bad_settings_of_hmc_are_refused() -> None:
    state = hmc.init(start(), TARGET)
    with pytest.raises(ValueError, match="max_leapfrog_steps must be at least 1, got 0"):
        hmc.update(state, TARGET, tf.constant([0, 0]), step_size=0.1, max_leapfrog_steps=0)
    with pytest.raises(ValueError, match="step_size must be positive"):
        hmc.update(state, TARGET, tf.constant([0, 0]), step_size=0.0, max_leapfrog_steps=1)
