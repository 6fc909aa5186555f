"""The composition: what it samples, its densities, and what the encoder says of the codes."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from gpflow_bae.base import Batch
from gpflow_bae.core.functional import unconstrained_values
from gpflow_bae.decoders import KerasDecoder
from gpflow_bae.encoders import Encoder, StochasticEncoder
from gpflow_bae.guides import ImplicitGuide
from gpflow_bae.inference import sampling_algorithm
from gpflow_bae.latent_priors import GP, GaussianLatentPrior, SparseGP, StandardNormal, TitsiasGP
from gpflow_bae.likelihoods import Bernoulli, Gaussian
from gpflow_bae.models import BayesianAutoencoder, State, set_default_kernel_priors

tfd = tfp.distributions

T, N, P, L = 2, 5, 4, 2
Z = np.array([[-1.0], [0.0], [1.2]])


def network(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((num_inputs,)),
            keras.layers.Dense(6, "tanh", bias_initializer="glorot_normal"),
            keras.layers.Dense(num_outputs, bias_initializer="glorot_normal"),
        ]
    )


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=0.7, variance=0.9)


LATENT_PRIORS: dict[str, Callable[[], GaussianLatentPrior]] = {
    "standard": lambda: StandardNormal(L),
    "gp": lambda: GP(_kernel(), L, 0.05),
    "kernel per channel": lambda: GP([_kernel(), gpflow.kernels.Matern32()], L, 0.05),
    "integrated": lambda: SparseGP(_kernel(), Z, L, 0.05),
    "sampled": lambda: SparseGP(_kernel(), Z, L, 0.05, inducing_outputs="sampled"),
}
every_prior = pytest.mark.parametrize("name", LATENT_PRIORS)


def _model(name: str = "integrated", likelihood: object | None = None) -> BayesianAutoencoder:
    return BayesianAutoencoder(
        LATENT_PRIORS[name](),
        KerasDecoder(network(L, P)),
        StochasticEncoder(network(2 * P, L)),
        likelihood or Gaussian(0.2),
    )


def _batch() -> Batch:
    rng = np.random.default_rng(3)
    mask = rng.uniform(size=(T, N, P)) < 0.8
    Y = np.where(mask, rng.normal(size=(T, N, P)), 0.0)
    return Batch(tf.constant(rng.normal(size=(T, N, 1))), tf.constant(Y), tf.constant(mask))


def _state(model: BayesianAutoencoder) -> State:
    latents = tf.constant(np.random.default_rng(4).normal(size=(T, N, L)))
    return State(model.sampled.values(), latents)


@every_prior
def test_everything_sampled_is_in_the_loss_and_in_trainable_variables(name: str) -> None:
    """The gradient of log_prior + log_likelihood reaches every sampled tensor and the codes; the
    sampled tensors and the encoder's weights are all of trainable_variables, each once.
    """
    model = _model(name)
    state = _state(model)
    with tf.GradientTape() as tape:
        tape.watch(state)
        joint = model.log_prior(state) + model.log_likelihood(state, _batch())
    gradients = tape.gradient(joint, state)
    for path, gradient in zip(
        [*model.sampled.paths, "latents"], tf.nest.flatten(gradients), strict=True
    ):
        assert gradient is not None, path
        assert np.isfinite(gradient).all() and np.any(gradient != 0), path
    variables = [p.unconstrained_variable for p in model.sampled.parameters]
    variables += model.amortized.variables
    references = sorted(id(v) for v in variables)
    assert references == sorted(id(v) for v in model.trainable_variables)
    assert model.sampled.num_scalars == sum(int(tf.size(p)) for p in state.parameters)


@every_prior
def test_likelihood_alone_reaches_every_sampled_tensor(name: str) -> None:
    """No prior term may hide a parameter that the model forgot to use."""
    model = _model(name)
    state = _state(model)
    with tf.GradientTape() as tape:
        tape.watch(state)
        value = model.log_likelihood(state, _batch())
    for path, gradient in zip(
        [*model.sampled.paths, "latents"],
        tf.nest.flatten(tape.gradient(value, state)),
        strict=True,
    ):
        assert gradient is not None and np.any(gradient != 0), path


@every_prior
def test_log_likelihood_is_the_sum_of_its_rooms(name: str) -> None:
    """log p(latents | X) + log p(observed Y | latents), each asked for at assigned values.

    float32 decoder: sums of 40 terms, relative 1e-5.
    """
    model, batch = _model(name), _batch()
    state = _state(model)
    moved = State(tuple(v + tf.cast(0.1, v.dtype) for v in state.parameters), state.latents)
    value = model.log_likelihood(moved, batch)
    before = [p.numpy() for p in model.sampled.parameters]
    for p, b in zip(model.sampled.values(), state.parameters, strict=True):
        np.testing.assert_array_equal(p, b)  # evaluating has assigned nothing
    model.sampled.assign(moved.parameters)
    assert any(np.any(p != b) for p, b in zip(model.sampled.parameters, before, strict=True))
    latent = tf.reduce_sum(model.latent_prior.log_prob(batch.X, moved.latents))
    F = tf.cast(model.decoder(moved.latents), tf.float64)
    entries = tfd.Normal(F, tf.sqrt(model.likelihood.variance)).log_prob(batch.Y)
    expected = latent + tf.reduce_sum(tf.boolean_mask(entries, batch.mask))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_log_prior_is_the_sum_over_parameters() -> None:
    """By hand for SGP-BAE: normal weights, LogNormals through softplus, a logistic for Z."""
    model = _model("integrated")
    state = _state(model)
    values = dict(zip(model.sampled.paths, model.sampled.parameters, strict=True))
    assert len(values) == 4 + 1 + 3 + 1  # weights; noise; two of the kernel, code noise; Z
    # Hidden weights by their number of inputs, L; the last layer has N(0, 1).
    scales = [3.0 / np.sqrt(L), 3.0, 1.0, 1.0]
    expected = sum(
        stats.norm.logpdf(w.numpy(), scale=s).sum()
        for w, s in zip(model.decoder.weights, scales, strict=True)
    )
    medians = {
        ".likelihood.variance": 0.2,
        ".latent_prior.code_noise_variance": 0.05,
        ".latent_prior.kernels[0].lengthscales": 1.0,
        ".latent_prior.kernels[0].variance": 0.05,
    }
    for path, median in medians.items():
        parameter = values[path]
        density = tfd.LogNormal(tf.constant(np.log(median), tf.float64), 1.0).log_prob(parameter)
        lower = {".likelihood.variance": 1e-6, ".latent_prior.code_noise_variance": 1e-6}
        above = float(parameter.numpy()) - lower.get(path, 0.0)
        # value = lower + log(1 + exp(x)), so its slope is 1 - exp(-(value - lower)).
        expected += float(density) + np.log(-np.expm1(-above))
    (x,) = unconstrained_values([values[".latent_prior.inducing_variable.Z"]])
    expected += np.sum(-x.numpy() - 2 * np.log1p(np.exp(-x.numpy())))
    np.testing.assert_allclose(model.log_prior(state), expected, rtol=1e-5)


def test_bind_equals_assign_with_another_encoder_too() -> None:
    """A bound copy computes at given values; the model itself is as before until assigned."""
    model, batch = _model(), _batch()
    values = [v + tf.cast(0.3, v.dtype) for v in model.sampled.values()]
    encoder_values = [2.0 * tf.convert_to_tensor(v) for v in model.amortized.variables]
    bound = model.bind(values, encoder_values)
    latents = _state(model).latents
    seed = tf.constant([1, 2])
    before = model.decoder(latents).numpy()
    bound_results = bound.decoder(latents), bound.encoder.sample(batch.Y, seed)
    np.testing.assert_array_equal(model.decoder(latents), before)
    model.sampled.assign(values)
    for variable, value in zip(model.amortized.variables, encoder_values, strict=True):
        variable.assign(value)
    results = model.decoder(latents), model.encoder.sample(batch.Y, seed)
    for a, b in zip(bound_results, results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_shared_kernel_is_sampled_once() -> None:
    """One kernel object for both channels: its parameters are one tensor each, with one prior
    term, and the density is that of a single kernel for all channels.
    """
    kernel = _kernel()
    shared = BayesianAutoencoder(
        GP([kernel, kernel], L, 0.05),
        KerasDecoder(network(L, P)),
        StochasticEncoder(network(2 * P, L)),
        Gaussian(0.2),
    )
    single = _model("gp")
    assert len(shared.sampled.paths) == len(single.sampled.paths)
    for target, source in zip(shared.decoder.weights, single.decoder.weights, strict=True):
        target.assign(source)
    np.testing.assert_allclose(
        shared.log_prior(_state(shared)), single.log_prior(_state(single)), rtol=1e-9
    )
    np.testing.assert_allclose(
        shared.log_likelihood(_state(shared), _batch()),
        single.log_likelihood(_state(single), _batch()),
        rtol=1e-9,
    )


def test_fixed_parameters_are_not_sampled() -> None:
    """gpflow.set_trainable is the switch, as everywhere in GPflow."""
    model = _model()
    gpflow.set_trainable(model.likelihood.variance, False)
    gpflow.set_trainable(model.latent_prior.kernels[0], False)
    paths = model.sampled.paths
    assert not any("likelihood" in path or "kernels" in path for path in paths)
    assert len(paths) == 9 - 3


def test_default_kernel_priors() -> None:
    """LogNormal(log 1, 1) on lengthscales, LogNormal(log 0.05, 1) on variances (Tran et al. 2023).

    At any depth of a combination; what has a prior, or is fixed, is left alone.
    """
    own = tfd.Gamma(tf.constant(2.0, tf.float64), tf.constant(1.0, tf.float64))
    ours, fixed = gpflow.kernels.Matern52(), gpflow.kernels.White()
    ours.variance.prior = own
    gpflow.set_trainable(fixed.variance, False)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.5, 2.0]) + ours + fixed
    set_default_kernel_priors(kernel)
    first = kernel.kernels[0]
    for parameter, median in [(first.lengthscales, 1.0), (first.variance, 0.05)]:
        assert isinstance(parameter.prior, tfd.LogNormal)
        np.testing.assert_allclose(parameter.prior.quantile(0.5), median, rtol=1e-10)
        np.testing.assert_allclose(parameter.prior.distribution.stddev(), 1.0)
    assert ours.variance.prior is own and ours.lengthscales.prior is not None
    assert fixed.variance.prior is None
    set_default_kernel_priors(other := gpflow.kernels.Matern12(), lengthscale=3.0, variance=2.0)
    np.testing.assert_allclose(other.lengthscales.prior.quantile(0.5), 3.0, rtol=1e-10)
    np.testing.assert_allclose(other.variance.prior.quantile(0.5), 2.0, rtol=1e-10)


def test_unknown_kernel_parameter_needs_a_prior() -> None:
    """There is no default for a period; given one, or fixed, all is well."""
    kernel = gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential())
    with pytest.raises(ValueError, match=r"\.period is sampled but has no prior.*set_trainable"):
        set_default_kernel_priors(kernel)
    gpflow.set_trainable(kernel.period, False)
    set_default_kernel_priors(kernel)


def test_summary_shows_the_whole_model() -> None:
    """Weights, priors and hyperparameters, all there: what print_summary prints."""
    summary = gpflow.utilities.tabulate_module_summary(_model("sampled"))
    rows = {line.split()[0].split(".", 1)[-1]: line for line in summary.splitlines() if "." in line}
    for path, prior in [
        ("decoder.weights[0]", "Normal"),
        ("decoder.weights[3]", "Normal"),
        ("latent_prior.kernels[0].lengthscales", "LogNormal"),
        ("latent_prior.kernels[0].variance", "LogNormal"),
        ("latent_prior.code_noise_variance", "LogNormal"),
        ("latent_prior.inducing_variable.Z", "Uniform"),
        ("latent_prior.whitened_inducing", "Normal"),
        ("likelihood.variance", "LogNormal"),
        ("guide.encoder.weights[0]", "Parameter"),
    ]:
        assert prior in rows[path], path


def test_gpflow_likelihoods_are_wrapped() -> None:
    """A scalar GPflow likelihood needs no word more: its parameters have default priors."""
    model = _model(likelihood=gpflow.likelihoods.Poisson())
    state, batch = _state(model), _batch()
    counts = batch._replace(Y=tf.round(tf.abs(batch.Y)))
    value = model.log_likelihood(state, counts)
    latent = tf.reduce_sum(model.latent_prior.log_prob(batch.X, state.latents))
    F = tf.cast(model.decoder(state.latents), tf.float64)
    entries = tfd.Poisson(log_rate=F).log_prob(counts.Y)
    expected = latent + tf.reduce_sum(tf.boolean_mask(entries, batch.mask))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    student = _model(likelihood=gpflow.likelihoods.StudentT())
    assert np.isfinite(student.log_prior(_state(student)))


@pytest.mark.parametrize(
    ("decoder_inputs", "encoder_outputs", "message"),
    [
        (3, L, r"decoder takes 3 inputs.*latent_dim = 2.*Input shape \(2,\)"),
        (L, 3, r"encoder returns 3 code channels.*latent_dim = 2.*last layer"),
    ],
)
def test_channel_mismatch_is_refused(
    decoder_inputs: int, encoder_outputs: int, message: str
) -> None:
    """One number of channels everywhere; the error names who differs and what to change."""
    with pytest.raises(ValueError, match=message):
        BayesianAutoencoder(
            StandardNormal(L),
            KerasDecoder(network(decoder_inputs, P)),
            StochasticEncoder(network(2 * P, encoder_outputs)),
            Bernoulli(),
        )


def test_noise_of_each_output_is_of_as_many_outputs() -> None:
    """Another number would be broadcast, or fail in the fit."""

    def model(*variances: float) -> BayesianAutoencoder:
        decoder, encoder = KerasDecoder(network(L, P)), StochasticEncoder(network(2 * P, L))
        return BayesianAutoencoder(StandardNormal(L), decoder, encoder, Gaussian(variances))

    assert model(*np.linspace(0.1, 0.4, P)).likelihood.variance.shape == [P]
    with pytest.raises(ValueError, match=r"shape \[\(3,\)\], and the decoder has 4 output"):
        model(0.1, 0.2, 0.3)


class _KnownDraws(Encoder):
    """An encoder whose successive draws are given arrays [S, T, N, L]."""

    latent_dim = L

    def __init__(self, draws: np.ndarray):
        super().__init__()
        self._draws = iter(draws)

    def sample(self, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.constant(next(self._draws))


@pytest.mark.parametrize("name", ["standard", "gp", "integrated"])
def test_pseudo_observations_divide_the_prior_out(name: str) -> None:
    """Conditioning a point on its pseudo-observation alone gives the draws' mean and variance back.

    1/v - 1/k added to the prior's 1/k is 1/v, exactly. One point per task, because the prior over
    several points would have more to say. The exact GP's jitter, 1e-6 of the variance, is not in
    ``marginal_variance``: relative 1e-5 covers it.
    """
    rng = np.random.default_rng(0)
    draws = 0.4 + 0.3 * rng.normal(size=(16, T, 1, L))
    model = _model(name)
    model.guide = ImplicitGuide(_KnownDraws(draws))
    X, Y = rng.normal(size=(T, 1, 1)), np.zeros((T, 1, P))
    pseudo = model.pseudo_observations(X, Y, tf.constant([1, 2]), num_draws=16)
    posterior = model.latent_prior.condition(X, *pseudo)
    np.testing.assert_allclose(posterior.mean, draws.mean(0), rtol=1e-5)
    np.testing.assert_allclose(posterior.variance, draws.var(0, ddof=1), rtol=1e-5)


def test_pseudo_observations_in_closed_form() -> None:
    """Codes N(0, 1) seen as y = code + N(0, 1/2): an exact encoder draws N(2 y / 3, 1/3), and its
    pseudo-observations are y itself with variance 1/2.

    500 tasks of two codes, 200 draws. The draws' variance v has relative standard error
    sqrt(2/199) = 0.1 and enters as v / (1 - v): averaged over 1000 codes that is 1.5 * 0.1 /
    sqrt(1000) = 0.5 %, and the curvature adds a bias of v'' Var(v) / 2 = 0.7 %.
    """
    rng = np.random.default_rng(0)
    y = rng.normal(size=(500, 1, L)) * np.sqrt(1.5)
    draws = 2 / 3 * y + np.sqrt(1 / 3) * rng.normal(size=(200, 500, 1, L))
    model = _model("standard")
    model.guide = ImplicitGuide(_KnownDraws(draws))
    mean, variance = model.pseudo_observations(
        None, np.zeros((500, 1, P)), tf.constant([1, 2]), num_draws=200
    )
    np.testing.assert_allclose(np.mean(variance), 0.5, rtol=0.025)
    slope = np.sum(mean * y) / np.sum(y**2)  # standard error sqrt(1/3/200) * 1.5 / sqrt(1500)
    np.testing.assert_allclose(slope, 1.0, rtol=0.02)


def test_pseudo_observations_of_an_encoder_wider_than_the_prior_say_nothing() -> None:
    """1/v - 1/k would be negative; it is kept just above zero, so the prior remains.

    The floor of 1e-3 leaves a pseudo-variance of 1000 v: the posterior is the prior to 1/4000.
    """
    draws = 0.1 + 2.0 * np.array([-1.0, 1.0] * 8)[:, None, None, None] * np.ones((16, T, 1, L))
    model = _model("standard")
    model.guide = ImplicitGuide(_KnownDraws(draws))
    mean, variance = model.pseudo_observations(
        None, np.zeros((T, 1, P)), tf.constant([1, 2]), num_draws=16
    )
    np.testing.assert_allclose(variance, 1000 * draws.var(0, ddof=1), rtol=1e-10)
    posterior = model.latent_prior.condition(None, mean, variance)
    np.testing.assert_allclose(posterior.variance, 1.0, rtol=3e-4)


def test_a_single_draw_is_taken_as_the_codes() -> None:
    """No spread can be seen in one draw: variance 0, and conditioning returns the draw."""
    draws = np.random.default_rng(0).normal(size=(1, T, N, L))
    model = _model("gp")
    model.guide = ImplicitGuide(_KnownDraws(draws))
    mean, variance = model.pseudo_observations(
        np.zeros((T, N, 1)), np.zeros((T, N, P)), tf.constant([1, 2]), num_draws=1
    )
    np.testing.assert_array_equal(mean, draws[0])
    np.testing.assert_array_equal(variance, 0.0)


def test_codes_are_not_sampled_under_a_bound() -> None:
    """Titsias's evidence is a bound, so there is no density of codes: refused when it is built."""
    prior = TitsiasGP(gpflow.kernels.SquaredExponential(), np.zeros((1, 1)), L)
    encoder = StochasticEncoder(network(2 * P, L))
    with pytest.raises(TypeError, match="must be a GaussianLatentPrior .*, got TitsiasGP"):
        BayesianAutoencoder(prior, KerasDecoder(network(L, P)), encoder, Bernoulli())


def test_a_model_without_an_engine_is_named() -> None:
    point = np.ones((1, 1))
    with pytest.raises(TypeError, match="sample_amortized takes a BayesianAutoencoder.*got GPR"):
        sampling_algorithm(gpflow.models.GPR((point, point), gpflow.kernels.Linear()))
