"""The TFP adapters: TFP's own drivers run them, and they are the functional samplers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae import mcmc

pytestmark = pytest.mark.filterwarnings("ignore:.*is not calibrated.*")

SETTINGS = {"step_size": 0.2, "momentum_decay": 0.2}


def target(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Independent normals: x [..., 2] with variances 1 and 0.25, y [...] with mean 3."""
    log_x = -0.5 * tf.reduce_sum(x**2 * tf.constant([1.0, 4.0], x.dtype), axis=-1)
    return log_x - 0.5 * tf.cast((y - 3) ** 2, x.dtype)


def make(name: str, **settings: Any) -> tfp.mcmc.TransitionKernel:
    if name == "sghmc":
        return mcmc.SGHMC(target, **{**SETTINGS, **settings})
    return mcmc.AdaptiveSGHMC(target, **{**SETTINGS, "num_adaptation_steps": 5, **settings})


# The other families: class, settings, functional module, and what its init takes besides.
OTHERS = {
    "sgld": (mcmc.SGLD, {"step_size": 0.1}, mcmc.sgld, {}),
    "sghmc_baoab": (mcmc.SGHMC, {**SETTINGS, "integrator": "baoab"}, mcmc.sghmc, {}),
    "adaptive_sghmc_obabo": (
        mcmc.AdaptiveSGHMC,
        {**SETTINGS, "num_adaptation_steps": 3, "integrator": "obabo"},
        mcmc.adaptive_sghmc,
        {},
    ),
}


def start(num_chains: int = 3) -> list[tf.Tensor]:
    return [tf.ones([num_chains, 2]), tf.ones([num_chains], tf.float64)]


def sample(
    kernel: tfp.mcmc.TransitionKernel,
    state: Any,
    num_results: int,
    jit_compile: bool = False,
    **settings: Any,
) -> Any:
    @tf.function(jit_compile=jit_compile, autograph=False)
    def run(seed: tf.Tensor) -> Any:
        return tfp.mcmc.sample_chain(
            num_results=num_results,
            current_state=state,
            kernel=kernel,
            trace_fn=lambda _, results: results,
            return_final_kernel_results=True,
            seed=seed,
            **settings,
        )

    return run(tf.constant([0, 1]))


NAMES = pytest.mark.parametrize("name", ["sghmc", "adaptive"])


@NAMES
def test_results_keep_their_structure_and_describe_the_new_state(name: str) -> None:
    kernel = make(name)
    before = kernel.bootstrap_results(start())
    state, after = kernel.one_step(start(), before, seed=[1, 2])
    tf.nest.assert_same_structure(before, after)
    for old, new in zip(tf.nest.flatten(before), tf.nest.flatten(after), strict=True):
        assert old.dtype == new.dtype and old.shape == new.shape
    np.testing.assert_allclose(after.target_log_prob, target(*state), rtol=1e-6)
    np.testing.assert_allclose(after.grads_target_log_prob[0], -state[0] * [1.0, 4.0], rtol=1e-6)
    np.testing.assert_allclose(after.grads_target_log_prob[1], 3 - state[1], rtol=1e-6)
    assert (int(before.step), int(after.step)) == (0, 1)
    assert kernel.is_calibrated is False


@NAMES
def test_one_step_is_the_functional_update(name: str) -> None:
    module = mcmc.sghmc if name == "sghmc" else mcmc.adaptive_sghmc
    kernel = make(name)
    state, results = start(), kernel.bootstrap_results(start())
    expected = module.init(start())
    for step in range(8):
        adapt = {} if name == "sghmc" else {"adapt": step < 5}
        gradient = [-expected.position[0] * [1.0, 4.0], 3 - expected.position[1]]
        seed = tf.constant([5, step])
        expected = module.update(expected, gradient, seed, **SETTINGS, **adapt)
        state, results = kernel.one_step(state, results, seed=seed)
    for got, want in zip(state, expected.position, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    for field in expected._fields[1:]:
        for got, want in zip(getattr(results, field), getattr(expected, field), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_sample_chain_has_the_moments_of_the_target(temperature: float) -> None:
    kernel = make("sghmc", temperature=temperature)
    (x, y), _, _ = sample(kernel, start(2000), 200, num_burnin_steps=150)
    for draws, mean, precision in [
        (x[..., 0], 0.0, 1.0),
        (x[..., 1], 0.0, 4.0),
        (y, 3.0, 1.0),
    ]:
        draws = draws.numpy().astype(float) - mean
        # Exact for a Gaussian, step-size bias included (module docstring of sghmc).
        variance = temperature / (precision - 0.2**2 * precision**2 / (2 * 1.8))
        for power, expected in [(1, 0.0), (2, variance)]:
            per_chain = (draws**power).mean(axis=0)  # chains are independent
            error = per_chain.std() / np.sqrt(per_chain.size)
            assert error < 0.02 * temperature
            assert abs(per_chain.mean() - expected) < 5 * error


@NAMES
def test_one_step_draws_the_same_under_xla(name: str) -> None:
    kernel = make(name)
    results = kernel.bootstrap_results(start())
    seed = tf.constant([-5, 7])
    expected = kernel.one_step(start(), results, seed=seed)
    compiled = tf.function(kernel.one_step, jit_compile=True, autograph=False)(
        start(), results, seed=seed
    )
    for one, other in zip(tf.nest.flatten(compiled), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_sample_chain_compiles_with_xla() -> None:
    # Without noise: sample_chain splits its seed with TensorFlow's default generator, which gives
    # others in XLA, so that nobody's draws under it can be the same there.
    kernel = make("adaptive", temperature=0.0)
    plain = sample(kernel, start(), 8)[0]
    compiled = sample(kernel, start(), 8, jit_compile=True)[0]
    for one, other in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_single_tensor_is_returned_as_a_tensor() -> None:
    kernel = mcmc.SGHMC(lambda x: -0.5 * x**2, **SETTINGS)
    draws, _, _ = sample(kernel, tf.zeros([7]), 4)
    assert draws.shape == (4, 7)


@NAMES
def test_resumed_chain_is_the_same_chain(name: str) -> None:
    # Without noise, as TFP would split the seed of the second call anew. What has to survive is all
    # in the kernel results: momentum, gradient, statistics and step (5 of 20 steps adapt).
    kernel = make(name, temperature=0.0, step_size=0.05)
    whole, _, final = sample(kernel, start(), 20)
    first, _, between = sample(kernel, start(), 3)
    second, _, resumed = sample(
        kernel, [part[-1] for part in first], 17, previous_kernel_results=between
    )
    for all_draws, one, two in zip(whole, first, second, strict=True):
        np.testing.assert_allclose(np.concatenate([one, two]), all_draws, rtol=1e-6)
    for one, two in zip(tf.nest.flatten(final), tf.nest.flatten(resumed), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)
    assert int(resumed.step) == 20


def test_adaptation_ends_after_its_steps_and_is_per_chain() -> None:
    _, trace, _ = sample(make("adaptive"), start(), 10)
    statistic = trace.mean_square_gradient[0].numpy()  # [10, C, 2]
    changed = np.any(np.diff(statistic, axis=0) != 0, axis=(1, 2))
    np.testing.assert_array_equal(changed, [True] * 4 + [False] * 5)
    assert len(np.unique(statistic[-1, :, 0])) == 3


@NAMES
def test_copy_and_parameters(name: str) -> None:
    kernel = make(name, temperature=0.5)
    copy = kernel.copy(step_size=0.01)
    assert copy.parameters == {**kernel.parameters, "step_size": 0.01}
    assert type(copy) is type(kernel) and kernel.parameters["step_size"] == 0.2


@NAMES
@pytest.mark.parametrize(
    "setting, value, message",
    [
        ("step_size", 0.0, "step_size must be positive"),
        ("momentum_decay", 2.0, "momentum_decay"),
        ("temperature", -0.1, "temperature must be finite and not negative, got -0.1"),
        ("noise", "cauchy", "noise must be one of"),
    ],
)
def test_bad_settings_are_refused(name: str, setting: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(name, **{setting: value})


def test_target_that_ignores_a_part_is_refused() -> None:
    kernel = mcmc.SGHMC(lambda x, y: -tf.reduce_sum(x**2), **SETTINGS)
    with pytest.raises(ValueError, match=r"no gradient with respect to leaves \[1\]"):
        kernel.bootstrap_results([tf.zeros(2), tf.zeros(2)])


@pytest.mark.parametrize("name", OTHERS)
def test_kernel_is_the_functional_sampler(name: str) -> None:
    make_kernel, settings, module, init_settings = OTHERS[name]
    kernel = make_kernel(target, **settings)
    first = kernel.bootstrap_results(start())
    state, results = start(), first
    expected = module.init(start(), **init_settings)
    used = {k: v for k, v in settings.items() if k != "num_adaptation_steps"}
    for step in range(5):
        adapt = {"adapt": step < 3} if "num_adaptation_steps" in settings else {}
        gradient = [-expected.position[0] * [1.0, 4.0], 3 - expected.position[1]]
        seed = tf.constant([5, step])
        expected = module.update(expected, gradient, seed, **used, **adapt)
        state, results = kernel.one_step(state, results, seed=seed)
    carried = module.State(state, *(getattr(results, f) for f in module.State._fields[1:]))
    tf.nest.map_structure(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6),
        carried,
        expected,
    )
    np.testing.assert_allclose(results.target_log_prob, target(*state), rtol=1e-6)
    tf.nest.assert_same_structure(first, results)
    for old, new in zip(tf.nest.flatten(first), tf.nest.flatten(results), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
    assert (int(first.step), int(results.step)) == (0, 5)
    assert kernel.is_calibrated is False and kernel.name == kernel.parameters["name"]
    copy = kernel.copy(step_size=0.01)
    assert copy.parameters == {**kernel.parameters, "step_size": 0.01}
    with pytest.raises(ValueError, match="step_size must be positive"):
        kernel.copy(step_size=0.0)


@pytest.mark.parametrize("name", ["sghmc_baoab"])
def test_sample_chain_runs_the_other_kernels(name: str) -> None:
    make_kernel, settings, _, _ = OTHERS[name]
    draws, trace, _ = sample(make_kernel(target, **settings), start(), 6)
    assert [part.shape for part in draws] == [(6, 3, 2), (6, 3)]
    np.testing.assert_allclose(
        trace.target_log_prob, target(*(tf.convert_to_tensor(part) for part in draws)), rtol=1e-5
    )


def test_settings_may_be_schedules() -> None:
    def step_size(step: tf.Tensor) -> tf.Tensor:
        return 0.1 / (1.0 + tf.cast(step, tf.float64))

    def temperature(step: tf.Tensor) -> tf.Tensor:
        return tf.where(step < 2, tf.constant(0.0, tf.float64), 1.0)

    kernel = mcmc.SGLD(target, step_size, temperature)
    state, results = start(), kernel.bootstrap_results(start())
    expected = mcmc.sgld.init(start())
    for i in range(5):
        seed = tf.constant([5, i])
        gradient = [-expected.position[0] * [1.0, 4.0], 3 - expected.position[1]]
        expected = mcmc.sgld.update(
            expected, gradient, seed, step_size=0.1 / (1 + i), temperature=float(i >= 2)
        )
        state, results = kernel.one_step(state, results, seed=seed)
    for got, want in zip(state, expected.position, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_bad_settings_of_the_other_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="integrator must be one of"):
        mcmc.SGHMC(target, **SETTINGS, integrator="leapfrog")
    with pytest.raises(ValueError, match="subtract_gradient_noise"):
        make("adaptive", integrator="baoab", subtract_gradient_noise=True)
