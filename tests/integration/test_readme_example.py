"""The example of the README runs as printed, at the size of a test."""

import pathlib

import arviz
import numpy as np
import pytest

from gpflow_bae import training

README = pathlib.Path(__file__).parents[2] / "README.md"
# Four videos of six frames, 20 hidden units, 3 inducing points, 2 samples.
SMALLER = {
    "generate(num_videos=35, seed=0)": "generate(num_videos=4, num_frames=6, seed=0)",
    "Dense(500": "Dense(20",
    "np.linspace(0.0, 29.0, 10)": "np.linspace(0.0, 5.0, 3)",
    '"quick"': "settings",
    "np.linspace(0.0, 29.0, 100)": "np.linspace(0.0, 5.0, 11)",
}


@pytest.mark.skipif(not README.exists(), reason="the README is not among Bazel's runfiles")
def test_readme_example(capsys: pytest.CaptureFixture[str]) -> None:
    """What the example prints and returns: every sampled parameter, and the shapes it promises."""
    code = README.read_text().split("## Example")[1].split("```python\n")[1].split("```")[0]
    for original, smaller in SMALLER.items():
        assert original in code, f"the example changed: no {original} in it"
        code = code.replace(original, smaller)
    settings = training.AmortizedSettings(
        num_sampler_steps=3, num_encoder_steps=2, burnin=6, num_samples=2, thinning=3
    )
    scope = {"settings": settings}
    exec(compile(code, str(README), "exec"), scope)

    summary = capsys.readouterr().out
    model, posterior = scope["model"], scope["posterior"]
    assert len(model.sampled_paths) == 6 + 4  # weights and biases; l, variance, noise, Z
    for path in model.sampled_paths:
        assert path.lstrip(".") in summary
    assert "LogNormal" in summary and "Uniform" in summary and "Normal" in summary

    num_pixels = 32 * 32
    assert scope["latent_mean"].shape == scope["latent_var"].shape == (4, 11, 2)
    assert scope["y_mean"].shape == scope["y_var"].shape == (4, 11, num_pixels)
    # A pixel is Bernoulli: its variance is p (1 - p), whatever the samples say of p.
    p = scope["y_mean"]
    assert np.all((p > 0) & (p < 1))
    np.testing.assert_allclose(scope["y_var"], p * (1 - p), atol=1e-5)
    assert isinstance(scope["idata"], arviz.InferenceData)
    assert dict(scope["idata"].posterior.sizes)["chain"] == 1
    assert dict(scope["idata"].posterior.sizes)["draw"] == posterior.num_samples == 2
