"""Codes that go elsewhere in the latent space, against NumPy; natural gradients of q(v)."""

from __future__ import annotations

import pathlib
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import bijectors, encoders, guides, inference, models
from gpflow_bae.data import SparseTable, prepare_data
from gpflow_bae.inference.optimise.relocation import best_codes

N, P, M = 40, 6, 9


def ring(seed: int = 0) -> np.ndarray:
    """Rows [N, P] along a closed curve, some cells missing."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0.0, 2.0 * np.pi, N)
    Y = np.cos(angle[:, None] - np.linspace(0.0, 5.0, P)) + 0.05 * rng.standard_normal((N, P))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    Y[np.isnan(Y).all(1), 0] = 0.0
    return Y


def gplvm(guide: Any = None, likelihood: Any = None, **options: Any) -> models.StochasticGPLVM:
    """With functions that are not zero, and codes at random."""
    rng = np.random.default_rng(1)
    encoder = encoders.FreeFormEncoder(1, N, 2, rng.standard_normal((1, N, 2)), 0.02)
    model = models.StochasticGPLVM(
        encoder if guide is None else guide(encoder),
        gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]),
        rng.standard_normal((M, 2)),
        likelihood or gpflow.likelihoods.Gaussian(0.05),
        P,
        **options,
    )
    model.decoder.q_mu.assign(rng.standard_normal((M, P)))
    model.decoder.q_sqrt.assign(np.tile(0.2 * np.eye(M), (P, 1, 1)))
    return model


def log_likelihoods(model: models.StochasticGPLVM, Y: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """E[log N(y | f, noise)] [N, C] summed over what is observed, entry by entry."""
    mean, variance = (v.numpy() for v in model.predict_f(codes))
    noise = float(model.likelihood.variance.numpy())
    off = np.square(Y[:, None] - mean[None]) + variance[None]
    return np.nansum(-0.5 * np.log(2.0 * np.pi * noise) - 0.5 * off / noise, -1)


@pytest.mark.parametrize("kind", ["gaussian", "any likelihood", "triplets"])
def test_the_code_that_explains_a_row_best(kind: str) -> None:
    """In matrix products for a Gaussian, by the likelihood's own expectations else."""
    Y, codes = ring(), np.random.default_rng(2).standard_normal((30, 2))

    class Other(gpflow.likelihoods.ScalarLikelihood):
        """A Gaussian that does not say so."""

        def __init__(self) -> None:
            super().__init__()
            self.own = gpflow.likelihoods.Gaussian(0.05)
            self.variance = self.own.variance

        def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> tf.Tensor:
            return self.own._scalar_log_prob(X, F, Y)

        def _conditional_mean(self, X: Any, F: Any) -> tf.Tensor:
            return self.own._conditional_mean(X, F)

        def _conditional_variance(self, X: Any, F: Any) -> tf.Tensor:
            return self.own._conditional_variance(X, F)

    model = gplvm(likelihood=Other() if kind == "any likelihood" else None)
    data: Any = prepare_data(model, (None, Y))
    if kind == "triplets":
        rows, columns = np.nonzero(~np.isnan(Y))
        data = SparseTable(rows, columns, Y[rows, columns], num_rows=N, num_columns=P)
    prior = -0.5 * np.square(codes).sum(-1)
    expected = log_likelihoods(model, Y, codes) + prior
    indices, values = best_codes(model, data, tf.constant(codes), prior)
    np.testing.assert_allclose(values, expected.max(1), rtol=1e-5)  # observations are float32
    np.testing.assert_array_equal(indices, expected.argmax(1))


@pytest.mark.parametrize("guide", [guides.MeanFieldGuide, guides.PointEstimate])
def test_codes_move_where_they_are_better_and_nowhere_else(guide: Any) -> None:
    Y, model = ring(), gplvm(guide)
    data = prepare_data(model, (None, Y))

    def heights(codes: np.ndarray) -> np.ndarray:
        log_prior = -0.5 * np.square(codes).sum(-1)
        return np.diag(log_likelihoods(model, Y, codes)) + log_prior

    before = model.guide.encoder.mean.numpy().copy()
    width = model.guide.encoder.log_scale.numpy().copy()
    share = inference.relocate_codes(model, (None, Y), num_candidates=300)
    after = model.guide.encoder.mean.numpy()
    moved = (after != before).any(1)
    assert moved.mean() == share > 0.5
    gain = heights(after) - heights(before)
    assert (gain[moved] > 0).all() and (gain[~moved] == 0).all()
    np.testing.assert_array_equal(model.guide.encoder.log_scale, width)
    # The same candidates once more: no code is better than the best.
    assert inference.relocate_codes(model, data, num_candidates=300) == 0.0


def test_a_fit_that_relocates_codes_unfolds_what_gradients_do_not(tmp_path: pathlib.Path) -> None:
    """From codes at random; and what was interrupted ends as what was not, to the bit."""
    Y = ring()
    chosen = {"num_steps": 300, "learning_rate": 0.03, "batch_size": 20}

    def fitted(relocations: int, **options: Any) -> tuple[models.StochasticGPLVM, np.ndarray]:
        model = gplvm()
        settings = inference.VariationalSettings(**chosen, relocations=relocations)
        options = {"steps_per_call": 25, "progress": False, "checkpoint_every": 1} | options
        return model, inference.fit_variational(model, (None, Y), settings, **options)

    model, losses = fitted(4)
    assert losses[-3:].mean() < fitted(0)[1][-3:].mean() - 0.5  # nats a row

    def stop(number: int, loss: float) -> None:
        if number == 150:
            raise KeyboardInterrupt

    folder = tmp_path / "fit"
    with pytest.raises(KeyboardInterrupt):
        fitted(4, out_dir=folder, callback=stop)
    again, _ = fitted(4, out_dir=folder, resume=True)
    fitted(1, seed=2_000_000_000)  # the largest there is
    np.testing.assert_array_equal(again.guide.encoder.mean, model.guide.encoder.mean)
    np.testing.assert_array_equal(again.decoder.q_mu, model.decoder.q_mu)


def test_codes_that_cannot_be_relocated_are_refused() -> None:
    Y = np.nan_to_num(ring())
    flow = gplvm(lambda encoder: guides.FlowGuide(encoder, bijectors.planar_flow(2, 2)))
    network = gplvm(lambda _: encoders.partial_encoder("zeros", P, 2))
    settings = inference.VariationalSettings(num_steps=10, relocations=1)
    for model, words in ((flow, r"FlowGuide\(FreeFormEncoder"), (network, "MeanFieldGuide")):
        with pytest.raises(TypeError, match=f"codes can be relocated where .*not in .*{words}"):
            inference.fit_variational(model, (None, Y), settings, progress=False)
        with pytest.raises(TypeError, match="codes can be relocated where"):
            inference.relocate_codes(model, (None, Y))
    with pytest.raises(ValueError, match="num_candidates must be"):
        inference.relocate_codes(gplvm(), (None, Y), num_candidates=0)
    with pytest.raises(ValueError, match="relocations must be at least 0, got -1"):
        inference.VariationalSettings(relocations=-1)


def test_a_natural_gradient_step_of_size_one_is_the_conjugate_update() -> None:
    """With nothing else trained, one step ends at GPflow's collapsed bound, whatever N is."""
    Y = np.nan_to_num(ring())
    model = gplvm(num_draws=None)
    gpflow.set_trainable(model, False)
    gpflow.set_trainable(model.decoder.q_mu, True)
    gpflow.set_trainable(model.decoder.q_sqrt, True)
    settings = inference.VariationalSettings(num_steps=1, natural_gradient_step_size=1.0)
    inference.fit_variational(model, (None, Y), settings, steps_per_call=1, progress=False)
    encoder = model.guide.encoder
    reference = gpflow.models.BayesianGPLVM(
        tf.constant(Y),
        tf.constant(encoder.mean.numpy()),
        tf.exp(2.0 * encoder.log_scale),
        model.decoder.kernel,
        inducing_variable=model.decoder.inducing_variable,
    )
    reference.likelihood.variance.assign(model.likelihood.variance)
    data = prepare_data(model, (None, Y))
    reached = float(model.batch_elbo(data.gather(None), tf.constant([0, 0])))
    np.testing.assert_allclose(reached, float(reference.elbo()), rtol=1e-5)
