"""What is served: against the models' own functions, for every kind of model."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import encoders, models, serving
from gpflow_bae.data import prepare_data
from gpflow_bae.posteriors import Bank, Posterior, TemperedPosterior
from gpflow_bae.serving.bank import SampleBank
from gpflow_bae.serving.codes import inputs_seen, prior_variances
from gpflow_bae.serving.export import _requests
from tests.serving import small_posteriors as small
from tests.serving.small_posteriors import L, P

SEED = 3


def served(posterior: Posterior | TemperedPosterior, **changes: object) -> serving.ServedModel:
    return serving.ServedModel(posterior, **{"num_draws": 8, **changes})


def rows(count: int = 4) -> tf.Tensor:
    return tf.constant(np.random.default_rng(2).standard_normal((count, P)), tf.float32)


def bound(posterior: Posterior, s: int) -> models.BayesianAutoencoder:
    return posterior.model.bind(
        [tf.constant(v[s]) for v in posterior.parameters],
        [tf.constant(v[s]) for v in posterior.encoder],
    )


def test_codes_of_a_sampled_model_are_those_its_encoders_draw() -> None:
    """Moments of hundreds of draws on each side: five standard errors."""
    posterior = small.sampled_sgp_bae()
    answer = served(posterior, num_draws=1000, encoders_per_request=5).answer(
        "encode", SEED, y=rows()
    )
    draws = posterior.encode(rows()[None], num_draws=40).reshape(-1, 4, L)
    scale = draws.std(0)
    np.testing.assert_allclose(answer["mean"], draws.mean(0), atol=5 * scale.max() / np.sqrt(200))
    np.testing.assert_allclose(answer["standard_deviation"], scale, rtol=0.25)
    assert answer["draws"].shape == (4, 1000, L)


def test_codes_of_a_vae_have_the_prior_in_them() -> None:
    """Of a standard normal prior the answer is the model's own posterior, averaged over samples."""
    posterior = small.variational(models.VAE)
    answer = served(posterior).answer("encode", SEED, y=rows())
    moments = [bound(posterior, s).posterior(None, rows()[None]) for s in range(2)]
    means = np.stack([q.mean[0] for q in moments])
    variance = np.mean([q.variance[0] for q in moments], 0) + means.var(0)
    np.testing.assert_allclose(answer["mean"], means.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answer["standard_deviation"], np.sqrt(variance), rtol=1e-5)


@pytest.mark.parametrize("kind", [models.SVGPVAE, models.SGPVAE, models.GPVAE])
def test_a_row_under_a_gp_is_a_task_of_one_point(kind: type) -> None:
    """With the prior's variance at that point, which does not depend on x here."""
    posterior = small.variational(kind)
    answer = served(posterior).answer("encode", SEED, y=rows())
    means = []
    for s in range(2):
        model = bound(posterior, s)
        mean, variance = model.encode(None, rows())
        means.append(mean / (1.0 + variance / model.latent_prior.kernels[0].variance))
    np.testing.assert_allclose(answer["mean"], np.mean(means, 0), rtol=1e-5, atol=1e-6)


def test_the_prior_s_variance_is_that_of_all_observed_inputs() -> None:
    """Its mean over the rows of all tasks, without padding; so is the example of a request."""
    rng = np.random.default_rng(0)
    X = [rng.uniform(-2.0, 2.0, (n, 1)) for n in (9, 4)]
    Y = [rng.standard_normal((len(x), P)) for x in X]
    posterior = Posterior.from_point(
        models.GPVAE(gpflow.kernels.Linear(), **small.common()), (X, Y)
    )
    expected = np.mean(np.square(np.concatenate(X)))
    np.testing.assert_allclose(prior_variances(posterior, [0]), [[expected] * L])
    np.testing.assert_array_equal(inputs_seen(posterior), np.concatenate(X))


def test_decoding_averages_over_the_posterior() -> None:
    """Mean, noise and spread over samples, each from the model's own likelihood."""
    posterior = small.sampled_sgp_bae()
    latents = tf.constant(np.random.default_rng(0).standard_normal((4, L)), tf.float32)
    answer = served(posterior).answer("decode", SEED, latents=latents)
    models_at = [bound(posterior, s) for s in range(5)]
    moments = [m.likelihood.moments(m.decode(None, latents)) for m in models_at]
    means, noises = (np.stack(v) for v in zip(*moments, strict=True))
    np.testing.assert_allclose(answer["mean"], means.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answer["noise_std"], np.sqrt(noises.mean(0)), rtol=1e-5)
    np.testing.assert_allclose(answer["epistemic_std"], means.std(0), rtol=1e-4)


@pytest.mark.parametrize("posterior", [small.sampled_sgp_bae, small.partial])
def test_generation_is_the_posteriors_prediction(posterior) -> None:
    """Of sampled inducing outputs, and of those conditioned on the training data before export.

    Monte Carlo on both sides, with dozens of draws of the codes for each posterior sample.
    """
    bank = posterior()
    x = np.linspace(-1.5, 1.5, 4)[:, None]
    answer = served(bank, num_draws=100 * bank.num_samples).answer(
        "generate", SEED, x=tf.constant(x)
    )
    expected = bank.predict(x[None], num_codes=30)
    scale = np.sqrt(expected.epistemic_variance.max() / 60)
    np.testing.assert_allclose(answer["mean"], expected.mean[0], atol=5 * scale)
    np.testing.assert_allclose(
        answer["epistemic_std"], np.sqrt(expected.epistemic_variance[0]), rtol=0.3
    )


def test_imputation_fills_holes_and_nothing_else() -> None:
    """Observed entries come back bit by bit, and the mask reaches an encoder that takes it."""
    posterior = small.partial()
    y = rows().numpy()
    y[0, 1] = np.nan
    answer = served(posterior).answer("impute", SEED, y=tf.constant(y))
    hole = np.isnan(y)
    np.testing.assert_array_equal(answer["filled"][~hole], y[~hole])
    np.testing.assert_array_equal(answer["standard_deviation"] > 0, hole)
    assert np.isfinite(answer["filled"]).all()
    zeroed = served(posterior).answer("reconstruct", SEED, y=tf.constant(np.where(hole, 0, y)))[
        "mean"
    ]
    assert abs(zeroed[0, 1] - answer["filled"][0, 1]) > 1e-6  # a zero is not a hole


def test_answers_do_not_depend_on_the_batch() -> None:
    """A row alone, and the same row among others; other seeds give other answers."""
    model = served(small.sampled_sgp_bae(), samples_per_request=2)
    for name, key, values in (
        ("encode", "y", rows()),
        ("reconstruct", "y", rows()),
        ("generate", "x", tf.constant([[0.1], [0.2], [0.3], [0.4]], tf.float64)),
    ):
        together = model.answer(name, SEED, **{key: values})
        alone = model.answer(name, SEED, **{key: values[2:3]})
        np.testing.assert_allclose(together["mean"][2:3], alone["mean"], rtol=1e-5, atol=1e-6)
        other = model.answer(name, SEED + 1, **{key: values})
        assert np.abs(together["mean"] - other["mean"]).max() > 1e-4


def test_seeds_reach_all_samples_of_the_bank() -> None:
    """One sample per request of five baked in: over seeds each of them answers."""
    model = served(small.sampled_sgp_bae(), samples_per_request=1)
    latents = tf.ones([1, L])
    found = {
        round(float(model.answer("decode", s, latents=latents)["mean"][0, 0]), 5) for s in range(40)
    }
    assert len(found) == 5


def test_a_conditional_vae_takes_x_everywhere() -> None:
    model = served(small.conditional())
    assert model.inputs("encode") == {"y": P, "x": 1}
    assert model.inputs("decode") == {"latents": L, "x": 1}
    x = tf.constant(np.linspace(-1, 1, 4)[:, None])
    generated = model.answer("generate", SEED, x=x)["mean"]
    decoded = model.answer("decode", SEED, latents=tf.zeros([4, L]), x=x)["mean"]
    assert generated.shape == decoded.shape == (4, P)
    assert np.abs(model.answer("reconstruct", SEED, y=rows(), x=x)["mean"]).max() < 10


def test_a_tempered_posterior_is_served() -> None:
    """Deterministic encoders: the codes' spread is over samples, and equals the posterior's."""
    model = models.TemperedBAE(small.network(P, L), small.network(L, P))
    rng = np.random.default_rng(0)
    parameters = [
        (0.3 * rng.standard_normal((2, 3, *p.unconstrained_variable.shape))).astype(
            p.unconstrained_variable.dtype.as_numpy_dtype
        )
        for p in model.sampled.parameters
    ]
    draws = dict(zip(model.sampled.paths, parameters, strict=True))
    bank = Bank(draws, {}, None, "TemperedBAE")
    posterior = TemperedPosterior(model, bank, swap_rate=np.zeros(1))
    codes = posterior.encode(rows())
    live = served(posterior, encoders_per_request=6)
    answer = live.answer("encode", SEED, y=rows())
    np.testing.assert_allclose(answer["mean"], codes.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answer["standard_deviation"], codes.std(0), rtol=1e-4)
    expected = posterior.reconstruct(rows())
    found = live.answer("reconstruct", SEED, y=rows())
    np.testing.assert_allclose(found["mean"], expected.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["noise_std"] ** 2, expected.noise_variance, rtol=1e-4)
    assert live.refusal("generate") == "a tempered BAE has no prior over inputs"


def test_chains_are_served_one_after_another() -> None:
    """Number 3 of two chains of two samples is sample 1 of the second."""
    posterior = small.sampled_sgp_bae()
    arrays = {
        path: values[0, :4].reshape(2, 2, *values.shape[2:])
        for path, values in posterior.bank.parameters.items()
    }
    bank = Bank(arrays, {}, None, posterior.bank.model)
    stored = SampleBank(posterior.model, bank, [0, 3])
    assert stored.num_samples == 2
    path = ".decoder.weights[0]"
    np.testing.assert_array_equal(stored.values(tf.constant(1))[path], arrays[path][1, 1])
    # A bank without encoder leaves the model's own, as a constant of the graph.
    weights = stored.values(tf.constant(0))[posterior.model.amortized.paths[0]]
    np.testing.assert_array_equal(weights, posterior.model.amortized.variables[0])


def test_what_cannot_be_generated_is_refused() -> None:
    """Each reason in words."""
    many = small.posterior(small.sgp_bae(), num_tasks=3)
    assert "each of the 3 training tasks" in served(many).refusal("generate")
    exact = small.variational(models.GPVAE)
    assert "all training codes at once" in served(exact).refusal("generate")
    free = small.variational(models.SVGPVAE, encoder=encoders.FreeFormEncoder(1, 8, L))
    assert "codes for the training data only" in served(free).refusal("encode")
    assert served(free).refusal("decode") is None


def test_rows_of_unequal_lengths_are_named() -> None:
    model = served(small.posterior(small.sgp_bae()))
    with pytest.raises(ValueError, match=r"y is no array of numbers(.|\n)*rows of equal lengths"):
        model.answer("encode", y=[[0.0] * P, [0.0]])


def test_frozen_layers_and_deep_priors_are_served() -> None:
    """Batch normalisation has variables that are no weights; deep priors draw hidden layers."""
    frozen = keras.layers.BatchNormalization()
    frozen.trainable = False
    decoder = keras.Sequential([keras.Input((L,)), frozen, keras.layers.Dense(P)])
    Z = np.linspace(-2.0, 2.0, 4)[:, None]
    arguments = small.common() | {"decoder": decoder, "encoder": small.network(2 * P, L)}
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
    posterior = small.posterior(models.DSGPBAE(kernels, Z, **arguments))
    model = served(posterior, num_draws=200)
    assert len(model.bank.network_state) == 4
    x = np.linspace(-1.0, 1.0, 4)[:, None]
    answer = model.answer("generate", SEED, x=tf.constant(x))
    expected = posterior.predict(x[None], num_codes=10)
    scale = np.sqrt(expected.epistemic_variance.max() / 50)
    np.testing.assert_allclose(answer["mean"], expected.mean[0], atol=5 * scale)


def with_ids() -> Any:
    """One long task whose second input is one of three ids."""
    ids = gpflow.kernels.Coregion(3, 2, active_dims=[1])
    gpflow.set_trainable(ids, False)
    X, Y = small.data()
    X = np.concatenate([X, np.arange(8.0)[None, :, None] % 3], -1)
    arguments = small.common() | {"encoder": small.network(2 * P, L)}
    kernel = gpflow.kernels.SquaredExponential(active_dims=[0]) * ids
    model = models.SGPBAE(
        kernel, X[0, ::2], **arguments, code_noise_variance=0.1, inducing_outputs="sampled"
    )
    values = [p.unconstrained_variable.numpy()[None] for p in model.sampled.parameters]
    encoder = [v.numpy()[None] for v in model.amortized.variables]
    return Posterior.from_arrays(model, prepare_data(model, (X, Y)), values, encoder)


def test_ids_that_a_kernel_does_not_have_are_refused() -> None:
    """It would take 1.5 as 1, and zeros for 3 on a GPU. The warm-up row has an id."""
    posterior = with_ids()
    model = served(posterior)
    expected = posterior.predict(np.array([[0.2, 2.0]]), num_codes=1).mean
    assert model.answer("generate", x=[[0.2, 2.0]])["mean"].shape == expected[0].shape
    for wrong in (3.0, -1.0, 1.5):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"x must hold an id, a whole number from 0 to 2, in column 1(.|\n)*1",
        ):
            model.answer("generate", x=[[0.2, 2.0], [0.2, wrong]])
        with pytest.raises(ValueError, match=r"examples\['x'\] must hold ids in column 1"):
            _requests(model, ["generate"], posterior, {"x": np.array([[0.0, wrong]])}, 0)
    (row,) = _requests(model, ["generate"], posterior, {}, 0)["generate"]["x"]
    assert row[1] in (0.0, 1.0, 2.0)
    with pytest.raises(ValueError, match="examples.* holds NaN or infinity"):
        _requests(model, ["generate"], posterior, {"x": np.array([[np.nan, 1.0]])}, 0)
