"""What users ask of a posterior, with arrays that do not fit it: said, or finite predictions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gpflow
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from gpflow_bae import inputs, likelihoods, models
from gpflow_bae.data import prepare_data
from gpflow_bae.posteriors import (
    Bank,
    InputIntervals,
    Posterior,
    TemperedPosterior,
    input_intervals,
)
from tests.fuzz.answers import answered, assert_finite, cases
from tests.fuzz.strategies import SCALARS, mutated
from tests.serving import small_posteriors
from tests.serving.small_posteriors import L, P

KINDS: dict[str, Callable[[], Any]] = {
    "sampled, one task": small_posteriors.sampled_sgp_bae,
    "sampled, tasks": lambda: small_posteriors.posterior(small_posteriors.sgp_bae(), 2, 2),
    "variational": lambda: small_posteriors.variational(models.SVGPVAE),
    "without inputs": lambda: small_posteriors.variational(models.VAE),
    "partial": small_posteriors.partial,
}
posterior_of = functools.cache(lambda kind: KINDS[kind]())
METHODS = [
    "predict",
    "predict_y",
    "predict_latent",
    "predict_f",
    "predict_f_samples",
    "predict_log_density",
    "predict_cell_log_density",
    "encode",
    "reconstruct",
    "impute",
]


@pytest.mark.parametrize("kind", KINDS)
@hypothesis.given(st.data())
@cases(4)
def test_predictions(kind: str, data: st.DataObject) -> None:
    posterior = posterior_of(kind)
    X, Y = small_posteriors.data(posterior.Y.shape[0])
    X, Y = X[..., :4, :], Y[..., :4, :]
    if not posterior.data.has_tasks:
        X, Y = X[0], Y[0]
    method = data.draw(st.sampled_from(METHODS))
    X, Y = (data.draw(st.just(values) | mutated(values)) for values in (X, Y))
    options: dict[str, Any] = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "seed": st.sampled_from([0, -1, 2**31 - 1, 2**40, 0.5, None]),
                "num_draws": st.sampled_from([0, 1, 2, -1, 1.5, "a"]),
                "given": st.none() | st.just((X, Y)) | st.just((None, Y)) | st.just(Y),
            },
        )
    )
    if method in ("predict_log_density", "predict_cell_log_density"):
        arguments: tuple[Any, ...] = ((X, Y),)
    elif method in ("reconstruct", "impute"):
        options.pop("given", None)
        arguments = (Y, X)
    elif method == "encode":
        options.pop("given", None)
        arguments = (Y,)
    else:
        arguments = (X,)
    if method == "predict_f_samples":
        options = {k: v for k, v in options.items() if k != "num_draws"} | {"num_samples": 2}
    found = answered(lambda: getattr(posterior, method)(*arguments, **options))
    if found is None:
        return
    if method != "predict_cell_log_density":  # NaN where Y is missing
        assert_finite(found)


@functools.cache
def tempered() -> TemperedPosterior:
    network = small_posteriors.network
    model = models.TemperedBAE(network(P, L), network(L, P))
    rng = np.random.default_rng(0)
    samples = {
        path: rng.standard_normal((2, 3, *v.shape)).astype(v.dtype.as_numpy_dtype)
        for path, v in zip(model.sampled.paths, model.sampled.values(), strict=True)
    }
    return TemperedPosterior(model, Bank(samples, {}, None, "TemperedBAE"), swap_rate=np.zeros(1))


@hypothesis.given(st.data(), st.sampled_from(["encode", "decode", "reconstruct"]))
@cases(20)
def test_tempered_predictions(data: st.DataObject, method: str) -> None:
    posterior = tempered()
    rows = np.random.default_rng(0).standard_normal((4, L if method == "decode" else P))
    values = data.draw(mutated(rows))
    if method == "decode":  # codes of each sample
        rows = np.stack(6 * [rows])
        values = data.draw(mutated(rows))
    found = answered(lambda: getattr(posterior, method)(values))
    if found is not None:
        assert_finite(found)


@pytest.mark.parametrize("kind", KINDS)
@hypothesis.given(st.data(), st.none() | st.sampled_from([0, 1, 2, 3, -1, 10**9, 1.5]))
@cases(40)
def test_data_of_a_model(kind: str, data: st.DataObject, batch_size: Any) -> None:
    posterior = posterior_of(kind)
    X, Y = small_posteriors.data(posterior.Y.shape[0])
    X, Y = (data.draw(mutated(values)) for values in (X, Y))
    found = answered(lambda: prepare_data(posterior.model, (X, Y), batch_size))
    if found is not None:
        assert_finite([v for v in (found.X, found.Y) if v is not None])


@functools.cache
def with_holes() -> tuple[Posterior, np.ndarray]:
    """Of a model whose second column of X is missing in twelve of twenty rows; all of X."""
    rng = np.random.default_rng(0)
    complete = rng.uniform(0.0, 1.0, (20, 2))
    X = complete.copy()
    X[:12, 1] = np.nan
    kernel = inputs.CompletedInputs(
        gpflow.kernels.SquaredExponential(active_dims=[1]),
        inputs.MissingInputs(X, q="gaussian"),
    )
    network = small_posteriors.network
    model = models.SVGPVAE(
        kernel, np.zeros((1, 2)), network(1, 2), network(2, 2), likelihoods.Gaussian(1.0), 1
    )
    return Posterior.from_point(model, (X, rng.standard_normal((20, 2)))), complete


@hypothesis.given(st.data())
@cases(20)
def test_intervals_of_inputs(data: st.DataObject) -> None:
    posterior, complete = with_holes()
    options: dict[str, Any] = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "column": SCALARS,
                "level": SCALARS,
                "known": mutated(complete),
                "num_draws": SCALARS,
                "seed": SCALARS,
            },
        )
    )
    found = answered(lambda: input_intervals(posterior, **({"column": 1} | options)))
    if found is not None:
        assert isinstance(found, InputIntervals)
        assert_finite([found.estimate, found.lower, found.upper, found.scale])
