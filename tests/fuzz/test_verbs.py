"""What a model's own verbs make of arrays of any kind, and what a file says of other models."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import gpflow
import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from gpflow_bae import inference, likelihoods, models
from gpflow_bae.posteriors import Posterior
from tests.fuzz.answers import answered, assert_finite, cases
from tests.fuzz.strategies import mutated
from tests.serving import small_posteriors
from tests.serving.small_posteriors import L, P, network

N = 6
X, Y = (values[0, :N] for values in small_posteriors.data())
FIT = inference.VariationalSettings(num_steps=2)
VERBS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "elbo": lambda m, X, Y: m.elbo((X, Y)),
    "training_loss": lambda m, X, Y: m.training_loss((X, Y)),
    "maximum_log_likelihood_objective": lambda m, X, Y: m.maximum_log_likelihood_objective((X, Y)),
    "log_posterior_density": lambda m, X, Y: m.log_posterior_density((X, Y)),
    "predict_f": lambda m, X, Y: m.predict_f(X, given=(X, Y)),
    "predict_f, new": lambda m, Xnew, _: m.predict_f(Xnew, True, given=(X, Y)),
    "predict_y": lambda m, X, Y: m.predict_y(X, given=(X, Y)),
    "predict_f_samples": lambda m, X, Y: m.predict_f_samples(X, 2, given=(X, Y)),
    "predict_log_density": lambda m, Xnew, Ynew: m.predict_log_density((Xnew, Ynew), given=(X, Y)),
    "fit_variational": lambda m, X, Y: inference.fit_variational(m, (X, Y), FIT, progress=False),
}
KINDS: dict[str, Callable[[], Any]] = {
    "SVGPVAE": lambda: small_posteriors.variational(models.SVGPVAE).model,
    "VAE": lambda: small_posteriors.variational(models.VAE).model,
    "DeepSVIGP": lambda: models.DeepSVIGP(
        gpflow.kernels.Matern52(), X[::2], network(L, P), likelihoods.Gaussian(0.3), L, N
    ),
}
model_of = functools.cache(lambda kind: KINDS[kind]())


def changed(values: np.ndarray) -> st.SearchStrategy[Any]:
    """An array that a user may have: far from zero, of one value, masked, of another type."""
    column = values.shape[-1] - 1
    kinds: dict[str, Callable[[], Any]] = {
        "far": lambda: values + 1e7,
        "very far": lambda: values + 1.7e9,
        "one value up to rounding": lambda: np.full_like(values, 0.1) * (1.0 + 1e-16 * values),
        "a column of one value": lambda: np.where(np.arange(column + 1) == column, 48.85, values),
        "a mask over junk": lambda: np.ma.array(
            np.where(values > 0.5, 1e30, values), mask=values > 0.5
        ),
        "a mask of nothing": lambda: np.ma.array(values, mask=False),
        "float32": lambda: values.astype(np.float32),
        "big-endian": lambda: values.astype(">f8"),
        "every other row": lambda: np.repeat(values, 2, 0)[::2],
    }
    return st.sampled_from(sorted(kinds)).map(lambda name: kinds[name]()) | mutated(values)


@pytest.mark.parametrize("kind", KINDS)
@hypothesis.given(st.data())
@cases(12)
def test_verbs(kind: str, data: st.DataObject) -> None:
    model = model_of(kind)
    of_gpflow = kind == "DeepSVIGP"  # whose predictions take no observations
    names = [n for n in VERBS if not of_gpflow or not n.startswith(("predict", "fit"))]
    verb = data.draw(st.sampled_from(names))
    inputs: Any = None if kind == "VAE" else data.draw(st.just(X) | changed(X))
    outputs = data.draw(st.just(Y) | changed(Y))
    before = [v.numpy() for v in model.trainable_variables]
    found = answered(lambda: VERBS[verb](model, inputs, outputs))
    for variable, value in zip(model.trainable_variables, before, strict=True):
        assert_finite(variable)
        variable.assign(value)
    if found is not None:
        assert_finite(found)


@pytest.mark.parametrize("verb", VERBS)
@hypothesis.given(st.permutations(range(N)), st.sampled_from(["f8", "f4", ">f8", "masked"]))
@cases(1)
def test_rows_in_any_order_and_type(verb: str, rows: list[int], kind: str) -> None:
    """The same rows say the same, however they are held."""
    model = model_of("SVGPVAE")
    before = [v.numpy() for v in model.trainable_variables]
    holes = Y > 1.0
    data = (X.astype("f4")[rows], Y.astype("f4")[rows])
    first = VERBS[verb](
        model, *(np.where(holes[rows], np.nan, v) if v is data[1] else v for v in data)
    )
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)
    if kind == "masked":
        other: Any = np.ma.array(np.where(holes, 1e6, data[1][np.argsort(rows)]), mask=holes)[rows]
    else:
        other = np.where(holes[rows], np.nan, data[1]).astype(kind)
    second = VERBS[verb](model, data[0].astype("f8"), other)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)
    for one, two in zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


# Files of models whose parts are others.

PARTS: dict[str, dict[str, Callable[[], Any]]] = {
    "kernel": {
        "SquaredExponential": gpflow.kernels.SquaredExponential,
        "Matern12": gpflow.kernels.Matern12,
        "Matern52": gpflow.kernels.Matern52,
        "of a column": lambda: gpflow.kernels.Matern52(active_dims=[0]),
    },
    "decoder": {
        "tanh": lambda: dense("tanh"),
        "relu": lambda: dense("relu"),
        "no bias": lambda: dense("tanh", use_bias=False),
        "frozen": lambda: dense("tanh", trainable=False),
    },
    "likelihood": {
        "Gaussian": lambda: likelihoods.Gaussian(0.3),
        "StudentT": lambda: gpflow.likelihoods.StudentT(),
        "StudentT, df 4": lambda: gpflow.likelihoods.StudentT(df=4.0),
    },
}


def dense(activation: str, **options: Any) -> Any:
    layer = keras.layers.Dense(4, activation, **options)
    return keras.Sequential([keras.Input((L,)), layer, keras.layers.Dense(P)])


CHOICES = st.fixed_dictionaries({name: st.sampled_from(sorted(PARTS[name])) for name in PARTS})


def made(choice: dict[str, str]) -> models.SGPBAE:
    parts = {name: PARTS[name][kind]() for name, kind in choice.items()}
    options = {"encoder": network(2 * P, L), "latent_dim": L, "inducing_variable": X[::2]}
    return models.SGPBAE(**options, **parts)


@hypothesis.given(CHOICES, st.sampled_from(sorted(PARTS)), st.data())
@cases(10)
def test_files_of_other_models(choice: dict[str, str], part: str, data: st.DataObject) -> None:
    """A file loads where all parts are alike, and nowhere else."""
    other = {**choice, part: data.draw(st.sampled_from(sorted(PARTS[part])))}
    frozen = "frozen" in (choice["decoder"], other["decoder"])
    model = made(choice)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "posterior.npz"
        Posterior.from_point(model, (X, Y)).save(path)
        found = answered(lambda: Posterior.load(path, made(other)))
        assert Posterior.load(path, model).num_samples == 1
    if other == choice and not frozen:
        assert found is not None
    elif other != choice:
        assert found is None, (choice, other)
