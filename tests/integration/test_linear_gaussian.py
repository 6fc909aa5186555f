"""SGP-BAE in closed form: with a linear decoder and Gaussian noise all is jointly Gaussian.

f ~ GP(0, k) for each task, latent_n = f(x_n) + code noise, y_n = W^T latent_n + noise; inducing
inputs at all data, so FITC is exact. The reference is dense NumPy over the stacked observations,
with the kernel written out: nothing of it is shared with the package. The data are drawn from the
model itself, because the encoder sees one y_n at a time and learns p(latent_n | y_n) from pairs of
them; only then are those pairs draws of the model's own joint, and pseudo-observations made of them
are the likelihood of y_n. A linear encoder has the exact family, and few weights to fit.

Settings: the codes' posterior precision has eigenvalues from 2.8 to 12.5 and the preconditioner is
about 1/3; h = 0.15 has the bias h^2 P A / (2 (2 - a)) of at most 2.7 % of a variance, and the
slowest direction forgets in some 20 steps, so samples 50 steps apart are nearly independent.
"""

import functools

import numpy as np
import pytest

from gpflow_bae import inference, mcmc, posteriors
from tests.reference.linear_codes import (
    CODE_NOISE,
    NOISE,
    VARIANCE,
    WEIGHTS,
    X,
    exact,
    fixed_model,
    kernel_matrix,
    observations,
)

NUM_SAMPLES = 40
X_NEW = np.array([[-0.7], [0.4], [2.2], [4.6], [6.0]])


@functools.cache
def posterior() -> posteriors.Posterior:
    model = fixed_model()
    settings = inference.AmortizedSettings(
        num_sampler_steps=50,
        encoder=inference.EncoderSettings(num_steps=20, learning_rate=1e-2),
        burnin=1000,
        num_samples=NUM_SAMPLES,
        thinning=50,
        codes="carried",
    )
    sampler = mcmc.adaptive_sghmc.build(step_size=0.15, momentum_decay=0.25)
    return inference.sample_amortized(
        model, (X, observations()), settings, sampler=sampler, progress=False, warm_start=None
    )


def test_sampled_codes() -> None:
    """Their mean and variance, given all observations of their task, within Monte Carlo error.

    A mean over 40 independent samples has an error of 0.158 posterior standard deviations, and over
    the tasks no bias: 5 * 0.158 / sqrt(200) = 0.056. A variance on average over the tasks, whose
    posterior covariances are the same, has one of sqrt(2 / (40 * 200)) = 1.6 %; three of those and
    the step size's 2.7 % are below 8 %.
    """
    mean, variance = exact(
        kernel_matrix(X, X) + CODE_NOISE * np.eye(len(X)), np.full(len(X), VARIANCE + CODE_NOISE)
    )
    codes = posterior().latents[..., 0]  # [S, T, N]
    error = (codes.mean(0) - mean) / np.sqrt(variance)
    assert np.sqrt(np.mean(error**2)) < 0.18
    np.testing.assert_array_less(np.abs(error.mean(0)), 0.056)
    np.testing.assert_allclose(codes.var(0, ddof=1).mean(0) / variance, 1.0, atol=0.08)


@pytest.mark.parametrize("through_encoder", [False, True])
def test_latent_predictions(through_encoder: bool) -> None:
    """The latent function at new inputs, between and beyond the data.

    Given the sampled codes, the mean over 40 samples is off by at most 0.158 standard deviations in
    root mean square, as codes are. Through the encoder the mean is within 0.1; each sample averages
    32 draws of its encoder (0.6 / sqrt(32 * 40) = 0.02 per pseudo-observation), and the encoder's
    weights are fitted on 1600 points of 200 tasks (some 2 %). Variance: within 8 %; the scatter of
    those draws, 1 / 32 of a code's variance, adds to the spread over samples.
    """
    mean, variance = exact(kernel_matrix(X_NEW, X), np.full(len(X_NEW), VARIANCE))
    given = (posterior().X, posterior().Y) if through_encoder else None
    found_mean, found_variance = posterior().predict_latent(X_NEW, given, num_draws=32)
    error = (found_mean[..., 0] - mean) / np.sqrt(variance)
    largest = 0.1 if through_encoder else 0.18
    np.testing.assert_array_less(np.sqrt(np.mean(error**2, axis=0)), largest)
    np.testing.assert_allclose(found_variance[..., 0].mean(0) / variance, 1.0, atol=0.08)


@pytest.mark.parametrize("at_new_inputs", [True, False])
def test_predicted_observations(at_new_inputs: bool) -> None:
    """y = W^T (f + code noise) + noise: mean within 0.1 standard deviations, variance within 5 %.

    At new inputs leaving out the code noise would take 12 % from the variance of the first output.
    At the data themselves the code is conditioned on its own observation too.
    """
    if at_new_inputs:
        mean, variance = exact(kernel_matrix(X_NEW, X), np.full(len(X_NEW), VARIANCE))
        variance = variance + CODE_NOISE
    else:
        code_covariance = kernel_matrix(X, X) + CODE_NOISE * np.eye(len(X))
        mean, variance = exact(code_covariance, np.diag(code_covariance))
    y_mean = mean[..., None] * WEIGHTS
    y_variance = variance[:, None] * WEIGHTS**2 + NOISE
    found_mean, found_variance = posterior().predict_y(
        X_NEW if at_new_inputs else None, num_draws=32, num_codes=8
    )
    error = (found_mean - y_mean) / np.sqrt(y_variance)
    print(np.sqrt(np.mean(error**2, axis=0)), found_variance.mean(0) / y_variance)
    np.testing.assert_array_less(np.sqrt(np.mean(error**2, axis=0)), 0.1)
    np.testing.assert_allclose(found_variance.mean(0) / y_variance, 1.0, atol=0.05)
