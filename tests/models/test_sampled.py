"""The published sampled models are compositions: a prior each, and defaults."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import gpflow_bae
from gpflow_bae import inference
from gpflow_bae.base import Batch
from gpflow_bae.encoders import GaussianEncoder, StochasticEncoder
from gpflow_bae.latent_priors import GP, SparseGP, StandardNormal
from gpflow_bae.models import BAE, GPBAE, SGPBAE, SVGPVAE, State

T, N, P, L = 2, 5, 4, 2


def _dense(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def _networks() -> dict[str, object]:
    return {
        "decoder": _dense(L, P),
        "encoder": _dense(2 * P, L),
        "likelihood": gpflow_bae.likelihoods.Bernoulli(),
        "latent_dim": L,
    }


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=1.0)


def test_each_model_has_its_prior() -> None:
    """The line "prior over latent codes" of docs/design.md, section 2."""
    Z = np.linspace(-1, 1, 3)[:, None]
    assert isinstance(BAE(**_networks()).latent_prior, StandardNormal)
    assert isinstance(GPBAE(_kernel(), **_networks()).latent_prior, GP)
    integrated = SGPBAE(_kernel(), Z, **_networks()).latent_prior
    assert isinstance(integrated, SparseGP) and integrated.whitened_inducing is None
    sampled = SGPBAE(_kernel(), Z, **_networks(), inducing_outputs="sampled").latent_prior
    assert sampled.whitened_inducing.shape == (L, 3)


def test_arguments_reach_the_prior() -> None:
    """A code noise variance that is given is the prior's."""
    model = SGPBAE(_kernel(), np.zeros((1, 1)), **_networks(), code_noise_variance=0.3)
    np.testing.assert_allclose(model.latent_prior.code_noise_variance, 0.3, rtol=1e-10)
    model = GPBAE(_kernel(), **_networks(), code_noise_variance=0.3)
    np.testing.assert_allclose(model.latent_prior.code_noise_variance, 0.3, rtol=1e-10)
    assert model.latent_dim == L


def test_keras_models_are_wrapped_and_modules_are_kept() -> None:
    """N(0, 1) weights of a linear decoder, a stochastic encoder; what the user composed stays."""
    model = BAE(**_networks())
    assert isinstance(model.encoder, StochasticEncoder) and model.encoder.noise_dim == P
    for weight in model.decoder.weights:
        np.testing.assert_array_equal([weight.prior.loc, weight.prior.scale], [0.0, 1.0])
    encoder = GaussianEncoder(_dense(P, 2 * L))
    decoder = gpflow_bae.decoders.KerasDecoder(_dense(L, P), gpflow_bae.decoders.fan_in_prior())
    model = BAE(**(_networks() | {"encoder": encoder, "decoder": decoder}))
    assert model.encoder is encoder and model.decoder is decoder


def test_sgpbae_with_inducing_inputs_at_the_data_is_gpbae() -> None:
    """The same joint density of codes and observations, to 1e-6 in the GP's part.

    The decoders are one network, so their float32 terms are identical and cancel.
    """
    X = np.linspace(-3.0, 3.0, N)[:, None]
    rng = np.random.default_rng(0)
    networks = _networks()
    batch = Batch(tf.constant(X[None]), tf.constant(rng.integers(0, 2, (T, N, P)) * 1.0), None)
    latents = tf.constant(rng.normal(size=(T, N, L)))
    values = []
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=1e-10)):
        for model in (SGPBAE(_kernel(), X, **networks), GPBAE(_kernel(), **networks)):
            state = State(model.sampled.values(), latents)
            values.append(model.log_likelihood(state, batch))
    np.testing.assert_allclose(values[0], values[1], rtol=0.0, atol=1e-5)


def test_a_flat_kernel_variance_makes_gpbae_codes_independent() -> None:
    """Kernel variance to zero and code noise 1 leave N(0, I): GP-BAE is then BAE.

    The variance left is 1e-9 and the jitter 1e-6: 20 codes change by some 1e-5.
    """
    networks = _networks()
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(T, N, 1)), rng.integers(0, 2, (T, N, P)) * 1.0
    batch, latents = Batch(tf.constant(X), tf.constant(Y), None), rng.normal(size=(T, N, L))
    flat = gpflow.kernels.SquaredExponential(variance=1e-9)
    values = [
        model.log_likelihood(State(model.sampled.values(), tf.constant(latents)), batch)
        for model in (GPBAE(flat, **networks, code_noise_variance=1.0), BAE(**networks))
    ]
    np.testing.assert_allclose(values[0], values[1], rtol=0.0, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"decoder": _dense(3, P)}, ValueError, "decoder takes 3 inputs"),
        ({"encoder": _dense(2 * P, 3)}, ValueError, "encoder returns 3 code channels"),
        ({"latent_dim": 0}, ValueError, "latent_dim must be at least 1"),
        ({"decoder": keras.Sequential([keras.layers.Dense(P)])}, ValueError, "not built"),
        ({"decoder": len}, TypeError, "decoder must be a built keras.Model"),
        ({"encoder": len}, TypeError, "encoder must be a built keras.Model"),
        ({"likelihood": gpflow.likelihoods.Softmax(3)}, TypeError, "must factorise over outputs"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_parts_are_refused(change: dict, error: type[Exception], message: str) -> None:
    """One clear error of our own for each, at construction."""
    with pytest.raises(error, match=message):
        BAE(**(_networks() | change))


def _ordinal(sigma: float) -> gpflow.likelihoods.Ordinal:
    likelihood = gpflow.likelihoods.Ordinal(np.array([-1.0, 1.0]))
    likelihood.sigma.assign(sigma)
    return likelihood


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: gpflow.likelihoods.Gaussian(0.3), "variance"),
        (lambda: gpflow.likelihoods.Gaussian(scale=0.3), "scale"),
        (lambda: gpflow.likelihoods.StudentT(scale=0.3), "scale"),
        (lambda: gpflow.likelihoods.Gamma(shape=0.3), "shape"),
        (lambda: gpflow.likelihoods.Beta(scale=0.3), "scale"),
        (lambda: _ordinal(0.3), "sigma"),
    ],
)
def test_likelihoods_of_gpflow_get_the_default_prior_in_a_copy(make: object, path: str) -> None:
    """LogNormal(log 0.3, 1), as the package's own Gaussian has; yours stays without."""
    likelihood = make()
    model = BAE(**_networks() | {"likelihood": likelihood})
    own, its = (getattr(of, path) for of in (likelihood, model.likelihood.likelihood))
    assert own.prior is None and own is not its
    np.testing.assert_allclose(its, 0.3, rtol=1e-6)
    expected = stats.lognorm(1.0, scale=0.3).logpdf(0.7)
    np.testing.assert_allclose(its.prior.log_prob(np.float64(0.7)), expected, rtol=1e-6)
    assert f".likelihood.likelihood.{path}" in model.sampled.paths
    values = model.sampled.values()
    assert np.isfinite(model.sampled.log_prior(values))


def test_parameters_without_a_prior_are_named_by_their_path_when_the_model_is_made() -> None:
    kernel, networks = _kernel(), _networks()
    with pytest.raises(ValueError, match=r".latent_prior.mean_function.c of shape \(1,\) is"):
        GPBAE(kernel, **networks, mean_function=gpflow.functions.Constant(np.zeros(1)))
    fixed = gpflow.functions.Constant(np.zeros(1))
    gpflow.set_trainable(fixed, False)
    paths = GPBAE(kernel, **networks, mean_function=fixed).sampled.paths
    assert not any("mean_function" in path for path in paths)
    noisy = gpflow.likelihoods.Gaussian(variance=gpflow.functions.Constant(np.ones(1)))
    with pytest.raises(ValueError, match=r"parameter .likelihood.likelihood.variance.c of shape"):
        GPBAE(kernel, **networks | {"likelihood": noisy})


def test_a_chain_under_a_likelihood_of_gpflow_samples_its_scale() -> None:
    """From the data to samples; a variational model that is sampled gets the prior itself."""
    rng = np.random.default_rng(0)
    X, Y = np.linspace(0.0, 1.0, 12)[:, None], rng.standard_normal((12, P))
    settings = inference.AmortizedSettings(
        num_sampler_steps=2,
        encoder=inference.EncoderSettings(num_steps=1),
        burnin=2,
        num_samples=2,
        thinning=2,
    )
    student = gpflow.likelihoods.StudentT()
    networks = _networks() | {"likelihood": student}
    sampled = SGPBAE(_kernel(), X[::4], **networks)
    variational = SVGPVAE(_kernel(), X[::4], **networks | {"encoder": _dense(P, 2 * L)})
    gpflow.set_trainable(variational.latent_prior.inducing_variable, False)
    for model in (sampled, variational):
        posterior = inference.sample_amortized(
            model, (X, Y), settings, warm_start=None, progress=False
        )
        scale = posterior.hyperparameters()[".likelihood.likelihood.scale"]
        assert scale.shape == (2,) and np.ptp(scale) > 0 and (scale > 0).all()
        assert (student.scale.prior is None) == (model is sampled)
