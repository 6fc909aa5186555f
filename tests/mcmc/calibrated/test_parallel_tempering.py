"""Parallel tempering: swaps against an enumeration, bookkeeping, the law of every rung."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc import sghmc
from gpflow_bae.mcmc.calibrated import (
    langevin,
    metropolis,
    parallel_tempering,
    random_walk,
    targets,
)
from tests.mcmc.theory import mutations
from tests.mcmc.theory.assertions import assert_near

LADDERS = {2: (1.0, 2.5), 3: (1.0, 2.0, 5.0), 4: (1.0, 2.0, 4.0, 8.0)}
ENERGIES = {2: [-1.3, -0.2], 3: [-1.3, -0.2, -2.1]}  # log likelihoods, of replicas 0, 1, 2


def standing(log_likelihoods: Any, temperatures: tuple[float, ...]) -> parallel_tempering.State:
    """Replicas at given log likelihoods, [E, R]; their positions are their names."""
    tempered = tf.convert_to_tensor(log_likelihoods, tf.float64)
    names = tf.broadcast_to(tf.range(tempered.shape[-1], dtype=tf.float64), tempered.shape)
    evaluation = targets.Evaluation(tempered, 0.1 * tempered, (), ())
    replicas = metropolis.State(names[..., None], evaluation, metropolis.no_counts(evaluation))
    return parallel_tempering.init(replicas, temperatures)


def seed(i: int) -> tf.Tensor:
    return tf.constant([21, i])


@pytest.mark.parametrize("num_rungs", [2, 3])
@pytest.mark.parametrize("parity", [0, 1])
def test_swaps_have_the_enumerated_probabilities(num_rungs: int, parity: int) -> None:
    # From every order of the replicas: the acceptance that the joint density of all rungs gives.
    num_ensembles, ladder = 20_000, LADDERS[num_rungs]
    energies, beta = np.array(ENERGIES[num_rungs]), 1 / np.array(ladder)
    first = 0 if parity == 0 else 1
    for order in itertools.permutations(range(num_rungs)):  # order[r]: the rung of replica r
        state = standing(np.broadcast_to(energies, [num_ensembles, num_rungs]), ladder)
        state = state._replace(
            rung=tf.broadcast_to(order, state.rung.shape), num_swaps=tf.constant(parity)
        )
        after = parallel_tempering.swap(state, seed(0)).rung.numpy()
        if first + 1 >= num_rungs:  # two rungs have no odd pair
            np.testing.assert_array_equal(after, state.rung)
            continue
        exchanged = [{first: first + 1, first + 1: first}.get(rung, rung) for rung in order]
        log_joint = np.sum(beta[list(order)] * energies)
        log_ratio = np.sum(beta[exchanged] * energies) - log_joint
        expected = min(1.0, np.exp(log_ratio))
        is_exchanged = np.all(after == exchanged, axis=1)
        assert np.all(is_exchanged | np.all(after == order, axis=1))
        error = np.sqrt(max(expected * (1 - expected), 1e-12) / num_ensembles)
        assert abs(is_exchanged.mean() - expected) < 5 * error + 1e-12


def test_swaps_alone_have_the_joint_density_of_the_orders() -> None:
    # The chain on the 6 orders of 3 replicas, by the enumeration of its 4 moves, is stationary for
    # exp(sum_r beta_rung(r) l_r); so are the ends of many runs of swaps.
    ladder, energies = LADDERS[3], np.array(ENERGIES[3])
    beta = 1 / np.array(ladder)
    orders = list(itertools.permutations(range(3)))
    weights = np.exp([np.sum(beta[list(order)] * energies) for order in orders])
    weights /= weights.sum()
    num_ensembles = 20_000
    state = standing(np.broadcast_to(energies, [num_ensembles, 3]), ladder)

    @tf.function
    def run(state: Any) -> Any:
        for i in tf.range(60):
            state = parallel_tempering.swap(state, tf.random.fold_in(seed(1), i, alg="philox"))
        return state

    rung = run(state).rung.numpy()
    for order, weight in zip(orders, weights, strict=True):
        share = np.mean(np.all(rung == order, axis=1))
        assert abs(share - weight) < 5 * np.sqrt(weight * (1 - weight) / num_ensembles)


def test_even_and_odd_pairs_by_turns() -> None:
    # The colder rung's replica has the smaller likelihood: all swaps are accepted.
    state = standing([[-40.0, -30.0, -20.0, -10.0]], LADDERS[4])
    expected = [[1, 0, 3, 2], [2, 0, 3, 1], [3, 1, 2, 0], [3, 2, 1, 0]]
    proposed = [[1, 0, 1], [1, 1, 1], [2, 1, 2], [2, 2, 2]]
    for i in range(4):
        state = parallel_tempering.swap(state, seed(i))
        np.testing.assert_array_equal(state.rung, [expected[i]])
        np.testing.assert_array_equal(state.num_proposed, [proposed[i]])
        np.testing.assert_array_equal(state.num_accepted, [proposed[i]])
        assert int(state.num_swaps) == i + 1
    np.testing.assert_array_equal(parallel_tempering.swap_rate(state), [1.0, 1.0, 1.0])
    names = parallel_tempering.by_rung(state.replicas.position, state)
    np.testing.assert_array_equal(names[0, :, 0], [3, 2, 1, 0])


@pytest.mark.parametrize("num_rungs", [2, 3, 4])
def test_rungs_stay_a_permutation_and_positions_stay_put(num_rungs: int) -> None:
    rng = np.random.default_rng(num_rungs)
    before = state = standing(rng.normal(size=[5, 7, num_rungs]), LADDERS[num_rungs])
    for i in range(20):
        state = parallel_tempering.swap(state, seed(i))
        np.testing.assert_array_equal(
            np.sort(state.rung, axis=-1), np.broadcast_to(np.arange(num_rungs), state.rung.shape)
        )
        beta = parallel_tempering.inverse_temperature(state)
        np.testing.assert_array_equal(beta, (1 / np.array(LADDERS[num_rungs]))[state.rung])
        np.testing.assert_array_equal(
            parallel_tempering.by_rung(beta, state),
            np.broadcast_to(1 / np.array(LADDERS[num_rungs]), beta.shape),
        )
    assert np.any(state.rung != before.rung)
    tf.nest.map_structure(np.testing.assert_array_equal, state.replicas, before.replicas)
    assert state.num_proposed.shape == [5, 7, num_rungs - 1]
    # The ensembles swap independently.
    assert len(np.unique(np.reshape(state.rung, [35, num_rungs]), axis=0)) > 1


def test_swaps_at_equal_temperatures_are_not_counted() -> None:
    rng = np.random.default_rng(0)
    state = standing(rng.normal(size=[50, 3]), LADDERS[3])
    state = state._replace(ladder=tf.ones_like(state.ladder))
    for i in range(4):
        moved = parallel_tempering.swap(state, seed(i))
        assert np.all(np.any(moved.rung != state.rung, axis=-1))  # and are all accepted
        state = moved
    assert int(state.num_swaps) == 4
    assert np.all(state.num_proposed == 0) and np.all(state.num_accepted == 0)
    assert np.all(np.isnan(parallel_tempering.swap_rate(state)))
    # Where two of three are equal only the other pair counts.
    state = state._replace(ladder=tf.constant([1.0, 1.0, 0.5], tf.float64))
    for i in range(4):
        state = parallel_tempering.swap(state, seed(10 + i))
    np.testing.assert_array_equal(state.num_proposed, np.broadcast_to([0, 2], [50, 2]))
    rate = parallel_tempering.swap_rate(state)
    assert np.isnan(rate[0]) and 0.3 < rate[1] < 1
    assert rate[1] == np.mean(state.num_accepted[:, 1]) / 2


def test_bad_ladders_and_states_are_refused() -> None:
    position = tf.zeros([5, 3, 2])
    target = targets.target(lambda x: -tf.reduce_sum(x**2, -1))
    replicas = langevin.init(position, target)
    for temperatures, message in [
        ([1.0, 3.0, 2.0], "must be strictly increasing"),
        ([1.0, 2.0, 2.0], "must be strictly increasing"),
        ([2.0, 3.0, 4.0], "first temperature must be 1"),
        ([1.0], "at least two"),
        ([1.0, 2.0], r"has 2 temperatures but the chains .* shape \(5, 3\).* must be 2"),
        ([1.0, 2.0, 3.0, 4.0], r"has 4 temperatures but the chains .* must be 4"),
    ]:
        with pytest.raises(ValueError, match=message):
            parallel_tempering.init(replicas, temperatures)
    alone = langevin.init(position[0, 0], targets.target(lambda x: -tf.reduce_sum(x**2)))
    with pytest.raises(ValueError, match=r"shape \(\): the last chain dimension must be 2"):
        parallel_tempering.init(alone, [1.0, 2.0])
    with pytest.raises(TypeError, match=r"only over a calibrated kernel.*got a .*sghmc\.State"):
        parallel_tempering.init(sghmc.init(position), [1.0, 2.0, 3.0])


# A Gaussian model whose rungs are known: x ~ N(0, I), and a likelihood N(y | x, 1 / 3) of each
# coordinate, y = (2, -1): at beta the precision is 1 + 3 beta, the mean 3 beta y / (1 + 3 beta).
Y = np.array([2.0, -1.0])
TEMPERATURES = (1.0, 4.0, 16.0)


def log_likelihood(x: tf.Tensor) -> tf.Tensor:
    return -1.5 * tf.reduce_sum((x - tf.constant(Y, x.dtype)) ** 2, axis=-1)


def log_prior(x: tf.Tensor) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(x**2, axis=-1)


def tempered_moments(module: Any) -> tuple[parallel_tempering.State, np.ndarray, np.ndarray]:
    """Means [E, R, 2] and second moments [E, R, 2, 2] of the rungs, averaged over paths.

    Ensembles begin at the prior's mean.
    """
    target = targets.target(log_likelihood, log_prior, with_gradient=module is not random_walk)

    @tf.function(autograph=False)
    def run() -> Any:
        def step(i: tf.Tensor, state: Any, first: tf.Tensor, second: tf.Tensor) -> Any:
            seeds = tf.unstack(tf.random.split(tf.random.fold_in(seed(2), i, alg="philox"), 2))
            beta = parallel_tempering.inverse_temperature(state)
            replicas = module.update(
                state.replicas,
                target,
                seeds[0],
                noise_scale=1.2 / tf.sqrt(1 + 3 * beta),
                inverse_temperature=beta,
            )
            state = parallel_tempering.swap(state._replace(replicas=replicas), seeds[1])
            x = parallel_tempering.by_rung(state.replicas.position, state)
            x = tf.where(i < 60, 0.0, x)
            return i + 1, state, first + x, second + x[..., :, None] * x[..., None, :]

        start = tf.zeros([1500, 3, 2])
        state = parallel_tempering.init(module.init(start, target), TEMPERATURES)
        begun = tf.constant(0), state, start, start[..., :, None] * start[..., None, :]
        _, state, first, second = tf.while_loop(lambda i, *_: i < 260, step, begun)
        return state, first / 200, second / 200

    state, first, second = run()
    return state, first.numpy().astype(float), second.numpy().astype(float)


@pytest.mark.parametrize("module", [random_walk, langevin], ids=["random_walk", "langevin"])
def test_every_rung_samples_its_own_density(module: Any) -> None:
    state, first, second = tempered_moments(module)
    for k, temperature in enumerate(TEMPERATURES):
        precision = 1 + 3 / temperature
        mean = 3 / temperature * Y / precision
        assert_near(first[:, k], mean)
        assert_near(second[:, k], np.outer(mean, mean) + np.eye(2) / precision)
    # Accepted swaps between rungs k and k + 1, from the rungs' own Gaussians.
    rng = np.random.default_rng(0)
    draws = [
        3 / t * Y / (1 + 3 / t) + rng.normal(size=[200_000, 2]) / np.sqrt(1 + 3 / t)
        for t in TEMPERATURES
    ]
    levels = [-1.5 * np.sum((x - Y) ** 2, axis=1) for x in draws]
    rate = parallel_tempering.swap_rate(state)
    for k in range(2):
        gap = 1 / TEMPERATURES[k] - 1 / TEMPERATURES[k + 1]
        expected = np.mean(np.exp(np.minimum(0, gap * (levels[k + 1] - levels[k]))))
        # 195,000 swaps, of which successive ones are correlated: about 5 standard errors.
        assert abs(rate[k] - expected) < 0.015


def test_the_wrong_sign_of_the_swap_ratio_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutations.wrong_sign_of_the_swap_ratio(monkeypatch)
    with pytest.raises(AssertionError, match="difference="):
        test_every_rung_samples_its_own_density(random_walk)
