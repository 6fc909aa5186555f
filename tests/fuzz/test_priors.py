"""Kernels at the edge of what numbers can hold: densities and posteriors are finite, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from gpflow_bae import latent_priors, likelihoods
from gpflow_bae.data import prepare_data
from tests.fuzz.answers import answered, assert_finite, cases
from tests.fuzz.strategies import arrays
from tests.serving import small_posteriors

EXTREME = st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6])
KERNELS = st.sampled_from(["SquaredExponential", "Matern12", "Matern32", "Linear", "Constant"])
N, L = 5, 2


def kernel(name: str, variance: float, lengthscale: float) -> gpflow.kernels.Kernel:
    options = {} if name in ("Linear", "Constant") else {"lengthscales": lengthscale}
    return getattr(gpflow.kernels, name)(variance=variance, **options)


PRIORS: dict[str, Callable[[gpflow.kernels.Kernel, np.ndarray, float], Any]] = {
    "GP": lambda k, Z, noise: latent_priors.GP(k, L, noise),
    "SparseGP": lambda k, Z, noise: latent_priors.SparseGP(k, Z, L, noise),
    "NearestNeighbourGP": lambda k, Z, noise: latent_priors.NearestNeighbourGP(
        k, L, noise, num_neighbours=3
    ),
}


@pytest.mark.parametrize("name", PRIORS)
@hypothesis.given(
    KERNELS,
    EXTREME,
    EXTREME,
    EXTREME,
    st.sampled_from([0.0, 1e-9, 1.0, 1e6]),
    st.lists(st.sampled_from([0.0, 1e-9, 1.0, 1e6]), min_size=3, max_size=3),
)
@cases(20)
def test_extreme_kernels(
    name: str,
    covariance: str,
    variance: float,
    lengthscale: float,
    noise: float,
    spread: float,
    inducing: list[float],
) -> None:
    """Inputs and inducing inputs may coincide, and lie a millionth or a million from each other."""
    X = spread * np.linspace(0.0, 1.0, N)[:, None]
    rng = np.random.default_rng(0)
    latents, precise = rng.standard_normal((1, N, L)), np.full((1, N, L), 0.1)

    def density() -> Any:
        k = kernel(covariance, variance, lengthscale)
        prior = PRIORS[name](k, np.array(inducing)[:, None], noise)
        values = prior.log_prob(X[None], latents)
        return [values, prior.predict(X[:2][None] + 0.1, X[None], latents, precise)]

    found = answered(density)
    if found is not None:
        assert_finite(found)


@hypothesis.given(arrays(), arrays(), st.none() | st.integers(-1, 9))
@cases(60)
def test_any_arrays_are_data_of_a_model_or_are_not(X: Any, Y: Any, batch_size: int | None) -> None:
    model = SMALL.model
    data = answered(lambda: prepare_data(model, (X, Y), batch_size))
    if data is not None:
        assert_finite([data.X, data.Y])


SMALL = small_posteriors.sampled_sgp_bae()


@hypothesis.given(st.sampled_from([-1.0, 0.0, 1e-12, 1e-6, 1.0, 1e12, np.inf, np.nan]))
@cases(8)
def test_extreme_noise(variance: float) -> None:
    Y = np.ones((1, 3, 2))
    found = answered(lambda: likelihoods.Gaussian(variance).masked_log_prob(0.0 * Y, Y, None))
    if found is not None:
        assert_finite(found)
