"""Presets: the published numbers, and what a run takes that is told nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference, likelihoods, mcmc, models
from gpflow_bae.data import StreamedObservations, prepare_data
from tests.inference.amortized_models import bae, network, random_data, sgp_bae, whitened


def test_published_settings() -> None:
    """The paper's numbers (protocols, section 1), at temperature 1."""
    paper, sampler = inference.amortized_preset("paper")
    published = mcmc.adaptive_sghmc.build(0.005, 0.05, 1.0, noise="gaussian")
    assert sampler.settings == published.settings and sampler.name == "adaptive_sghmc"
    assert (paper.burnin, paper.num_samples, paper.thinning) == (1500, 100, 400)
    assert (paper.num_sampler_steps, paper.encoder.num_steps) == (50, 30)
    assert inference.amortized_preset("auto")[0].num_rounds < paper.num_rounds
    with pytest.raises(ValueError, match=r'"auto", "paper" and "ensemble", got \'slow\''):
        inference.amortized_preset("slow")


@pytest.mark.parametrize(
    "make, num_points, coordinates",
    [
        (sgp_bae, 7, "fisher"),  # its layers have 2 + 4 and 4 + 3 inputs and outputs
        (sgp_bae, 6, "prior"),
        (bae, 7, "prior"),
        (whitened, 7, "prior"),
    ],
)
def test_codes_that_can_be_whitened_are_sampled_in_suitable_units(
    make: Callable[[], models.BayesianAutoencoder], num_points: int, coordinates: str
) -> None:
    model = make()
    X, Y = random_data(1, num_points)
    data = prepare_data(model, (None if make is bae else X, Y))
    settings, sampler = inference.amortized_preset("auto", model, data)
    assert (settings.coordinates, settings.batch_size) == (coordinates, None)
    assert sampler.name == "sghmc" and sampler.settings["step_size_search"] is not None
    # Critical damping of a unit curvature: the momentum decays by two in a unit of time.
    assert sampler.settings["momentum_decay"] == 2.0 * sampler.settings["step_size"]
    inference.AmortizedSampling(model, data, settings, sampler)  # a combination that is allowed
    more = np.concatenate([X, X], 1), np.concatenate([Y, np.full_like(Y, np.nan)], 1)  # padding
    padded = prepare_data(model, (None if make is bae else more[0], more[1]))
    assert inference.amortized_preset("auto", model, padded)[0].coordinates == coordinates


def _deep() -> models.DSGPBAE:
    own, Z = sgp_bae(), np.linspace(-2.0, 2.0, 4)[:, None]
    kernels = [gpflow.kernels.SquaredExponential(), gpflow.kernels.SquaredExponential()]
    return models.DSGPBAE(kernels, Z, own.decoder, own.encoder, own.likelihood, 2)


def test_others_are_sampled_by_the_published_sampler() -> None:
    X, Y = random_data(1, 6)
    rows = tf.data.Dataset.from_tensor_slices(Y[0])
    vae = models.SVGPVAE(
        gpflow.kernels.SquaredExponential(),
        X[0, :3],
        network(2, 3),
        network(3, 4),
        likelihoods.Gaussian(0.3),
        2,
    )
    deep = _deep()
    for model, data in [
        (deep, prepare_data(deep, (X, Y))),
        (vae, prepare_data(vae, (X, Y))),
        (bae(), StreamedObservations.from_dataset(rows)),
    ]:
        settings, sampler = inference.amortized_preset("auto", model, data)
        assert (settings.coordinates, sampler.name) == ("none", "adaptive_sghmc")


@pytest.mark.parametrize(
    "given",
    [
        {"sampler": mcmc.sgld.build(1e-4)},
        {"point_estimates": (".decoder",)},
        {"moves": ()},
    ],
    ids=["sampler", "point_estimates", "moves"],
)
def test_what_is_given_is_not_combined_with_units_of_the_priors(
    given: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such units need moves of the kernel's parameters, and a sampler without its own scales."""
    found = []

    def stop(self: object, model: object, data: object, settings: object, *_: object, **__: object):
        found.append(settings)
        raise InterruptedError

    monkeypatch.setattr(inference.AmortizedSampling, "__init__", stop)
    with pytest.raises(InterruptedError):
        inference.sample_amortized(sgp_bae(), random_data(1, 6), warm_start=None, **given)
    assert found[0] == inference.amortized_preset("auto")[0]
    assert dataclasses.asdict(found[0])["coordinates"] == "none"
