"""Networks and presets of the rotated-MNIST experiment."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from experiments.rotated_mnist.networks import (
    NUM_PIXELS,
    UpsampledConv2D,
    conv_decoder,
    conv_encoder,
)
from experiments.rotated_mnist.plans import (
    ELBO_MODELS,
    make_objective,
    make_plan,
    parse_regime,
)
from gpflow_bae import inference


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_fused_layer_is_upsampling_and_convolution(padding: str) -> None:
    """Keras's own two layers with the same weights; tolerance: float32 sums of 45 products."""
    keras.utils.set_random_seed(0)
    images = np.random.default_rng(0).standard_normal((2, 6, 6, 5)).astype(np.float32)
    fused = UpsampledConv2D(4, padding)
    found = fused(images)
    big = keras.layers.UpSampling2D(2)(images)
    convolution = keras.layers.Conv2D(4, 3, padding=padding, activation="elu")
    convolution.build(big.shape)
    bias = np.linspace(-1.0, 1.0, 4)
    convolution.set_weights([fused.kernel.numpy(), bias])
    fused.bias.assign(bias)
    np.testing.assert_allclose(fused(images), convolution(big), atol=2e-5)
    assert np.abs(found - convolution(big)).max() > 0.1  # the bias is in it


def test_networks_have_the_published_sizes() -> None:
    """Weights counted by hand: 3 x 3 kernels of eight filters, dense layers of 16 and 128."""
    filters = 3 * 3 * 8 * 8 + 8
    encoder = conv_encoder(16)
    assert encoder.count_params() == (3 * 3 * 8 + 8) + 2 * filters + (2 * 2 * 8 * 16 + 16)
    decoder = conv_decoder(16)
    assert decoder.count_params() == (16 * 128 + 128) + 2 * filters + (3 * 3 * 8 + 1)
    assert decoder.output_shape == (None, NUM_PIXELS)


def test_regimes() -> None:
    assert parse_regime(["VAE-100", "GP-20"]) == (("VAE", 100), ("GP", 20))
    for wrong in ("VAE", "joint-0", "all-5", "GP-x"):
        with pytest.raises(ValueError, match=f"opt_regime holds '{wrong}'"):
            parse_regime([wrong])


@pytest.mark.parametrize("model", sorted(set(ELBO_MODELS.values())) + ["sgp_bae", "bae"])
def test_presets(model: str) -> None:
    """Those that were published with GECO have it; the sampled ones have a chain and a prior."""
    plan = make_plan(model, "paper")
    geco = isinstance(plan.variational.objective, inference.GECO)
    assert geco == (model in ("svgp_vae", "deep_svigp"))
    assert (plan.sampler is not None) == (model in ("sgp_bae", "bae"))
    assert plan.variational.prior_on_parameters == (plan.sampler is not None)
    assert plan.temperature == (1.0 if plan.sampler else None)
    assert plan.num_epochs >= make_plan(model, "quick").num_epochs


def test_flags_replace_settings() -> None:
    objective = make_objective("svgp_vae", geco=False, beta=2.0)
    full_batch = {"batch_size": None}
    plan = make_plan("svgp_vae", "quick", regime=["joint-3"], objective=objective, fit=full_batch)
    assert plan.regime == (("joint", 3),) and plan.variational.batch_size is None
    assert plan.variational.objective == inference.EvidenceLowerBound(2.0)
    chain = {"sampler": {"temperature": 0.5}, "batch_size": 64}
    plan = make_plan("sgp_bae", "quick", sampler_name="adaptive_sghmc", **chain)
    assert plan.temperature == 0.5 and plan.schedule.batch_size == 64
    assert plan.start == "svgp_vae" and plan.learn_inducing
    plan = make_plan("sgp_bae", "quick", **chain)
    assert plan.temperature == 0.5 and plan.schedule.gradients == "control_variates"
    assert plan.schedule.batch_size == 512 and plan.variational.batch_size == 64
    assert plan.start == "svgp_vae_mode" and not plan.learn_inducing
    assert make_plan("bae", "quick").sampler.name == "adaptive_sghmc"
    # Remedies for the heat of minibatches, from the default's own start.
    plan = make_plan("sgp_bae", "quick", chain_batch_size=0)  # all images in every step
    assert plan.schedule.batch_size is None and plan.schedule.gradients == "minibatch"
    settings = plan.describe()["sampler"]
    assert settings["step_size"] == 0.01  # where the search begins
    assert settings["step_size_search"] == "curvature, fraction 0.35"


def test_a_step_size_that_is_given_is_the_step_size(capsys: pytest.CaptureFixture[str]) -> None:
    """No search moves it, and both the log and the record of the run say so."""
    plan = make_plan("sgp_bae", "quick", chain_batch_size=0, sampler={"step_size": 0.02})
    settings = plan.describe()["sampler"]
    assert settings["step_size"] == 0.02 and settings["step_size_search"] is None
    assert "size 0.02, as given: the search by curvature is off" in capsys.readouterr().out
    assert set(plan.sampler.init(tf.zeros([3]), None).elements) == {"momentum"}  # no direction


def test_the_ablation() -> None:
    """Points in a chain and chains on a bound have the published sampler, and a bound its noise."""
    plan = make_plan("sgp_bae", "quick", point_estimates=(".decoder",))
    assert plan.sampler.name == "adaptive_sghmc" and plan.start == "svgp_vae"
    assert plan.point_estimates == (".decoder",)
    for parameters in ("mean_field", "sghmc"):
        plan = make_plan("svgp_vae", "quick", parameters=parameters)
        assert plan.variational.objective == inference.EvidenceLowerBound()
        assert (plan.sampler is None) == (parameters == "mean_field") and plan.has_samples
    assert not make_plan("svgp_vae", "quick").has_samples


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("gppvae", {}, "those of gppvae are points"),
        ("svgp_vae", {"objective": make_objective("svgp_vae")}, "leave GECO out"),
        ("svgp_vae", {"sampler_name": "sghmc"}, "got sampler=sghmc"),
        ("svgp_vae", {"num_members": 2}, "leave num_members out"),
        ("svgp_vae", {"point_estimates": (".decoder",)}, "svgp_vae has none"),
    ],
)
def test_what_is_not_of_the_ablation(model: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_plan(model, "quick", parameters="sghmc", **settings)


def test_deep_svigp_starts_from_an_svgp_vae() -> None:
    assert make_plan("deep_svigp", "paper").start_epochs == 500
    assert make_plan("deep_svigp", "paper", start_epochs=0).start_epochs == 0
    assert make_plan("svgp_vae", "paper").start_epochs == 0
