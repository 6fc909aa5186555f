"""Posteriors of every model can be pickled and deep-copied, and predict the same afterwards."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest

from gpflow_bae import data, decoders, encoders, inputs, likelihoods, models
from gpflow_bae.posteriors import GPLVMPosterior, Posterior
from tests.posteriors import small

N, P, L = 8, 3, 2
X = np.linspace(-2.0, 2.0, N)[:, None]
Z = np.linspace(-2.0, 2.0, 4)[:, None]


def rows() -> np.ndarray:
    Y = np.random.default_rng(5).standard_normal((N, P))
    Y[2, 1] = np.nan
    return Y


def networks(encoder_inputs: int, encoder_outputs: int, codes: int = L) -> dict[str, Any]:
    return {
        "decoder": small.dense(codes, P),
        "encoder": small.dense(encoder_inputs, encoder_outputs),
        "likelihood": likelihoods.Gaussian(0.3),
        "latent_dim": L,
    }


def point(model: Any) -> Posterior:
    return Posterior.from_point(model, (X, rows()))


def sampled(kind: type, **arguments: Any) -> Posterior:
    return point(kind(**(networks(2 * P, L) | arguments)))


def variational(kind: type, **arguments: Any) -> Posterior:
    return point(kind(**(networks(P, 2 * L) | arguments)))


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential()


def partial_encoder() -> Posterior:
    encoder = encoders.partial_encoder("pointnet", P, L)
    return variational(models.SGPVAE, encoder=encoder, kernel=kernel(), inducing_variable=Z)


def gplvm(make: Callable[..., Any]) -> GPLVMPosterior:
    rng = np.random.default_rng(0)
    encoder = encoders.FreeFormEncoder(1, N, L, rng.standard_normal((1, N, L)), 0.05)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    model = make(encoder, kernel(), rng.standard_normal((4, L)), likelihood, P)
    model.decoder.q_mu.assign(rng.standard_normal((4, P)))
    return GPLVMPosterior(model, data.prepare_data(model, (None, rows())))


POSTERIORS: dict[str, Callable[[], Any]] = {
    "SGPBAE with its codes": lambda: small.posterior(codes=True),
    "TemperedBAE": small.tempered,
    "BAE": lambda: sampled(models.BAE),
    "GPBAE": lambda: sampled(models.GPBAE, kernel=kernel()),
    "DSGPBAE": lambda: sampled(models.DSGPBAE, kernels=[kernel(), kernel()], inducing_variables=Z),
    "VAE": lambda: variational(models.VAE),
    "CVAE": lambda: variational(models.CVAE, **networks(P + 1, 2 * L, L + 1), condition_dim=1),
    "GPVAE": lambda: variational(models.GPVAE, kernel=kernel()),
    "SVGPVAE": lambda: variational(models.SVGPVAE, kernel=kernel(), inducing_variable=Z),
    "GPPVAE": lambda: variational(models.GPPVAE, kernel=kernel(), inducing_variable=Z),
    "SGPVAE with a partial encoder": partial_encoder,
    "StochasticGPLVM": lambda: gplvm(models.StochasticGPLVM),
    "FlowGPLVM": lambda: gplvm(models.FlowGPLVM),
}


def predictions(posterior: Any) -> np.ndarray:
    if isinstance(posterior, GPLVMPosterior):
        return posterior.impute()[0]
    if not isinstance(posterior, Posterior):
        return posterior.reconstruct(small.rows()).mean
    return posterior.predict(posterior.X, seed=3).mean


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_copy_predicts_the_same_to_the_bit(name: str, untraced: None) -> None:
    posterior = POSTERIORS[name]()
    expected = predictions(posterior)
    assert np.isfinite(expected).all()
    stored = pickle.dumps(posterior)
    np.testing.assert_array_equal(predictions(pickle.loads(stored)), expected)
    np.testing.assert_array_equal(predictions(copy.deepcopy(posterior)), expected)
    # A posterior that has been pickled can be used on.
    np.testing.assert_array_equal(predictions(posterior), expected)


def test_what_is_not_sampled_goes_with_it() -> None:
    """Fixed parameters, priors, transforms and which parameters are trainable."""
    model = models.TemperedBAE(small.dense(P, L), small.dense(L, P), noise_variance=0.37)
    gpflow.set_trainable(model.likelihood, False)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.likelihood.variance, model.likelihood.variance)
    assert other.sampled.paths == model.sampled.paths
    values = [v[None] for v in model.sampled.values()]
    np.testing.assert_array_equal(other.log_prior(values), model.log_prior(values))


@pytest.mark.parametrize("make", [decoders.normal_prior, decoders.fan_in_prior])
def test_weight_priors_can_be_pickled(make: Callable[[float], Any]) -> None:
    prior = make(0.7)
    other = pickle.loads(pickle.dumps(prior))
    for shape in ((3, 4), (5,)):
        assert other(shape).scale == prior(shape).scale
    assert decoders.fan_in_prior(0.7)((4, 3)).scale == np.float32(0.35)


def test_a_features_function_of_a_module_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(inputs.Condition(np.sin, 1)))._features is np.sin
