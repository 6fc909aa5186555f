"""The README's example is code that runs, not prose."""

import numpy as np

from tests.test_release import shortened_example


def test_example_runs_as_written() -> None:
    """The block runs from top to bottom; only its size (videos, width, steps) is cut down."""
    names: dict = {}
    exec(shortened_example(), names)
    assert names["latent_mean"].shape == names["latent_var"].shape == (3, 100, 2)
    assert names["y_mean"].shape == names["y_var"].shape == (3, 100, 1024)
    # Bernoulli predictions: the variance of a binary observation with mean m is m (1 - m).
    mean = names["y_mean"]
    np.testing.assert_allclose(names["y_var"], mean * (1.0 - mean), atol=1e-5)
    posterior = names["idata"].posterior
    assert posterior.sizes["chain"] == 1 and posterior.sizes["draw"] == 3
    assert any(name.endswith("lengthscales") for name in posterior.data_vars)
