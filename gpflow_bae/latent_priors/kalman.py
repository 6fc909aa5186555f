r"""Kalman filter, smoother and log density over one axis of time, in logarithmic depth.

The model is s_1 ~ N(0, Q_1), s_k = A_k s_{k-1} + q_k with q_k ~ N(0, Q_k), and scalar observations
y_k = H^T s_k + e_k with e_k ~ N(0, R_k), any of which may be missing. A step takes the moments of a
state to those of the next one, and steps compose to maps of the same kind, so all states are found
by a parallel scan (Särkkä and García-Fernández 2021, "Temporal parallelization of Bayesian
smoothers"). Covariances do not depend on observations and come first; means and the adjoint states
of the smoother are affine in the observations.

Within this module arrays are [rows, columns, batch, N]: operations on matrices of two or three rows
are then operations on long contiguous rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

__all__ = ["Filtered", "filtered", "log_density", "smoothed"]


class Filtered(NamedTuple):
    """Predictions of states from the observations before, one step ahead."""

    A: tf.Tensor  # [d, d, batch, N]
    H: tf.Tensor  # [d, 1, 1, 1]
    mean: tf.Tensor  # of the state [d, columns, batch, N]
    covariance: tf.Tensor  # of the state [d, d, batch, N]
    y: tf.Tensor  # [1, columns, batch, N]
    precision: tf.Tensor  # 1 / (H^T covariance H + R), 0 where missing: [1, 1, batch, N]
    batch: tf.Tensor  # leading dimensions of the arguments, which are one within

    @property
    def predicted_mean(self) -> tf.Tensor:
        """Mean of H^T s given earlier observations: [..., N, columns]."""
        return _outside(_product_of_transpose(self.H, self.mean), self.batch)[..., 0, :]

    @property
    def predicted_variance(self) -> tf.Tensor:
        """Variance of H^T s given earlier observations, without the noise: [..., N]."""
        found = _product_of_transpose(self.H, _product(self.covariance, self.H))
        return _outside(found, self.batch)[..., 0, 0]


class _Covariances(NamedTuple):
    """The map C -> A (I + C J)^-1 C A^T + Q of filtering covariances."""

    A: tf.Tensor
    Q: tf.Tensor
    J: tf.Tensor


class _Affine(NamedTuple):
    """The map s -> A s + b."""

    A: tf.Tensor
    b: tf.Tensor


class _Adjoint(NamedTuple):
    """The maps r -> A r + b and N -> A N A^T + V."""

    A: tf.Tensor
    b: tf.Tensor
    V: tf.Tensor


def filtered(
    A: tf.Tensor, Q: tf.Tensor, H: tf.Tensor, y: tf.Tensor, precision: tf.Tensor
) -> Filtered:
    """Return predictions of states and observations one step ahead.

    :param A: [..., N, d, d]; the first is not used.
    :param Q: [..., N, d, d]; the first is the covariance of the first state.
    :param H: [d].
    :param y: [..., N, columns], observations with the same A, Q, H and precision.
    :param precision: 1 / R, [..., N]; 0 for missing observations.
    """
    precision, y = precision[..., None, None], y[..., None, :]
    batch = tf.shape(A)[:-3]
    for part in (Q, y, precision):
        batch = tf.broadcast_dynamic_shape(batch, tf.shape(part)[:-3])
    A, Q, y, w = (_inside(part, batch) for part in (A, Q, y, precision))
    A = tf.concat([tf.zeros_like(A[..., :1]), A[..., 1:]], -1)
    H = tf.reshape(H, [-1, 1, 1, 1])
    QH, AtH = _product(Q, H), _product_of_transpose(A, H)
    weight = w / (1.0 + w * _product_of_transpose(H, QH))
    steps = _Covariances(
        A - weight * _product_with_transpose(QH, AtH),
        Q - weight * _product_with_transpose(QH, QH),
        weight * _product_with_transpose(AtH, AtH),
    )
    (after,) = _states(_then_covariances, _next_covariance, _zeros(steps.Q), steps)
    covariance = _symmetric(_product_with_transpose(_product(A, _shifted(after)), A) + Q)

    PH = _product(covariance, H)
    total = w / (1.0 + w * _product_of_transpose(H, PH))
    gain = total * PH
    moves = _Affine(A - _product_with_transpose(gain, AtH), gain * y)
    (mean,) = _states(_then_affine, _next_mean, _zeros(moves.b), moves)
    return Filtered(A, H, _product(A, _shifted(mean)), covariance, y, total, batch)


def smoothed(found: Filtered) -> tuple[tf.Tensor, tf.Tensor]:
    """Return means [..., N, columns] and variances [..., N] of H^T s given all observations.

    With the adjoint states r and N of Durbin and Koopman (2012, "Time series analysis by state
    space methods", eqs. 4.44 and 4.69): H^T (a + P r) and H^T (P - P N P) H.
    """
    r, N = _adjoint_states(found)
    PH = _product(found.covariance, found.H)
    change = _outside(_product_of_transpose(PH, r), found.batch)[..., 0, :]
    less = _outside(_product_of_transpose(PH, _product(N, PH)), found.batch)[..., 0, 0]
    return found.predicted_mean + change, found.predicted_variance - less


def log_density(
    A: tf.Tensor, Q: tf.Tensor, H: tf.Tensor, y: tf.Tensor, noise: tf.Tensor
) -> tf.Tensor:
    """Return the log density of observations [...], summed over times and columns.

    Its gradient is the score in closed form (Koopman and Shephard 1992, "Exact score for time
    series models in state space form"), by one scan backwards instead of the gradients of scans.

    :param A: and ``Q``, ``H`` and ``y``, as for :func:`filtered`; H is taken as a constant.
    :param noise: R, [..., N].
    """
    columns = y.shape[-1]
    lead = tf.broadcast_dynamic_shape(tf.shape(A)[:-2], tf.shape(Q)[:-2])
    for part, rank in ((y, 1), (noise, 0)):
        lead = tf.broadcast_dynamic_shape(lead, tf.shape(part)[: part.shape.rank - rank])
    A, Q = (tf.broadcast_to(v, tf.concat([lead, tf.shape(v)[-2:]], 0)) for v in (A, Q))
    y = tf.broadcast_to(y, tf.concat([lead, [columns]], 0))
    noise = tf.broadcast_to(noise, lead)

    @tf.custom_gradient
    def density(
        A: tf.Tensor, Q: tf.Tensor, y: tf.Tensor, noise: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[..., Any]]:
        found = filtered(A, Q, H, y, 1.0 / noise)
        variance = found.predicted_variance + noise
        error = y - found.predicted_mean
        logs = columns * tf.math.log(2.0 * _PI * variance)
        squares = tf.reduce_sum(tf.square(error), -1) / variance
        value = -0.5 * tf.reduce_sum(logs + squares, -1)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            by_A, by_Q, by_y, by_noise = (_outside(v, lead[:-1]) for v in _score(found))
            by_A, by_Q = (upstream[..., None, None, None] * v for v in (by_A, by_Q))
            by_y = upstream[..., None, None] * by_y[..., 0, :]
            return by_A, by_Q, by_y, upstream[..., None] * by_noise[..., 0, 0]

        return value, gradient

    return density(A, Q, y, noise)


_PI = 3.141592653589793


def _score(found: Filtered) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return derivatives of the log density by A, Q, y and R, [rows, columns, batch, N] each."""
    r, N = _adjoint_states(found)
    columns = tf.cast(tf.shape(found.y)[1], N.dtype)
    by_covariance = 0.5 * (_product_with_transpose(r, r) - columns * N)
    later = [_next_times(v) for v in (found.A, r, N)]
    PH = _product(found.covariance, found.H)
    error = found.precision * (found.y - _product_of_transpose(found.H, found.mean))
    gain = found.precision * _product(later[0], PH)  # of the next state
    smoothing_error = error - _product_of_transpose(gain, later[1])
    spread = found.precision + _product_of_transpose(gain, _product(later[2], gain))
    by_noise = tf.reduce_sum(tf.square(smoothing_error), 1, keepdims=True) - columns * spread
    # Moments of the state before, given its own observation.
    mean = _shifted(found.mean + PH * error)
    covariance = _shifted(found.covariance - found.precision * _product_with_transpose(PH, PH))
    by_A = _product_with_transpose(r, mean) + 2.0 * _product(
        by_covariance, _product(found.A, covariance)
    )
    return by_A, by_covariance, -smoothing_error, 0.5 * by_noise


def _adjoint_states(found: Filtered) -> tuple[tf.Tensor, tf.Tensor]:
    """Return r and N: derivatives of the log density by each predicted mean, and their variance."""
    PH = _product(found.covariance, found.H)
    later = _next_times(found.A)
    error = found.precision * (found.y - _product_of_transpose(found.H, found.mean))
    # Transposes of A_{k+1} (I - P H H^T / F).
    back = _t(later) - found.precision * _product_with_transpose(found.H, _product(later, PH))
    steps = _Adjoint(
        back, found.H * error, found.precision * _product_with_transpose(found.H, found.H)
    )
    steps = _Adjoint(*(tf.reverse(v, [3]) for v in steps))
    start = (*_zeros(steps.b), *_zeros(steps.V))
    r, N = (tf.reverse(v, [3]) for v in _states(_then_adjoint, _next_adjoint, start, steps))
    return r, N


def _then_covariances(one: _Covariances, two: _Covariances) -> _Covariances:
    """Compose two maps, the first applied first (Särkkä and García-Fernández 2021, eq. 15)."""
    inverse = _inverse_of_one_plus(_product(one.Q, two.J))
    later, earlier = _product(two.A, inverse), _product(inverse, one.A)
    return _Covariances(
        _product(later, one.A),
        _product_with_transpose(_product(later, one.Q), two.A) + two.Q,
        _product_of_transpose(earlier, _product(two.J, one.A)) + one.J,
    )


def _next_covariance(step: _Covariances, state: tuple[tf.Tensor]) -> tuple[tf.Tensor]:
    moved = _product(step.A, _inverse_of_one_plus(_product(state[0], step.J)))
    return (_symmetric(_product_with_transpose(_product(moved, state[0]), step.A) + step.Q),)


def _then_affine(one: _Affine, two: _Affine) -> _Affine:
    return _Affine(_product(two.A, one.A), _product(two.A, one.b) + two.b)


def _next_mean(step: _Affine, state: tuple[tf.Tensor]) -> tuple[tf.Tensor]:
    return (_product(step.A, state[0]) + step.b,)


def _then_adjoint(one: _Adjoint, two: _Adjoint) -> _Adjoint:
    return _Adjoint(
        _product(two.A, one.A),
        _product(two.A, one.b) + two.b,
        _product_with_transpose(_product(two.A, one.V), two.A) + two.V,
    )


def _next_adjoint(
    step: _Adjoint, state: tuple[tf.Tensor, tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    r, N = state
    spread = _product_with_transpose(_product(step.A, N), step.A) + step.V
    return _product(step.A, r) + step.b, spread


def _states(
    then: Callable[[Any, Any], Any],
    apply: Callable[[Any, Any], tuple[tf.Tensor, ...]],
    start: tuple[tf.Tensor, ...],
    steps: Any,
) -> tuple[tf.Tensor, ...]:
    """Return the states after each step, which are the last axis, in logarithmic depth.

    States after pairs of neighbouring steps are those with an even number of steps; one more step
    from each gives the others (Blelloch 1990, "Prefix sums and their applications").

    :param then: composition of two sequences of steps, the first applied first.
    :param apply: the states after steps, from the states before them.
    :param start: the state before the first step, with a last axis of 1.
    """
    length = steps[0].shape[-1]
    if length is None:  # in the graph of a served model
        return _states_one_by_one(apply, start, steps)
    if length == 1:
        return apply(steps, start)
    kind, half = type(steps), length // 2
    first = kind(*(v[..., ::2] for v in steps))
    pairs = then(kind(*(v[..., :half] for v in first)), kind(*(v[..., 1::2] for v in steps)))
    even = _states(then, apply, start, pairs)
    before = tuple(
        tf.concat([s, v[..., : (length - 1) // 2]], -1) for s, v in zip(start, even, strict=True)
    )
    odd = apply(first, before)
    return tuple(_alternating(*both) for both in zip(odd, even, strict=True))


def _alternating(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Take values of two tensors in turn; the first has as many as the second, or one more."""
    count = second.shape[-1]
    shape = tf.concat([tf.shape(second)[:-1], [2 * count]], 0)
    together = tf.reshape(tf.stack([first[..., :count], second], -1), shape)
    return tf.concat([together, first[..., count:]], -1) if first.shape[-1] > count else together


def _states_one_by_one(
    apply: Callable[[Any, Any], tuple[tf.Tensor, ...]], start: tuple[tf.Tensor, ...], steps: Any
) -> tuple[tf.Tensor, ...]:
    in_front = type(steps)(*(tf.transpose(v, [3, 0, 1, 2])[..., None] for v in steps))
    found = tf.scan(lambda state, step: apply(step, state), in_front, start)
    return tuple(tf.transpose(v[..., 0], [1, 2, 3, 0]) for v in found)


def _product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Multiply matrices [i, k, batch, N] and [k, j, batch, N]."""
    if int(a.shape[1]) > _FEW_ROWS:
        return _product_by_blas(a, b)
    return tf.reduce_sum(tf.expand_dims(a, 2) * tf.expand_dims(b, 0), 1)


def _product_with_transpose(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Multiply matrices [i, k, batch, N] and the transposes of [j, k, batch, N]."""
    if int(a.shape[1]) > _FEW_ROWS:
        return _product_by_blas(a, _t(b))
    product = tf.expand_dims(a, 1) * tf.expand_dims(b, 0)
    return product[:, :, 0] if a.shape[1] == 1 else tf.reduce_sum(product, 2)


def _product_of_transpose(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Multiply the transposes of matrices [k, i, batch, N] and [k, j, batch, N]."""
    if int(a.shape[0]) > _FEW_ROWS:
        return _product_by_blas(_t(a), b)
    return tf.reduce_sum(tf.expand_dims(a, 2) * tf.expand_dims(b, 1), 0)


_FEW_ROWS = 4  # up to which sums of products are faster than calls of BLAS


def _product_by_blas(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    a, b = (tf.transpose(v, [2, 3, 0, 1]) for v in (a, b))
    return tf.transpose(tf.linalg.matmul(a, b), [2, 3, 0, 1])


def _t(matrix: tf.Tensor) -> tf.Tensor:
    return tf.transpose(matrix, [1, 0, 2, 3])


def _symmetric(matrix: tf.Tensor) -> tf.Tensor:
    return 0.5 * (matrix + _t(matrix))


def _inverse_of_one_plus(matrix: tf.Tensor) -> tf.Tensor:
    """Invert I + matrix [d, d, ...]; in closed form up to d = 3, where LAPACK would be slow.

    Matrices are products of two positive semi-definite ones, so eigenvalues are at least 1.
    """
    size = int(matrix.shape[0])
    matrix = matrix + tf.eye(size, dtype=matrix.dtype)[:, :, None, None]
    if size > 3:
        return tf.transpose(tf.linalg.inv(tf.transpose(matrix, [2, 3, 0, 1])), [2, 3, 0, 1])
    if size == 1:
        return 1.0 / matrix
    if size == 2:
        (a, b), (c, d) = (tf.unstack(row) for row in tf.unstack(matrix))
        return tf.stack([tf.stack([d, -b]), tf.stack([-c, a])]) / (a * d - b * c)
    rows = [tf.unstack(row) for row in tf.unstack(matrix)]

    def cofactor(i: int, j: int) -> tf.Tensor:
        (a, b), (c, d) = ([rows[(i + m) % 3][(j + n) % 3] for n in (1, 2)] for m in (1, 2))
        return a * d - b * c

    adjugate = [[cofactor(j, i) for j in range(3)] for i in range(3)]
    determinant = sum(rows[0][i] * adjugate[i][0] for i in range(3))
    return tf.stack([tf.stack(row) for row in adjugate]) / determinant


def _inside(value: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """Bring [..., N, rows, columns] to [rows, columns, batch, N]."""
    value = tf.broadcast_to(value, tf.concat([batch, tf.shape(value)[-3:]], 0))
    value = tf.reshape(value, [-1, *_sizes(value, 3)])
    return tf.transpose(value, [2, 3, 0, 1])


def _outside(value: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """Bring [rows, columns, batch, N] to [..., N, rows, columns]."""
    value = tf.transpose(value, [2, 3, 0, 1])
    return tf.reshape(value, tf.concat([batch, tf.shape(value)[-3:]], 0))


def _sizes(value: tf.Tensor, count: int) -> list[Any]:
    """Return the last sizes of a tensor, as numbers where they are known."""
    dynamic = tf.shape(value)
    known = value.shape[-count:]
    return [dynamic[i - count] if n is None else n for i, n in enumerate(known)]


def _shifted(value: tf.Tensor) -> tf.Tensor:
    """Return the values one time before, zeros at the first time."""
    return tf.concat([tf.zeros_like(value[..., :1]), value[..., :-1]], -1)


def _next_times(value: tf.Tensor) -> tf.Tensor:
    """Return the values one time later, zeros at the last time."""
    return tf.concat([value[..., 1:], tf.zeros_like(value[..., :1])], -1)


def _zeros(like: tf.Tensor) -> tuple[tf.Tensor]:
    return (tf.zeros_like(like[..., :1]),)
