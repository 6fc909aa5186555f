"""Checks of requests in the graph, with messages for clients, and their seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

__all__ = ["check_rows", "noise_seed", "per_seed"]

_SEED_STREAM = 0x5E4E


def check_rows(
    values: tf.Tensor,
    name: str,
    width: int,
    max_rows: int,
    *,
    allow_missing: bool = False,
    ids: Sequence[tuple[int, int]] = (),
) -> tf.Tensor:
    """Return ``values [rows, width]``, or raise ``InvalidArgumentError`` with ``name``.

    Clients may send any shape, so it is checked when the graph runs, on a copy of the tensor whose
    static shape is unknown.

    :param allow_missing: whether NaN is allowed for missing values; each row still needs a value.
    :param ids: columns that hold ids, which a kernel would truncate to whole numbers, each with the
        number of ids, which count from 0.
    """
    # TensorFlow would optimise away checks of the signature's static shape.
    values = tf.compat.v1.placeholder_with_default(values, shape=None)
    shape = tf.shape(values)
    fits = tf.logical_and(tf.equal(tf.size(shape), 2), tf.reduce_all(tf.equal(shape[-1:], [width])))
    message = f"{name} must have shape [rows, {width}]; got shape"
    with tf.control_dependencies([tf.debugging.Assert(fits, [message, shape])]):
        values = tf.identity(values)
    values = tf.ensure_shape(values, [None, width])
    rows = tf.shape(values)[0]
    message = f"{name} may have at most {max_rows} rows in one request; split it up. Rows received:"
    with tf.control_dependencies(
        [tf.debugging.Assert(tf.less_equal(rows, max_rows), [message, rows])]
    ):
        values = tf.identity(values)
    if allow_missing:
        bad, what = tf.math.is_inf(values), "infinity; missing values are NaN"
    else:
        bad = tf.logical_not(tf.math.is_finite(values))
        what = "NaN or infinity; only the signature impute takes missing values"
        if name != "y":
            what = "NaN or infinity"
    assertions = [_assert_no_row(tf.reduce_any(bad, -1), f"{name} holds {what}. First such row:")]
    if allow_missing:
        empty = tf.reduce_all(tf.math.is_nan(values), -1)
        message = f"{name} has a row in which every value is missing. First such row:"
        assertions.append(_assert_no_row(empty, message))
    for column, count in ids:
        value = values[:, column]
        wrong = (value != tf.round(value)) | (value < 0) | (value >= count)
        message = (
            f"{name} must hold an id, a whole number from 0 to {count - 1}, in column {column}."
        )
        assertions.append(_assert_no_row(wrong, f"{message} First row that does not:"))
    with tf.control_dependencies(assertions):
        return tf.identity(values)


def _assert_no_row(bad: tf.Tensor, message: str) -> tf.Operation:
    first = tf.where(bad)[:1, 0]
    return tf.debugging.Assert(tf.logical_not(tf.reduce_any(bad)), [message, first])


def noise_seed(seed: tf.Tensor, index: tf.Tensor | int) -> tf.Tensor:
    """Return the seed [2] of stream ``index`` of a client's ``seed``, an int64 scalar."""
    start = tf.stack([seed, tf.constant(_SEED_STREAM, tf.int64)])
    return tf.random.fold_in(start, index, alg="philox")


def per_seed(
    function: Callable[..., dict[str, tf.Tensor]],
    inputs: Mapping[str, tf.Tensor],
    seeds: tf.Tensor,
    outputs: Mapping[str, tf.TensorSpec],
) -> dict[str, tf.Tensor]:
    """Call ``function(**rows, seed=seed)`` on the rows of each distinct seed, keeping their order.

    A server merges requests of several clients, each with its own seed, into one batch.

    :param inputs: tensors [rows, ...], already checked.
    :param seeds: [rows], or [1] for all of them.
    :param outputs: shapes [None, ...] and types of the outputs of ``function``.
    """
    rows = tf.shape(next(iter(inputs.values())))[0]
    seeds = tf.compat.v1.placeholder_with_default(seeds, shape=None)
    shape = tf.shape(seeds)
    count = tf.reduce_prod(shape)
    fits = tf.logical_and(
        tf.equal(tf.size(shape), 1), tf.logical_or(tf.equal(count, 1), tf.equal(count, rows))
    )
    message = "seed must have shape [1] or one seed for each row; got shape, for this many rows:"
    with tf.control_dependencies([tf.debugging.Assert(fits, [message, shape, rows])]):
        seeds = tf.broadcast_to(tf.reshape(seeds, [-1]), [rows])
    distinct = tf.unique(seeds).y

    def body(i: tf.Tensor, results: dict[str, tf.Tensor]) -> tuple:
        where = tf.where(tf.equal(seeds, distinct[i]))
        part = function(**{k: tf.gather_nd(v, where) for k, v in inputs.items()}, seed=distinct[i])
        return i + 1, {
            k: tf.ensure_shape(tf.tensor_scatter_nd_update(results[k], where, v), outputs[k].shape)
            for k, v in part.items()
        }

    _, results = tf.while_loop(
        lambda i, _: i < tf.size(distinct),
        body,
        (tf.constant(0), {k: _zeros(rows, spec) for k, spec in outputs.items()}),
        shape_invariants=(tf.TensorShape([]), {k: spec.shape for k, spec in outputs.items()}),
        parallel_iterations=1,
    )
    return results


def _zeros(rows: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
    return tf.zeros(tf.stack([rows, *spec.shape[1:]]), spec.dtype)
