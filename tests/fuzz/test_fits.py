"""Fits and chains with extreme settings: finite parameters and samples, or an error that says why.

Models are compiled once, and settings are put where the compiled functions read them.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import gpflow_bae
from gpflow_bae import inference, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.moves import MOVES
from gpflow_bae.inference.runs.run import run
from tests.fuzz.answers import answered, assert_finite, cases
from tests.inference import amortized_models
from tests.serving import small_posteriors
from tests.serving.small_posteriors import L, P

EXTREMES = [1e-300, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 1e3, 1e6, 1e12, 1e37, 1e300]
RATES = st.sampled_from([0.0, -1.0, np.nan, np.inf, *EXTREMES])
FUZZ = "GPFLOW_BAE_FUZZ" in os.environ


@functools.cache
def variational_fit(name: str) -> tuple[inference.VariationalFit, dict[str, Any]]:
    """A fit that is compiled once, and the variables that it begins with."""
    kinds: dict[str, Any] = {
        "VAE": lambda: small_posteriors.variational(models.VAE),
        "SVGPVAE": lambda: small_posteriors.variational(models.SVGPVAE),
    }
    posterior = kinds[name]()
    settings = inference.VariationalSettings(num_steps=6, learning_rate=0.01)
    fit = inference.VariationalFit(
        posterior.model, posterior.data, settings, seed=0, steps_per_call=2
    )
    return fit, fit.arrays(None)


@pytest.mark.parametrize("name", ["VAE", "SVGPVAE"])
@hypothesis.given(RATES, RATES)
@cases(8)
def test_learning_rates(name: str, rate: float, prior_rate: float) -> None:
    if not answered(
        lambda: inference.VariationalSettings(learning_rate=rate, prior_learning_rate=prior_rate)
    ):
        return
    fit, first = variational_fit(name)
    fit.restore(first)
    for optimizer, own in zip([g for g, _ in fit._groups], [rate, prior_rate], strict=False):
        optimizer.learning_rate = own
    found = answered(lambda: run(fit, lambda: None, progress=False))
    assert_finite(list(fit.variables.values()))  # the last good ones, where it diverged
    if found is not None:
        assert_finite(found.trace["loss"])


SAMPLERS: dict[str, Any] = {
    "adaptive_sghmc": mcmc.adaptive_sghmc,
    "sghmc": mcmc.sghmc,
    "sgld": mcmc.sgld,
    "mclmc": mcmc.mclmc,
}


@functools.cache
def compiled_chain(name: str) -> inference.AmortizedSampling:
    model = amortized_models.sgp_bae()
    settings = inference.AmortizedSettings(
        num_sampler_steps=2,
        encoder=inference.EncoderSettings(num_steps=1),
        burnin=2,
        num_samples=2,
        thinning=2,
    )
    sampler = SAMPLERS[name].build(step_size=0.01)
    data = prepare_data(model, amortized_models.random_data(2, 4))
    return inference.AmortizedSampling(model, data, settings, sampler)


@pytest.mark.parametrize("name", list(SAMPLERS) if FUZZ else ["adaptive_sghmc", "sghmc"])
@hypothesis.given(RATES, st.sampled_from([0.0, 1e-12, 0.5, 1.0, 2.0, np.nan]), RATES)
@cases(8)
def test_step_sizes(name: str, step_size: float, decay: float, temperature: float) -> None:
    options = {"step_size": step_size, "temperature": temperature, "momentum_decay": decay}
    if name == "sgld":
        del options["momentum_decay"]
    if name == "mclmc":
        del options["temperature"]
    sampler = answered(lambda: SAMPLERS[name].build(**options))
    if sampler is None:
        return
    algorithm = compiled_chain(name)
    chain = algorithm.initial()

    def like(value: Any, given: float) -> Any:
        return tf.nest.map_structure(
            lambda v: tf.fill(v.shape, tf.cast(tf.constant(given, tf.float64), v.dtype)), value
        )

    shared = {
        k: like(v, options[k]) if k in options else v for k, v in chain.sampler.shared.items()
    }
    chain = chain._replace(sampler=chain.sampler._replace(shared=shared))
    found = answered(lambda: run(algorithm, lambda: chain, progress=False))
    if found is not None:
        assert_finite(found.samples)


SETTINGS = st.fixed_dictionaries(
    {
        "num_sampler_steps": st.sampled_from([1, 2, 3]),
        "burnin": st.sampled_from([0, 1, 4]),
        "num_samples": st.sampled_from([1, 2]),
        "thinning": st.sampled_from([1, 3]),
    },
    optional={
        "codes": st.sampled_from(["encoder", "carried"]),
        "batch_size": st.sampled_from([1, 2, 3, 4, 5]),
        "steps_per_batch": st.sampled_from([1, 2]),
        "gradients": st.just("control_variates"),
        "coordinates": st.sampled_from(["prior", "fisher"]),
        "encoder": st.fixed_dictionaries(
            {
                "num_steps": st.sampled_from([0, 1]),
                "loss": st.sampled_from(["energy", "nll", "mse"]),
                "learning_rate": st.sampled_from(EXTREMES),
                "batch_size": st.sampled_from([1, 3, 10**6]),
            }
        ),
    },
)


PARTS = st.fixed_dictionaries(
    {},
    optional={
        "moves": st.lists(st.sampled_from(sorted(MOVES)), max_size=2).map(tuple),
        "point_estimates": st.sampled_from([(".decoder",), (".nowhere",), (".latent_prior",)]),
    },
)


@hypothesis.given(
    SETTINGS,
    PARTS,
    st.sampled_from(["bae", "sgp_bae", "whitened"]),
    st.sampled_from([None, *SAMPLERS, "hmc"]),
    st.sampled_from([1e-4, 1e-2, 1e6]),
    st.sampled_from([1, 2]),
    st.sampled_from(["zero", "noise", "huge", "one point"]),
)
@cases(2)
def test_combinations_of_a_chain(
    options: dict[str, Any],
    parts: dict[str, Any],
    name: str,
    sampler: str | None,
    step_size: float,
    num_chains: int,
    values: str,
) -> None:
    if "encoder" in options:
        encoder = answered(lambda: inference.EncoderSettings(**options["encoder"]))
        options = options | {"encoder": encoder or inference.EncoderSettings(num_steps=1)}
    settings = answered(lambda: inference.AmortizedSettings(**options))
    if settings is None:
        return
    model = getattr(amortized_models, name)()
    X, Y = amortized_models.random_data(1 if name == "whitened" else 4, 4)
    Y = {"zero": 0.0 * Y, "huge": 1e15 * Y, "one point": Y[:, :1]}.get(values, Y)
    X = X[:, : Y.shape[1]]
    build = getattr(mcmc, sampler).build if sampler else None
    found = answered(
        lambda: inference.sample_amortized(
            model,
            (X, Y),
            settings,
            sampler=build and build(step_size=step_size),
            num_chains=num_chains,
            warm_start=None,
            **parts,
            progress=False,
        )
    )
    if found is not None:
        assert_finite([*found.bank.parameters.values(), *found.bank.encoder.values()])


@hypothesis.given(
    st.fixed_dictionaries(
        {
            "num_samples": st.sampled_from([1, 2, 8]),
            "num_replicas": st.just(2),
            "swap_interval": st.sampled_from([1, 2]),
            "thinning": st.sampled_from([1, 5]),
        },
        optional={
            "max_temperature": st.sampled_from([1.0, 1.5, 1e30, np.nan, np.inf]),
            "burnin_fraction": st.sampled_from([0.0, 0.1, 0.9, 1.0, np.nan]),
        },
    ),
    st.fixed_dictionaries(
        {"method": st.sampled_from(["random_walk", "lg", "adapt_lg", "adapt_lg_star", "hmc"])},
        optional={
            "noise_scale": RATES,
            "learning_rate": RATES,
            "adam_learning_rate": RATES,
            "gradient_probability": st.sampled_from([0.0, 0.5, 1.0, 1.5, np.nan]),
            "target_acceptance": st.sampled_from([0.0, 0.3, 1.0, np.nan]),
        },
    ),
    st.fixed_dictionaries(
        {"num_steps": st.sampled_from([0, 2])},
        optional={"learning_rate": RATES, "batch_size": st.sampled_from([1, 4, 100])},
    ),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["none", "kronecker", "dense"])},
        optional={"num_draws": st.sampled_from([1, 3]), "damping": RATES},
    ),
)
@cases(2)
def test_tempered_settings(
    options: dict[str, Any],
    proposal: dict[str, Any],
    start: dict[str, Any],
    whitening: dict[str, Any],
) -> None:
    settings = answered(
        lambda: inference.TemperedSettings(
            inference.Proposal(**proposal),
            start=inference.AdamStart(**start),
            whitening=inference.Whitening(**whitening),
            **options,
        )
    )
    if settings is None:
        return
    network = small_posteriors.network
    model = models.TemperedBAE(network(P, L), network(L, P))
    Y = np.random.default_rng(0).standard_normal((6, P))
    found = answered(lambda: inference.sample_tempered(model, Y, settings, progress=False))
    if found is not None:
        assert_finite(list(found.bank.parameters.values()))


@hypothesis.given(
    st.fixed_dictionaries(
        {"num_steps": st.sampled_from([1, 3])},
        optional={
            "learning_rate": st.sampled_from(EXTREMES),
            "batch_size": st.sampled_from([1, 3, 8, 9, (3, 1), (None, 3)]),
            "final_learning_rate_fraction": st.sampled_from([0.0, 0.1, 1.0]),
            "prior_on_parameters": st.booleans(),
            "natural_gradient_step_size": st.sampled_from([0.1, 1.0, 1e6]),
            "objective": st.sampled_from(
                [inference.GECO(), inference.GECO(1e12), inference.EvidenceLowerBound(1e12)]
            ),
        },
    ),
    st.sampled_from(["VAE", "SVGPVAE", "GPVAE", "GPPVAE"]),
    st.sampled_from([1.0, 0.0, 1e15, 1e-15]),
)
@cases(2)
def test_combinations_of_a_variational_fit(
    options: dict[str, Any], name: str, units: float
) -> None:
    settings = answered(lambda: inference.VariationalSettings(**options))
    if settings is None:
        return
    model = small_posteriors.variational(getattr(models, name)).model
    X, Y = small_posteriors.data()
    found = answered(
        lambda: inference.fit_variational(
            model, (X, units * Y), settings, steps_per_call=3, progress=False
        )
    )
    if found is not None:
        assert_finite([found, *model.trainable_variables])


@pytest.mark.parametrize("function", [gpflow_bae.fit, inference.sample_amortized])
@hypothesis.given(st.data())
@cases(20)
def test_wrong_models_and_data(function: Any, data: st.DataObject) -> None:
    """What is refused before anything is compiled."""
    wrong = st.sampled_from([None, 3, "a", [], (1, 2, 3), np.zeros(3), {"X": 1}])
    model = data.draw(wrong | st.just(amortized_models.bae()))
    X, Y = amortized_models.random_data(2, 4)
    given = data.draw(wrong | st.just((X[:1, :3], Y)) | st.just((X, Y[..., :2])))
    assert answered(lambda: function(model, given, progress=False)) is None
