"""The calibrated kernel in TFP's drivers; replica exchange; what must not be wrapped is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae import mcmc
from tests.mcmc.assertions import assert_near
from tests.mcmc.densities import TWO_MODES
from tests.mcmc.harness import case_named

LADDER = mcmc.schedules.geometric_ladder(4, 12.5)


def target(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Independent normals: x [..., 2] with variances 1 and 0.25, y [...] with mean 3."""
    log_x = -0.5 * tf.reduce_sum(x**2 * tf.constant([1.0, 4.0], x.dtype), axis=-1)
    return log_x - 0.5 * tf.cast((y - 3) ** 2, x.dtype)


def start(num_chains: int = 3) -> list[tf.Tensor]:
    return [tf.ones([num_chains, 2]), tf.ones([num_chains], tf.float64)]


def sample(kernel: Any, state: Any, num_results: int, **settings: Any) -> Any:
    settings = {"trace_fn": None, **settings}

    @tf.function(autograph=False)
    def run() -> Any:
        return tfp.mcmc.sample_chain(
            num_results=num_results, current_state=state, kernel=kernel, seed=[3, 1], **settings
        )

    return run()


def test_one_step_is_the_functional_update() -> None:
    settings = {"learning_rate": 0.1, "gradient_probability": 0.7}
    kernel = mcmc.LangevinGradient(target, 0.5, **settings)
    assert kernel.is_calibrated is True
    parts_target = mcmc.targets.target(lambda parts: target(*parts))
    expected = mcmc.langevin.init(start(), parts_target)
    state, results = start(), kernel.bootstrap_results(start())
    first = results
    for i in range(6):
        seed = tf.constant([5, i])
        before = expected
        seen: list[Any] = []

        def recorded(parts: Any, seen: list[Any] = seen) -> Any:
            seen.append(parts)
            return parts_target(parts)

        expected = mcmc.langevin.update(expected, recorded, seed, noise_scale=0.5, **settings)
        state, results = kernel.one_step(state, results, seed=seed)
        pairs = [
            (state, expected.position),
            (results.target_log_prob, expected.evaluation.tempered),
            (results.grads_target_log_prob, expected.evaluation.tempered_gradient),
            (results.log_accept_ratio, expected.counts.log_accept_ratio),
            (results.is_accepted, expected.counts.is_accepted),
            (results.proposed_state, seen[0]),
            (results.proposed_results.target_log_prob, target(*seen[0])),
        ]
        for got, want in pairs:
            tf.nest.map_structure(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), got, want
            )
        assert np.all(results.is_accepted | (state[0][:, 0] == before.position[0][:, 0]))
    np.testing.assert_array_equal(results.step_size, np.float32(0.5))
    tf.nest.assert_same_structure(first, results)
    for old, new in zip(tf.nest.flatten(first), tf.nest.flatten(results), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
    copy = kernel.copy(step_size=0.01)
    assert copy.parameters == {**kernel.parameters, "step_size": 0.01}


@pytest.mark.parametrize("adaptation", ["simple", "dual averaging"])
def test_adapted_chains_have_the_moments_of_the_target(adaptation: str) -> None:
    kernel = mcmc.LangevinGradient(target, 0.05)  # far too small
    if adaptation == "simple":
        kernel = tfp.mcmc.SimpleStepSizeAdaptation(
            kernel, num_adaptation_steps=150, target_accept_prob=0.6, adaptation_rate=0.05
        )
    else:
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            kernel, num_adaptation_steps=150, target_accept_prob=0.6
        )
    (x, y), trace = sample(
        kernel,
        start(1500),
        200,
        num_burnin_steps=220,
        trace_fn=lambda _, results: (
            results.inner_results.step_size,
            results.inner_results.is_accepted,
        ),
    )
    step_size, accepted = trace
    assert np.ptp(step_size) == 0 and 0.5 < step_size[-1] < 1.2
    assert 0.5 < np.mean(accepted) < 0.7
    draws = np.concatenate([x, y.numpy()[..., None]], axis=-1) - [0, 0, 3]
    assert_near(draws.mean(axis=0), np.zeros(3))
    second = np.mean(draws[..., :, None] * draws[..., None, :], axis=0)
    assert_near(second, np.diag([1, 0.25, 1]))


def test_a_step_size_per_chain_has_ones_as_in_tfp_or_not() -> None:
    sizes = tf.constant([0.1, 0.5, 0.9])

    def one_step(size: tf.Tensor, chains: slice = slice(None)) -> Any:
        kernel = mcmc.LangevinGradient(lambda x: -tf.reduce_sum(x**2, -1), size)
        x = tf.ones([3, 2])[chains]
        return kernel.one_step(x, kernel.bootstrap_results(x), seed=[1, 1])

    plain, results = one_step(sizes)
    with_ones, others = one_step(sizes[:, None])
    np.testing.assert_array_equal(plain, with_ones)
    assert results.step_size.shape == [3] and others.step_size.shape == [3, 1]
    proposal = results.proposed_state[0]
    alone = one_step(sizes[1])[1].proposed_state[0]
    np.testing.assert_array_equal(proposal[1], alone[1])
    with pytest.raises(ValueError, match=r"scalar or one per chain, got shape \(3, 2\)"):
        one_step(tf.ones([3, 2]))
    with pytest.raises(ValueError, match="step_size must be positive"):
        one_step(0.0)  # type: ignore[arg-type]


def make_langevin(log_prob: Any) -> Any:
    scale = tf.constant(np.sqrt(LADDER), tf.float32)[:, None]
    return mcmc.LangevinGradient(log_prob, scale)


def make_random_walk(log_prob: Any) -> Any:
    scale = tf.constant(1.7 * np.sqrt(LADDER), tf.float32)[:, None, None]
    return tfp.mcmc.RandomWalkMetropolis(
        log_prob, new_state_fn=tfp.mcmc.random_walk_normal_fn(scale)
    )


def make_adapted(log_prob: Any) -> Any:
    return tfp.mcmc.SimpleStepSizeAdaptation(make_langevin(log_prob), num_adaptation_steps=50)


@pytest.mark.parametrize("make_kernel", [make_langevin, make_random_walk])
def test_replica_exchange_crosses_modes_as_parallel_tempering_does(make_kernel: Any) -> None:
    # Both begin in the lighter mode; the share of the heavier one is averaged over paths. (By
    # itself, functional tempering has passed the harness.)
    begin = tf.zeros([600, 2]) - [TWO_MODES.centre, 0.0]

    kernel = mcmc.replica_exchange(TWO_MODES.log_prob, LADDER, make_kernel)
    draws, swaps = sample(
        kernel,
        begin,
        200,
        num_burnin_steps=200,
        trace_fn=lambda _, results: (
            results.is_swap_proposed_adjacent,
            results.is_swap_accepted_adjacent,
        ),
    )
    through_tfp = np.mean(draws[..., 0] > 0, axis=0)

    error = through_tfp.std() / np.sqrt(through_tfp.size)
    assert error < 0.02
    assert abs(through_tfp.mean() - TWO_MODES.right_weight) < 5 * error
    # Deterministic even and odd rounds.
    proposed, accepted = (np.asarray(each) for each in swaps)
    np.testing.assert_array_equal(proposed[:4, :, 0], [[1, 0, 1], [0, 1, 0]] * 2)
    if make_kernel is make_random_walk:  # TFP's own kernel: that it works here is all
        return

    case = case_named("tempered_mala")

    @tf.function(autograph=False)
    def functional() -> tuple[tf.Tensor, Any]:
        sampler = case.make(TWO_MODES.log_prob, 1.0)

        def step(i: tf.Tensor, state: Any, right: tf.Tensor) -> Any:
            state = sampler.step(state, tf.random.fold_in([4, 4], i, alg="philox"))
            is_right = (sampler.position(state)[:, 0] > 0) & (i >= 200)
            return i + 1, state, right + tf.cast(is_right, tf.float32)

        begun = tf.constant(0), sampler.init(begin, tf.constant([4, 4])), tf.zeros([600])
        _, state, right = tf.while_loop(lambda i, *_: i < 400, step, begun)
        return right / 200, state

    share, state = functional()
    ours = share.numpy().astype(float)
    difference = abs(ours.mean() - through_tfp.mean())
    assert difference < 5 * np.hypot(error, ours.std() / np.sqrt(ours.size))
    rates = accepted.sum(axis=(0, 2)) / proposed.sum(axis=(0, 2))
    np.testing.assert_allclose(rates, mcmc.parallel_tempering.swap_rate(state), atol=0.03)


def test_a_likelihood_is_tempered_and_a_prior_is_not() -> None:
    # Of each rung: the Gaussian with precision 1 + 3 beta and mean 3 beta 2 / (1 + 3 beta).
    ladder = [1.0, 3.0, 9.0]
    kernel = mcmc.replica_exchange(
        lambda x: -1.5 * tf.reduce_sum((x - 2) ** 2, -1),
        ladder,
        lambda log_prob: mcmc.LangevinGradient(log_prob, tf.constant([[0.6], [0.7], [0.9]])),
        untempered_log_prob_fn=lambda x: -0.5 * tf.reduce_sum(x**2, -1),
        state_includes_replicas=True,
        swap_interval=2,
    )
    draws, proposed = sample(
        kernel,
        tf.ones([3, 800, 1]),
        150,
        num_burnin_steps=60,
        trace_fn=lambda _, results: results.is_swap_proposed_adjacent,
    )
    np.testing.assert_array_equal(proposed[:4, :, 0], [[1, 0], [0, 0], [0, 1], [0, 0]])
    for temperature, x in zip(ladder, np.moveaxis(draws, 1, 0)[..., 0].astype(float), strict=True):
        precision = 1 + 3 / temperature
        mean = 6 / temperature / precision
        assert_near(x.mean(axis=0)[:, None], np.array([mean]))
        assert_near(np.mean((x - mean) ** 2, axis=0)[:, None], np.array([1 / precision]))


@pytest.mark.parametrize("interval", [1, 2, 7, 61, 109, 1000])
def test_swaps_come_at_whole_intervals(interval: int) -> None:
    # TFP's own 1 / 61 is rounded to a period of 62.
    kernel = mcmc.replica_exchange(
        lambda x: -(x**2), [1.0, 2.0, 3.0], make_langevin, swap_interval=interval
    )
    steps = [0, 1, interval - 1, interval, 2 * interval, 3 * interval, 3 * interval + 1]
    for step in steps:
        swaps = kernel.swap_proposal_fn(3, step_count=tf.constant(step)).numpy().tolist()
        turn = [[1, 0, 2], [0, 2, 1]][(step // interval) % 2]
        assert swaps == (turn if step % interval == 0 else [0, 1, 2])


def test_bad_replica_exchange_is_refused() -> None:
    def make_sghmc(log_prob: Any) -> Any:
        return mcmc.SGHMC(log_prob, 0.1, 0.1)

    def make_wrapped(log_prob: Any) -> Any:
        return tfp.mcmc.TransformedTransitionKernel(make_sghmc(log_prob), tfp.bijectors.Exp())

    for make in (make_sghmc, make_wrapped):
        with pytest.raises(ValueError, match="exact only over a calibrated kernel"):
            mcmc.replica_exchange(lambda x: -(x**2), [1.0, 2.0], make)
    for ladder, message in [
        ([1.0], "at least two"),
        ([2.0, 1.0], "first temperature must be 1"),
        ([1.0, 3.0, 2.0], "strictly increasing"),
    ]:
        with pytest.raises(ValueError, match=message):
            mcmc.replica_exchange(lambda x: -(x**2), ladder, make_langevin)
    for interval in (0, 2.5, -1):
        with pytest.raises(ValueError, match="swap_interval must be a whole number of steps"):
            mcmc.replica_exchange(
                lambda x: -(x**2), [1.0, 2.0], make_langevin, swap_interval=interval
            )
    assert mcmc.replica_exchange(lambda x: -(x**2), [1.0, 2.0], make_adapted).is_calibrated


UNCALIBRATED = {
    "sghmc": lambda f: mcmc.SGHMC(f, 0.1, 0.1),
    "adaptive_sghmc": lambda f: mcmc.AdaptiveSGHMC(f, 0.1, 0.1, num_adaptation_steps=2),
    "sgld": lambda f: mcmc.SGLD(f, 0.1),
    "preconditioned_sgld": lambda f: mcmc.PreconditionedSGLD(f, 0.1, num_adaptation_steps=2),
    "sgnht": lambda f: mcmc.SGNHT(f, 0.1, 0.1),
}


@pytest.mark.parametrize("name", UNCALIBRATED)
def test_metropolis_hastings_over_an_uncalibrated_kernel_is_refused(name: str) -> None:
    # TFP takes a missing correction for a correction of 0, and samples something else.
    kernel = tfp.mcmc.MetropolisHastings(UNCALIBRATED[name](lambda x: -0.5 * x**2))
    with pytest.raises(ValueError, match="KernelResults are the results of a kernel without an"):
        kernel.one_step(tf.zeros([4]), kernel.bootstrap_results(tf.zeros([4])), seed=[1, 2])


def test_metropolis_hastings_is_refused_by_sample_chain_and_replica_exchange() -> None:
    def make(log_prob: Any) -> Any:
        return tfp.mcmc.MetropolisHastings(mcmc.SGHMC(log_prob, 0.1, 0.1))

    def log_prob(x: tf.Tensor) -> tf.Tensor:
        return -0.5 * x**2

    for kernel in (make(log_prob), mcmc.replica_exchange(log_prob, [1.0, 2.0], make)):
        with pytest.raises(ValueError, match=r"tfp\.mcmc\.MetropolisHastings it would\s+sample"):
            sample(kernel, tf.zeros([4]), 2)
