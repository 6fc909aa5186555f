"""TemperedAutoencoder by scikit-learn's own checks, beside PCA, in searches and in pickles."""

from __future__ import annotations

import copy
import pathlib
import pickle
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import joblib
import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import gpflow_bae
from gpflow_bae import decoders, inference, models
from gpflow_bae.estimators import TemperedAutoencoder, networks

P, L = 4, 2
# Two steps, from principal components, of 2 replicas: one sample each.
BRIEF: dict[str, Any] = {
    "num_samples": 2,
    "num_replicas": 2,
    "thinning": 1,
    "swap_interval": 1,
    "start": None,
    "proposal": inference.Proposal("lg", noise_scale=1e-3),
    "whitening": inference.Whitening(),
}

# Of scikit-learn's checks, by name and with the reason.
EXPECTED_FAILURES: dict[str, str] = {}


@pytest.fixture
def in_python(untraced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without vectorized_map, which compiles whether asked to or not."""
    monkeypatch.setattr(models.tempered, "_VECTORISE_UP_TO", 0)


def brief(**arguments: Any) -> TemperedAutoencoder:
    return TemperedAutoencoder(**{"settings": BRIEF, "encoder_units": (3,), **arguments})


def linear_rows(num_rows: int, seed: int, num_columns: int = 6, noise: float = 0.2) -> np.ndarray:
    """Two factors and noise; the loadings are the same for every seed."""
    loadings = np.random.default_rng(7).standard_normal((2, num_columns))
    rng = np.random.default_rng(seed)
    codes = rng.standard_normal((num_rows, 2))
    return 5.0 + codes @ loadings + noise * rng.standard_normal((num_rows, num_columns))


def test_checks_of_scikit_learn(in_python: None) -> None:
    """All pass but those named above; one that begins to pass has to be taken off the list."""
    found = check_estimator(
        brief(encoder_units=(2,)),
        expected_failed_checks=EXPECTED_FAILURES,
        on_fail=None,
        on_skip=None,
    )
    by_status: dict[str, list[str]] = {}
    for check in found:
        by_status.setdefault(check["status"], []).append(check["check_name"])
    reasons = {c["check_name"]: str(c["exception"]) for c in found if c["status"] == "failed"}
    assert not reasons, reasons
    assert sorted(by_status.get("xfail", [])) == sorted(EXPECTED_FAILURES)
    assert len(by_status["passed"]) >= 40
    assert len(by_status.get("skipped", [])) <= 3  # array API, which takes an environment variable


@pytest.mark.slow
def test_linear_rows_are_those_of_principal_components() -> None:
    """With the defaults, where PCA is the right model: new rows within 5 % of its error.

    Hidden layers have 32 units too many here; with a wide prior on them the error is 12 % more.
    """
    train, test = linear_rows(200, 0), linear_rows(500, 1)
    fitted = TemperedAutoencoder(latent_dim=2).fit(train)
    components = PCA(2).fit(train)
    error, reference = (
        np.mean(np.square(f.inverse_transform(f.transform(test)) - test))
        for f in (fitted, components)
    )
    assert error < 1.05 * reference
    prediction = fitted.reconstruct(test)
    inside = np.abs(test - prediction.mean) < 1.645 * np.sqrt(prediction.variance)
    # 3000 cells of 500 rows: a standard error of at most 1.3 % if rows were single draws. Errors
    # are smaller than the noise, for codes take a third of the noise of six columns with them.
    assert 0.87 < inside.mean() < 0.97


@pytest.fixture
def exact(in_python: None) -> Iterator[Any]:
    """Linear networks that stay at principal components: proposals too short to be seen."""

    def make(latent_dim: int, **arguments: Any) -> TemperedAutoencoder:
        settings = BRIEF | {"proposal": inference.Proposal("lg", noise_scale=1e-7)}
        return brief(latent_dim=latent_dim, encoder_units=(), settings=settings, **arguments)

    yield make


def test_the_start_is_principal_component_analysis(exact: Any) -> None:
    rows = linear_rows(40, 0) * [1, 3, 1, 1, 1, 1]
    fitted, components = exact(2).fit(rows), PCA(2).fit(rows)
    expected = components.inverse_transform(components.transform(rows))
    codes = fitted.transform(rows)
    np.testing.assert_allclose(fitted.inverse_transform(codes), expected, atol=1e-3)
    np.testing.assert_allclose(codes.std(0), 1.0, atol=1e-3)
    # A number that the user gives is where the noise starts instead.
    expected_noise = np.mean(np.square(rows - expected)) / fitted.scale_**2
    found = fitted.model_.likelihood.variance.numpy()
    np.testing.assert_allclose(found, expected_noise, rtol=1e-3)
    given = exact(2, noise_variance=0.3).fit(rows)
    np.testing.assert_allclose(given.model_.likelihood.variance, 0.3)


def test_score_predicts_cells_from_the_others_of_their_rows(exact: Any) -> None:
    """Hidden cells of a linear autoencoder are least squares on the components' other cells."""
    train, test = linear_rows(60, 0, 10), linear_rows(50, 1, 10)
    test[3, 4] = np.nan
    fitted, components = exact(2).fit(train), PCA(2).fit(train)
    W, mean = components.components_.T, train.mean(0)
    folds = sys.modules[TemperedAutoencoder.__module__]._folds(test.shape)
    assert all(np.ptp(np.bincount(row, minlength=5)) == 0 for row in folds)
    errors, total = 0.0, np.nansum(np.square(test - mean))
    for row, fold in zip(test - mean, folds, strict=True):
        for k in range(5):
            hidden = (fold == k) & ~np.isnan(row)
            # A missing cell is at its mean, and known.
            known, values = fold != k, np.nan_to_num(row)
            codes = np.linalg.lstsq(W[known], values[known], rcond=None)[0]
            errors += np.sum(np.square(W[hidden] @ codes - row[hidden]))
    # Five rounds of filling in: what is left falls geometrically.
    assert fitted.score(test) == pytest.approx(1.0 - errors / total, abs=0.01)


def test_score_finds_the_number_of_factors(exact: Any) -> None:
    """Two; the reconstruction error of new rows falls on, as for PCA."""
    train, test = linear_rows(100, 0, 10), linear_rows(300, 1, 10)
    fits = [exact(k).fit(train) for k in (1, 2, 4)]
    errors = [np.mean(np.square(f.reconstruct(test).mean - test)) for f in fits]
    scores = [f.score(test) for f in fits]
    assert errors[2] < errors[1] < errors[0]
    assert np.argmax(scores) == 1 and scores[1] > 0.9
    # As many codes as columns copy the row, and know nothing of a cell that is hidden.
    copying = exact(10).fit(train)
    np.testing.assert_allclose(copying.reconstruct(test).mean, test, atol=1e-2)
    assert copying.score(test) == pytest.approx(0.0, abs=0.01)
    # Rows that have nothing in common with those of the fit: no better than column means.
    assert fits[1].score(np.random.default_rng(2).standard_normal((50, 10)) + train.mean(0)) < 0.1


def test_a_search_over_latent_dim_in_two_processes(
    in_python: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process loads TensorFlow; a fit that comes back predicts as it did there, to the bit."""
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    rows = linear_rows(30, 0)
    pipeline = make_pipeline(StandardScaler(), brief(random_state=3))
    name = "temperedautoencoder__latent_dim"
    with joblib.parallel_config(backend="loky", initializer=_in_python):
        search = GridSearchCV(pipeline, {name: [1, 2]}, cv=2, n_jobs=2, refit=False).fit(rows)
        fits = joblib.Parallel(n_jobs=2)(
            joblib.delayed(_fit_and_transform)(clone(pipeline).set_params(**{name: k}), rows)
            for k in (1, 2)
        )
    scores = search.cv_results_["mean_test_score"]
    assert search.best_params_ == {name: 2} and scores[1] > scores[0] + 0.1
    for number, (fitted, codes) in enumerate(fits, start=1):
        assert codes.shape == (30, number)
        np.testing.assert_array_equal(fitted.transform(rows), codes)


def _in_python() -> None:
    tf.config.run_functions_eagerly(True)
    models.tempered._VECTORISE_UP_TO = 0


def _fit_and_transform(pipeline: Any, rows: np.ndarray) -> tuple[Any, np.ndarray]:
    fitted = pipeline.fit(rows)
    return fitted, fitted.transform(rows)


def test_copies_predict_the_same(in_python: None) -> None:
    rows = linear_rows(30, 0)
    rows[2, 3] = np.nan
    fitted = brief(weight_prior=decoders.normal_prior(2.0)).fit(rows)
    expected = fitted.reconstruct(rows)
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        for one, two in zip(other.reconstruct(rows), expected, strict=True):
            np.testing.assert_array_equal(one, two)
    # A clone has the arguments only, and a fit of its own is the same: seeds are arguments.
    again = clone(fitted)
    assert not hasattr(again, "posterior_")
    np.testing.assert_array_equal(again.fit(rows).transform(rows), fitted.transform(rows))
    other = clone(fitted).set_params(random_state=1).fit(rows)
    assert np.abs(other.transform(rows) - fitted.transform(rows)).max() > 1e-4
    # Nothing of it touches the generators of the process.
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    with networks.seeded(3):
        pass
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_names_of_columns(in_python: None) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(linear_rows(20, 0, P), columns=list("abcd"), index=range(5, 25))
    fitted = brief().set_output(transform="pandas").fit(frame)
    codes = fitted.transform(frame)
    assert list(codes.columns) == ["temperedautoencoder0", "temperedautoencoder1"]
    assert list(codes.index) == list(frame.index)
    assert list(fitted.get_feature_names_out()) == list(codes.columns)
    assert list(fitted.feature_names_in_) == list("abcd") and fitted.n_features_in_ == P
    assert fitted.inverse_transform(codes).shape == frame.shape
    with pytest.raises(ValueError, match="is no table"):
        fitted.set_params(codes="samples").transform(frame)
    with pytest.raises(ValueError, match=r"no value at all in column\(s\) \['b'\]"):
        brief().fit(frame.assign(b=np.nan))


def network(num_inputs: int, num_outputs: int) -> keras.Model:
    dense = keras.layers.Dense(num_outputs, activation="sigmoid")
    return keras.Sequential([keras.Input((num_inputs,)), dense])


@pytest.mark.filterwarnings("ignore:The fit reconstructs")
def test_codes_of_every_sample_and_built_networks(in_python: None) -> None:
    rows = np.random.default_rng(0).random((12, P))
    settings = BRIEF | {"num_samples": 4}
    fitted = TemperedAutoencoder(
        network(P, L), network(L, P), settings=settings, codes="samples"
    ).fit(rows)
    codes = fitted.transform(rows)
    assert codes.shape == (4, 12, L)  # 2 replicas of 2 samples
    # Networks of a user's own get the rows as they are.
    np.testing.assert_array_equal(codes, fitted.posterior_.encode(rows))
    assert fitted.scale_ == 1.0 and not fitted.mean_.any()
    # Averaging reconstructions is decoding each sample's own codes.
    prediction = fitted.reconstruct(rows)
    np.testing.assert_allclose(fitted.inverse_transform(codes), prediction.mean, atol=1e-6)
    assert np.all(prediction.noise_variance > 0) and np.all(prediction.epistemic_variance >= 0)
    assert fitted.inverse_transform(codes.mean(0)).shape == (12, P)
    with pytest.raises(ValueError, match=r"or \[4, N, 2\] for codes of each .*got \(3, 12, 2\)"):
        fitted.inverse_transform(codes[:3])


@pytest.mark.filterwarnings("ignore:The fit reconstructs")
def test_functions_that_build_networks_in_a_pipeline(in_python: None) -> None:
    rows, labels = linear_rows(12, 0), np.arange(12) % 2
    steps = make_pipeline(MinMaxScaler(), brief(encoder=network, decoder=network, latent_dim=3))
    whole = make_pipeline(steps, LogisticRegression())
    predicted = whole.fit(rows, labels).predict_proba(rows)
    assert steps[-1].model_.latent_dim == 3
    # Keras's initialisers are seeded too.
    again = clone(whole).fit(rows, labels).predict_proba(rows)
    np.testing.assert_array_equal(predicted, again)


def test_numbers_of_a_row_do_not_depend_on_its_company(
    in_python: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are the same whatever the number of rows in a call."""
    rows = linear_rows(30, 0)
    fitted = brief().fit(rows)
    expected = fitted.transform(rows), fitted.reconstruct(rows).mean
    np.testing.assert_array_equal(fitted.transform(rows[[3]]), expected[0][[3]])
    monkeypatch.setattr(sys.modules[TemperedAutoencoder.__module__], "_ROWS_PER_CALL", 7)
    found = fitted.transform(rows), fitted.reconstruct(rows).mean
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_a_useless_fit_says_so(exact: Any) -> None:
    """Columns of noise have nothing in common; with common factors there is no warning."""
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="no better than their column means"):
        exact(1).fit(rng.standard_normal((400, 400)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact(1).fit(linear_rows(30, 0))
        exact(1).fit(np.ones((5, 3)))  # nothing to explain


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"codes": "median"}, 'codes must be "mean" or "samples"'),
        ({"latent_dim": 0}, "latent_dim must be a positive integer, got 0"),
        ({"latent_dim": 1.5}, "latent_dim must be a positive integer"),
        ({"encoder_units": 32}, r"encoder_units must be a sequence .* such as \(32,\), got 32"),
        ({"encoder_units": None}, "encoder_units must be a sequence"),
        ({"decoder_units": (8, -1)}, "decoder_units must be a sequence"),
        ({"settings": {"steps": 3}}, r"settings has no field \['steps'\]"),
        ({"settings": 3}, "settings must be a mapping"),
        ({"encoder": network(P, 2), "decoder": network(3, P)}, "encoder returns 2 codes per row"),
        ({"encoder": network(5, 2), "decoder": network(2, 5)}, "decoder returns 5 outputs"),
    ],
)
def test_bad_arguments_are_refused_in_fit(
    arguments: dict[str, Any], message: str, in_python: None
) -> None:
    with pytest.raises(ValueError, match=message):
        TemperedAutoencoder(**{"settings": BRIEF, **arguments}).fit(linear_rows(10, 0, P))


def test_bad_rows_are_refused(in_python: None) -> None:
    with pytest.raises(NotFittedError):
        brief().transform(linear_rows(3, 0))
    with pytest.raises(TypeError, match=r"encoder must be a keras Model, got 3"):
        brief(encoder=3).fit(linear_rows(10, 0))
    fitted = brief().fit(linear_rows(10, 0))
    with pytest.raises(ValueError, match="X has 3 features, but TemperedAutoencoder is expecting"):
        fitted.transform(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="infinity"):
        fitted.transform(np.full((2, 6), np.inf))
    with pytest.raises(ValueError, match=r"X must have shape \[N, 2\]"):
        fitted.inverse_transform(np.zeros((3, 5)))


def test_settings_replace_single_defaults_or_all() -> None:
    whole = inference.TemperedSettings(num_samples=7)
    assert TemperedAutoencoder(settings=whole)._check_arguments() is whole
    some = TemperedAutoencoder(settings={"num_samples": 7})._check_arguments()
    assert some.num_samples == 7 and some.start is not None
    assert whole.start is None


def test_the_package_does_not_need_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only estimators import it with the module, and say which extra they want without it."""
    when_asked_for = {"transformer.py", "chain_fitting.py"}  # modules that are loaded then
    for path in pathlib.Path(gpflow_bae.__file__).parent.rglob("*.py"):
        if path.parent.name != "estimators" and path.name not in when_asked_for:
            assert not re.search(r"^(import|from) sklearn", path.read_text("utf-8"), re.M), path
    assert "estimators" not in vars(gpflow_bae)["__all__"]
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "gpflow_bae.estimators")
    with pytest.raises(ImportError, match=r"pip install 'gpflow-bae\[sklearn\]'"):
        gpflow_bae.__getattr__("estimators")
    with pytest.raises(AttributeError, match="no attribute 'estimator'"):
        gpflow_bae.__getattr__("estimator")


def test_rows_of_one_value_have_no_scale(in_python: None) -> None:
    """The mean of equal rows differs from them by rounding, which is no scale to divide by."""
    X = np.tile([48.85, 0.1, 2.0 / 3.0], (37, 1))
    assert (X - X.mean(0)).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = brief().fit(X)
    assert fitted.scale_ == 1.0 and fitted.score(X) == 0.0
    codes = fitted.transform(np.concatenate([X[:2], X[:2] + 1e-3]))
    assert np.abs(codes).max() < 10.0


def test_an_activation_that_keras_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match=r"activation must be the name .*, got 0\."):
        brief(activation=0).fit(np.zeros((4, P)))
