"""A posterior comes back with the model that it is of, and with no other."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pytest

from gpflow_bae import latent_priors, likelihoods, models, posteriors
from gpflow_bae.data import prepare_data
from gpflow_bae.inputs import UniformOnCircle
from gpflow_bae.posteriors import Bank, Posterior, TemperedPosterior
from gpflow_bae.posteriors.stored.parts import call_text, parts_of
from tests.posteriors import small

L, P = small.L, small.P


def decoder(
    activation: str = "tanh",
    frozen: int | None = None,
    adapted: bool = False,
    skip: bool = False,
) -> keras.Model:
    """:param frozen: seed of a layer that is not trainable."""
    inputs = keras.Input((L,))
    x: Any = inputs
    if adapted is not None:
        scaling = keras.layers.Normalization()
        x = scaling(x)
        if adapted:
            scaling.adapt(np.arange(20.0).reshape(10, L))
    if frozen is not None:
        initializer = keras.initializers.RandomNormal(seed=frozen)
        layer = keras.layers.Dense(L, kernel_initializer=initializer)
        layer.trainable = False
        x = layer(x)
    hidden = keras.layers.Dense(L, activation)(x[:, :L] * 2.0)  # operations that are no layers
    if skip:
        hidden = keras.layers.Add()([hidden, x])
    return keras.Model(inputs, keras.layers.Dense(P)(hidden))


def sgp_bae(**changes: Any) -> models.SGPBAE:
    changes = {"kernel": gpflow.kernels.Matern12(), "decoder": decoder(), **changes}
    return small.make_model(**changes)


def fixed(value: float) -> gpflow.kernels.Kernel:
    kernel = gpflow.kernels.Matern12(lengthscales=value)
    gpflow.set_trainable(kernel.lengthscales, False)
    return kernel


def columns(dims: list[int]) -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern12(active_dims=dims)


def boxed(high: float) -> np.ndarray:
    return np.array([[0.0], [2.0], [high]])


@pytest.mark.parametrize(
    ("saved", "other", "message"),
    [
        (
            {},
            {"kernel": gpflow.kernels.SquaredExponential},
            r"SquaredExponential at .*nels\[0\]",
        ),
        ({}, {"decoder": lambda: decoder("relu")}, r'"relu" at .decoder.*activation.*with "tanh"'),
        ({}, {"decoder": lambda: decoder(adapted=True)}, r"decoder.frozen\[0\] \(mean\)"),
        (
            {"decoder": lambda: decoder(frozen=1)},
            {"decoder": lambda: decoder(frozen=2)},
            r"decoder.frozen\[3\] \(kernel\)",
        ),
        (
            {"kernel": lambda: fixed(1.0)},
            {"kernel": lambda: fixed(2.0)},
            r"has 2.0 at .latent_prior.kernels\[0\].lengthscales, .*with 1.0",
        ),
        ({}, {"kernel": lambda: columns([0])}, "active_dims"),
        ({}, {"inducing_variable": lambda: boxed(7.0)}, "at .latent_prior.inducing_variable.Z,"),
        (
            {"decoder": lambda: decoder(frozen=1)},
            {"decoder": lambda: decoder(frozen=1, skip=True)},
            r"decoder.layers\[",
        ),
        (
            {"likelihood": lambda: gpflow.likelihoods.StudentT(df=3.0)},
            {"likelihood": lambda: gpflow.likelihoods.StudentT(df=4.0)},
            "has 4.0 at .likelihood.likelihood.df, .*with 3.0",
        ),
    ],
)
def test_a_model_with_other_parts_is_refused(
    tmp_path: pathlib.Path, saved: dict[str, Callable], other: dict[str, Callable], message: str
) -> None:
    """Each is accepted by paths and shapes alone; the same parts, built anew, load."""
    path = tmp_path / "posterior.npz"
    model = sgp_bae(**{name: make() for name, make in saved.items()})
    bank = small.jittered(model, (1, 2))
    Posterior(model, bank, prepare_data(model, small.data())).save(path)
    again = sgp_bae(**{name: make() for name, make in saved.items()})
    assert Posterior.load(path, again).num_samples == 2
    changed = sgp_bae(**{name: make() for name, make in {**saved, **other}.items()})
    with pytest.raises(ValueError, match=message):
        Posterior.load(path, changed)
    with pytest.raises(ValueError, match=message):
        Posterior(changed, Bank.load(path), small.data())


def test_replicas_and_fitted_models_are_compared_too(tmp_path: pathlib.Path) -> None:
    tempered = small.tempered()
    tempered.save(tmp_path / "tempered.npz")
    relu = keras.Sequential([keras.Input((P,)), keras.layers.Dense(L, "relu")])
    with pytest.raises(ValueError, match=r'has "relu" at .encoder.layers\[0\].activation'):
        TemperedPosterior.load(
            tmp_path / "tempered.npz", models.TemperedBAE(relu, small.dense(L, P))
        )
    names = ("Matern12", "Matern12", "Matern32")
    deep = [
        models.DeepSVIGP(
            kernel, boxed(4.0), small.dense(L, P), likelihoods.Gaussian(0.1), L, num_data=6
        )
        for kernel in (getattr(gpflow.kernels, name)() for name in names)
    ]
    posteriors.FittedModel(deep[0]).save(tmp_path / "fitted.npz")
    posteriors.FittedModel.load(tmp_path / "fitted.npz", deep[1])
    with pytest.raises(ValueError, match="has Matern32 at .kernel, .* Matern12"):
        posteriors.FittedModel.load(tmp_path / "fitted.npz", deep[2])


def test_files_without_parts_load_with_a_warning(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those were that earlier versions wrote."""
    from gpflow_bae.posteriors import base

    write = base.write_archive
    monkeypatch.setattr(
        base,
        "write_archive",
        lambda path, header, arrays: write(
            path, {k: v for k, v in header.items() if k != "parts"}, arrays
        ),
    )
    posterior = small.posterior()
    posterior.save(tmp_path / "old.npz")
    with pytest.warns(UserWarning, match="before files kept what of a model is not sampled"):
        loaded = Posterior.load(tmp_path / "old.npz", small.make_model())
    np.testing.assert_array_equal(loaded.parameters[0], posterior.parameters[0])


def test_chains_of_models_with_other_parts_are_not_pooled() -> None:
    one, other = (
        Bank(bank.parameters, bank.encoder, None, bank.model, parts=bank.parts_of(model))
        for model, bank in (
            (model, small.jittered(model, (1, 2)))
            for model in (sgp_bae(), sgp_bae(decoder=decoder("relu")))
        )
    )
    assert Bank.pool(one, one).parts == one.parts
    with pytest.raises(ValueError, match=r"differ at .decoder.*activation, a part"):
        Bank.pool(one, other)


def test_parts_do_not_depend_on_values_or_on_use() -> None:
    """Of a model with layers of every kind: after other values, and predictions."""
    prior = latent_priors.DeepSparseGP(
        [gpflow.kernels.SquaredExponential() for _ in range(2)], boxed(4.0), L
    )
    encoder = keras.Sequential([keras.Input((2 * P,)), keras.layers.Dense(L, lambda x: x)])
    model = models.BayesianAutoencoder(prior, decoder(frozen=1), encoder, likelihoods.Gaussian(0.1))
    held = (*model.sampled.parameters, *model.amortized.parameters)
    before = parts_of(model, held)
    posterior = Posterior.from_point(model, (small.data()[0][:1], small.data()[1][:1]))
    posterior.predict(num_codes=2)
    for parameter in model.trainable_parameters:
        parameter.assign(0.9 * parameter.numpy())
    assert parts_of(model, held) == before
    assert not any("0x" in text for text in before.values())


def test_priors_of_anybody_are_told_apart_by_what_they_say_of_themselves() -> None:
    """GPflow takes any object with a ``log_prob``; those with a record of arguments show it."""

    class Flat:
        def log_prob(self, value: Any) -> Any:
            return 0.0 * value

    assert call_text(Flat()) == "Flat()"
    assert call_text(UniformOnCircle(2.5)) == "UniformOnCircle(period=2.5)"
    assert call_text(UniformOnCircle(2.0)) != call_text(UniformOnCircle(2.5))
