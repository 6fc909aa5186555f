"""A user's first script: Keras models in, predictions and ArviZ out, on four tiny videos."""

import gpflow
import keras
import numpy as np
import pytest

import gpflow_bae
from gpflow_bae.datasets import moving_ball

pytestmark = pytest.mark.usefixtures("untraced_predictions")

NUM_PIXELS = 64


def network(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((num_inputs,)),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(num_outputs),
        ]
    )


def test_first_script(capsys: pytest.CaptureFixture[str]) -> None:
    """Every sampled parameter is in the summary with its prior; shapes and ranges as documented."""
    videos = moving_ball.generate(0, 4, num_frames=6, image_size=8, scale=1.6, radius=1.5)
    model = gpflow_bae.models.SGPBAE(
        kernel=gpflow.kernels.SquaredExponential(lengthscales=1.0),
        inducing_variable=np.linspace(0.0, 5.0, 3)[:, None],
        decoder=network(2, NUM_PIXELS),
        encoder=network(2 * NUM_PIXELS, 2),
        likelihood=gpflow_bae.likelihoods.Bernoulli(),
        latent_dim=2,
    )
    gpflow.utilities.print_summary(model, fmt="simple")
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    expected = {
        **{f"decoder.weights[{i}]": "Normal" for i in range(4)},
        "latent_prior.kernels[0].lengthscales": "LogNormal",
        "latent_prior.kernels[0].variance": "LogNormal",
        "latent_prior.code_noise_variance": "LogNormal",
        "latent_prior.inducing_variable.Z": "Uniform",
    }
    assert {p.lstrip(".") for p in model.sampled.paths} == set(expected)
    for path, prior in expected.items():
        (line,) = (v for k, v in lines.items() if k.endswith("." + path))
        assert f" {prior} " in line, line

    settings = gpflow_bae.inference.AmortizedSettings(
        num_sampler_steps=3,
        encoder=gpflow_bae.inference.EncoderSettings(num_steps=2),
        burnin=6,
        num_samples=2,
        thinning=3,
    )
    posterior = gpflow_bae.inference.sample_amortized(
        model, (videos.X, videos.Y), settings, seed=0, progress=False, warm_start=None
    )
    X_new = np.linspace(0.0, 5.0, 11)[:, None]
    latent_mean, latent_var = posterior.predict_latent(X_new)
    y_mean, y_var = posterior.predict_y(X_new)
    assert latent_mean.shape == latent_var.shape == (4, 11, 2)
    assert y_mean.shape == y_var.shape == (4, 11, NUM_PIXELS)
    assert np.all(latent_var > 0)
    # A pixel is Bernoulli: its variance is p (1 - p), whatever the samples say of p.
    np.testing.assert_allclose(y_var, y_mean * (1 - y_mean), atol=1e-5)
    idata = posterior.to_inference_data()
    assert idata.posterior.sizes["chain"] == 1 and idata.posterior.sizes["draw"] == 2
