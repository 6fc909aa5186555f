"""The README's example is code that runs, not prose."""

import pathlib
import re

import numpy as np

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_example_runs_as_written() -> None:
    """The block runs from top to bottom; only its size (videos, width, steps) is cut down."""
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    settings = (
        "gpflow_bae.inference.sample_amortized(model, data, gpflow_bae.inference.AmortizedSettings("
        "num_sampler_steps=2, num_encoder_steps=1, burnin=2, num_samples=3, thinning=2), "
        "warm_start=None, "
    )
    for full, small in (
        ("num_videos=35", "num_videos=3"),
        ("(500,", "(8,"),
        ("gpflow_bae.fit(model, data, ", settings),
    ):
        assert full in block, f"the README no longer says {full}"
        block = block.replace(full, small)
    names: dict = {}
    exec(block, names)
    assert names["latent_mean"].shape == names["latent_var"].shape == (3, 100, 2)
    assert names["y_mean"].shape == names["y_var"].shape == (3, 100, 1024)
    # Bernoulli predictions: the variance of a binary observation with mean m is m (1 - m).
    mean = names["y_mean"]
    np.testing.assert_allclose(names["y_var"], mean * (1.0 - mean), atol=1e-5)
    posterior = names["idata"].posterior
    assert posterior.sizes["chain"] == 1 and posterior.sizes["draw"] == 3
    assert any(name.endswith("lengthscales") for name in posterior.data_vars)
