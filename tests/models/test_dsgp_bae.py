"""DSGP-BAE: one layer is SGP-BAE, chains draw hidden layers afresh, resume, predict."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference, likelihoods, mcmc, models
from gpflow_bae.base import Batch
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.chains import of_chain, stack_chains
from gpflow_bae.posteriors import Posterior
from gpflow_bae.serving.codes import generation_kind

N, P, L = 12, 3, 2
Z = np.linspace(-2.0, 2.0, 4)[:, None]
SETTINGS = inference.AmortizedSettings(
    num_sampler_steps=3,
    encoder=inference.EncoderSettings(num_steps=0),
    burnin=6,
    num_samples=3,
    thinning=6,
    batch_size=5,
)


def _dense(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def _kernel(variance: float = 0.5) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(variance=variance)


def _parts() -> dict[str, Any]:
    keras.utils.set_random_seed(1)
    return {
        "decoder": _dense(L, P),
        "encoder": _dense(2 * P, L),
        "likelihood": likelihoods.Gaussian(0.3),
        "latent_dim": L,
        "code_noise_variance": 0.1,
    }


def _model(num_layers: int = 2, **changes: Any) -> models.DSGPBAE:
    """Inducing outputs of all layers drawn from their priors."""
    arguments = {"kernels": [_kernel() for _ in range(num_layers)], **_parts(), **changes}
    model = models.DSGPBAE(inducing_variables=Z, **arguments)
    rng = np.random.default_rng(4)
    prior = model.latent_prior
    for layer in (prior.last_layer, *prior.hidden_layers):
        if layer.whitened_inducing is None:
            continue
        layer.whitened_inducing.assign(rng.normal(size=layer.whitened_inducing.shape))
    return model


def _data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    Y = rng.standard_normal((N, P))
    Y[rng.uniform(size=Y.shape) < 0.2] = np.nan
    return rng.uniform(-2.0, 2.0, (N, 1)), Y


def _sample(model: models.BayesianAutoencoder, **kwargs: Any) -> Posterior:
    return inference.sample_amortized(
        model,
        _data(),
        kwargs.pop("settings", SETTINGS),
        seed=3,
        progress=False,
        **({"warm_start": None} | kwargs),
    )


def _assert_equal(one: Posterior, other: Posterior) -> None:
    for a, b in zip(
        [*one.parameters, *one.encoder, one.latents, one.history],
        [*other.parameters, *other.encoder, other.latents, other.history],
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("whitened_codes", [False, True])
def test_one_layer_is_sgp_bae(whitened_codes: bool) -> None:
    """Equal densities at equal states, bit by bit; and equal chains from equal seeds."""
    deep = _model(1, whitened_codes=whitened_codes)
    shallow = models.SGPBAE(
        _kernel(), Z, **_parts(), inducing_outputs="sampled", whitened_codes=whitened_codes
    )
    shallow.latent_prior.whitened_inducing.assign(deep.latent_prior.whitened_inducing)
    data = prepare_data(deep, _data())
    codes = tf.constant(np.random.default_rng(0).normal(size=(1, N, L)))
    densities = []
    for model in (deep, shallow):
        state = models.State(model.sampled.values(), codes)
        batch, seed = data.gather(None), tf.constant([1, 2])
        densities.append([model.log_prior(state), model.log_likelihood(state, batch, seed)])
    np.testing.assert_array_equal(*densities)
    if not whitened_codes:
        _assert_equal(_sample(deep), _sample(shallow))


@pytest.mark.parametrize("whitened_codes", [False, True])
def test_every_parameter_of_every_layer_is_sampled(whitened_codes: bool) -> None:
    """All have priors (the paper's, for kernels), and the likelihood reaches each of them."""
    model = _model(3, whitened_codes=whitened_codes)
    for kernel in model.latent_prior.kernels:
        np.testing.assert_allclose(kernel.variance.prior.quantile(0.5), 0.05, rtol=1e-9)
    batch = prepare_data(model, _data()).gather(None)
    codes = tf.constant(np.random.default_rng(0).normal(size=(1, N, L)))
    state = models.State(model.sampled.values(), codes)
    assert np.isfinite(model.log_prior(state))
    with tf.GradientTape() as tape:
        tape.watch(state)
        value = model.log_likelihood(state, batch)
    for path, gradient in zip(
        [*model.sampled.paths, "codes"], tf.nest.flatten(tape.gradient(value, state)), strict=True
    ):
        assert gradient is not None and np.isfinite(gradient).all(), path
        assert np.any(gradient != 0), path


def test_the_seed_reaches_the_hidden_draws() -> None:
    """Another seed, another estimate of the same log likelihood; whitened codes too."""
    for whitened_codes in (False, True):
        model = _model(whitened_codes=whitened_codes)
        codes = tf.zeros([1, N, L], tf.float64)
        state = models.State(model.sampled.values(), codes)
        batch = prepare_data(model, _data()).gather(None)

        def value(seed: list[int] | None, batch: Batch = batch) -> float:
            seed = None if seed is None else tf.constant(seed)
            return float(model.log_likelihood(state, batch, seed))  # noqa: B023

        assert value([1, 2]) == value([1, 2]) and value(None) == value(None)
        assert len({value(None), value([1, 2]), value([1, 3])}) == 3


def test_a_chain_samples_codes_under_the_average_of_logs() -> None:
    """With all else fixed and nothing to learn from Y, p(code) ~ exp E log N(code; m, v).

    That is a normal of precision E[1/v] around E[m/v] / E[1/v], here by quadrature; 1500 points at
    one place, between inducing inputs, are as many chains. One draw kept for all steps would add
    Var[m] to their spread, 8 times and once the variance itself. Tolerances: five
    standard errors; and 10 per cent for the step size, as the noise that the draws bring to the
    gradient, of variance Var[m] / v^2 = s, heats by h^2 s / (2 a sqrt(s)), below 5 per cent here.
    """
    SquaredExponential = gpflow.kernels.SquaredExponential
    kernels = [SquaredExponential(0.2, 0.4), SquaredExponential(4.0, 2.0)]
    model = _model(kernels=kernels, code_noise_variance=0.05)
    prior = model.latent_prior
    for part in (model.decoder, prior, model.likelihood):
        gpflow.set_trainable(part, False)
    model.likelihood.variance.assign(1e6)
    count, place = 1500, 0.0
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    hidden = prior.propagate(np.full((1, 1, 1), place), [nodes[:, None, None]])
    m, v = (values.numpy()[:, 0] for values in prior.last_layer.given_inducing_outputs(hidden))
    weights /= weights.sum()
    variance = 1.0 / (weights @ (1.0 / v))
    mean = variance * (weights @ (m / v))
    spread = weights @ m**2 - (weights @ m) ** 2
    assert spread[0] > 7 * variance[0] and spread[1] > 0.9 * variance[1]
    settings = dataclasses.replace(SETTINGS, batch_size=None, num_sampler_steps=400)
    data = prepare_data(model, (np.full((count, 1), place), np.zeros((count, P))))
    sampler = mcmc.adaptive_sghmc.build(step_size=0.02)
    compiled = inference.AmortizedSampling(model, data, settings, sampler)
    chain = compiled.initial_chain(tf.constant([0, 0]), tf.zeros([1, count, L], tf.float64))
    for r in range(2):
        chains, _ = compiled.advance(
            stack_chains([chain]), tf.constant([[1, r]]), tf.constant(0), tf.constant(r == 0)
        )
        chain = of_chain(chains, 0)
    codes = chain.sampler.position.codes.numpy()[0]
    error = 5 * np.sqrt(variance / count)
    np.testing.assert_array_less(np.abs(codes.mean(0) - mean), error + 0.1 * np.sqrt(variance))
    np.testing.assert_allclose(codes.var(0), variance, rtol=5 * np.sqrt(2 / count) + 0.1)


def test_resumed_is_uninterrupted(tmp_path: pathlib.Path) -> None:
    """Taken up from its folder as it was in mid-run: bit by bit the chain that went on.

    Whitened codes, which the sample's draw of the hidden layer turns into codes.
    """

    def keep_folder(rounds: int, _: Any) -> None:
        if rounds == 4:
            shutil.copytree(tmp_path / "run", tmp_path / "copy")

    run = {"out_dir": tmp_path / "run", "checkpoint_every": 4, "callback": keep_folder}
    whole = _sample(_model(whitened_codes=True), **run)
    rounds: list[int] = []
    resumed = _sample(
        _model(whitened_codes=True),
        out_dir=tmp_path / "copy",
        resume=True,
        callback=lambda r, _: rounds.append(r),
    )
    assert rounds == [5, 6, 7, 8]
    _assert_equal(resumed, whole)
    assert np.isfinite(whole.history).all()


def test_predictions_draw_for_each_sample() -> None:
    """Deterministic for a seed; samples of equal parameters still have draws of their own."""
    model = _model()
    X, Y = _data()
    data = prepare_data(model, (X, Y))
    values = [np.repeat(v.numpy()[None], 3, 0) for v in model.sampled.values()]
    encoder = [np.repeat(v.numpy()[None], 3, 0) for v in model.amortized.variables]
    posterior = Posterior.from_arrays(model, data, values, encoder, np.zeros((3, 1, N, L)))
    Xnew = np.array([[0.5], [2.5]])
    for arguments in ((Xnew,), (Xnew, (X, Y)), (None, (X, Y))):
        one, again = (posterior.latent_samples(*arguments, seed=1) for _ in range(2))
        other = posterior.latent_samples(*arguments, seed=2)
        np.testing.assert_array_equal(one.mean, again.mean)
        assert len(np.unique([one.mean[:, 0, 0], other.mean[:, 0, 0]])) == 6
        assert np.all(one.variance > 0)
    prediction = posterior.predict(Xnew)
    assert prediction.mean.shape == (2, P) and np.all(prediction.variance > 0)
    assert np.isfinite(posterior.impute(Y, X)[0]).all()


def test_tasks_with_inducing_outputs_of_their_own() -> None:
    """A chain over three tasks, of which minibatches are taken; new tasks are predicted alike."""
    X, Y = _data()
    X, Y = np.stack([X] * 3), np.stack([Y, -Y, 2 * Y])
    model = _model(3, inducing_outputs="integrated")
    settings = dataclasses.replace(SETTINGS, batch_size=2)
    data = prepare_data(model, (X, Y))
    assert data.axis == 0 and len(model.sampled.paths) == len(_model(3).sampled.paths) - 1
    posterior = inference.sample_amortized(
        model, (X, Y), settings, seed=3, progress=False, warm_start=None
    )
    assert np.isfinite(posterior.history).all()
    assert posterior.predict(X).mean.shape == (3, N, P)
    given = (X[:2, :5], Y[:2, :5])
    prediction = posterior.predict(X[:2, 5:], given)
    assert prediction.mean.shape == (2, N - 5, P) and np.all(prediction.variance > 0)
    kind, reason = generation_kind(posterior)  # of a served model
    assert kind is None and "DeepSparseGP predicts from all training codes" in reason
    with pytest.raises(ValueError, match="whitened_codes needs a SparseGP or DeepSparseGP"):
        _model(whitened_codes=True, inducing_outputs="integrated")
    with pytest.raises(ValueError, match="one of 'integrated', 'sampled', got 'marginal'"):
        _model(inducing_outputs="marginal")


def test_prior_mean_start_fits_all_layers() -> None:
    """Codes are the prior means, so whitened ones start at zero; hidden layers have moved."""
    model = _model(whitened_codes=True)
    for layer in model.latent_prior.hidden_layers:
        layer.whitened_inducing.assign(tf.zeros_like(layer.whitened_inducing))
    data = prepare_data(model, _data())
    settings = inference.VariationalSettings(num_steps=200, learning_rate=1e-2)
    start = inference.PriorMeanStart(
        settings, distillation=inference.EncoderSettings(batch_size=256, num_steps=0)
    )
    latents, losses = start.run(model, data, seed=0, progress=False)
    assert losses[-1] < losses[0] - 0.1
    hidden = model.latent_prior.hidden_layers[0].whitened_inducing
    assert np.all(hidden.numpy() != 0)
    mean, _ = model.latent_prior.given_inducing_outputs(data.X)
    np.testing.assert_array_equal(latents, mean)
    compiled = inference.AmortizedSampling(model, data, SETTINGS)
    chain = compiled.initial_chain(tf.constant([0, 0]), latents)
    np.testing.assert_array_equal(chain.sampler.position.codes, 0.0)


def test_what_does_not_fit_is_refused() -> None:
    """Layers, widths, draws of whitened codes, missing inputs, and a variational warm start."""
    with pytest.raises(ValueError, match="one entry for each layer.*got 2 and 1"):
        models.DSGPBAE([_kernel(), _kernel()], [Z], **_parts())
    with pytest.raises(ValueError, match="hidden_dims must be 1 positive widths"):
        _model(hidden_dims=[1, 1])
    with pytest.raises(ValueError, match="decoder takes 3 inputs"):
        _model(decoder=_dense(3, P))
    with pytest.raises(ValueError, match="whitened_codes take one draw.*num_draws=4"):
        _model(num_draws=4, whitened_codes=True)
    with pytest.raises(ValueError, match="DeepSparseGP is a prior over inputs: X is needed"):
        prepare_data(_model(), (None, _data()[1]))
    with pytest.raises(ValueError, match="for one long task; got codes of 4 tasks"):
        X, Y = (np.tile(v, (4, 1, 1)) for v in _data())
        inference.sample_amortized(
            _model(),
            (X, Y),
            dataclasses.replace(SETTINGS, batch_size=None),
            progress=False,
            warm_start=None,
        )
