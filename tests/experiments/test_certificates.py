"""Certificates: draws of the prior are such, and calibration sees what is wrong with a chain."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from experiments.certificates import problem, study, tempered
from experiments.common.driver import Options
from gpflow_bae.core import functional
from gpflow_bae.mcmc import sghmc
from gpflow_bae.mcmc.step_size import from_curvature

OPTIONS = Options(seed=0, jit_compile=True, progress=False)


@pytest.mark.parametrize("name", ["gp_bae", "sgp_bae"])
def test_codes_are_drawn_from_their_prior(name: str) -> None:
    """Z^T K^-1 Z is chi-squared of N degrees, and the tolerance four standard errors."""
    model = problem.build_model(name)
    X = tf.constant(problem.inputs())
    found = []
    for seed in range(100):
        truth = problem.draw_from_prior(model, seed)
        prior = model.bind([tf.constant(p) for p in truth.parameters]).latent_prior
        K = prior.code_covariance(X)[0, 0].numpy()
        codes = truth.codes[0, :, 0]
        found.append(codes @ np.linalg.solve(K, codes))
    N = problem.NUM_POINTS
    np.testing.assert_allclose(np.mean(found), N, atol=4.0 * np.sqrt(2.0 * N / 100))


@pytest.mark.parametrize("name", problem.MODELS)
def test_observations_are_outputs_and_noise(name: str) -> None:
    """The squares of (Y - f) / noise: 36 each of 60 draws have a standard error of 3 per cent."""
    model = problem.build_model(name)
    squares = []
    for seed in range(60):
        truth = problem.draw_from_prior(model, seed)
        bound = model.bind([tf.constant(p) for p in truth.parameters])
        F = bound.decode(None, tf.constant(truth.codes))
        squares.append(np.square(truth.Y - F) / bound.likelihood.moments(F)[1])
    np.testing.assert_allclose(np.mean(squares), 1.0, atol=0.12)


def test_calibration_sees_a_temperature_that_is_not_1() -> None:
    """At temperature 4 posteriors are twice as wide, and the truth is never in their tails."""
    plan = dataclasses.replace(study.make_plan("bae"), num_replicates=24)
    hot = from_curvature(sghmc.build(0.01, 0.02, temperature=4.0, integrator="baoab"))
    for sampler, least, most in ((plan.sampler, 0.01, 1.0), (hot, 0.0, 1e-3)):
        ranks, coverage, names = study._calibration(
            dataclasses.replace(plan, sampler=sampler), OPTIONS
        )
        p_values = [study._p_value(r, plan.schedule.num_samples) for r in ranks.T]
        assert ranks.shape == (24, len(names))
        assert least <= min(1.0, len(names) * min(p_values)) <= most
        assert coverage == pytest.approx(0.9 if sampler is plan.sampler else 1.0, abs=0.05)


def test_p_values_are_those_of_uniform_ranks() -> None:
    """Of 50 ranks five go into each of ten bins."""
    assert study._p_value(np.arange(50), 49) == 1.0
    assert study._p_value(np.repeat([24, 25], 25), 49) < 1e-6


def test_nuts_sees_the_density_of_a_tempered_bae() -> None:
    """Rows given their own codes, by NumPy, and the model's prior."""
    model, Y = tempered.build_model(0), tempered.rows(0)
    density, like = tempered.log_joint(model, Y)
    values = [v + 0.1 for v in like]
    constrained = model.sampled.constrained(values)
    w, b, v, c, variance = (np.asarray(constrained[path]) for path in model.sampled.paths)
    F = np.tanh(Y @ w + b) @ v + c
    expected = stats.norm.logpdf(Y, F, np.sqrt(variance)).sum() + model.sampled.log_prior(values)
    vector = functional.flatten(values)
    np.testing.assert_allclose(density(vector[None]), [expected], rtol=1e-10)
