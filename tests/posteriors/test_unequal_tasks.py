"""Tasks of any order and unequal lengths: each is as alone, and its padding is NaN."""

from __future__ import annotations

import pathlib
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import encoders, inputs, latent_priors, likelihoods, models
from gpflow_bae.data import pad_tasks, prepare_data
from gpflow_bae.guides import GaussianGuide
from gpflow_bae.posteriors import Posterior, completed_inputs, input_intervals
from gpflow_bae.posteriors.conditionals import latent_moments
from tests.posteriors.small import L, P, dense

SIZES, NEW = (6, 4), (2, 3)


def parts() -> dict[str, Any]:
    keras.utils.set_random_seed(0)
    decoder, encoder = dense(L, P), dense(P, 2 * L)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return {"decoder": decoder, "encoder": encoder, "likelihood": likelihood, "latent_dim": L}


def make_model() -> models.SVGPVAE:
    kernel = gpflow.kernels.SquaredExponential()
    return models.SVGPVAE(kernel, np.linspace(0.0, 3.0, 4)[:, None], **parts())


def tasks() -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    X = [np.sort(rng.uniform(0.0, 3.0, n))[:, None] for n in SIZES]
    Y = [rng.standard_normal((n, P)) for n in SIZES]
    Y[0][1, 2] = Y[1][0, 0] = np.nan
    Y[1][3] = np.nan  # a row without observations is no padding
    return X, Y


def new_inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.uniform(0.0, 3.0, (n, 1)) for n in NEW]


def check_padding(values: Any, sizes: tuple[int, ...], rows: int = -2) -> None:
    """Compare where results are NaN with the tasks' numbers of rows."""
    values = np.moveaxis(np.asarray(values), (rows - 1, rows), (0, 1))
    for task, size in zip(values, sizes, strict=True):
        assert len(task) == max(sizes)
        assert np.isfinite(task[:size]).all() and np.isnan(task[size:]).all()


@pytest.mark.parametrize("of_fit", [True, False])
@pytest.mark.parametrize("at_new", [True, False])
def test_each_task_has_the_function_that_it_has_alone(of_fit: bool, at_new: bool) -> None:
    model, (X, Y) = make_model(), tasks()
    posterior = Posterior.from_point(model, (X, Y) if of_fit else (X[0], Y[0]))
    Xnew = new_inputs() if at_new else None
    sizes = NEW if at_new else SIZES
    given = None if of_fit else (X, Y)
    for full_cov in (False, True):
        for full_output_cov in (False, True):
            options = {"full_cov": full_cov, "full_output_cov": full_output_cov}
            found = posterior.predict_f(Xnew, given=given, **options)
            of_model = model.predict_f(Xnew, given=(X, Y), **options)
            for t, size in enumerate(sizes):
                at = None if Xnew is None else Xnew[t]
                alone = model.predict_f(at, given=(X[t], Y[t]), **options)
                for several in (found, of_model):
                    for of_all, of_one in zip(several, alone, strict=True):
                        expected = np.full(of_all.shape[1:], np.nan)
                        expected[tuple(slice(n) for n in of_one.shape)] = of_one
                        # Pseudo-observations are float32.
                        np.testing.assert_allclose(of_all[t], expected, atol=1e-5)
                assert len(alone[0]) == size


def test_results_are_nan_in_rows_that_a_task_does_not_have() -> None:
    model, (X, Y) = make_model(), tasks()
    posterior, new = Posterior.from_point(model, (X, Y)), new_inputs()
    Ynew = [np.ones((n, P)) for n in NEW]
    for given in (None, (X, Y)):
        for Xnew, sizes in ((None, SIZES), (new, NEW)):
            for values in posterior.predict(Xnew, given):
                check_padding(values, sizes)
            for values in posterior.latent_samples(Xnew, given):
                check_padding(values, sizes)
            check_padding(posterior.predict_f_samples(Xnew, 3, given=given), sizes)
            check_padding(posterior.predict_mean_samples(Xnew, given=given), sizes)
        check_padding(posterior.predict_log_density((new, Ynew), given=given), NEW, -1)
        check_padding(posterior.predict_cell_log_density((new, Ynew), given=given), NEW)
    check_padding(posterior.predict_log_density((None, Y)), SIZES, -1)
    check_padding(posterior.encode(Y), SIZES)
    check_padding(posterior.code_samples(num_codes=2), SIZES)
    check_padding(posterior.code_samples([0, 1, 2, 3, 5]), (5, 4))
    for values in posterior.impute(Y, X):
        check_padding(values, SIZES)
    for Xnew, sizes in ((None, SIZES), (new, NEW)):
        check_padding(model.predict_f_samples(Xnew, 3, given=(X, Y)), sizes)
        for values in model.predict_y(Xnew, given=(X, Y)):
            check_padding(values, sizes)
    check_padding(model.predict_log_density((None, Y), given=(X, Y)), SIZES, -1)
    check_padding(model.predict_log_density((new, Ynew), given=(X, Y)), NEW, -1)


def test_a_filled_task_keeps_what_was_observed() -> None:
    (X, Y), posterior = tasks(), Posterior.from_point(make_model(), tasks())
    filled, deviation = posterior.impute(Y, X)
    mean, variance = posterior.predict_y()
    for t, own in enumerate(Y):
        hole, n = np.isnan(own), len(own)
        np.testing.assert_array_equal(filled[t, :n][~hole], own[~hole])
        np.testing.assert_array_equal(filled[t, :n][hole], mean[t, :n][hole])
        np.testing.assert_array_equal(deviation[t, :n] ** 2 > 0.0, hole)
        np.testing.assert_allclose(deviation[t, :n][hole] ** 2, variance[t, :n][hole], rtol=1e-12)


def test_a_saved_posterior_remembers_the_lengths(tmp_path: pathlib.Path) -> None:
    posterior = Posterior.from_point(make_model(), tasks())
    posterior.save(tmp_path / "fit.npz")
    again = Posterior.load(tmp_path / "fit.npz", make_model())
    np.testing.assert_array_equal(again.predict_y(), posterior.predict_y())
    check_padding(again.predict_y()[0], SIZES)


def test_rows_to_score_are_those_of_the_prediction() -> None:
    model, (X, Y) = make_model(), tasks()
    posterior = Posterior.from_point(model, (X, Y))
    for call in (
        lambda: posterior.predict_log_density((None, Y[::-1])),
        lambda: model.predict_log_density((None, Y[::-1]), given=(X, Y)),
    ):
        with pytest.raises(ValueError, match=r"Ynew has tasks of \[4, 6\] rows; .*are of \[6, 4\]"):
            call()


@pytest.mark.parametrize("as_list", [True, False])
def test_completed_inputs_are_those_of_rows_that_are_there(as_list: bool) -> None:
    """Also where the inputs were padded by hand, so that the padding has missing entries too."""
    X, Y = tasks()
    X[0][2] = X[1][-1] = np.nan
    missing = inputs.MissingInputs(X if as_list else pad_tasks(X, is_input=True)[0], q="gaussian")
    kernel = inputs.CompletedInputs(gpflow.kernels.Matern32(), missing)
    model = models.SVGPVAE(kernel, np.linspace(0.0, 3.0, 4)[:, None], **parts())
    posterior = Posterior.from_point(model, (X, Y), num_samples=2)
    draws = completed_inputs(posterior, num_draws=4)
    assert draws.shape == (4, 2, max(SIZES), 1)
    check_padding(draws, SIZES)
    found = input_intervals(posterior, 0, num_draws=20)
    np.testing.assert_array_equal(found.places, [[0, 2], [1, 3]])
    assert np.isfinite([found.lower, found.upper]).all()


Tasks = tuple[list[np.ndarray], list[np.ndarray]]
SAME = {"rtol": 1e-7, "atol": 1e-7}  # an uninformative pseudo-observation has a variance of 1e10
ORDER = [1, 0]
KERNEL, Z = gpflow.kernels.Matern32(), np.linspace(0.0, 3.0, 4)[:, None]


def variational(kind: str, X: Any) -> models.VariationalAutoencoder:
    """A model of a kind, built alike for all inputs."""
    made: Any = parts()
    networks = {name: made[name] for name in ("decoder", "likelihood")}
    encoder = encoders.GaussianEncoder(made["encoder"])
    if kind in ("GPVAE", "VAE"):
        return getattr(models, kind)(*([KERNEL] if kind == "GPVAE" else []), **made)
    if kind in ("SVGPVAE", "SGPVAE", "GPPVAE"):
        made["encoder"] = encoders.partial_encoder("factornet", P, L, (3,))
        return getattr(models, kind)(KERNEL, Z, **made)
    if kind == "CVAE":
        return models.CVAE(dense(L + 1, P), dense(P + 1, 2 * L), networks["likelihood"], L)
    if kind == "product":
        made_of = [latent_priors.MarkovGP(KERNEL, 1), latent_priors.StandardNormal(L - 1)]
        prior: Any = latent_priors.ProductPrior(made_of)
    else:
        prior = latent_priors.NearestNeighbourGP(KERNEL, X, L, 3)
    guide = GaussianGuide(encoder) if kind == "neighbours, Gaussian" else encoder
    return models.VariationalAutoencoder(prior, encoder=guide, **networks)


def padded(data: Tasks, more: int) -> tuple[np.ndarray, np.ndarray]:
    """Tasks as arrays, with some more rows of padding."""
    X, Y = pad_tasks(data[0], is_input=True)[0], pad_tasks(data[1], is_input=False)[0]
    Y = np.concatenate([Y, np.full((len(Y), more, P), np.nan)], 1)
    return np.concatenate([X, np.repeat(X[:, -1:], more, 1)], 1), Y


@pytest.mark.parametrize(
    "kind",
    ["SVGPVAE", "SGPVAE", "GPVAE", "GPPVAE", "VAE", "CVAE", "product"]
    + ["neighbours, mean field", "neighbours, Gaussian"],
)
def test_bounds_and_functions_know_neither_order_nor_padding(kind: str) -> None:
    """The divergence of all tasks is the sum of each alone, and each has its own function."""
    X, Y = tasks()
    new = np.linspace(0.0, 3.0, 5)[:, None]

    def found(data: Any) -> tuple[float, np.ndarray]:
        X = data[0] if np.ndim(data[0][0]) == 2 and len(data[0]) > 1 else data[0][0]
        model = variational(kind, X)
        moments = model.predict_f(new, given=data)
        return float(model.approximate_posterior(model._batch(data)).divergence), np.array(moments)

    total, functions = found((X, Y))
    alone = [found(([x], [y])) for x, y in zip(X, Y, strict=True)]
    others = [found(([X[i] for i in ORDER], [Y[i] for i in ORDER]))]
    if not kind.startswith("neighbours"):  # to arrays it is not known what is padding
        others.append(found(padded((X, Y), 9)))
    np.testing.assert_allclose(total, sum(value for value, _ in alone), **SAME)
    np.testing.assert_allclose(functions, np.concatenate([f for _, f in alone], 1), **SAME)
    for (value, f), order in zip(others, (ORDER, [0, 1]), strict=False):
        np.testing.assert_allclose(value, total, **SAME)
        np.testing.assert_allclose(f, functions[:, order], **SAME)


def test_an_evidence_is_that_of_observed_points() -> None:
    X, Y = tasks()
    model = variational("GPVAE", X)
    longer = padded((X, Y), 3)
    seen = [~np.isnan(y).all(1) for y in Y]
    of_each = [
        model.posterior(x[own], y[own]).log_marginal for x, y, own in zip(X, Y, seen, strict=True)
    ]
    np.testing.assert_allclose(model.posterior(*longer).log_marginal, of_each, **SAME)


class _Quiet(encoders.StochasticEncoder):
    """A stochastic encoder whose noise does not depend on the place of a row."""

    def __call__(self, Y: Any, noise: Any, mask: Any = None) -> Any:
        return super().__call__(Y, 0.0 * noise + 0.1 * np.random.default_rng(0).normal(), mask)


def sampled(kind: str, X: Any) -> models.BayesianAutoencoder:
    keras.utils.set_random_seed(0)
    common = {
        "decoder": dense(L, P),
        "encoder": _Quiet(dense(2 * P, L)),
        "likelihood": likelihoods.Gaussian(0.2),
    }
    priors = {
        "SGPBAE": lambda: latent_priors.SparseGP(KERNEL, Z, L, 0.1),
        "GPBAE": lambda: latent_priors.GP(KERNEL, L, 0.1),
        "BAE": lambda: latent_priors.StandardNormal(L),
        "neighbours": lambda: latent_priors.NearestNeighbourGP(KERNEL, X, L, 3, 0.1),
    }
    return models.BayesianAutoencoder(priors[kind](), **common)


@pytest.mark.parametrize("kind", ["SGPBAE", "GPBAE", "BAE", "neighbours"])
def test_predictions_of_samples_know_neither_order_nor_padding(kind: str) -> None:
    """Given sampled codes, and given what the encoder makes of the same tasks."""
    X, Y = tasks()
    Y[1][3] = 0.5  # every row of a task has observations
    codes = np.random.default_rng(2).standard_normal((len(X), max(SIZES), L))
    new = np.linspace(0.0, 3.0, 5)[:, None]

    def found(X: Any, Y: Any, codes: np.ndarray) -> np.ndarray:
        model = sampled(kind, X if len(X) > 1 else X[0])
        data, seed = prepare_data(model, (X, Y)), tf.constant([1, 2])
        sample, given = (model, model.sampled.values(), []), (data.X, data.Y, data.mask)
        latents = tf.constant(codes)
        return np.array(
            [
                moment
                for of in ([latents], [])
                for moment in latent_moments(
                    *sample, of, seed, given, tf.constant(new[None]), num_draws=2
                )
            ]
        )

    whole = found(X, Y, codes)
    for t, (x, y) in enumerate(zip(X, Y, strict=True)):
        alone = found([x], [y], codes[t : t + 1, : len(x)])
        np.testing.assert_allclose(whole[:, t], alone[:, 0], **SAME)
    other = found([X[i] for i in ORDER], [Y[i] for i in ORDER], codes[ORDER])
    np.testing.assert_allclose(other, whole[:, ORDER], **SAME)
    if kind != "neighbours":
        more = np.concatenate([codes, codes[:, :3]], 1)
        np.testing.assert_allclose(found(*padded((X, Y), 3), more), whole, **SAME)
