"""Every stochastic-gradient sampler under every sampled model, and the posterior that it must have.

The answer is the closed form of tests/reference/linear_codes.py: with decoder, kernel and
noises fixed the codes are Gaussian given the observations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference, likelihoods, mcmc, models
from gpflow_bae.data import prepare_data
from tests.inference.amortized_models import SETTINGS, L, P, network, random_data, sgp_bae
from tests.reference import linear_codes as linear

Build = Callable[[], mcmc.SamplingAlgorithm]

# Step sizes for the closed form: the codes' precision has eigenvalues A from 2.8 to 12.5, and a
# variance is too large by h^2 P A / (2 (2 - a)) at most (e A / 4 for SGLD): 3 % or less.
SAMPLERS: dict[str, Build] = {
    "sgld": lambda: mcmc.sgld.build(step_size=0.01),
    "sghmc": lambda: mcmc.sghmc.build(step_size=0.08, momentum_decay=0.1),
    "sghmc_baoab": lambda: mcmc.sghmc.build(step_size=0.1, momentum_decay=0.1, integrator="baoab"),
    "adaptive_sghmc": lambda: mcmc.adaptive_sghmc.build(step_size=0.15, momentum_decay=0.1),
    "mclmc": lambda: mcmc.mclmc.build(step_size=0.08, momentum_decay=0.1),
    # Half of the largest stable step: 1 / 12.5^1/2, where BAOAB is exact on a Gaussian.
    "from_curvature": lambda: mcmc.step_size.from_curvature(
        mcmc.sghmc.build(step_size=0.05, momentum_decay=0.05, integrator="baoab")
    ),
    "from_energy_variance": lambda: mcmc.energy_variance.from_energy_variance(
        mcmc.mclmc.build(step_size=0.02, momentum_decay=0.025)
    ),
}
FEW = dataclasses.replace(
    SETTINGS, num_sampler_steps=2, encoder=dataclasses.replace(SETTINGS.encoder, num_steps=1)
)


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential()


def cases() -> dict[str, Callable[[], tuple[Any, Any, dict[str, Any]]]]:
    """Models with data and minibatches: of points, of tasks, of points with draws, of rows."""
    Z = np.linspace(-2.0, 2.0, 3)[:, None]

    def networks() -> dict[str, Any]:
        parts = {"decoder": network(L, P), "encoder": network(2 * P, L)}
        return parts | {"likelihood": likelihoods.Gaussian(0.3), "latent_dim": L}

    return {
        "SGPBAE": lambda: (
            sgp_bae(3, "sampled"), random_data(1, 9), {"batch_size": 4, "steps_per_batch": 1},
        ),
        "GPBAE": lambda: (
            models.GPBAE(kernel(), **networks()), random_data(4, 3), {"batch_size": 2},
        ),
        "DSGPBAE": lambda: (
            models.DSGPBAE([kernel(), kernel()], [Z, Z], **networks()),
            random_data(1, 9),
            {"batch_size": 4},
        ),
        "TemperedBAE": lambda: (
            models.TemperedBAE(network(P, L), network(L, P)),
            (None, np.random.default_rng(0).random((9, P))),
            {"batch_size": 4},
        ),
    }  # fmt: skip


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("model", ["SGPBAE", "GPBAE", "DSGPBAE", "TemperedBAE"])
@pytest.mark.parametrize("sampler", ["sgld", "sghmc"])
def test_a_round_moves_what_it_saw(sampler: str, model: str) -> None:
    """All parameters move; of the codes those in a batch, and only those.

    (The default, adaptive SGHMC, is what all other tests run.)
    """
    keras.utils.set_random_seed(0)
    built, data, batches = cases()[model]()
    settings = dataclasses.replace(FEW, **batches)
    algorithm = inference.sampling_algorithm(built)(
        built, prepare_data(built, data, settings.batch_size), settings, SAMPLERS[sampler]()
    )
    before = algorithm.initial()
    after, trace = algorithm.round(before, 0)
    assert trace.finite.numpy().all()
    for path, old, new in zip(
        algorithm.sampled.paths,
        before.sampler.position.parameters,
        after.sampler.position.parameters,
        strict=True,
    ):
        assert np.all(old != new), path
    if model == "TemperedBAE":
        return
    moved = np.asarray(before.sampler.position.codes != after.sampler.position.codes)[0]
    by_item = np.moveaxis(moved, algorithm.data.axis, 0).reshape(algorithm.data.num_items, -1)
    assert np.all(by_item.all(1) == by_item.any(1)), "a code moves as a whole"
    size, steps = batches["batch_size"], FEW.num_sampler_steps
    visits = steps if "steps_per_batch" in batches else 1
    assert size <= by_item.any(1).sum() <= min(visits * size, algorithm.data.num_items)
    assert not by_item.all() or visits * size >= algorithm.data.num_items


@pytest.mark.parametrize("sampler", [mcmc.sghmc, mcmc.sghmc.build, 0.01])
def test_what_is_no_sampler_is_refused(sampler: Any) -> None:
    with pytest.raises(TypeError, match=r"sampler must be a SamplingAlgorithm, .*build\(step_size"):
        inference.sample_amortized(sgp_bae(), random_data(2, 3), sampler=sampler, warm_start=None)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_codes_have_their_exact_posterior(sampler: str) -> None:
    """Mean and variance of 1,600 codes from 40 draws each.

    The draws' mean is within its standard error of the truth: mean square of the ratio 1, which
    autocorrelation may double. A variance averaged over 200 tasks has a standard error of 1.6 %;
    the step size adds 3 %.
    """
    model = linear.fixed_model()
    settings = inference.AmortizedSettings(
        num_sampler_steps=100,
        encoder=inference.EncoderSettings(num_steps=0),
        burnin=400,
        num_samples=40,
        thinning=100,
    )
    data = (linear.X, linear.observations())
    posterior = inference.sample_amortized(
        model, data, settings, sampler=SAMPLERS[sampler](), seed=1, progress=False, warm_start=None
    )
    covariance = linear.kernel_matrix(linear.X, linear.X) + linear.CODE_NOISE * np.eye(8)
    mean, variance = linear.exact(covariance, np.diag(covariance))
    draws = posterior.latents[..., 0]  # [S, T, N]
    z = (draws.mean(0) - mean) / np.sqrt(variance / len(draws))
    assert 0.7 < np.mean(z**2) < 2.0
    np.testing.assert_allclose(draws.var(0, ddof=1).mean(0) / variance, 1.0, atol=0.03 + 3 * 0.016)


def test_all_weights_of_a_tempered_autoencoder() -> None:
    """From data to a bank of two chains, in minibatches."""
    keras.utils.set_random_seed(0)
    built, data, batches = cases()["TemperedBAE"]()
    settings = dataclasses.replace(FEW, burnin=2, num_samples=3, thinning=2, **batches)
    posterior = inference.sample_amortized(
        built,
        data,
        settings,
        sampler=SAMPLERS["sgld"](),
        num_chains=2,
        progress=False,
        warm_start=None,
    )
    assert (posterior.bank.num_chains, posterior.bank.num_samples) == (2, 3)
    assert posterior.reconstruct(data[1]).mean.shape == data[1].shape


@pytest.mark.usefixtures("untraced")
def test_a_step_size_from_curvature_is_fixed_after_burn_in_and_part_of_a_checkpoint() -> None:
    """The search is in the chain's state, which checkpoints keep whole."""
    model = sgp_bae()
    settings = dataclasses.replace(FEW, num_sampler_steps=1, burnin=1, num_samples=1, thinning=1)
    algorithm = inference.AmortizedSampling(
        model, prepare_data(model, random_data(2, 4)), settings, SAMPLERS["from_curvature"]()
    )
    state, found = algorithm.initial(), []
    for number in range(3):
        state, statistics = algorithm.round(state, number)
        found.append(statistics.step_size.numpy().item())
    assert found[0] != 0.05 and len(set(found)) == 1
    again = algorithm.restore(algorithm.arrays(state))
    for one, other in zip(tf.nest.flatten(state), tf.nest.flatten(again), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.sampler.shared["curvature"] > 0.0


@pytest.mark.usefixtures("untraced")
def test_what_a_move_owns_is_at_rest_under_mclmc_and_nothing_is_optimised() -> None:
    """Its directions are of the other parameters alone: at temperature 0 a leaf stays."""
    sampler = SAMPLERS["mclmc"]()
    model = sgp_bae()
    algorithm = inference.AmortizedSampling(
        model,
        prepare_data(model, random_data(2, 4)),
        FEW,
        sampler,
        moves=("likelihood_parameters",),
    )
    (path,) = algorithm.owned
    state, trace = algorithm.round(algorithm.initial(), 0)
    place = model.sampled.paths.index(path)
    momentum = state.sampler.elements["momentum"].parameters
    assert not np.any(momentum[place]) and np.any(momentum[place - 1])
    with pytest.raises(ValueError, match="descends at 0, and mclmc is none"):
        inference.sample_amortized(
            sgp_bae(),
            random_data(2, 3),
            FEW,
            sampler=sampler,
            warm_start=None,
            point_estimates=(".decoder",),
        )
