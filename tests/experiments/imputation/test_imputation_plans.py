"""What plans build, and what is fitted with them."""

from __future__ import annotations

import dataclasses

import gpflow
import numpy as np
import pytest

from experiments.common import scores
from experiments.imputation import fitting, plans, tables
from gpflow_bae import guides, models
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
        "gppvae": models.GPPVAE,
        "vae": models.VAE,
    }
    assert type(built) is kinds[model]
    assert (plan.temperature is None) == (model not in tables.SAMPLED)


@pytest.mark.parametrize(
    ("name", "net", "widths"),
    [
        ("eeg", "indexnet", (20,)),
        ("eeg", "factornet", (20, 20)),
        ("jura", "zeros", (20, 20)),
        ("jura", "free", (20, 20)),
        ("eeg_large", "pointnet", (50, 50)),
        ("eeg_large", "factornet", (50,) * 4),
    ],
)
def test_published_settings_of_variational_models(
    name: str, net: str, widths: tuple[int, ...]
) -> None:
    """Appendix E of Ashman et al. (2020): networks, Adam at 0.001, 3000 epochs of three or four
    minibatches of 100 points, or 100 of thirty recordings; exact GPs for the small tables.
    """
    published = tables.TABLES[name].published
    assert published is not None
    plan = plans.default_plan("sgp_vae", "paper", published, net=net)
    assert plan.encoder_widths == widths
    assert plan.decoder_widths == (published.units,) * published.layers
    fit = plan.variational
    assert (fit.learning_rate, fit.final_learning_rate_fraction) == (1e-3, 1.0)
    number = {"eeg": (9000, None, 100), "jura": (12000, None, 100), "eeg_large": (3000, 128, 1)}
    assert (fit.num_steps, plan.num_inducing, fit.batch_size) == number[name]
    changed = plans.default_plan("sgp_vae", "paper", published, net=net, decoder_widths=())
    assert changed == dataclasses.replace(plan, decoder_widths=())


@pytest.mark.parametrize(("name", "step_size"), [("eeg", 0.003), ("jura", 0.002)])
def test_published_settings_of_sampled_models(name: str, step_size: float) -> None:
    """Tran et al. (2023), appendix E: zeros, 20 and 5-5 units, 128 inducing points, three layers,
    100 rows in a round, 1500 steps of burn-in, 50 samples 180 steps apart.
    """
    published = tables.TABLES[name].published
    plan = plans.default_plan("dsgp_bae", "paper", published)
    assert (plan.net, plan.encoder_widths, plan.decoder_widths) == ("zeros", (20,), (5, 5))
    assert (plan.num_inducing, plan.num_layers) == (128, 3)
    rounds, sampler = plan.schedule, plan.sampler
    assert rounds is not None and sampler is not None
    assert (rounds.burnin, rounds.num_samples, rounds.thinning) == (1500, 50, 180)
    assert rounds.batch_size == 100
    shallow = plans.default_plan("sgp_bae", "paper", published, num_inducing=6, latent_dim=1)
    model = plans.build_model(shallow, table())
    assert model.latent_prior.splits_over_points  # or rounds of a hundred rows would be refused
    start = fitting.warm_start(shallow, model, table()).latent_prior
    assert start.kernels[0] is model.latent_prior.kernels[0] and start.whitened_inducing is None
    assert (sampler.settings["step_size"], sampler.settings["momentum_decay"]) == (step_size, 0.05)


def test_free_codes_start_from_a_network_and_alone_are_fitted() -> None:
    """Decoder, kernels and noise are those of the network's fit; the bound is no worse than there,
    up to the draws of its last hundred steps.
    """
    data = table()
    options = {"num_steps": 150, "learning_rate": 0.02, "latent_dim": 1, "lengthscale": 0.3}
    plan = plans.make_plan("sgp_vae", net="free", free_from="indexnet", **options)
    standardiser = Standardiser.fit(data.Y)
    free, network = (
        fitting.fit(p, data, standardiser, seed=0, progress=False)
        for p in (plan, dataclasses.replace(plan, net="indexnet"))
    )
    for part in ("latent_prior", "decoder", "observation_likelihood"):
        found, expected = (
            gpflow.utilities.parameter_dict(getattr(p.model, part)) for p in (free, network)
        )
        assert found.keys() == expected.keys()
        for path, parameter in found.items():
            assert parameter.trainable == expected[path].trainable
            values = parameter.numpy(), expected[path].numpy()
            np.testing.assert_allclose(*values, rtol=1e-12, err_msg=path)  # through its transform
    losses = [np.asarray(p.warm_start_losses)[-50:] for p in (free, network)]
    error = np.hypot(*(np.std(values) / np.sqrt(50) for values in losses))
    assert np.mean(losses[0]) < np.mean(losses[1]) + 3.0 * error


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


def test_noise_of_sampled_models_of_jura_is_fixed_as_in_the_released_code() -> None:
    published = tables.TABLES["jura"].published
    for changes, sd, is_trained in (({}, 0.5, False), ({"noise_start": 0.1}, 0.1, True)):
        plan = plans.default_plan("dsgp_bae", "paper", published, num_inducing=6, **changes)
        model = plans.build_model(plan, table())
        noise = model.observation_likelihood.variance
        np.testing.assert_allclose(noise, sd**2, rtol=1e-6)
        assert noise.trainable == is_trained
        assert any(p is noise for p in model.sampled.parameters) == is_trained


def test_free_form_needs_a_variational_model() -> None:
    plan = plans.make_plan("sgp_bae", net="free")
    with pytest.raises(ValueError, match="net 'free' is for the variational ones"):
        plans.build_model(plan, table())


@pytest.mark.parametrize(("name", "rate"), [("eeg", 1e-2), ("jura", 1e-3)])
def test_the_published_small_tables_have_exact_gaussian_processes(name: str, rate: float) -> None:
    """Their kernels' steps are as large as those of 0.001 in the initial lengthscale itself.

    The GPPVAE of appendix F is the same model with a mean-field posterior.
    """
    mean_field = plans.default_plan("gppvae", "paper", tables.TABLES[name].published, latent_dim=2)
    built = plans.build_model(mean_field, table())
    assert type(built.latent_prior).__name__ == "GP"
    assert isinstance(built.guide, guides.MeanFieldGuide)
    plan = plans.default_plan("sgp_vae", "paper", tables.TABLES[name].published, latent_dim=2)
    model = plans.build_model(plan, table())
    assert type(model.latent_prior).__name__ == "GP"
    assert model.splits_over_points
    np.testing.assert_allclose(plan.variational.prior_learning_rate, rate)
    np.testing.assert_allclose(rate, 1e-3 / tables.TABLES[name].init_lengthscale)


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
