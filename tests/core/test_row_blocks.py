"""Block after block is all at once."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.core import row_blocks
from gpflow_bae.latent_priors import SparseGP, TitsiasGP


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight rows, so that twenty are two and a half."""
    monkeypatch.setattr(row_blocks, "ROWS", 8)


@pytest.mark.parametrize("values_of_block", [2**22, 12])
def test_rows_and_sums(values_of_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of eight rows, and of four where wide values allow no more."""
    monkeypatch.setattr(row_blocks, "_VALUES", values_of_block)
    monkeypatch.setattr(row_blocks, "_LEAST_ROWS", 2)
    values = np.random.default_rng(0).normal(size=(2, 20, 3))
    assert row_blocks._rows_of_block([values, None]) == (8 if values_of_block > 12 else 4)
    assert row_blocks.are_many(values) and not row_blocks.are_many(values[:, :8])

    @tf.function(autograph=False)
    def both() -> tuple[tf.Tensor, ...]:
        found = row_blocks.over_blocks(lambda v, n: (2.0 * v, v[..., :1]), (values, None))
        assert all(row_blocks.are_many(v) for v in found)  # in graphs, too
        return *found, *row_blocks.sum_over_blocks(lambda v: (tf.reduce_sum(v, 1),), (values,))

    doubled, first, total = both()
    np.testing.assert_array_equal(doubled, 2.0 * values)
    np.testing.assert_array_equal(first, values[..., :1])
    np.testing.assert_allclose(total, values.sum(1), rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (TitsiasGP, {}),
        (SparseGP, {"inducing_outputs": "integrated"}),
        (SparseGP, {"inducing_outputs": "sampled"}),
    ],
)
def test_sparse_priors_are_conditioned_in_blocks(
    kind: Any, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes, evidence, inducing outputs and predictions are those of all points at once."""
    rng = np.random.default_rng(1)
    prior = kind(gpflow.kernels.Matern32(), np.linspace(-2.0, 2.0, 5)[:, None], 2, **options)
    if prior.whitened_inducing is not None:
        prior.whitened_inducing.assign(rng.normal(size=(2, 5)))
    X, Xnew = rng.uniform(-2.0, 2.0, (1, 20, 1)), rng.uniform(-2.0, 2.0, (1, 19, 1))
    mean, variance = rng.normal(size=(1, 20, 2)), rng.uniform(0.1, 1.0, (1, 20, 2))
    in_blocks = (*prior.condition(X, mean, variance), *prior.predict(Xnew, X, mean, variance))
    monkeypatch.setattr(row_blocks, "ROWS", 100)
    at_once = (*prior.condition(X, mean, variance), *prior.predict(Xnew, X, mean, variance))
    for found, expected in zip(in_blocks, at_once, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_what_comes_in_blocks_is_conditioned_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a graph nothing but what it ends in has a row for each point and inducing point."""
    prior = TitsiasGP(gpflow.kernels.Matern32(), np.linspace(-2.0, 2.0, 5)[:, None], 2)
    rng = np.random.default_rng(2)
    X, Y = rng.uniform(-2.0, 2.0, (1, 20, 1)), rng.normal(size=(1, 20, 2))

    @tf.function(autograph=False)
    def moments(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        pseudo = row_blocks.over_blocks(lambda Y: (Y, tf.ones_like(Y)), (Y,))
        return *prior.condition(X, *pseudo)[:2], *prior.predict(X, X, *pseudo)

    graph = moments.get_concrete_function(tf.constant(X), tf.constant(Y)).graph
    shapes = [v.shape for op in graph.get_operations() for v in op.outputs]
    known = [shape.as_list() for shape in shapes if shape.rank is not None and shape.rank >= 2]
    assert not [shape for shape in known if sorted(map(str, shape[-2:])) == ["20", "5"]]
    monkeypatch.setattr(row_blocks, "ROWS", 100)
    expected = (*prior.condition(X, Y, np.ones_like(Y))[:2],)
    for found, other in zip(moments(X, Y), expected * 2, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-9)


def test_threads_keep_the_order_and_can_show_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    def square(number: int) -> int:
        return number * number

    expected = [number * number for number in range(50)]
    assert row_blocks.in_threads(square, [(number,) for number in range(50)]) == expected
    assert row_blocks.in_threads(square, [(3,)]) == [9]
    assert capsys.readouterr().err == ""
    assert (
        row_blocks.in_threads(square, [(number,) for number in range(50)], bar="predict")
        == expected
    )
    assert "predict" in capsys.readouterr().err
