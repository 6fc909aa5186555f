"""Training of GPLVMs: rows that a step does not see rest; new rows; a posterior with two modes."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import bijectors, encoders, guides, inference, latent_priors, models
from gpflow_bae.base import Batch, VariationalModel, VariationalTerms
from gpflow_bae.data import Observations, SparseTable, prepare_data
from gpflow_bae.data.minibatches import _MANY, draw_indices
from gpflow_bae.inference.optimise.row_adam import RowAdam
from gpflow_bae.posteriors import GPLVMPosterior

SEED = tf.constant([1, 2])


def swiss(num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Smooth functions of two codes, with noise of standard deviation 0.05."""
    rng = np.random.default_rng(seed)
    codes = rng.standard_normal((num_rows, 2))
    mixing = np.random.default_rng(99).standard_normal((2, 8))
    return np.sin(codes @ mixing) + 0.05 * rng.standard_normal((num_rows, 8)), codes


@functools.cache
def fitted(num_maps: int, num_steps: int = 1200) -> tuple[models.StochasticGPLVM, np.ndarray]:
    """To be left as it is; with a planar flow of so many maps."""
    Y, _ = swiss(150)
    start = np.linalg.svd(Y - Y.mean(0), full_matrices=False)[0][:, :2] * np.sqrt(len(Y))
    encoder = encoders.FreeFormEncoder(1, len(Y), 2, start[None], 0.1)
    posterior = guides.MeanFieldGuide(encoder)
    if num_maps:
        posterior = guides.FlowGuide(encoder, bijectors.planar_flow(2, num_maps))
    model = models.StochasticGPLVM(
        posterior,
        gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]),
        start[:25],
        gpflow.likelihoods.Gaussian(0.1),
        Y.shape[1],
    )
    settings = inference.VariationalSettings(num_steps=num_steps, learning_rate=0.02, batch_size=75)
    inference.fit_variational(model, (None, Y), settings, seed=0, progress=False)
    return model, Y


def test_a_row_moves_as_adam_would_move_it() -> None:
    """Two of five rows in turn: each follows Adam on the steps that saw it; the others rest."""
    rng = np.random.default_rng(0)
    variable = tf.Variable(rng.standard_normal((5, 3)))
    start = variable.numpy()
    optimizer = RowAdam([variable], 0.1)
    gradients = [rng.standard_normal((2, 3)) for _ in range(6)]
    rows = [[0, 3], [3, 1], [0, 1], [3, 0], [1, 0], [0, 3]]
    for g, r in zip(gradients, rows, strict=True):
        optimizer.apply([tf.IndexedSlices(tf.constant(g), tf.constant(r))])
    for row in range(5):
        x, m, v, steps = start[row].copy(), 0.0, 0.0, 0
        for g, r in zip(gradients, rows, strict=True):
            if row in r:
                slope = g[r.index(row)]
                steps += 1
                m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
                x -= 0.1 * (m / (1 - 0.9**steps)) / (np.sqrt(v / (1 - 0.999**steps)) + 1e-7)
        np.testing.assert_allclose(variable[row], x, rtol=1e-12)
    with pytest.raises(TypeError, match="is dense: gather its rows"):
        optimizer.apply([tf.ones([5, 3], tf.float64)])


def test_many_items_are_drawn_alike_and_without_repeats() -> None:
    num_items, batch = 150_000, 1000
    assert num_items > _MANY  # or a permutation is drawn
    counts = np.zeros(num_items)
    for i in range(300):
        indices = draw_indices(num_items, batch, tf.constant([7, i])).numpy()
        assert len(set(indices)) == batch
        assert indices.min() >= 0 and indices.max() < num_items
        counts[indices] += 1
    # 300 000 draws into 30 bins: 10 000 each, standard deviation at most 100 if draws of a batch
    # were independent; they are spread more evenly than that.
    binned = counts.reshape(30, -1).sum(1)
    assert np.abs(binned - 10_000).max() < 500


def test_minibatches_reach_the_bound_of_the_full_batch() -> None:
    """Within one per cent, for dense rows, for columns, and for triplets."""
    Y, _ = swiss(120)
    start = np.linalg.svd(Y - Y.mean(0), full_matrices=False)[0][:, :2] * np.sqrt(len(Y))
    rows, columns = np.nonzero(np.isfinite(Y))
    bounds = {}
    for name, options, data in (
        ("full", {}, (None, Y)),
        ("rows", {"batch_size": 40}, (None, Y)),
        ("columns", {"batch_size": (60, 4)}, (None, Y)),
        (
            "triplets",
            {"batch_size": 60},
            SparseTable(rows, columns, Y[rows, columns], max_entries=5),
        ),
    ):
        encoder = encoders.FreeFormEncoder(1, len(Y), 2, start[None], 0.05)
        model = models.StochasticGPLVM(
            encoder,
            gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]),
            start[:20],
            gpflow.likelihoods.Gaussian(0.1),
            Y.shape[1],
            num_draws=2,
        )
        settings = inference.VariationalSettings(
            num_steps=1500, learning_rate=0.02, final_learning_rate_fraction=0.01, **options
        )
        inference.fit_variational(model, data, settings, progress=False, steps_per_call=500)
        whole = prepare_data(model, (None, Y)).gather(None)
        model.num_draws = 100
        bounds[name] = float(model.batch_elbo(whole, tf.constant([3, 0])))
    for name in ("rows", "columns", "triplets"):
        # per observation, against a spread of the data of 0.7 with noise 0.05: a gap of 0.02 nats
        gap = (bounds["full"] - bounds[name]) / Y.size
        assert abs(gap) < 0.05, bounds


@pytest.mark.parametrize("num_maps", [0, 4])
def test_new_rows_find_their_codes_from_half_of_their_cells(num_maps: int) -> None:
    """Held-out cells of new rows are predicted, with calibrated spread, and nothing else moves."""
    model, _ = fitted(num_maps)
    before = [v.numpy() for v in model.trainable_variables]
    Ynew, _ = swiss(60, seed=5)
    mask = np.random.default_rng(1).random(Ynew.shape) < 0.5
    mask[~mask.any(1), 0] = True
    holed = np.where(mask, Ynew, np.nan)
    new = inference.latents_for_new(model, holed, seed=0)
    for old, variable in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(old, variable.numpy())
    assert new.sample(3).shape == (3, 60, 2)
    filled, deviation = new.impute(50)
    np.testing.assert_allclose(filled[mask], Ynew[mask], rtol=1e-6)
    assert (deviation[mask] == 0).all()
    error = np.abs(filled - Ynew)[~mask]
    assert np.median(error) < 0.2  # column means: 0.6
    rows, columns = np.nonzero(~mask)
    density = new.predict_log_density(rows, columns, Ynew[~mask], num_draws=100)
    mean, variance = new.predict_y(rows, columns, num_draws=100)
    spread = np.sqrt(variance)
    inside = np.abs(mean - Ynew[~mask]) < 1.645 * spread
    assert inside.mean() > 0.75
    marginal = -0.5 * np.log(2 * np.pi * Ynew.var()) - 0.5
    assert density.mean() > marginal + 0.3


def test_log_density_of_cells_against_a_loop() -> None:
    model, Y = fitted(0, num_steps=200)
    data = prepare_data(model, (None, Y))
    posterior = GPLVMPosterior(model, data)
    rows, columns = np.array([3, 3, 40]), np.array([0, 7, 2])
    values = Y[rows, columns]
    found = posterior.predict_log_density(rows, columns, values, num_draws=4000)
    mean, variance = (np.asarray(v)[0] for v in model.guide.moments(data.gather(None)))
    noise = float(model.likelihood.variance.numpy())
    rng = np.random.default_rng(0)
    for k, (n, p) in enumerate(zip(rows, columns, strict=True)):
        codes = mean[n] + np.sqrt(variance[n]) * rng.standard_normal((4000, 2))
        f_mean, f_variance = (np.asarray(v)[:, p] for v in model.predict_f(codes))
        total = f_variance + noise
        density = np.exp(-0.5 * (values[k] - f_mean) ** 2 / total) / np.sqrt(2 * np.pi * total)
        # 4000 draws on either side of a density whose spread is about its mean: five per cent.
        np.testing.assert_allclose(found[k], np.log(density.mean()), atol=0.08)


def test_a_flow_holds_both_modes_of_an_exact_posterior() -> None:
    """y = x^2 + noise, twice: p(x | y) has two modes. KL of a flow: a quarter of the Gaussian's."""
    observed, noise = np.array([1.5, 1.4]), 0.15
    grid = np.linspace(-5.0, 5.0, 40_001)
    log_joint = -0.5 * grid**2 - 0.5 * np.log(2 * np.pi)
    log_joint -= 0.5 * ((observed[:, None] - grid**2) ** 2 / noise).sum(0)
    log_joint -= np.log(2 * np.pi * noise)
    step = grid[1] - grid[0]
    log_evidence = np.log(np.exp(log_joint).sum() * step)
    kl = {}
    for name in ("gaussian", "flow"):
        encoder = encoders.FreeFormEncoder(1, 1, 1, np.array([[[0.3]]]), 1.0)
        guide: Any = guides.MeanFieldGuide(encoder)
        if name == "flow":
            guide = guides.FlowGuide(encoder, bijectors.planar_flow(1, 8, seed=1))
        model = _Square(guide, noise)
        data = Observations(None, tf.constant(observed[None, None], tf.float32), None)
        settings = inference.VariationalSettings(
            num_steps=4000, learning_rate=0.01, final_learning_rate_fraction=0.02
        )
        inference.fit_variational(model, data, settings, steps_per_call=500, progress=False)
        model.num_draws = 20_000
        draws = model.terms(data.gather(None), tf.constant([9, 9]))
        kl[name] = log_evidence - float(draws.expected_log_likelihood - draws.divergence)
    assert kl["gaussian"] > 0.3  # log 2 for one mode out of two
    assert kl["flow"] > -0.02  # the bound is one, to Monte Carlo error
    assert kl["flow"] <= 0.25 * kl["gaussian"], kl


class _Square(gpflow.Module, VariationalModel):
    """y_p ~ N(x^2, noise): as a variational model with a fixed decoder."""

    observation_likelihood = None
    num_draws = 64

    def __init__(self, guide: Any, noise: float):
        super().__init__()
        self.guide, self.noise = guide, noise
        self.prior = latent_priors.StandardNormal(1)

    def terms(self, batch: Batch, seed: tf.Tensor, snapshot: Any = None) -> Any:
        draws = self.guide.draw(self.prior, batch, self.num_draws, seed)
        y = tf.cast(batch.Y, tf.float64)
        entries = -0.5 * tf.square(y - tf.square(draws.latents[:, 0])) / self.noise
        entries -= 0.5 * np.log(2 * np.pi * self.noise)
        expected = tf.reduce_sum(tf.reduce_mean(entries, 0))
        return VariationalTerms(expected, draws.divergence, y)


def test_triplets_that_cannot_be_are_refused() -> None:
    table = SparseTable
    rows, columns, values = np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([1.0, 2.0, 3.0])
    for changes, message in (
        ({"rows": np.array([0, -1, 1])}, r"rows\[1\] is -1, out of range"),
        ({"num_rows": 1}, r"rows\[2\] is 1, out of range for 1 rows"),
        ({"num_rows": 4}, r"rows \[2, 3\] have no observation"),
        ({"num_columns": 3}, r"columns \[2\] have no observation"),
        ({"values": np.array([1.0, np.inf, 0.0])}, r"values\[1\] is inf"),
        ({"columns": np.array([0, 0, 1])}, r"\(row 0, column 0\) occurs 2 times"),
        ({"columns": np.array([0.0, 1.0, 1.0])}, "columns must be integers"),
        ({"values": values[:2]}, "vectors of the same length"),
        ({"max_entries": 0}, "max_entries must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            table(**({"rows": rows, "columns": columns, "values": values} | changes))
    good = table(rows, columns, values)
    amortised = encoders.partial_encoder("zeros", 2, 1, (4,))
    kernel = gpflow.kernels.SquaredExponential()
    model = models.StochasticGPLVM(
        amortised, kernel, np.zeros((1, 1)), gpflow.likelihoods.Gaussian(), 2
    )
    with pytest.raises(ValueError, match="an encoder network wants complete rows"):
        inference.fit_variational(model, good)
    model, Y = fitted(0, num_steps=200)
    with pytest.raises(ValueError, match="The model has output_dim = 8, the table 2 columns"):
        inference.fit_variational(model, good)
    with pytest.raises(ValueError, match=r"no observation in row\(s\) \[1\]"):
        inference.latents_for_new(model, np.array([[1.0] * 8, [np.nan] * 8]))
    with pytest.raises(ValueError, match=r"Ynew must have shape \[N, 8\]"):
        inference.latents_for_new(model, np.zeros((3, 7)))
    with pytest.raises(ValueError, match="rows must be integers from 0 to 149"):
        data = prepare_data(model, (None, Y))
        GPLVMPosterior(model, data).predict_y([150], [0])


@pytest.mark.usefixtures("untraced")
def test_a_stopped_fit_goes_on_bit_by_bit(tmp_path: pathlib.Path) -> None:
    """Codes, their moments and their counts are in the checkpoint."""
    Y, _ = swiss(60)

    def fit(num_steps: int, folder: str, resume: bool = False) -> list[np.ndarray]:
        model = models.FlowGPLVM(
            encoders.FreeFormEncoder(1, 60, 2),
            gpflow.kernels.SquaredExponential(),
            np.random.default_rng(0).standard_normal((8, 2)),
            gpflow.likelihoods.Gaussian(0.1),
            8,
            flow=bijectors.planar_flow(2, 2),
        )
        settings = inference.VariationalSettings(num_steps=16, learning_rate=0.02, batch_size=20)

        def stop(steps: int, loss: float) -> None:
            if steps == num_steps:
                raise KeyboardInterrupt

        try:
            inference.fit_variational(
                model,
                (None, Y),
                settings,
                steps_per_call=4,
                checkpoint_every=1,
                out_dir=tmp_path / folder,
                resume=resume,
                progress=False,
                callback=stop,
            )
        except KeyboardInterrupt:
            pass
        return [v.numpy() for v in model.trainable_variables]

    whole = fit(0, "whole")
    fit(8, "stopped")
    for a, b in zip(whole, fit(0, "stopped", resume=True), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("batch_size", [None, 20])
def test_map_codes_move_and_their_variance_does_not(batch_size: int | None) -> None:
    Y, _ = swiss(60)
    encoder = encoders.FreeFormEncoder(1, 60, 2)
    before = encoder.mean.numpy(), encoder.log_scale.numpy()
    model = models.StochasticGPLVM(
        guides.PointEstimate(encoder),
        gpflow.kernels.SquaredExponential(),
        np.random.default_rng(0).standard_normal((8, 2)),
        gpflow.likelihoods.Gaussian(0.1),
        8,
    )
    settings = inference.VariationalSettings(
        num_steps=100, learning_rate=0.02, batch_size=batch_size
    )
    losses = inference.fit_variational(model, (None, Y), settings, progress=False)
    assert losses[-1] < losses[0]
    assert (encoder.mean.numpy() != before[0]).all()
    np.testing.assert_array_equal(encoder.log_scale.numpy(), before[1])
    new = inference.latents_for_new(model, Y[:3])
    assert np.isfinite(new.sample()).all()
