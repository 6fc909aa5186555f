"""The GPLVM's bound against GPflow's, its minibatches against the whole, and what is refused."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from gpflow_bae import bijectors, encoders, guides, inference, latent_priors, likelihoods, models
from gpflow_bae.base import Batch
from gpflow_bae.data import Observations, SparseTable, prepare_data
from gpflow_bae.posteriors import GPLVMPosterior

N, P, L, M = 30, 5, 2, 7
SEED = tf.constant([1, 2])


def make_data(seed: int = 0, missing: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    codes = rng.standard_normal((N, L))
    Y = np.sin(codes @ rng.standard_normal((L, P))) + 0.1 * rng.standard_normal((N, P))
    Y[rng.random(Y.shape) < missing] = np.nan
    Y[np.isnan(Y).all(1), 0] = 0.0  # no row without any observation
    return Y


def make_model(
    posterior: Any = None, seed: int = 0, randomise: bool = True, **options: Any
) -> models.StochasticGPLVM:
    rng = np.random.default_rng(seed)
    if posterior is None:
        encoder = encoders.FreeFormEncoder(1, N, L, rng.standard_normal((1, N, L)), 0.05)
        posterior = guides.PointEstimate(encoder)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.8, 1.5])
    likelihood = options.pop("likelihood", gpflow.likelihoods.Gaussian(0.1))
    model = models.StochasticGPLVM(
        posterior, kernel, rng.standard_normal((M, L)), likelihood, P, **options
    )
    if randomise:
        model.decoder.q_mu.assign(rng.standard_normal((M, P)))
        if not model.decoder.q_diag:
            roots = np.tril(0.3 * rng.standard_normal((P, M, M))) + 0.5 * np.eye(M)
            model.decoder.q_sqrt.assign(roots)
    return model


def test_the_bound_with_optimal_inducing_outputs_is_that_of_gpflow() -> None:
    """BayesianGPLVM's collapsed bound is ours at the optimal q(v), to Monte Carlo error."""
    Y = make_data()
    rng = np.random.default_rng(3)
    mean, variance = rng.standard_normal((N, L)), 0.1 + 0.2 * rng.random((N, L))
    reference = gpflow.models.BayesianGPLVM(
        tf.constant(Y),
        tf.constant(mean),
        tf.constant(variance),
        gpflow.kernels.SquaredExponential(lengthscales=[0.8, 1.5], variance=1.3),
        inducing_variable=rng.standard_normal((M, L)),
    )
    reference.likelihood.variance.assign(0.07)
    encoder = encoders.FreeFormEncoder(1, N, L, mean[None], 0.1)
    encoder.log_scale.assign(0.5 * np.log(variance))
    model = models.StochasticGPLVM(
        encoder,
        reference.kernel,
        reference.inducing_variable,
        reference.likelihood,
        P,
        num_draws=500,
    )
    first, second = model.decoder.expected_features(mean, variance)
    data = prepare_data(model, (None, Y))
    batch = data.gather(None)
    before = float(model.batch_elbo(batch, SEED))
    model.decoder.assign_optimal(first, second, Y, model.likelihood.variance)
    values = [float(model.batch_elbo(batch, tf.constant([0, i]))) for i in range(40)]
    error = np.std(values) / np.sqrt(len(values))
    expected = float(reference.elbo())
    assert before < expected - 10.0
    assert abs(np.mean(values) - expected) < 4.0 * error + 1e-3
    known = models.StochasticGPLVM(
        encoder,
        reference.kernel,
        reference.inducing_variable,
        reference.likelihood,
        P,
        num_draws=None,
    )
    gpflow.utilities.multiple_assign(known.decoder, gpflow.utilities.parameter_dict(model.decoder))
    # With expectations in closed form nothing is random; GPflow's own jitter is 1e-6.
    np.testing.assert_allclose(float(known.batch_elbo(batch, SEED)), expected, rtol=1e-5)
    # q(v) away from the optimum: never above
    model.decoder.q_mu.assign_add(0.05 * rng.standard_normal((M, P)))
    moved = [float(model.batch_elbo(batch, tf.constant([0, i]))) for i in range(40)]
    assert np.mean(moved) < expected


@pytest.mark.parametrize("q_diag", [False, True])
def test_expectations_in_closed_form_are_the_mean_of_draws(q_diag: bool) -> None:
    """With holes, for any q(v), and for some of the columns."""
    Y = make_data(missing=0.3)
    rng = np.random.default_rng(5)
    encoder = encoders.FreeFormEncoder(1, N, L, rng.standard_normal((1, N, L)), 0.2)
    drawn = make_model(encoder, q_diag=q_diag, num_draws=1000)
    known = make_model(encoder, q_diag=q_diag, num_draws=None)
    data = prepare_data(known, (None, Y))
    for columns in (None, tf.constant([3, 1])):
        batch = data.gather(None, columns)
        terms = known.terms(batch, SEED)
        estimates = [drawn.terms(batch, tf.constant([0, i])) for i in range(30)]
        likelihoods = [float(t.expected_log_likelihood) for t in estimates]
        error = np.std(likelihoods) / np.sqrt(len(likelihoods))
        assert abs(np.mean(likelihoods) - float(terms.expected_log_likelihood)) < 4.0 * error
        np.testing.assert_allclose(terms.divergence, estimates[0].divergence, rtol=1e-10)


def test_expectations_in_closed_form_are_refused_where_they_are_not_known() -> None:
    encoder = encoders.FreeFormEncoder(1, N, L)
    with pytest.raises(ValueError, match="num_draws=None needs another guide, a MeanFieldGuide"):
        make_model(guides.FlowGuide(encoder, bijectors.planar_flow(L, 2)), num_draws=None)
    with pytest.raises(ValueError, match="another likelihood, a Gaussian of one variance"):
        make_model(encoder, num_draws=None, likelihood=gpflow.likelihoods.Bernoulli())
    matern = gpflow.kernels.Matern52()
    mixed = gpflow.kernels.SquaredExponential(active_dims=[0]) + gpflow.kernels.Linear(
        active_dims=[1]
    )
    points = np.zeros((M, L))
    noise = gpflow.likelihoods.Gaussian(0.1)
    models.StochasticGPLVM(encoder, mixed, points, noise, P, num_draws=None)
    with pytest.raises(ValueError, match="another kernel, SquaredExponential or Linear"):
        models.StochasticGPLVM(encoder, matern, points, noise, P, num_draws=None)
    table = SparseTable(np.arange(N), np.arange(N) % P, np.ones(N))
    with pytest.raises(ValueError, match="needs a table, not triplets"):
        make_model(encoder, num_draws=None).batch_elbo(table.gather(None), SEED)


@pytest.mark.parametrize("q_diag", [False, True])
def test_rows_and_columns_in_minibatches_add_up_to_the_whole(q_diag: bool) -> None:
    """With point codes nothing is random: the mean of the scaled bounds of a partition is exact."""
    Y = make_data(missing=0.3)
    model = make_model(q_diag=q_diag)
    data = prepare_data(model, (None, Y))
    whole = float(model.batch_elbo(data.gather(None), SEED))
    row_parts = np.random.default_rng(0).permutation(N).reshape(3, -1)
    parts = []
    for rows in row_parts:
        for column in range(P):
            batch = data.gather(tf.constant(rows, tf.int32), tf.constant([column]))
            parts.append(3.0 * float(model.batch_elbo(batch, SEED)))
    np.testing.assert_allclose(np.mean(parts), whole, rtol=1e-10)
    assert np.std(parts) > 1.0


@pytest.mark.parametrize("q_diag", [False, True])
def test_triplets_are_the_table_with_holes(q_diag: bool) -> None:
    Y = make_data(missing=0.4)
    model = make_model(q_diag=q_diag)
    dense = prepare_data(model, (None, Y)).gather(None)
    rows, columns = np.nonzero(~np.isnan(Y))
    shuffled = np.random.default_rng(1).permutation(len(rows))
    triplets = (rows[shuffled], columns[shuffled], Y[rows, columns][shuffled])
    table = SparseTable(*triplets)
    expected = float(model.batch_elbo(dense, SEED))
    np.testing.assert_allclose(
        float(model.batch_elbo(table.gather(None), SEED)), expected, rtol=1e-6
    )  # observations are float32
    # Two entries a row, from a random start: the average over starts is the whole.
    short = SparseTable(*triplets, max_entries=2)
    bound = tf.function(
        lambda seed: model.batch_elbo(short.gather(None, seed=seed), SEED), autograph=False
    )
    values = [float(bound(tf.constant([5, i]))) for i in range(400)]
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values) - expected) < 4.0 * error
    assert error < 0.02 * abs(expected)


@pytest.mark.parametrize("number", [N - 1, N + 1])
def test_data_with_another_number_of_rows_than_codes_are_refused(number: int) -> None:
    """In minibatches too, whose rows would have zeros for codes, on a GPU without an error."""
    Y = np.resize(make_data(), (number, P))
    rows, columns = np.indices(Y.shape)
    table = SparseTable(rows.ravel(), columns.ravel(), Y.ravel())
    for data in ((None, Y), table):
        for batch_size in (None, 5):
            with pytest.raises(ValueError, match=f"codes of {N} items, and the data have {number}"):
                prepare_data(make_model(), data, batch_size)


@pytest.mark.parametrize("kind", ["masked", "frame", "nullable", "triplets", "integers"])
def test_tables_of_other_kinds_are_the_array_with_holes(kind: str) -> None:
    """The bound is the same number for each."""
    Y = np.round(4.0 * make_data(missing=0.3))
    holes = np.isnan(Y)
    filled = np.where(holes, 7.0, Y)
    rows, columns = np.nonzero(~holes)
    order = np.random.default_rng(0).permutation(len(rows))
    data: Any = {
        "masked": lambda: (None, np.ma.array(filled, mask=holes)),
        "frame": lambda: (None, pd.DataFrame(Y)),
        "nullable": lambda: (None, pd.DataFrame(filled).astype("Int64").mask(holes)),
        "triplets": lambda: SparseTable(rows[order], columns[order], Y[rows, columns][order]),
        "integers": lambda: (None, np.ma.array(filled.astype(np.int32), mask=holes)),
    }[kind]()
    model = make_model()
    terms = [model.terms(prepare_data(model, d).gather(None), SEED) for d in (data, (None, Y))]
    found, expected = (t.expected_log_likelihood - t.divergence for t in terms)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda Y: np.where(np.arange(N)[:, None] == 3, np.nan, Y), None),
        (lambda Y: np.where(np.arange(P) == 1, np.nan, Y), r"in column\(s\) \[1\]"),
        (lambda Y: Y[:0], r"shape \(0, 5\), without any observation"),
        (lambda Y: np.full_like(Y, np.nan), r"no observation at all"),
    ],
)
def test_rows_and_columns_without_observations(change: Any, message: str | None) -> None:
    """A row's code then has its prior; a column's function would have nothing to fit."""
    model, Y = make_model(), change(make_data())
    if message is not None:
        with pytest.raises(ValueError, match=message):
            prepare_data(model, (None, Y))
        return
    batch = prepare_data(model, (None, Y)).gather(None)
    assert np.isfinite(model.terms(batch, SEED).expected_log_likelihood)


def test_a_missing_cell_is_a_deleted_one() -> None:
    """Whatever stands in a masked cell has no effect, and none on gradients."""
    Y = make_data(missing=0.3)
    model = make_model()
    data = prepare_data(model, (None, Y))
    other = data._replace(Y=tf.where(data.mask, data.Y, 77.0))
    results = []
    for each in (data, other):
        with tf.GradientTape() as tape:
            value = model.batch_elbo(each.gather(None), SEED)
        gradients = tape.gradient(
            value, model.trainable_variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        results.append([value, *gradients])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_any_scalar_likelihood() -> None:
    """Poisson counts and Bernoulli bits, against the likelihood's own expectations of one entry."""
    rng = np.random.default_rng(0)
    for likelihood, Y in (
        (gpflow.likelihoods.Poisson(), rng.poisson(1.0, (N, P))),
        (gpflow.likelihoods.Bernoulli(), rng.integers(0, 2, (N, P))),
    ):
        model = make_model(likelihood=likelihood)
        data = prepare_data(model, (None, Y.astype(float)))
        batch = data.gather(None)
        codes = model.guide.encoder.mean
        mean, variance = model.predict_f(codes)
        total = 0.0
        for p in range(P):
            total += float(
                tf.reduce_sum(
                    likelihood.variational_expectations(
                        tf.zeros((N, 0), tf.float64),
                        mean[:, p : p + 1],
                        variance[:, p : p + 1],
                        tf.constant(Y[:, p : p + 1], tf.float64),
                    )
                )
            )
        terms = model.terms(batch, SEED)
        np.testing.assert_allclose(float(terms.expected_log_likelihood), total, rtol=1e-6)


def test_kl_of_a_flow_by_quadrature() -> None:
    """The divergence of a pushed Gaussian, in one dimension, against a sum over a grid."""
    encoder = encoders.FreeFormEncoder(1, 1, 1, np.array([[[0.4]]]), 0.3)
    flow = bijectors.planar_flow(1, 3, seed=2)
    rng = np.random.default_rng(0)
    for variable in flow.trainable_variables:
        variable.assign_add(rng.standard_normal(variable.shape))
    guide = guides.FlowGuide(encoder, flow)
    batch = Batch(None, tf.zeros([1, 1, P]), None)
    draws = guide.draw(latent_priors.StandardNormal(1), batch, 40_000, SEED)
    grid = np.linspace(-6.0, 6.0, 20_001)[:, None]
    base = -0.5 * ((grid[:, 0] - 0.4) ** 2 / 0.3 + np.log(2.0 * np.pi * 0.3))
    image = flow.forward(tf.constant(grid)).numpy()[:, 0]
    log_q = base - flow.forward_log_det_jacobian(tf.constant(grid), 1).numpy()
    log_p = -0.5 * (image**2 + np.log(2.0 * np.pi))
    expected = np.sum(np.exp(base) * (log_q - log_p)) * (grid[1, 0] - grid[0, 0])
    # Four standard errors of 40 000 draws of a quantity with a spread of about one.
    np.testing.assert_allclose(float(draws.divergence), expected, atol=0.03)


def test_an_amortised_flow_depends_on_observed_cells_only() -> None:
    encoder = encoders.partial_encoder("factornet", P, L, (8,))
    guide = guides.AmortizedPlanarGuide(encoder, P, num_layers=3)
    for bias in guide.network.weights:
        bias.assign_add(0.3 * np.random.default_rng(0).standard_normal(bias.shape))
    model = make_model(guide)
    assert not model.row_variables
    Y = make_data(missing=0.4)
    data = prepare_data(model, (None, Y))
    draws = guide.draw(model.latent_prior, data.gather(None), 3, SEED)
    assert draws.latents.shape == (3, 1, N, L)
    other = data._replace(Y=tf.where(data.mask, data.Y, 9.0))
    again = guide.draw(model.latent_prior, other.gather(None), 3, SEED)
    np.testing.assert_array_equal(draws.latents, again.latents)
    changed = data._replace(Y=data.Y + 0.5)
    different = guide.draw(model.latent_prior, changed.gather(None), 3, SEED)
    assert np.abs(different.latents - draws.latents).max() > 0.01


def test_relevance_and_pruning() -> None:
    model = make_model()
    model.decoder.kernel.lengthscales.assign([0.5, 50.0])
    np.testing.assert_allclose(model.relevance(), [1.0 / 1.0001, 0.0001 / 1.0001], rtol=1e-6)
    report = model.pruning_report()
    assert "dimension 1: relevance 0.000 (pruned)" in report and "1 of 2 dimensions" in report
    linear = models.StochasticGPLVM(
        model.guide, gpflow.kernels.Linear(), np.zeros((1, L)), gpflow.likelihoods.Gaussian(), P
    )
    with pytest.raises(ValueError, match="Linear has no lengthscales to prune by"):
        linear.relevance()


def test_bad_arguments() -> None:
    wide = encoders.FreeFormEncoder(1, N, P + 1)
    with pytest.raises(ValueError, match="6 latent dimensions, more than the 5 columns"):
        make_model(guides.MeanFieldGuide(wide))
    encoder = encoders.FreeFormEncoder(1, N, L)
    with pytest.raises(TypeError, match="likelihood must be a scalar GPflow likelihood"):
        make_model(encoder, likelihood=gpflow.likelihoods.Softmax(3))
    # Each cell is taken by itself, so that its density would be counted for every variance.
    with pytest.raises(ValueError, match=r"shape \[\(5,\)\], and a cell.* has 1 output"):
        make_model(encoder, likelihood=gpflow.likelihoods.Gaussian(np.linspace(0.1, 0.5, P)))
    with pytest.raises(TypeError, match="guide must be"):
        make_model("gaussian")
    with pytest.raises(TypeError, match="encoder must be one of gpflow_bae.encoders"):
        guides.MeanFieldGuide(keras.layers.Dense(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="event_dim=2"):
        guides.FlowGuide(encoder, bijectors.planar_flow(3))
    with pytest.raises(ValueError, match="num_draws must be at least 1"):
        make_model(num_draws=0)
    model = make_model()
    Y = make_data()
    holed = Y.copy()
    holed[:, 2] = np.nan
    with pytest.raises(ValueError, match=r"no observation at all in column\(s\) \[2\]"):
        prepare_data(model, (None, holed))
    infinite = Y.copy()
    infinite[3, 1] = np.inf
    with pytest.raises(ValueError, match="point 3, column 1"):
        prepare_data(model, (None, infinite))
    with pytest.raises(ValueError, match="outputs that must lie between 1 and the 5"):
        inference.fit_variational(
            model, (None, Y), inference.VariationalSettings(num_steps=1, batch_size=(None, 6))
        )
    assert isinstance(prepare_data(model, (None, Y)), Observations)


def test_flow_gplvm_by_natural_gradients() -> None:
    """The named model has twenty planar maps by default; q(v) may move by natural gradients."""
    Y = make_data(missing=0.2)

    def build(**options: Any) -> models.FlowGPLVM:
        return models.FlowGPLVM(
            encoders.FreeFormEncoder(1, N, L),
            gpflow.kernels.Matern52(),
            np.random.default_rng(0).standard_normal((M, L)),
            gpflow.likelihoods.Gaussian(0.1),
            P,
            **options,
        )

    assert len(build().guide.flow.bijectors) == 20
    model = build(flow=bijectors.planar_flow(L, 2))
    settings = inference.VariationalSettings(
        num_steps=60, learning_rate=0.01, batch_size=15, natural_gradient_step_size=0.1
    )
    losses = inference.fit_variational(
        model, (None, Y), settings, steps_per_call=20, progress=False
    )
    assert losses[-1] < losses[0] - 1.0
    assert float(tf.reduce_max(tf.abs(model.decoder.q_mu))) > 0.1
    with pytest.raises(ValueError, match="build with q_diag=False"):
        inference.fit_variational(build(q_diag=True), (None, Y), settings)


KINDS = {"numbers": [3, 0], "binary": [1, 4], "counts": [2]}


def of_kinds() -> dict[str, Any]:
    """One model for each kind of all columns, and one of all kinds, with the same functions."""
    parts: dict[str, Any] = {
        "numbers": gpflow.likelihoods.Gaussian(0.1),
        "binary": likelihoods.Bernoulli(),
        "counts": gpflow.likelihoods.Poisson(),
    }
    mixed = likelihoods.ByColumn([(parts[kind], columns) for kind, columns in KINDS.items()])
    return {kind: make_model(likelihood=part) for kind, part in (parts | {"mixed": mixed}).items()}


def test_cells_of_columns_of_different_kinds_are_those_of_models_of_each_kind() -> None:
    """In bounds of all columns, of some, and of triplets, and in predictions of cells."""
    rng = np.random.default_rng(4)
    Y = rng.integers(0, 2, (N, P)).astype(float)  # in the support of every kind
    Y[rng.random(Y.shape) < 0.3] = np.nan
    rows, columns = np.nonzero(~np.isnan(Y))
    built, kinds = of_kinds(), np.empty(P, object)
    for kind, own in KINDS.items():
        kinds[own] = kind
    full = prepare_data(built["mixed"], (None, Y)).gather(None)
    some = tf.constant([4, 3, 2])
    table = SparseTable(rows, columns, Y[rows, columns], N, P)
    for batch, of_entries in (
        (full, np.arange(P)),
        (prepare_data(built["mixed"], (None, Y)).gather(None, some), some.numpy()),
        (
            prepare_data(built["mixed"], table).gather(None),
            table.gather(None).cells.columns.numpy(),
        ),
    ):
        mean = tf.constant(rng.normal(size=(2, *batch.Y.shape[1:])))
        variance = tf.exp(0.3 * mean)
        each = {k: m.expected_entries(mean, variance, batch).numpy() for k, m in built.items()}
        for kind in KINDS:
            own = np.broadcast_to(kinds[of_entries] == kind, mean.shape)
            np.testing.assert_allclose(each["mixed"][own], each[kind][own], rtol=1e-12)
    found = {}
    for kind, model in built.items():
        posterior = GPLVMPosterior(model, prepare_data(model, (None, Y)))
        cells = rows.tolist(), columns.tolist()
        density = posterior.predict_log_density(*cells, Y[rows, columns])
        found[kind] = np.stack([*posterior.predict_y(*cells), density])
    for kind in KINDS:
        own = kinds[columns] == kind
        np.testing.assert_allclose(found["mixed"][:, own], found[kind][:, own], rtol=1e-10)
    losses = inference.fit_variational(
        built["mixed"],
        (None, Y),
        inference.VariationalSettings(num_steps=20, learning_rate=1e-2, batch_size=(20, 3)),
        progress=False,
    )
    assert np.isfinite(losses).all()
    assert built["mixed"].likelihood.parts[0].likelihood.variance.numpy() != 0.1


def test_support_of_cells_is_that_of_their_columns() -> None:
    """-1.5 may be in a column of numbers, and not in one of counts."""
    model, cells = of_kinds()["mixed"], (np.arange(N), np.arange(N) % P)
    values = np.where(cells[1] == 0, -1.5, 1.0)
    prepare_data(model, SparseTable(*cells, values))
    values[2] = -1.5
    with pytest.raises(ValueError, match="values holds -1.5 .*Poisson"):
        prepare_data(model, SparseTable(*cells, values))
    with pytest.raises(ValueError, match="values holds -1.5 .*Poisson"):
        GPLVMPosterior(model, prepare_data(model, (None, np.ones((N, P))))).predict_log_density(
            *cells, values
        )


def test_likelihoods_of_columns_that_a_model_cannot_take_are_refused() -> None:
    gaussian = likelihoods.Gaussian
    with pytest.raises(ValueError, match="ByColumn is of 2 columns, and the model has 5 output"):
        make_model(likelihood=likelihoods.ByColumn([(gaussian(), [0, 1])]))
    of_each = likelihoods.ByColumn([(gaussian([0.1] * P), range(P))])
    with pytest.raises(ValueError, match="a cell, which a GPLVM takes by itself, has 1 output"):
        make_model(likelihood=of_each)
    of_all = likelihoods.ByColumn([(gaussian(), range(P))])
    with pytest.raises(ValueError, match="num_draws=None needs .*another likelihood, a Gaussian"):
        make_model(likelihood=of_all, num_draws=None)
