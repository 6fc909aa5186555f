"""Columns of different kinds: each part's numbers in its own columns, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from gpflow_bae.likelihoods import (
    Bernoulli,
    ByColumn,
    Gaussian,
    MaskedLikelihood,
    NegativeBinomial,
    Ordinal,
    masked,
)

P = 7
COLUMNS = [[4, 0], [1, 6], [5], [2], [3]]  # neither sorted nor in the order of the parts
ORDER = np.concatenate(COLUMNS)
NOISE = np.array([0.3, 2.0])  # of columns 4 and 0
EDGES = np.array([-0.5, 0.4])


def parts() -> list[Any]:
    """Parameters for each output, and one for all; of this package, and GPflow's own."""
    return [
        Gaussian(NOISE),
        Bernoulli(),
        gpflow.likelihoods.StudentT(scale=0.5, df=4.0),
        NegativeBinomial(0.7),
        Ordinal(EDGES),
    ]


def by_column(columns: list[list[int]] = COLUMNS) -> ByColumn:
    return ByColumn(list(zip(parts(), columns, strict=True)))


def data(lead: tuple[int, ...] = (2, 5)) -> tuple[tf.Tensor, np.ndarray, np.ndarray]:
    """F, Y and a mask, in the order of the columns."""
    rng = np.random.default_rng(3)
    of_parts = [
        rng.normal(size=(*lead, 2)),
        rng.integers(0, 2, (*lead, 2)),
        rng.normal(size=(*lead, 1)),
        rng.poisson(2.0, (*lead, 1)),
        rng.integers(0, 3, (*lead, 1)),
    ]
    Y = np.concatenate(of_parts, -1)[..., np.argsort(ORDER)]
    return tf.constant(rng.normal(size=(*lead, P))), Y, rng.uniform(size=(*lead, P)) < 0.6


def densities(F: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """SciPy's log densities of the cells, column by column."""
    rate, number = np.exp(F[..., 2]), 1.0 / 0.7
    edges = np.array([-1e4, *EDGES, 1e4])
    level = Y[..., 3].astype(int)
    low, high = (scipy.stats.norm.cdf(edges[level + i] - F[..., 3]) for i in (0, 1))
    columns = [
        scipy.stats.norm.logpdf(Y[..., 0], F[..., 0], np.sqrt(2.0)),
        scipy.stats.bernoulli.logpmf(Y[..., 1], scipy.special.expit(F[..., 1])),
        scipy.stats.nbinom.logpmf(Y[..., 2], number, number / (number + rate)),
        np.log(high - low),
        scipy.stats.norm.logpdf(Y[..., 4], F[..., 4], np.sqrt(0.3)),
        scipy.stats.t.logpdf(Y[..., 5], 4.0, F[..., 5], 0.5),
        scipy.stats.bernoulli.logpmf(Y[..., 6], scipy.special.expit(F[..., 6])),
    ]
    return np.stack(columns, -1)


def test_densities_of_cells_and_their_masked_sums() -> None:
    """Against SciPy, cell by cell and summed where observed; NaN elsewhere does not count."""
    F, Y, mask = data()
    likelihood, expected = by_column(), densities(F.numpy(), Y)
    cells = likelihood.log_prob_of_cells(F, Y)
    np.testing.assert_allclose(cells, expected, rtol=1e-8)
    complete = likelihood.masked_log_prob(F, Y, None)
    np.testing.assert_allclose(complete, expected.sum(-1), rtol=1e-8)
    poisoned = tf.where(mask, F, tf.constant(np.nan, F.dtype))
    with tf.GradientTape() as tape:
        tape.watch(poisoned)
        found = likelihood.masked_log_prob(poisoned, np.where(mask, Y, 0.0), mask)
    np.testing.assert_allclose(found, np.sum(expected * mask, -1), rtol=1e-8)
    gradient = tape.gradient(found, poisoned).numpy()
    np.testing.assert_array_equal(gradient[~mask], 0.0)
    assert np.all(gradient[mask] != 0.0)


GPFLOW: dict[str, Callable[[Any, Any, tuple[Any, Any, Any]], Any]] = {
    "log_prob": lambda part, X, v: part.log_prob(X, v[0], v[2]),
    "conditional_mean": lambda part, X, v: part.conditional_mean(X, v[0]),
    "conditional_variance": lambda part, X, v: part.conditional_variance(X, v[0]),
    "predict_mean_and_var": lambda part, X, v: part.predict_mean_and_var(X, v[0], v[1]),
    "predict_log_density": lambda part, X, v: part.predict_log_density(X, *v),
    "variational_expectations": lambda part, X, v: part.variational_expectations(X, *v),
}


@pytest.mark.parametrize("method", GPFLOW)
def test_gpflows_methods_are_those_of_the_parts(method: str) -> None:
    """Sums of what parts sum over outputs, and moments in the parts' columns."""
    F, Y, _ = data((5,))
    X, variance = np.zeros((5, 1)), tf.exp(0.3 * F[:, ::-1])
    found = GPFLOW[method](by_column(), X, (F, variance, Y))
    each = [
        GPFLOW[method](part, X, [tf.gather(v, columns, axis=-1) for v in (F, variance, Y)])
        for part, columns in zip(parts(), COLUMNS, strict=True)
    ]
    for one, *own in zip(*map(tf.nest.flatten, (found, *each)), strict=True):
        if one.shape.rank == 1:
            np.testing.assert_allclose(one, tf.add_n(own), rtol=1e-12)
        else:
            np.testing.assert_array_equal(tf.gather(one, ORDER, axis=-1), tf.concat(own, -1))


def test_moments_are_those_of_the_parts() -> None:
    F, _, _ = data()
    for found, *each in zip(
        by_column().moments(F),
        *(
            masked(part).moments(tf.gather(F, columns, axis=-1))
            for part, columns in zip(parts(), COLUMNS, strict=True)
        ),
        strict=True,
    ):
        np.testing.assert_array_equal(tf.gather(found, ORDER, axis=-1), tf.concat(each, -1))


def test_permuted_columns_give_permuted_results() -> None:
    """Column p becomes column place[p] of the parts, of F and of Y; sums do not change."""
    F, Y, mask = data()
    place = np.random.default_rng(0).permutation(P)
    moved = [v[..., np.argsort(place)] for v in (F.numpy(), Y, mask)]
    one, other = by_column(), by_column([[int(place[p]) for p in own] for own in COLUMNS])
    cells = one.log_prob_of_cells(F, Y).numpy()
    np.testing.assert_array_equal(
        other.log_prob_of_cells(*moved[:2]), cells[..., np.argsort(place)]
    )
    np.testing.assert_array_equal(other.masked_log_prob(*moved), one.masked_log_prob(F, Y, mask))
    for a, b in zip(one.moments(F), other.moments(moved[0]), strict=True):
        np.testing.assert_array_equal(b, a.numpy()[..., np.argsort(place)])


ALL = {
    "gaussian": lambda: Gaussian(0.3),
    "gaussian per output": lambda: Gaussian([0.3, 0.1, 2.0]),
    "bernoulli": Bernoulli,
    "student t": lambda: masked(gpflow.likelihoods.StudentT()),
}


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("name", ALL)
def test_one_part_over_all_columns_is_that_part(name: str, dtype: tf.DType) -> None:
    """Bit for bit, in type too: values, gradients, moments and cells."""
    rng = np.random.default_rng(1)
    F, Y = tf.constant(rng.normal(size=(4, 6, 3)), dtype), rng.integers(0, 2, (4, 6, 3)) * 1.0
    mask = rng.uniform(size=Y.shape) < 0.6

    def answers(likelihood: MaskedLikelihood) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(F)
            rows = [likelihood.masked_log_prob(F, Y, m) for m in (None, mask)]
        gradients = tape.gradient(rows, [F, *likelihood.trainable_variables])
        return [*rows, *gradients, *likelihood.moments(F), likelihood.log_prob_of_cells(F, Y)]

    part = ALL[name]()
    for one, other in zip(answers(part), answers(ByColumn([(part, range(3))])), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_the_networks_precision_is_kept_by_parts_that_keep_it() -> None:
    """GPflow's own compute in float64, and then so does the sum."""
    F, Y = tf.zeros([2, 3], tf.float32), np.ones((2, 3))
    ours = ByColumn([(Gaussian(), [0, 2]), (Bernoulli(), [1])])
    assert ours.masked_log_prob(F, Y, None).dtype == ours.moments(F)[0].dtype == tf.float32
    mixed = ByColumn([(gpflow.likelihoods.Gaussian(), [0, 2]), (Bernoulli(), [1])])
    assert mixed.masked_log_prob(F, Y, None).dtype == mixed.moments(F)[0].dtype == tf.float64


def test_a_bound_of_gpflows_svgp_is_the_sum_of_those_of_the_columns() -> None:
    """Independent functions, each of its own column: KLs and expectations add up."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(12, 1))
    Y = np.stack([rng.normal(size=12), rng.integers(0, 2, 12)], 1)

    def bound(likelihood: Any, Y: np.ndarray) -> tf.Tensor:
        kernel, width = gpflow.kernels.Matern52(), Y.shape[1]
        return gpflow.models.SVGP(kernel, likelihood, X[:4], num_latent_gps=width).elbo((X, Y))

    found = bound(ByColumn([(Bernoulli(), [1]), (gpflow.likelihoods.Gaussian(), [0])]), Y)
    expected = bound(gpflow.likelihoods.Gaussian(), Y[:, :1]) + bound(Bernoulli(), Y[:, 1:])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_support_is_that_of_each_column() -> None:
    """A value that only other columns may have is found at its place."""
    likelihood = by_column()
    _, Y, _ = data()
    likelihood.check_support(Y)
    Y[1, 2, [0, 5]] = -1.5  # numbers
    likelihood.check_support(Y)
    Y[1, 2, 1] = 2.0
    with pytest.raises(
        ValueError, match=r"Y holds 2 \(first at \[1, 2, 1\], 1 in all\).*Bernoulli"
    ):
        likelihood.check_support(Y)
    likelihood.check_support(Y, Y != 2.0)
    with pytest.raises(ValueError, match=r"Y has 3 column\(s\).*ByColumn is of 7"):
        likelihood.check_support(Y[..., :3])


def test_another_number_of_outputs_is_refused() -> None:
    by_column().check_outputs(P)
    with pytest.raises(ValueError, match=r"ByColumn is of 7 columns, and the decoder has 8 output"):
        by_column().check_outputs(8)


def test_parameters_are_seen_and_kinds_are_named() -> None:
    likelihood = by_column()
    paths = gpflow.utilities.parameter_dict(likelihood)
    assert {".parts[0].variance", ".parts[2].likelihood.scale"} <= paths.keys()
    assert likelihood.kind.startswith("Gaussian of columns [4, 0], Bernoulli of columns [1, 6], S")


WRONG: list[tuple[Any, str]] = [
    ([], "parts must be a list of pairs of a likelihood and its columns"),
    ({"Gaussian": [0]}, "parts must be a list"),
    ([(Gaussian(),)], r"parts\[0\] must be one of pairs"),
    ([(Gaussian(), [0, 2]), (Bernoulli(), [2])], "column 2 more than once"),
    ([(Gaussian(), [0, 2]), (Bernoulli(), [3])], "columns up to 3 without column 1"),
    ([(Gaussian(), [0]), (Bernoulli(), [])], r"columns of parts\[1\] must be a list of integers"),
    ([(Gaussian(), 0)], r"columns of parts\[0\] must be a list"),
    ([(Gaussian(), "0")], r"columns of parts\[0\] must be a list"),
    ([(Gaussian(), [-1])], r"column of parts\[0\] is -1; it must be an integer"),
    ([(Gaussian(), [True, False])], r"column of parts\[0\] is True"),
    ([(Gaussian([0.1, 0.2]), [0, 1, 2])], r"shape \[\(2,\)\].*columns \[0, 1, 2\] has 3 output"),
    ([(gpflow.likelihoods.Softmax(3), [0])], r"parts\[0\] must factorise.*got Softmax"),
    ([(gpflow.likelihoods.MultiClass(3), [0])], "must factorise.*got MultiClass"),
    ([(gpflow.likelihoods.HeteroskedasticTFPConditional(), [0])], "one function for each"),
    ([(Gaussian, [0])], r"parts\[0\] must.*the class Gaussian itself"),
    (
        [(gpflow.likelihoods.Gaussian(variance=gpflow.functions.Linear()), [0])],
        r"likelihood of parts\[0\] must not see inputs",
    ),
]


@pytest.mark.parametrize(("given", "words"), WRONG)
def test_what_cannot_be_is_refused(given: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        ByColumn(given)
