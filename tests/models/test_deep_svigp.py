"""DeepSVIGP against GPflow's own SVGP, and its two ways to the same bound."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_bae import inference
from gpflow_bae.base import Batch
from gpflow_bae.data import prepare_data
from gpflow_bae.likelihoods import Bernoulli, DecoderLikelihood, Gaussian
from gpflow_bae.models import SVGPVAE, VAE, DeepSVIGP

N, L, NOISE = 20, 2, 0.3
Z = np.linspace(-2.0, 2.0, 5)[:, None]


def _identity() -> keras.Model:
    model = keras.Sequential([keras.Input((L,)), keras.layers.Dense(L, use_bias=False)])
    model.set_weights([np.eye(L)])
    return model


def _tanh() -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((L,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(3)]
    )


def _data(width: int = L) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-2.0, 2.0, (N, 1)), 0)
    return X, np.sin(2.0 * X + np.arange(width)) + 0.3 * rng.normal(size=(N, width))


def _randomise(*models: gpflow.models.SVGP) -> None:
    rng = np.random.default_rng(1)
    q_mu = rng.normal(size=(len(Z), L))
    q_sqrt = np.stack([np.tril(0.3 * rng.normal(size=(5, 5))) + np.eye(5) for _ in range(L)])
    for model in models:
        model.q_mu.assign(q_mu)
        model.q_sqrt.assign(q_sqrt)


def test_with_the_identity_for_a_decoder_it_is_gpflows_svgp() -> None:
    """The same bound within 4 standard errors of 4000 draws, the same KL and predictions exactly.

    A draw's squared residual has variance 2 v^2 + 4 r^2 v per entry; the standard error of the
    bound follows from the variances of the marginals. Predictive variances are sample moments:
    4 standard errors, 4 v sqrt(2 / 4000).
    """
    X, Y = _data()
    model = DeepSVIGP(
        gpflow.kernels.SquaredExponential(), Z, _identity(), Gaussian(NOISE), L, N, num_draws=4000
    )
    plain = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Gaussian(NOISE),
        Z,
        num_latent_gps=L,
        num_data=N,
    )
    _randomise(model, plain)
    mean, variance = (v.numpy() for v in plain.predict_f(X))
    spread = 2 * variance**2 + 4 * (Y - mean) ** 2 * variance
    error = np.sqrt(np.sum(spread) / 4000) / (2 * NOISE)
    assert abs(model.elbo((X, Y)) - plain.elbo((X, Y))) < 4 * error
    np.testing.assert_allclose(model.prior_kl(), plain.prior_kl(), rtol=1e-12)
    ours, theirs = model.predict_y(X), plain.predict_y(X)
    assert np.all(np.abs(ours[0] - theirs[0]) < 5 * np.sqrt(variance / 4000))
    assert np.all(np.abs(ours[1] - theirs[1]) < 5 * variance * np.sqrt(2 / 4000))


def test_terms_are_gpflows_bound() -> None:
    """What the engine asks, averaged over 400 seeds, is ``elbo`` of the data: 4 standard errors."""
    X, Y = _data(3)
    kernel = gpflow.kernels.SquaredExponential()
    model = DeepSVIGP(kernel, Z, _tanh(), Gaussian(NOISE), L, N, num_draws=4000)
    _randomise(model)
    batch = Batch(tf.constant(X[None]), tf.constant(Y[None].astype(np.float32)), None)

    @tf.function(autograph=False)
    def bound(seed: tf.Tensor) -> tf.Tensor:
        terms = model.terms(batch, seed)
        return terms.expected_log_likelihood - terms.divergence

    values = np.array([bound(tf.constant([3, i])).numpy() for i in range(400)])
    error = values.std() * np.sqrt(1 / 400 + 1 / 4000)
    assert abs(values.mean() - model.elbo((X, Y)).numpy()) < 4 * error


def test_natural_gradients_find_the_optimum_in_one_step() -> None:
    """Conjugate (identity decoder): one step of size 1 on all data is Titsias's optimum.

    The gradient is that of one draw in a Gaussian expectation, whose mean and variance are exact
    only in expectation, so 200 small steps of 0.05 are taken; the bound then is within 0.5 nats of
    ``gpflow.models.SGPR``'s.
    """
    X, Y = _data()
    kernel = gpflow.kernels.SquaredExponential()
    model = DeepSVIGP(kernel, Z, _identity(), Gaussian(NOISE), L, N, num_draws=2000)
    for module in (model.kernel, model.likelihood, model.inducing_variable):
        gpflow.set_trainable(module, False)
    settings = inference.VariationalSettings(
        num_steps=400, prior_on_parameters=False, natural_gradient_step_size=0.05
    )
    inference.fit_variational(model, (X, Y), settings, progress=False)
    best = gpflow.models.SGPR(
        (X, Y), gpflow.kernels.SquaredExponential(), Z, noise_variance=NOISE
    ).elbo()
    reached = model.elbo((X, Y))
    assert best - 1.5 < reached < best + 0.2


def test_natural_gradients_need_a_free_posterior() -> None:
    """A model with an encoder has none: the setting is refused by name."""
    encoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2 * L)])
    model = VAE(_tanh(), encoder, Gaussian(NOISE), L)
    settings = inference.VariationalSettings(num_steps=1, natural_gradient_step_size=0.1)
    with pytest.raises(ValueError, match="VAE has no free q"):
        inference.fit_variational(model, (None, _data(3)[1]), settings, progress=False)


def test_decoder_likelihood_masks_missing_entries() -> None:
    """NaN entries drop out of the sum, and a decoder of Bernoulli logits has their moments."""
    from gpflow_bae.decoders import KerasDecoder

    likelihood = DecoderLikelihood(KerasDecoder(_tanh()), Bernoulli())
    rng = np.random.default_rng(2)
    F, Y = rng.normal(size=(4, L)), rng.integers(0, 2, (4, 3)).astype(float)
    Y[1, 2] = np.nan
    X = np.zeros((4, 1))
    logits = likelihood.decoder(F[:, None])[:, 0].numpy().astype(float)
    entries = np.where(np.isnan(Y), 0.0, Y * logits - np.logaddexp(0.0, logits))
    entries[1, 2] = 0.0
    np.testing.assert_allclose(likelihood.log_prob(X, F, Y), entries.sum(-1), rtol=1e-5)
    mean = likelihood.conditional_mean(X, F)
    np.testing.assert_allclose(mean, 1 / (1 + np.exp(-logits)), rtol=1e-5)
    with pytest.raises(ValueError, match="num_draws must be at least 1, got 0"):
        DecoderLikelihood(KerasDecoder(_tanh()), Bernoulli(), num_draws=0)


def test_the_decoder_must_take_the_codes() -> None:
    """The widths are compared when the model is made."""
    with pytest.raises(ValueError, match="decoder takes 2 inputs per point, but latent_dim is 4"):
        DeepSVIGP(gpflow.kernels.Matern32(), Z, _tanh(), Gaussian(NOISE), 4, N)


def _svgp_vae(**changes: object) -> SVGPVAE:
    keras.utils.set_random_seed(0)
    encoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2 * L)])
    arguments = {
        "kernel": gpflow.kernels.SquaredExponential(lengthscales=0.7),
        "inducing_variable": Z,
        "decoder": _tanh(),
        "encoder": encoder,
        "likelihood": Gaussian(NOISE),
        "latent_dim": L,
    }
    return SVGPVAE(**(arguments | changes))


@pytest.mark.parametrize("missing", [False, True])
def test_an_svgp_vae_without_its_encoder_says_the_same(missing: bool) -> None:
    """Proposition B.2 of Jazbec et al. (2021), to rounding: marginals anywhere, and the bound.

    Of all data together q(u) of the SVGP-VAE is the one that starts the deep SVIGP, and both bounds
    have the same expectation under equal marginals; here with the same draw of codes.
    """
    X, Y = _data(3)
    if missing:
        Y[3:6, 1] = np.nan
    model = _svgp_vae()
    deep = DeepSVIGP.from_svgp_vae(model, (X, Y))
    batch = prepare_data(model, (X, Y)).gather(None)
    new = np.linspace(-3.0, 3.0, 11)[:, None]
    encoded = model.encode(batch.X, batch.Y, batch.mask)
    expected = model.latent_prior.predict(new, batch.X, *encoded)
    for ours, theirs in zip(deep.predict_f(new), expected, strict=True):
        np.testing.assert_allclose(ours, theirs[0], rtol=1e-7, atol=1e-9)
    ours, theirs = deep.terms(batch, [1, 2]), model.terms(batch, [1, 2])
    np.testing.assert_allclose(ours.divergence, theirs.divergence, rtol=1e-6)
    assert deep.decoder is model.decoder and deep.kernel is model.latent_prior.kernels[0]
    np.testing.assert_allclose(deep.prior_kl(), theirs.divergence, rtol=1e-6)


def test_what_no_deep_svigp_starts_from() -> None:
    X, Y = _data(3)
    with pytest.raises(TypeError, match="must be a gpflow_bae.models.SVGPVAE, got VAE"):
        encoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2 * L)])
        DeepSVIGP.from_svgp_vae(VAE(_tanh(), encoder, Gaussian(NOISE), L), (X, Y))
    with pytest.raises(ValueError, match="data has 2 tasks"):
        DeepSVIGP.from_svgp_vae(_svgp_vae(), (X, np.stack([Y, Y])))
    kernel = [gpflow.kernels.SquaredExponential() for _ in range(L)]
    with pytest.raises(ValueError, match="it has 2 kernels"):
        DeepSVIGP.from_svgp_vae(_svgp_vae(kernel=kernel), (X, Y))
    with pytest.raises(ValueError, match="mean_function=Constant"):
        DeepSVIGP.from_svgp_vae(_svgp_vae(mean_function=gpflow.functions.Constant()), (X, Y))


def test_the_training_loss_is_the_bound_less_the_log_prior() -> None:
    """Of weights in float32 and hyperparameters in float64, without which GPflow's own sum fails.

    The log prior in closed form: N(0, 9 / L) of weights and N(0, 9) of biases of the hidden layer,
    N(0, 1) of those of the last, and of the noise variance v a LogNormal,
    with the Jacobian of its transform.
    """
    X, Y = _data(3)
    likelihood = Gaussian(NOISE)
    model = DeepSVIGP(gpflow.kernels.SquaredExponential(), Z, _tanh(), likelihood, L, N)
    scales = [3.0 / np.sqrt(L), 3.0, 1.0, 1.0]
    noise = likelihood.variance
    raw = noise.unconstrained_variable
    expected = stats.lognorm(1.0, scale=NOISE).logpdf(NOISE)
    for weight, scale in zip(model.decoder.weights, scales, strict=True):
        expected += stats.norm.logpdf(weight.numpy(), scale=scale).sum()
    expected += float(noise.transform.forward_log_det_jacobian(tf.identity(raw), event_ndims=0))
    np.testing.assert_allclose(model.log_prior_density(), expected, rtol=1e-6)
    loss = model.training_loss((X, Y))
    np.testing.assert_allclose(loss, -(model.elbo((X, Y)) + expected), rtol=1e-6)


def test_numbers_that_networks_cannot_hold_are_refused() -> None:
    """Their squares overflow, and the bound would be minus infinity."""
    X, Y = _data(3)
    model = DeepSVIGP(gpflow.kernels.SquaredExponential(), Z, _tanh(), Gaussian(NOISE), L, N)
    Y = np.array(Y, np.float64)
    Y.flat[0] = 1e300
    with pytest.raises(ValueError, match=r"Y holds 1e\+300, more than float32 can hold"):
        model.elbo((X, Y))
