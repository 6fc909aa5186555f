"""What every verb of a model makes of data that are masked, far, or not what the model reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from gpflow_bae import inference, inputs, latent_priors, likelihoods, models
from gpflow_bae.data import SparseTable, StreamedObservations, prepare_data
from gpflow_bae.encoders import FreeFormEncoder
from gpflow_bae.posteriors import Posterior

N, P, L = 12, 3, 2
X = np.linspace(0.0, 3.0, N)[:, None]
Y = np.random.default_rng(0).normal(size=(N, P))
HOLES = np.random.default_rng(1).random((N, P)) < 0.3
WITH_NAN = np.where(HOLES, np.nan, Y)
FILLED = np.where(HOLES, 7.0, Y)


def net(num_inputs: int, num_outputs: int) -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def gp_vae(likelihood: Any = None, kernel: Any = None, **changed: Any) -> models.GPVAE:
    parts = {"decoder": net(L, P), "encoder": net(P, 2 * L), "latent_dim": L}
    likelihood = likelihood or likelihoods.Gaussian(0.3)
    return models.GPVAE(
        kernel or gpflow.kernels.Matern52(), likelihood=likelihood, **parts | changed
    )


def svgp_vae(kernel: Any = None, Z: Any = X[::3], **changed: Any) -> models.SVGPVAE:
    parts = {"decoder": net(L, P), "encoder": net(P, 2 * L), "latent_dim": L}
    kernel = kernel or gpflow.kernels.Matern52()
    return models.SVGPVAE(kernel, Z, likelihood=likelihoods.Gaussian(0.3), **parts | changed)


def sgp_bae(kernel: Any = None, Z: Any = X[::3], **changed: Any) -> models.SGPBAE:
    parts: dict[str, Any] = {"decoder": net(L, P), "encoder": net(2 * P, L), "latent_dim": L}
    kernel = kernel or gpflow.kernels.Matern52()
    parts["likelihood"] = likelihoods.Gaussian(0.3)
    return models.SGPBAE(kernel, Z, **parts | changed)


def deep_svigp(likelihood: Any = None) -> models.DeepSVIGP:
    kernel, likelihood = gpflow.kernels.Matern52(), likelihood or likelihoods.Gaussian(0.3)
    return models.DeepSVIGP(kernel, X[::3], net(L, P), likelihood, L, N)


VERBS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "elbo": lambda m, X, Y: m.elbo((X, Y)),
    "training_loss": lambda m, X, Y: m.training_loss((X, Y)),
    "training_loss_closure": lambda m, X, Y: m.training_loss_closure((X, Y), compile=False)(),
    "log_posterior_density": lambda m, X, Y: m.log_posterior_density((X, Y)),
    "predict_f": lambda m, X, Y: m.predict_f(X, given=(X, Y))[0],
    "predict_y": lambda m, X, Y: m.predict_y(X, given=(X, Y))[0],
    "predict_f_samples": lambda m, X, Y: m.predict_f_samples(X, 2, given=(X, Y)),
    "predict_log_density": lambda m, X, Y: m.predict_log_density((X, Y), given=(X, Y)),
    "encode": lambda m, X, Y: m.encode(X, Y)[0],
    "posterior": lambda m, X, Y: m.posterior(X, Y).mean,
    "pseudo_observations": lambda m, X, Y: m.pseudo_observations(X, Y, [0, 1])[0],
}
MISSING = {
    "masked": lambda: np.ma.array(FILLED, mask=HOLES),
    "frame": lambda: pd.DataFrame(WITH_NAN).convert_dtypes().mask(HOLES),
}


@pytest.mark.parametrize("kind", MISSING)
@pytest.mark.parametrize("verb", VERBS)
def test_what_is_masked_is_missing(verb: str, kind: str) -> None:
    """As NaN is, which the masked values (7) are far from."""
    model = gp_vae()
    found = VERBS[verb](model, X, MISSING[kind]())
    # The verbs that look at arrays of their own took NaN for NaN: zeros and a mask are the same.
    expected = VERBS[verb](model, X, WITH_NAN)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert not np.allclose(found, VERBS[verb](model, X, FILLED))


def test_encode_takes_nan_for_a_hole() -> None:
    model = gp_vae()
    zeros = np.where(HOLES, 0.0, Y).astype(np.float32)
    expected = model.posterior(X, zeros, ~HOLES)
    np.testing.assert_allclose(model.posterior(X, WITH_NAN).mean, expected.mean, rtol=1e-5)


@pytest.mark.parametrize("verb", ["elbo", "predict_log_density"])
def test_what_is_masked_is_missing_of_a_model_of_gpflow(verb: str) -> None:
    model = deep_svigp()
    model.q_mu.assign(np.random.default_rng(0).normal(size=model.q_mu.shape))
    for data in (np.ma.array(FILLED, mask=HOLES), WITH_NAN.astype(np.float32)):
        found = getattr(model, verb)((X, data))
        np.testing.assert_allclose(found, getattr(model, verb)((X, WITH_NAN)), rtol=1e-6)
    assert not np.allclose(found, getattr(model, verb)((X, FILLED)))


OF_DATA = ("elbo", "training_loss", "training_loss_closure", "log_posterior_density")


@pytest.mark.parametrize("verb", [*OF_DATA, "predict_log_density"])
def test_data_without_rows_are_refused(verb: str) -> None:
    """Their bound would be 0, as that of the best of models."""
    for model in (gp_vae(), svgp_vae()):
        with pytest.raises(ValueError, match=r"Y has shape \(0, 3\), without any observation"):
            VERBS[verb](model, X[:0], Y[:0])
        with pytest.raises(ValueError, match=r"Y has shape \(0, 3\), without any observation"):
            prepare_data(model, (X[:0], Y[:0]))
    name = "elbo" if verb in OF_DATA else verb
    with pytest.raises(ValueError, match=r"Y(new)? has shape \(0, 3\), without any observation"):
        getattr(deep_svigp(), name)((X[:0], Y[:0]))


@pytest.mark.parametrize("verb", [*OF_DATA, "predict_log_density"])
def test_a_column_that_is_missing_in_all_rows_adds_nothing_and_is_refused_by_fits(
    verb: str,
) -> None:
    """So that its part of the decoder has no effect, but for the prior of its bias."""
    missing = np.where(np.arange(P) == 1, np.nan, Y)
    sign = {"training_loss": 1.0, "training_loss_closure": 1.0, "log_posterior_density": -1.0}
    for model in (gp_vae(), svgp_vae(), deep_svigp()):
        is_deep = isinstance(model, models.DeepSVIGP)
        name = "elbo" if is_deep and verb in OF_DATA else verb
        found = []
        for _ in range(2):
            value = getattr(model, name)((X, missing)) if is_deep else None
            value = VERBS[verb](model, X, missing) if value is None else value
            found.append(value.numpy() + sign.get(name, 0.0) * model.log_prior_density())
            *_, bias = model.decoder.trainable_variables
            bias.assign_add([0.0, 5.0, 0.0])
        assert np.isfinite(found[0]).all()
        np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
        with pytest.raises(ValueError, match=r"no observation at all in column\(s\) \[1\]"):
            prepare_data(model, (X, missing))


def test_tasks_that_are_masked_apart_are_masked_together() -> None:
    tasks = [np.ma.array(FILLED, mask=HOLES), np.ma.array(FILLED, mask=HOLES[::-1])]
    data = prepare_data(gp_vae(), (X, tasks))
    np.testing.assert_array_equal(data.mask, ~np.stack([HOLES, HOLES[::-1]]))


# Observations that a likelihood has no density of.

WRONG: dict[str, tuple[Any, float, str]] = {
    "poisson": (likelihoods.Poisson, -1.0, "counts, whole numbers from 0"),
    "negative binomial": (likelihoods.NegativeBinomial, 0.5, "counts"),
    "zero inflated": (likelihoods.ZeroInflatedNegativeBinomial, 1.5, "counts"),
    "bernoulli": (likelihoods.Bernoulli, 1.5, "from 0 to 1"),
    "ordinal": (lambda: likelihoods.Ordinal(np.array([-0.5, 0.5])), 3.0, "from 0 to 2"),
    "GPflow's ordinal": (lambda: gpflow.likelihoods.Ordinal(np.zeros(2)), 0.5, "from 0 to 2"),
    "GPflow's poisson": (gpflow.likelihoods.Poisson, 2.5, "counts"),
    "GPflow's bernoulli": (gpflow.likelihoods.Bernoulli, 0.5, "0 or 1"),
    "GPflow's gamma": (gpflow.likelihoods.Gamma, 0.0, "above 0"),
    "GPflow's exponential": (gpflow.likelihoods.Exponential, -1e-3, "from 0"),
    "GPflow's beta": (gpflow.likelihoods.Beta, 1.0, "between 0 and 1"),
}
RIGHT = {"GPflow's beta": 0.5}  # of the others 1


def with_one_wrong(name: str) -> np.ndarray:
    values = np.full((N, P), RIGHT.get(name, 1.0))
    values[0, 0] = np.nan
    values[4, 1] = WRONG[name][1]
    return values


@pytest.mark.parametrize("name", WRONG)
def test_observations_outside_of_the_support_are_refused(name: str) -> None:
    """In a fit's data and in the verbs, of observed cells alone."""
    make, _, words = WRONG[name]
    model, values = gp_vae(make()), with_one_wrong(name)
    for run in (
        lambda Y: prepare_data(model, (X, Y)),
        lambda Y: model.training_loss((X, Y)),
        lambda Y: model.training_loss((X, tf.constant(Y))),
    ):
        with pytest.raises(ValueError, match=rf"holds .*first at .*4, 1\].*is one of .*{words}"):
            run(values)
    values[4, 1] = np.nan
    prepare_data(model, (X, values))
    assert np.isfinite(model.training_loss((X, values)))


@pytest.mark.parametrize(
    "verb", sorted(VERBS.keys() - {"encode", "posterior", "pseudo_observations"})
)
def test_every_verb_refuses_them(verb: str) -> None:
    model = gp_vae(likelihoods.Poisson())
    with pytest.raises(ValueError, match=r"holds -2 .*Poisson is one of counts"):
        VERBS[verb](model, X, np.full((N, P), -2.0))


def test_new_rows_streams_and_tables_are_refused_too() -> None:
    counts, wrong = np.ones((N, P)), np.full((N, P), 0.5)
    model = gp_vae(likelihoods.Poisson())
    with pytest.raises(ValueError, match="Ynew holds 0.5"):
        model.predict_log_density((X, wrong), given=(X, counts))
    posterior = Posterior.from_point(model, (X, counts))
    with pytest.raises(ValueError, match="Ynew holds 0.5"):
        posterior.predict_log_density((X, wrong))
    with pytest.raises(ValueError, match="Y holds 0.5"):
        posterior.predict(given=(X, wrong))
    with pytest.raises(ValueError, match="Y holds 0.5"):
        deep_svigp(likelihoods.Poisson()).elbo((X, wrong))
    by_points = svgp_vae(num_data=N)
    by_points.likelihood = likelihoods.Poisson()
    batches = tf.data.Dataset.from_tensor_slices((X, wrong)).batch(4)
    with pytest.raises(ValueError, match="Y holds 0.5"):
        by_points.training_loss_closure(iter(batches))()
    stream = StreamedObservations.from_dataset(tf.data.Dataset.from_tensor_slices((X, wrong)))
    with pytest.raises(ValueError, match="The stream holds 0.5"):
        prepare_data(by_points, stream, 4)
    kernel, poisson = gpflow.kernels.SquaredExponential(), likelihoods.Poisson()
    gplvm = models.StochasticGPLVM(FreeFormEncoder(1, N, 1), kernel, X[:3], poisson, P)
    table = SparseTable([0, 1, 2], [0, 1, 2], [1.0, -3.0, 2.0])
    with pytest.raises(ValueError, match="values holds -3"):
        prepare_data(gplvm, table)


@pytest.mark.parametrize("wrong", ["values", "ids", "far", "infinite"])
def test_streams_that_nobody_has_read_are_checked_on_the_way(wrong: str) -> None:
    """Where ``num_points`` was given, rows are met by the fit alone; else all of them before."""
    kernel: Any = gpflow.kernels.Matern52(active_dims=[0])
    kernel *= gpflow.kernels.Coregion(3, 1, active_dims=[1])
    at, counts = np.hstack([X, np.arange(N)[:, None] % 3.0]), np.ones((N, P))
    words = {
        "values": "The stream holds 0.5.*counts",
        "ids": "X of the stream holds 1.5 in column 1",
        "far": r"X of the stream lies around 1e\+07 in column 0",
        "infinite": "holds inf in row",
    }
    if wrong == "values":
        counts[7, 1] = 0.5
    elif wrong == "ids":
        at[7, 1] = 1.5
    elif wrong == "far":
        at[:, 0] += 1e7
    else:
        at[7, 0] = np.inf
    model = svgp_vae(kernel, np.hstack([X, np.zeros((N, 1))])[::3], num_data=N)
    model.likelihood = likelihoods.Poisson()
    settings = inference.VariationalSettings(num_steps=6, batch_size=4)
    dataset = tf.data.Dataset.from_tensor_slices((at, counts))
    with pytest.raises(ValueError, match=words[wrong]):
        prepare_data(model, StreamedObservations.from_dataset(dataset), 4)
    stream = prepare_data(model, StreamedObservations.from_dataset(dataset, num_points=N), 4)
    with pytest.raises(ValueError, match=words[wrong]):
        if wrong == "values":
            inference.fit_variational(model, stream, settings, progress=False)
        else:
            stream.reader(4, N // 4, (0, 1), model).read(0)


def test_grey_pixels_are_observations_of_a_bernoulli() -> None:
    """As in many papers on pixels: their density is the cross-entropy."""
    model = gp_vae(likelihoods.Bernoulli())
    grey = np.full((N, P), 0.25)
    prepare_data(model, (X, grey))
    F = tf.constant(np.full((N, P), 0.3))
    expected = P * (0.25 * np.log(1 / (1 + np.exp(-0.3))) + 0.75 * np.log(1 / (1 + np.exp(0.3))))
    np.testing.assert_allclose(model.likelihood.masked_log_prob(F, grey, None), expected)


# Inputs that are far from zero, or not what the kernel reads.


def test_inputs_far_from_zero_are_refused_with_their_offset() -> None:
    """Where the covariances that GPflow finds are wrong by more than their jitter, and no nearer.

    At 1e7 they are wrong by 0.02, at 2e4, such as days since 1970, by 2e-8.
    """
    model, kernel = gp_vae(), gpflow.kernels.Matern52()
    for offset in (1e6, 1e7, 1e8, 1.7e9):
        error = np.abs(kernel(X + offset) - kernel(X)).max()
        assert error > 1e-6
        for run in (prepare_data, type(model).training_loss, inference.fit):
            message = rf"X lies around {offset + 1.5:.6g} in column 0.*Subtract"
            with pytest.raises(ValueError, match=message.replace("+", r"\+")):
                run(model, (X + offset, Y))
    for offset in (0.0, 2e4):
        assert np.abs(kernel(X + offset) - kernel(X)).max() < 1e-6
        prepare_data(model, (X + offset, Y))
    near, far = (model.training_loss((X + offset, Y)) for offset in (0.0, 2e4))
    np.testing.assert_allclose(near, far, rtol=1e-5)


def test_inputs_whose_distances_overflow_are_refused() -> None:
    """GPflow's covariances would be NaN there, and so would every bound."""
    model, far = gp_vae(), X.copy()
    far[1, 0] = -1e300
    assert np.isnan(gpflow.kernels.Matern52()(far).numpy()).any()
    for run in (prepare_data, type(model).training_loss, inference.fit):
        with pytest.raises(ValueError, match=r"X holds -1e\+300 in column 0.*overflow"):
            run(model, (far, Y))


FAR: dict[str, Callable[[Any, Any], Any]] = {
    "predict_f": lambda m, Xnew: m.predict_f(Xnew, given=(X, Y)),
    "predict_f, full_cov": lambda m, Xnew: m.predict_f(Xnew, True, given=(X, Y)),
    "predict_y": lambda m, Xnew: m.predict_y(Xnew, given=(X, Y)),
    "predict_f_samples": lambda m, Xnew: m.predict_f_samples(Xnew, 2, given=(X, Y)),
    "predict_log_density": lambda m, Xnew: m.predict_log_density((Xnew, Y), given=(X, Y)),
}
OF_POSTERIOR: dict[str, Callable[[Posterior, Any], Any]] = {
    "predict": lambda p, Xnew: p.predict(Xnew),
    "predict_y": lambda p, Xnew: p.predict_y(Xnew),
    "predict_latent": lambda p, Xnew: p.predict_latent(Xnew),
    "predict_f": lambda p, Xnew: p.predict_f(Xnew, True),
    "predict_f_samples": lambda p, Xnew: p.predict_f_samples(Xnew, 2),
    "predict_log_density": lambda p, Xnew: p.predict_log_density((Xnew, Y)),
    "predict_cell_log_density": lambda p, Xnew: p.predict_cell_log_density((Xnew, Y)),
}


def test_predictions_look_at_what_they_are_asked_for() -> None:
    """At inputs without digits, and at what is between two ids, in models and posteriors."""
    model = gp_vae()
    given = {"given": (X + 1e7, Y)}
    for run in (model.predict_f, model.predict_y, model.predict_f_samples):
        with pytest.raises(ValueError, match=r"X lies around 1e\+07 in column 0.*Subtract"):
            run(X + 1e7, **given)
    posterior = Posterior.from_point(model, (X, Y))
    with pytest.raises(ValueError, match=r"X lies around 1e\+07"):
        posterior.predict(X, **given)
    ids = np.hstack([X, np.arange(N)[:, None] % 2.0])
    kernel = gpflow.kernels.Matern52(active_dims=[0]) * gpflow.kernels.Coregion(
        2, 1, active_dims=[1]
    )
    of_ids = Posterior.from_point(gp_vae(kernel=kernel), (ids, Y))
    for call in FAR.values():
        with pytest.raises(ValueError, match=r"Xnew lies around 1e\+07 in column 0"):
            call(model, X + 1e7)
    for call in OF_POSTERIOR.values():
        with pytest.raises(ValueError, match=r"Xnew lies around 1e\+07 in column 0"):
            call(posterior, X + 1e7)
        for wrong in (0.5, 2.0):
            with pytest.raises(ValueError, match=rf"Xnew holds {wrong:g} in column 1.*an id"):
                call(of_ids, np.hstack([X, np.full((N, 1), wrong)]))
    with pytest.raises(ValueError, match=r"Xnew lies around 1e\+07"):
        deep_svigp().predict_log_density((X + 1e7, Y))
    # One far input among others is what a forecast may be, and is far from all of them.
    outlier = np.where(np.arange(N)[:, None] == 3, 1e5, X)
    with pytest.warns(UserWarning, match="Xnew has a range of 100000"):
        mean, variance = posterior.predict_f(outlier)
    np.testing.assert_allclose([mean[3], variance[3]], [np.zeros(L), np.ones(L)], atol=1e-6)


def test_inputs_that_are_completed_are_looked_at_too() -> None:
    """As the kernel inside reads them; what is learnt is nobody's mistake."""
    holes = np.hstack([X, np.where(np.arange(N)[:, None] < 3, np.nan, X)])

    def model(X: np.ndarray, inner: Any) -> Any:
        return gp_vae(kernel=inputs.CompletedInputs(inner, inputs.MissingInputs(X)))

    matern = gpflow.kernels.Matern52()
    prepare_data(model(holes, matern), (holes, Y))
    for column in (0, 1):
        far = holes + 1e7 * (np.arange(2) == column)
        with pytest.raises(ValueError, match=rf"X lies around 1e\+07 in column {column}"):
            prepare_data(model(far, matern), (far, Y))
    with pytest.raises(ValueError, match=r"active_dims=\[2\] of inputs with 2"):
        prepare_data(model(holes, gpflow.kernels.Matern52(active_dims=[2])), (holes, Y))
    ids = np.hstack([np.full((N, 1), 0.5), holes])
    of_ids = gpflow.kernels.Matern52(active_dims=[1, 2]) * gpflow.kernels.Coregion(
        2, 1, active_dims=[0]
    )
    with pytest.raises(ValueError, match=r"X holds 0.5 in column 0.*an id"):
        prepare_data(model(ids, of_ids), (ids, Y))
    objects = np.hstack([np.arange(N)[:, None] % 3, X])
    for learnt in (
        inputs.LearntVectors(np.eye(3), column=0),
        inputs.RepresentationNetwork(net(P, 2)),
    ):
        complete = inputs.CompletedInputs(gpflow.kernels.Matern52(), learnt)
        prepare_data(gp_vae(kernel=complete), (objects, Y))
        far = objects + [0.0, 1e7]
        with pytest.raises(ValueError, match=r"X lies around 1e\+07 in column 0"):
            prepare_data(gp_vae(kernel=complete), (far, Y))


def test_only_what_finds_distances_is_asked_about_its_digits() -> None:
    """A lengthscale as large as the offset, periods, and a filter over time have them all."""
    far = X + 1e7
    long = gpflow.kernels.Matern52(lengthscales=1e3)
    periodic = gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential())
    of_other = gpflow.kernels.Matern52(active_dims=[0]) + gpflow.kernels.Linear(active_dims=[1])
    for kernel, at in ((long, far), (periodic, far), (of_other, np.hstack([X, far]))):
        prepare_data(gp_vae(kernel=kernel), (at, Y))
    markov = latent_priors.MarkovGP(gpflow.kernels.Matern52(), L)
    model = models.VariationalAutoencoder(
        markov, net(L, P), net(P, 2 * L), likelihoods.Gaussian(0.3)
    )
    prepare_data(model, (far, Y))


def test_a_range_of_many_lengthscales_is_a_warning() -> None:
    """Subtracting an origin would not help there."""
    with pytest.warns(UserWarning, match=r"range of 3e\+07 in column 0.*larger lengthscale"):
        prepare_data(gp_vae(), (1e7 * X - 1.5e7, Y))


def test_columns_that_are_not_there_are_named() -> None:
    matern = gpflow.kernels.Matern32(active_dims=[2])
    for run in (prepare_data, models.GPVAE.training_loss, models.GPVAE.elbo):
        with pytest.raises(ValueError, match=r"Matern32 reads active_dims=\[2\] .* 1 column"):
            run(gp_vae(kernel=matern), (X, Y))
    with pytest.raises(ValueError, match=r"Matern32 reads active_dims=\[2\]"):
        gp_vae(kernel=matern).predict_y(X, given=(X, Y))
    with pytest.raises(ValueError, match=r"Matern32 reads active_dims=\[2\]"):
        svgp_vae(matern)  # inducing points of one column
    wide = svgp_vae(Z=np.hstack([X, X])[::3])
    for run in (prepare_data, models.SVGPVAE.training_loss):
        with pytest.raises(ValueError, match=r"X has D = 1 columns, and .* inputs have 2"):
            run(wide, (X, Y))


def test_inputs_and_observations_have_the_same_points_in_every_verb() -> None:
    model = gp_vae()
    calls = [
        lambda m, X, Y: prepare_data(m, (X, Y)),
        lambda m, X, Y: m.training_loss_closure((X, Y)),  # where it is made, and not compiled
        *map(VERBS.get, ["elbo", "predict_y"]),
    ]
    for call in (*calls, lambda m, X, Y: deep_svigp().elbo((X, Y))):
        with pytest.raises(ValueError, match="same number of tasks and points"):
            call(model, X[:-1], Y)
        with pytest.raises(ValueError, match=r"got \(12,\). One number .* a column: X\[:, None\]"):
            call(model, X[:, 0], Y)


def test_what_a_users_mistake_is_called() -> None:
    """Encoders of the other family, likelihoods of several functions, classes for objects."""
    with pytest.raises(ValueError, match=r"6 inputs.*P = 3.*maps \[rows, P\].*: 3 inputs"):
        gp_vae(encoder=net(2 * P, 2 * L))
    with pytest.raises(ValueError, match="1 code channels.*2 L outputs of a variational"):
        gp_vae(encoder=net(P, L))
    with pytest.raises(ValueError, match="4 inputs.*P = 4.*2 P.*: 8 inputs"):
        sgp_bae(encoder=net(4, L), decoder=net(L, 4))
    parts = [gpflow.likelihoods.Gaussian(), gpflow.likelihoods.StudentT()]
    for likelihood in (
        gpflow.likelihoods.SwitchedLikelihood(parts),
        gpflow.likelihoods.HeteroskedasticTFPConditional(),
        gpflow.likelihoods.Softmax(3),
    ):
        with pytest.raises(TypeError, match=f"factorise.*got {type(likelihood).__name__}"):
            gp_vae(likelihood)
        with pytest.raises(TypeError, match=f"got {type(likelihood).__name__}"):
            deep_svigp(likelihood)
    with pytest.raises(TypeError, match="got the class Poisson itself"):
        gp_vae(likelihoods.Poisson)
    with pytest.raises(TypeError, match="got the class Matern52 itself"):
        gp_vae(kernel=gpflow.kernels.Matern52)
    with pytest.raises(TypeError, match="got the class Sequential itself"):
        gp_vae(decoder=keras.Sequential)
    with pytest.raises(TypeError, match="got the class StudentT itself"):
        sgp_bae(likelihood=gpflow.likelihoods.StudentT)
    with pytest.raises(TypeError, match="mean_function must be .*got the class Linear itself"):
        gp_vae(mean_function=gpflow.functions.Linear)
    with pytest.raises(TypeError, match="model must be .*got the class SVGPVAE itself"):
        inference.fit(models.SVGPVAE, (X, Y))
    settings = inference.VariationalSettings
    with pytest.raises(TypeError, match="settings must be .*got the class VariationalSettings its"):
        inference.fit_variational(gp_vae(), (X, Y), settings)


def test_names_of_gpflow_that_are_not_there_say_what_is() -> None:
    model = sgp_bae()
    for name in ("predict_y", "elbo", "training_loss", "posterior"):
        with pytest.raises(AttributeError, match=f"SGPBAE has no {name}.*inference.fit"):
            getattr(model, name)
    assert not hasattr(model, "predict_f") and not hasattr(model, "something")
    assert model.inducing_variable is model.latent_prior.inducing_variable
    with pytest.raises(AttributeError, match="GP has no inducing points"):
        _ = gp_vae().inducing_variable
    for arguments in ({}, {"precompute_cache": None}):
        with pytest.raises(TypeError, match="Posterior.from_point"):
            gp_vae().posterior(**arguments)


class Brownian(gpflow.kernels.Kernel):
    """As the documentation of GPflow writes a kernel: of one table of inputs."""

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return tf.minimum(X, tf.transpose(X if X2 is None else X2))

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return tf.reshape(X, [-1])


@pytest.mark.parametrize("num_tasks", [1, 3])
@pytest.mark.parametrize("kind", ["exact", "sparse", "neighbours"])
def test_a_kernel_of_one_table_is_asked_task_by_task(kind: str, num_tasks: int) -> None:
    """Densities of codes are those of multivariate normals, task by task."""
    times = np.sort(np.random.default_rng(0).uniform(1.0, 2.0, (num_tasks, 3, 1)), 1)
    codes = np.random.default_rng(1).normal(size=(num_tasks, 3, L))
    prior: Any
    if kind == "exact":
        prior = latent_priors.GP(Brownian(), L, 0.1)
    elif kind == "sparse":
        prior = latent_priors.SparseGP(Brownian(), [[0.5], [1.5], [3.0]], L, 0.1)
    else:
        prior = latent_priors.NearestNeighbourGP(Brownian(), times, L, 2)
    prior.code_noise_variance.assign(0.1)
    found = prior.log_prob(times, codes)
    if kind == "sparse":
        for task in range(num_tasks):
            one = prior.log_prob(times[task], codes[task])
            np.testing.assert_allclose(found[task], one, rtol=1e-9)
    else:  # two neighbours of three points are all
        K = np.minimum(times[0], times[0].T) + 0.1 * np.eye(3)
        solved = np.sum(codes[0] * np.linalg.solve(K, codes[0]))
        expected = -0.5 * (solved + L * np.linalg.slogdet(2 * np.pi * K)[1])
        np.testing.assert_allclose(found[0], expected, rtol=1e-4)
    mean, variance = prior.predict(times + 0.05, times, codes, 0.1 * np.ones_like(codes))
    assert np.isfinite(mean).all() and np.all(variance > 0)
