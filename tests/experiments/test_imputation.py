"""The missing-data experiments: nothing sees the test cells, and how runs are averaged."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

from experiments.imputation import plans, study
from gpflow_bae.data import Standardiser
from gpflow_bae.impute import fitting, scores
from tests.impute.tables import mixed_sines as table

pytestmark = pytest.mark.usefixtures("untraced_predictions")


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the codes, since each is traced; what is asserted holds for any number."""
    monkeypatch.setattr(study, "NUM_CODES", 4)
    monkeypatch.setattr(fitting, "NUM_CODES", 4)


@pytest.mark.parametrize("net", ["indexnet", "free"])
def test_what_is_hidden_is_not_seen(net: str) -> None:
    """Another truth in the test cells changes the scores and no prediction."""
    data = table()
    other = dataclasses.replace(data, truth=data.truth + 7.0 * data.test_mask)
    plan = plans.default_plan(
        "sgp_vae", "quick", net=net, num_steps=20, latent_dim=1, num_inducing=6, lengthscale=0.3
    )
    one, two = (study.run(plan, t, seed=0, progress=False) for t in (data, other))
    np.testing.assert_array_equal(one.mean, two.mean)
    assert one.metrics["mae"] != two.metrics["mae"]
    assert ("mae_encoder_only" in one.metrics) == (net != "free")


def test_holes_of_tasks_that_the_fit_saw_and_of_one_that_it_never_saw() -> None:
    """The third output is three times the first: far better than its mean (SMSE 1)."""
    tasks = table(4)
    plan = plans.default_plan(
        "sgp_vae", "quick", num_steps=600, learning_rate=0.02, latent_dim=1, lengthscale=0.3
    )
    seen, unseen = tasks.select([0, 1, 2]), tasks.select([3])
    outcome = study.run(plan, seen, unseen, seed=0, progress=False)
    assert outcome.mean.shape == unseen.Y.shape
    assert outcome.metrics["smse"] < 0.3
    moments = fitting.predict(outcome.posterior, Standardiser.fit(seen.Y, seen.output_names))
    assert scores.score(seen, *moments)["smse"] < 0.2


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
