"""Tasks of unequal lengths: each is predicted as alone, and its padding is NaN."""

from __future__ import annotations

import pathlib
from typing import Any

import gpflow
import keras
import numpy as np
import pytest

from gpflow_bae import models
from gpflow_bae.posteriors import Posterior
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
