"""What plans build, and what is fitted with them."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.common import scores
from experiments.imputation import fitting, plans
from gpflow_bae import models
from gpflow_bae.data import Standardiser, prepare_data
from gpflow_bae.posteriors import Posterior
from tests.impute.tables import mixed_sines as table


@pytest.mark.parametrize("model", plans.MODELS)
def test_plans_build_their_model(model: str) -> None:
    plan = plans.make_plan(model, latent_dim=2, num_inducing=5)
    built = plans.build_model(plan, table())
    kinds = {
        "sgp_vae": models.SGPVAE,
        "sgp_bae": models.SGPBAE,
        "dsgp_bae": models.DSGPBAE,
    }
    assert type(built) is kinds[model]
    assert (plan.temperature is None) == (model == "sgp_vae")


def test_a_hole_is_filled_from_the_other_outputs() -> None:
    """The third output is three times the first: far better than its mean (SMSE 1)."""
    data = table()
    plan = plans.make_plan(
        "sgp_vae", num_steps=600, learning_rate=0.02, latent_dim=1, lengthscale=0.3
    )
    standardiser = Standardiser.fit(data.Y)
    posterior = fitting.fit(plan, data, standardiser, seed=0, progress=False)
    moments = standardiser.inverse_moments(*fitting.predict(posterior, standardiser))
    assert scores.score(data, *moments)["smse"] < 0.2


def test_free_form_needs_a_variational_model() -> None:
    plan = plans.make_plan("sgp_bae", net="free")
    with pytest.raises(ValueError, match="net 'free' is for the variational ones"):
        plans.build_model(plan, table())


def test_a_nugget_is_a_code_noise_that_is_fitted() -> None:
    plan = plans.make_plan("sgp_vae", latent_dim=2, num_inducing=5, nugget=0.3)
    prior = plans.build_model(plan, table()).latent_prior
    assert type(prior).__name__ == "SparseGP"
    np.testing.assert_allclose(prior.code_noise, 0.3, rtol=1e-6)
    assert any(p is prior.code_noise_variance for p in prior.trainable_parameters)


@pytest.mark.parametrize("num_layers", [2, 3])
def test_a_deep_chain_starts_as_the_shallow_model(num_layers: int) -> None:
    """Hidden layers add what their kernels' priors say, and nothing before the chain runs.

    Their variance once started at 1, a warp as wide as the inputs: EEG was filled three times
    worse than by the shallow model.
    """
    plan = plans.make_plan(
        "dsgp_bae",
        net="indexnet",
        latent_dim=1,
        num_inducing=8,
        num_layers=num_layers,
        hidden_variance=1e-3,
    )
    data = table()
    model = plans.build_model(plan, data)
    kernels = [layer.kernels[0] for layer in model.latent_prior.hidden_layers]
    assert len({id(kernel.variance) for kernel in kernels}) == num_layers - 1
    for kernel in kernels:
        np.testing.assert_allclose(kernel.variance, 1e-3, rtol=1e-6)
        np.testing.assert_allclose(np.exp(kernel.variance.prior.loc), 1e-3, rtol=1e-6)

    prior = fitting.warm_start(plan, model, data).latent_prior
    last = model.latent_prior.last_layer
    assert prior.kernels[0] is last.kernels[0] and prior.inducing_variable is last.inducing_variable


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "gan"}, "model is 'gan'; expected one of"),
        ({"net": "cnn"}, "net is 'cnn'; expected one of"),
        ({"latent_dim": 0}, "latent_dim is 0; it must be at least 1"),
        ({"num_inducing": 0}, "num_inducing is 0"),
        ({"num_layers": 0}, "num_layers is 0; it must be at least 1"),
    ],
)
def test_a_plan_that_is_none_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plans.Plan(**changes)


@pytest.mark.usefixtures("untraced")
def test_the_training_table_is_predicted_as_any_other() -> None:
    """By its mask as it stands, or by NaN that become a mask again: the same numbers.

    The codes of the chain are not looked at, unless they are asked for.
    """
    data = table(2)
    plan = plans.make_plan("sgp_bae", latent_dim=1, num_inducing=6, lengthscale=0.3)
    standardiser = Standardiser.fit(data.Y)
    model = plans.build_model(plan, data)
    prepared = prepare_data(model, (data.X, standardiser.transform(data.Y)))
    parameters = [p.unconstrained_variable.numpy()[None] for p in model.sampled.parameters]
    encoder = [v.numpy()[None] for v in model.amortized.variables]
    codes = np.full((1, 2, data.Y.shape[1], 1), 5.0)
    posterior = Posterior.from_arrays(model, prepared, parameters, encoder, codes)
    found = fitting.predict(posterior, standardiser)
    for moment, other in zip(
        found, fitting.predict(posterior, standardiser, (data.X, data.Y)), strict=True
    ):
        np.testing.assert_allclose(moment, other, rtol=1e-6)
    of_chain, _ = fitting.predict(posterior, standardiser, codes_of_chain=True)
    # Equal codes at all rows decode to equal rows; the encoder's do not.
    np.testing.assert_allclose(of_chain - of_chain[:, :1], 0.0, atol=1e-5)
    assert np.ptp(found[0], axis=1).min() > 1e-3
