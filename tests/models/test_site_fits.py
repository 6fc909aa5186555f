"""Fits of models with free sites: minibatches, checkpoints, predictions, and what is refused."""

from __future__ import annotations

import pathlib
from typing import Any

import gpflow
import numpy as np
import pytest

from gpflow_bae import Posterior, decoders, encoders, guides, latent_priors, likelihoods, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference import VariationalSettings, fit_variational, maximise_evidence
from gpflow_bae.inference.starts import default_start
from tests.models.site_models import (
    NOISE,
    SEED,
    TASKS,
    Data,
    L,
    Linear,
    N,
    P,
    batch_of,
    built,
    kernels,
    made_data,
    mixture,
    nonlinear,
)


@pytest.fixture(scope="module")
def data() -> Data:
    return made_data()


def test_a_minibatch_leaves_the_sites_of_other_tasks(data: Data) -> None:
    model = built(mixture(data[0][0]), nonlinear())
    before = [p.numpy() for p in model.guide.sites]
    model.update_sites(batch_of(data, [1]), SEED, 0.5)
    for parameter, value in zip(model.guide.sites, before, strict=True):
        np.testing.assert_array_equal(parameter[0], value[0])
        assert np.abs(parameter[1] - value[1]).max() > 1e-3
    alone = built(mixture(data[0][0]), nonlinear())
    alone.update_sites(batch_of(data), SEED, 0.5)
    for one, other in zip(model.guide.sites, alone.guide.sites, strict=True):
        np.testing.assert_allclose(one[1], other[1], atol=1e-6)  # tasks are independent


def test_it_is_fitted_and_resumes_bit_by_bit(data: Data, tmp_path: pathlib.Path) -> None:
    """By minibatches of tasks; the run that was stopped, and its predictions, are those."""
    settings = VariationalSettings(
        num_steps=40, learning_rate=2e-2, batch_size=1, natural_gradient_step_size=0.4
    )

    class Stopped(Exception):
        pass

    def stop(number: int, loss: float) -> None:
        if number == 20:
            raise Stopped

    how: dict[str, Any] = {"steps_per_call": 10, "checkpoint_every": 1, "progress": False}
    whole, again = (built(mixture(data[0][0]), nonlinear()) for _ in range(2))
    before = whole.elbo(data)
    fit_variational(whole, data, settings, **how)
    assert whole.elbo(data) > before + 10.0
    with pytest.raises(Stopped):
        fit_variational(again, data, settings, out_dir=tmp_path, callback=stop, **how)
    fresh = built(mixture(data[0][0]), nonlinear())
    fit_variational(fresh, data, settings, out_dir=tmp_path, resume=True, **how)
    for one, other in zip(whole.trainable_variables, fresh.trainable_variables, strict=True):
        np.testing.assert_array_equal(one, other)

    posterior = Posterior.from_point(whole, data)
    posterior.save(tmp_path / "fit.npz")
    loaded = Posterior.load(tmp_path / "fit.npz", built(mixture(data[0][0]), nonlinear()))
    Xnew = np.linspace(0.0, 3.0, 4)[:, None]
    for one, other in zip(posterior.predict_y(Xnew), loaded.predict_y(Xnew), strict=True):
        np.testing.assert_array_equal(one, other)
    filled, scale = posterior.impute(data[1], data[0])
    np.testing.assert_array_equal(filled[np.isfinite(data[1])], data[1][np.isfinite(data[1])])
    assert np.isfinite(filled).all() and (scale[np.isnan(data[1])] > 0.0).all()
    with pytest.raises(ValueError, match="SiteEncoder has codes for the training data only"):
        posterior.predict(data[0], (data[0], data[1] + 1.0))
    with pytest.raises(NotImplementedError, match="no distribution of codes before a prior"):
        posterior.encode(data[1])


def test_adam_leaves_sites_alone(data: Data) -> None:
    """Their only change is the update; sites that are not to be trained stay as they are."""
    model = built(mixture(data[0][0]), nonlinear())
    gpflow.set_trainable(model.guide, False)
    before = [p.numpy() for p in model.guide.sites]
    settings = VariationalSettings(num_steps=3)
    fit_variational(model, data, settings, steps_per_call=3, progress=False)
    for parameter, value in zip(model.guide.sites, before, strict=True):
        np.testing.assert_array_equal(parameter, value)
    other = built(mixture(data[0][0]), Linear(L))
    for module in (other.latent_prior, other.likelihood):
        gpflow.set_trainable(module, False)
    exact = VariationalSettings(num_steps=3, natural_gradient_step_size=1.0)
    other.update_sites(batch_of(data), SEED, 1.0)
    reached = other.encoder.natural_parameters()[1]
    fit_variational(other, data, exact, steps_per_call=3, progress=False)
    np.testing.assert_allclose(other.encoder.natural_parameters()[1], reached, atol=1e-9)


def test_a_model_without_a_network_takes_other_likelihoods(data: Data) -> None:
    """Binary outputs that mix GPs, without a network: not by L-BFGS, which leaves sites alone."""
    X, Y = data[0][0], (data[1][0] > 0.0).astype(float)
    prior = mixture(X, P)
    encoder = encoders.SiteEncoder(1, N, P)
    identity = decoders.Identity(P)
    model = models.VariationalAutoencoder(prior, identity, encoder, likelihoods.Bernoulli())
    with pytest.raises(TypeError, match="maximise_evidence needs a variational model"):
        maximise_evidence(model, (X, Y))
    before = model.elbo((X, Y))
    settings = VariationalSettings(num_steps=20, learning_rate=1e-3)
    fit_variational(model, (X, Y), settings, steps_per_call=20, progress=False)
    assert model.elbo((X, Y)) > before + 0.5
    with pytest.raises(ValueError, match="cannot take the points of a single task in minibatches"):
        fit_variational(model, (X, Y), VariationalSettings(batch_size=2), progress=False)


def test_what_does_not_go_together_is_refused(data: Data) -> None:
    X, _ = data
    gp = latent_priors.GP(kernels(), L)
    with pytest.raises(ValueError, match=r"GP is conditioned on channels only.*full=False"):
        built(gp, nonlinear())
    assert not built(gp, nonlinear(), full=False).guide.needs_projections
    with pytest.raises(TypeError, match="must be a SiteEncoder.*got FreeFormEncoder"):
        guides.SiteGuide(encoders.FreeFormEncoder(TASKS, N, L))
    with pytest.raises(ValueError, match="num_draws must be an even number from 2 on, got 3"):
        guides.SiteGuide(encoders.SiteEncoder(TASKS, N, L), 3)
    with pytest.raises(ValueError, match="num_points must be at least 1, got 0"):
        encoders.SiteEncoder(TASKS, 0, L)
    model = built(mixture(X[0]), nonlinear())
    steps = VariationalSettings(natural_gradient_step_size=1.5)
    with pytest.raises(ValueError, match="of sites must be at most 1"):
        fit_variational(model, data, steps, progress=False)
    assert default_start(model, prepare_data(model, data)).num_initial_steps == 0
    with pytest.raises(ValueError, match="A SiteEncoder has sites for the training data only"):
        model.elbo((X[:1], data[1][:1]))
    other = models.VariationalAutoencoder(
        gp, nonlinear(), encoders.FreeFormEncoder(TASKS, N, L), likelihoods.Gaussian(NOISE)
    )
    with pytest.raises(TypeError, match="Only a SiteGuide has sites.*GaussianGuide"):
        other.update_sites(batch_of(data), SEED, 0.5)
