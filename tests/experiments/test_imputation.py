"""The missing-data experiments: what a plan builds, and that nothing sees the test cells."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

from experiments.baselines import scores
from experiments.imputation import plans, study
from gpflow_bae import models
from gpflow_bae.datasets.multi_output import MultiOutputTable, Standardiser

N = 24


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the codes, since each is traced; what is asserted holds for any number."""
    monkeypatch.setattr(study, "NUM_CODES", 4)


def table(num_tasks: int = 1) -> MultiOutputTable:
    """Three outputs that mix one sine; the last third of the last is the test."""
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 1.0, N)
    curve = np.sin(2 * np.pi * x + rng.uniform(0, 6, (num_tasks, 1)))
    truth = curve[..., None] * [1.0, -2.0, 3.0] + 0.1 * rng.standard_normal((num_tasks, N, 3))
    mask = np.zeros(truth.shape, bool)
    mask[:, 2 * N // 3 :, 2] = True
    X = np.broadcast_to(x[:, None], (num_tasks, N, 1))
    return MultiOutputTable(X, np.where(mask, np.nan, truth), truth, mask)


@pytest.mark.parametrize("model", plans.MODELS)
def test_plans_build_their_model(model: str) -> None:
    plan = plans.default_plan(model, "quick", latent_dim=2, num_inducing=5)
    built = plans.build_model(plan, table())
    kinds = {
        "sgp_vae": models.SGPVAE,
        "gp_vae": models.GPVAE,
        "sgp_bae": models.SGPBAE,
        "dsgp_bae": models.DSGPBAE,
    }
    assert type(built) is kinds[model]
    assert (plan.temperature is None) == (model in ("sgp_vae", "gp_vae"))


@pytest.mark.parametrize("net", ["indexnet", "free"])
def test_what_is_hidden_is_not_seen(net: str) -> None:
    """Another truth in the test cells changes the scores and no prediction."""
    data = table()
    other = dataclasses.replace(data, truth=data.truth + 7.0 * data.test_mask)
    plan = plans.default_plan(
        "sgp_vae", "quick", net=net, epochs=20, latent_dim=1, num_inducing=6, lengthscale=0.3
    )
    one, two = (study.run(plan, t, seed=0, progress=False) for t in (data, other))
    np.testing.assert_array_equal(one.mean, two.mean)
    assert one.metrics["mae"] != two.metrics["mae"]
    assert ("mae_encoder_only" in one.metrics) == (net != "free")


def test_holes_of_tasks_that_the_fit_saw_and_of_one_that_it_never_saw() -> None:
    """The third output is three times the first: far better than its mean (SMSE 1)."""
    tasks = table(4)
    plan = plans.default_plan(
        "sgp_vae", "quick", epochs=600, learning_rate=0.02, latent_dim=1, lengthscale=0.3
    )
    seen, unseen = tasks.select([0, 1, 2]), tasks.select([3])
    outcome = study.run(plan, seen, unseen, seed=0, progress=False)
    assert outcome.mean.shape == (1, N, 3)
    assert outcome.metrics["smse"] < 0.3
    moments = study.predict(outcome.posterior, Standardiser.fit(seen.Y, seen.output_names))
    assert scores.score(seen, *moments)["smse"] < 0.2


def test_free_form_needs_a_variational_model() -> None:
    plan = plans.default_plan("sgp_bae", "quick", net="free")
    with pytest.raises(ValueError, match="net 'free' is for the variational ones"):
        plans.build_model(plan, table())


@pytest.mark.parametrize("model, kind", [("sgp_vae", "SparseGP"), ("gp_vae", "GP")])
def test_a_nugget_is_a_code_noise_that_is_fitted(model: str, kind: str) -> None:
    plan = plans.default_plan(model, "quick", latent_dim=2, num_inducing=5, nugget=0.3)
    prior = plans.build_model(plan, table()).latent_prior
    assert type(prior).__name__ == kind
    np.testing.assert_allclose(prior.code_noise, 0.3, rtol=1e-6)
    assert any(p is prior.code_noise_variance for p in prior.trainable_parameters)


def test_a_deep_chain_starts_as_the_shallow_model() -> None:
    """Hidden layers add what their kernels' priors say, and nothing before the chain runs.

    Their variance once started at 1, a warp as wide as the inputs: EEG was filled three times
    worse than by the shallow model.
    """
    plan = plans.default_plan(
        "dsgp_bae", "quick", net="indexnet", latent_dim=1, num_inducing=8, hidden_variance=1e-3
    )
    data = table()
    model = plans.build_model(plan, data)
    hidden = model.latent_prior.hidden_layers[0]
    np.testing.assert_allclose(hidden.kernels[0].variance, 1e-3, rtol=1e-6)
    np.testing.assert_allclose(np.exp(hidden.kernels[0].variance.prior.loc), 1e-3, rtol=1e-6)

    prior = study._warm_start(plan, model, data).latent_prior
    last = model.latent_prior.last_layer
    assert prior.kernels[0] is last.kernels[0] and prior.inducing_variable is last.inducing_variable


def test_a_mixture_of_runs_has_the_moments_of_its_draws() -> None:
    """Two runs that disagree: the mean between them, and a variance that says so."""
    data = table()
    runs = [
        types.SimpleNamespace(mean=np.full(data.Y.shape, m), variance=np.full(data.Y.shape, v))
        for m, v in ((1.0, 0.2), (4.0, 0.6))
    ]
    rng = np.random.default_rng(1)
    draws = np.concatenate(
        [rng.normal(r.mean[0, 0, 0], r.variance[0, 0, 0] ** 0.5, 10**6) for r in runs]
    )
    expected = scores.score(
        data, np.full(data.Y.shape, draws.mean()), np.full(data.Y.shape, draws.var())
    )
    for name, value in study.mixture_scores(runs, data).items():
        # A million draws of standard deviation 1.6: errors of the moments are about 2e-3.
        assert value == pytest.approx(expected[name], rel=1e-2), name
