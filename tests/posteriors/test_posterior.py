"""The bank of samples: moments over it, imputation, and what is exported."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest

from gpflow_bae import decoders, likelihoods, models, posteriors
from gpflow_bae.data import prepare_data
from tests.posteriors.small import X_NEW, L, N, P, T, data, dense, jittered, make_model
from tests.serving import small_posteriors

# Predictions of a few samples; test_sample_loop.py asks how they are compiled.
pytestmark = pytest.mark.usefixtures("untraced")

S = 5


@pytest.fixture(scope="module")
def posterior() -> posteriors.Posterior:
    """A bank of samples that differ in everything: the model's values, jittered."""
    keras.utils.set_random_seed(0)
    model = make_model()
    history = np.arange(12.0).reshape(1, 4, 3)
    names = ("log_prior", "log_likelihood", "encoder_loss")
    trace = {name: history[..., i] for i, name in enumerate(names)}
    bank = jittered(model, (1, S), temperature=0.5, trace=trace)
    return posteriors.Posterior(model, bank, prepare_data(model, data()))


@pytest.mark.parametrize("Xnew", [None, X_NEW])
def test_predict_latent_is_the_law_of_total_variance(
    posterior: posteriors.Posterior, Xnew: np.ndarray | None
) -> None:
    """Var f = E_s Var(f | s) + Var_s E(f | s), in NumPy from the conditionals of each sample."""
    samples = posterior.latent_samples(Xnew, seed=3)
    num_points = N if Xnew is None else len(Xnew)
    assert samples.mean.shape == samples.variance.shape == (S, T, num_points, L)
    mean, variance = posterior.predict_latent(Xnew, seed=3)
    np.testing.assert_allclose(mean, samples.mean.mean(0), rtol=1e-12)
    second_moment = (samples.variance + samples.mean**2).mean(0)
    np.testing.assert_allclose(variance, second_moment - mean**2, rtol=1e-9, atol=1e-12)
    assert np.all(samples.mean.var(0) > 0), "the samples must differ"


def test_each_sample_is_consistent_in_itself(posterior: posteriors.Posterior) -> None:
    """Sample s uses its own parameters and encoder: a bank of it alone says the same."""
    everything = posterior.latent_samples(X_NEW)
    # The encoder's draws are seeded by the sample's index, so one sample must come first.
    first = posteriors.Posterior(
        posterior.model, posterior.bank.select([0]), posterior.data
    ).latent_samples(X_NEW)
    np.testing.assert_allclose(first.mean[0], everything.mean[0], rtol=1e-12)
    np.testing.assert_allclose(first.variance[0], everything.variance[0], rtol=1e-12)
    assert not np.any(everything.mean[0] == everything.mean[1])


@pytest.mark.parametrize("Xnew", [None, X_NEW])
def test_predictive_moments_of_a_linear_decoder(
    posterior: posteriors.Posterior, Xnew: np.ndarray | None
) -> None:
    """E y = E_s (W_s^T m_s + b_s); Var y = E noise_s + E W_s^2 v_s + Var_s E(y | s), in NumPy.

    v_s is the variance of the code, which at a new input is that of the latent function plus the
    code noise (a third of the total here). 32 draws of each sample's codes, half of which mirror
    the others: the mean of a linear decoder has no error but that of float32. Variances on average
    over points, whose draws are independent: 5 sqrt(2 / (16 S T N)) = 18 per cent of the part that
    the codes bring, about half of the total.
    """
    samples = posterior.latent_samples(Xnew, seed=2)
    hyperparameters = posterior.hyperparameters(include_decoder=True)
    W, b = (hyperparameters[f".decoder.weights[{i}]"].astype(float) for i in range(2))
    noise = hyperparameters[".likelihood.variance"]
    code_noise = hyperparameters[".latent_prior.code_noise_variance"]
    code_variance = samples.variance
    if Xnew is not None:
        code_variance = code_variance + code_noise[:, None, None, None]
    means = np.einsum("stnl,slp->stnp", samples.mean, W) + b[:, None, None]
    from_codes = np.einsum("stnl,slp->stnp", code_variance, W**2)

    prediction = posterior.predict(Xnew, num_codes=32, seed=2)
    np.testing.assert_allclose(prediction.mean, means.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(prediction.noise_variance, noise.mean(), rtol=1e-5)
    epistemic = from_codes.mean(0) + means.var(0)
    np.testing.assert_allclose(prediction.epistemic_variance.mean(), epistemic.mean(), rtol=0.1)


def test_variance_is_noise_plus_epistemic(posterior: posteriors.Posterior) -> None:
    """Exactly, in predict and in predict_y."""
    prediction = posterior.predict(X_NEW, seed=4)
    np.testing.assert_array_equal(
        prediction.variance, prediction.noise_variance + prediction.epistemic_variance
    )
    assert np.all(prediction.epistemic_variance > 0)
    mean, variance = posterior.predict_y(X_NEW, seed=4)
    np.testing.assert_array_equal(mean, prediction.mean)
    np.testing.assert_array_equal(variance, prediction.variance)


def test_predictions_condition_on_what_is_given(posterior: posteriors.Posterior) -> None:
    """By default the training data; another order of the tasks gives the other order."""
    X, Y = data()
    by_default = posterior.latent_samples(X_NEW)
    other = posterior.latent_samples(X_NEW, (X, Y[::-1]))

    # The encoder's noise stays with the row, 16 draws of it; the rest follows the observations.
    def correlation(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])

    assert correlation(other.mean, by_default.mean[:, ::-1]) > 0.9
    assert correlation(other.mean, by_default.mean) < 0.6  # the middle task stays where it is
    same = posterior.latent_samples(X_NEW, (X, Y))
    np.testing.assert_array_equal(same.mean, by_default.mean)
    reconstruction = posterior.reconstruct(Y, X, seed=1)
    np.testing.assert_array_equal(reconstruction.mean, posterior.predict(seed=1).mean)


def test_impute_keeps_what_was_observed(posterior: posteriors.Posterior) -> None:
    """Only NaN cells change: predictive mean and standard deviation there, 0 elsewhere."""
    X, Y = data(missing=0.3)
    filled, scale = posterior.impute(Y, X, seed=5)
    missing = np.isnan(Y)
    assert 0 < missing.sum() < missing.size
    np.testing.assert_array_equal(filled[~missing], Y[~missing])
    np.testing.assert_array_equal(scale[~missing], 0.0)
    prediction = posterior.reconstruct(Y, X, seed=5)
    np.testing.assert_array_equal(filled[missing], prediction.mean[missing])
    np.testing.assert_array_equal(scale[missing], np.sqrt(prediction.variance[missing]))
    single, single_scale = posterior.impute(Y[0], X[0])
    assert single.shape == single_scale.shape == (N, P)


def test_missing_cells_reach_the_encoder_as_zeros(posterior: posteriors.Posterior) -> None:
    """As in training, where NaN became zeros: NaN and 0 give the same codes."""
    X, Y = data(missing=0.3)
    with_nan = posterior.latent_samples(None, (X, Y))
    with_zeros = posterior.latent_samples(None, (X, np.nan_to_num(Y)))
    np.testing.assert_array_equal(with_nan.mean, with_zeros.mean)


def test_encode_draws_from_each_samples_encoder(posterior: posteriors.Posterior) -> None:
    """The network is linear: the mean of its draws is that of its weights on y, in NumPy.

    64 draws of noise with weights w: five standard errors are 5 |w| / sqrt(64) of a mean, and
    5 / sqrt(128) of a standard deviation.
    """
    _, Y = data()
    draws = posterior.encode(Y, num_draws=64)
    assert draws.shape == (S, 64, T, N, L)
    kernel, bias = posterior.encoder
    expected = np.einsum("tnp,spl->stnl", Y, kernel[:, :P]) + bias[:, None, None]
    noise = np.sqrt(np.sum(kernel[:, P:] ** 2, 1))[:, None, None]
    assert np.all(np.abs(draws.mean(1) - expected) < 5 * noise / np.sqrt(64))
    spread = draws.std(1, ddof=1) / noise
    np.testing.assert_allclose(spread, 1.0, atol=5 / np.sqrt(128))
    np.testing.assert_allclose(spread.mean(), 1.0, atol=0.03)  # all of them together


def test_to_inference_data_has_one_chain(posterior: posteriors.Posterior) -> None:
    """(chain, draw, ...) with the constrained values; the density per round beside them."""
    pytest.importorskip("arviz")
    idata = posterior.to_inference_data()
    samples = posterior.hyperparameters()
    assert set(idata.posterior.data_vars) == {path.lstrip(".") for path in samples}
    assert not any("decoder" in name for name in idata.posterior.data_vars)
    for path, values in samples.items():
        found = idata.posterior[path.lstrip(".")]
        assert found.dims[:2] == ("chain", "draw") and found.shape == (1, S, *values.shape[1:])
        np.testing.assert_array_equal(found[0], values)
    assert np.all(idata.posterior["latent_prior.kernels[0].lengthscales"] > 0)
    assert idata.posterior["latent_prior.inducing_variable.Z"].shape == (1, S, 3, 1)
    assert idata.attrs["temperature"] == 0.5
    np.testing.assert_array_equal(posterior.history, np.arange(12.0).reshape(4, 3))
    rounds = idata.round_stats
    for i, name in enumerate(["log_prior", "log_likelihood", "encoder_loss"]):
        np.testing.assert_array_equal(rounds[name], posterior.history[None, :, i])
    with_decoder = posterior.to_inference_data(include_decoder=True)
    assert with_decoder.posterior["decoder.weights[0]"].shape == (1, S, L, P)


def test_from_point_is_the_model_as_it_stands() -> None:
    """One sample, of the present values."""
    model = make_model()
    point = posteriors.Posterior.from_point(model, data())
    assert point.num_samples == 1
    prepared = posteriors.Posterior.from_point(model, prepare_data(model, data()))
    np.testing.assert_array_equal(prepared.X, point.X)
    np.testing.assert_array_equal(prepared.Y, point.Y)
    values = point.hyperparameters(include_decoder=True)
    for path, parameter in zip(model.sampled.paths, model.sampled.parameters, strict=True):
        np.testing.assert_allclose(values[path][0], parameter.numpy(), rtol=1e-12, err_msg=path)


def test_parameters_that_are_fixed_are_as_they_are_in_predictions() -> None:
    """Encoder weights alone are left; with them fixed as well there is nothing to hold."""
    model = make_model()
    free = posteriors.Posterior.from_point(model, data()).predict(seed=1)
    for part in (model.decoder, model.latent_prior, model.likelihood):
        gpflow.set_trainable(part, False)
    assert not model.sampled.paths
    fixed = posteriors.Posterior.from_point(model, data())
    assert fixed.num_samples == 1
    np.testing.assert_allclose(fixed.predict(seed=1).mean, free.mean, rtol=1e-6)
    gpflow.set_trainable(model, False)
    with pytest.raises(ValueError, match="Every parameter of this SGPBAE is fixed"):
        posteriors.Posterior.from_point(model, data())


def test_a_standard_normal_prior_predicts_itself_at_new_inputs() -> None:
    """Codes of other points say nothing: N(0, 1), and no code noise on top.

    With an identity decoder y ~ N(0, 1 + 0.2). Average over 500 points of 8 draws and their mirror
    images, whose mean is exact: five standard errors of the variance are 5 sqrt(2 / 4000) = 0.11.
    """
    decoder = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )
    model = models.BAE(
        decoders.KerasDecoder(decoder), dense(2, 1), likelihoods.Gaussian(0.2), latent_dim=1
    )
    point = posteriors.Posterior.from_point(model, prepare_data(model, (None, np.ones((1, 2, 1)))))
    prediction = point.predict(np.zeros((500, 1)), num_codes=16)
    np.testing.assert_allclose(prediction.mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(prediction.epistemic_variance.mean(), 1.0, atol=0.11)
    np.testing.assert_allclose(prediction.noise_variance, 0.2, rtol=1e-5)


def test_bad_queries_are_refused(posterior: posteriors.Posterior) -> None:
    X, Y = data()
    with pytest.raises(ValueError, match="Y holds infinity .*missing observations are NaN"):
        posterior.predict(X_NEW, (X, np.where(Y > 1, np.inf, Y)))
    with pytest.raises(ValueError, match=r"with P = 4 as in training, got \(3, 6, 3\)"):
        posterior.predict(X_NEW, (X, Y[..., :3]))
    with pytest.raises(
        ValueError, match=r"same number of tasks and points, got X of shape \(., 5, 1\)"
    ):
        posterior.predict(X_NEW, (X[:, :5], Y))
    with pytest.raises(ValueError, match="SparseGP is a prior over inputs: X is needed"):
        posterior.reconstruct(Y)


def test_tasks_that_do_not_go_together_are_refused() -> None:
    posterior = small_posteriors.variational(models.SVGPVAE)
    X, Y = small_posteriors.data(2)
    with pytest.raises(ValueError, match="Xnew must have one task, or the 1 that are conditioned"):
        posterior.predict_y(X)
    with pytest.raises(ValueError, match="same number of tasks and points, got X of shape"):
        posterior.predict_y(None, given=(X, Y[:1]))
    with pytest.raises(TypeError, match=r"given must be a pair \(X, Y\)"):
        posterior.predict_y(None, given=Y)
