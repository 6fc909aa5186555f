r"""Kalman filter and smoother over one axis of time, sequential or as a parallel scan.

The model is s_1 ~ N(0, Q_1), s_k = A_k s_{k-1} + q_k with q_k ~ N(0, Q_k), and scalar observations
y_k = H s_k + e_k with e_k ~ N(0, R_k), any of which may be missing. Särkkä and García-Fernández
(2021), "Temporal parallelization of Bayesian smoothers": filtering and smoothing are prefix sums of
an associative operation, eqs. 10 to 19, so their depth is log N.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

__all__ = ["Filtered", "filtered", "smoothed"]


class Filtered(NamedTuple):
    """Filtering moments of the states, and one-step predictions of the observations."""

    mean: tf.Tensor  # [..., N, d, columns]
    covariance: tf.Tensor  # [..., N, d, d]
    predicted_mean: tf.Tensor  # mean of H s given earlier observations: [..., N, columns]
    predicted_variance: tf.Tensor  # variance of H s, without the noise: [..., N]


class _Element(NamedTuple):
    """Parameters of p(s_k | y_k, s_{k-1}) and p(y_k | s_{k-1}), eq. 12."""

    A: tf.Tensor  # [..., N, d, d]
    b: tf.Tensor  # [..., N, d, columns]
    C: tf.Tensor  # [..., N, d, d]
    eta: tf.Tensor  # [..., N, d, columns]
    J: tf.Tensor  # [..., N, d, d]


class _SmoothingElement(NamedTuple):
    """Parameters of p(s_k | y_1, ..., y_k, s_{k+1}), eq. 18."""

    E: tf.Tensor  # [..., N, d, d]
    g: tf.Tensor  # [..., N, d, columns]
    L: tf.Tensor  # [..., N, d, d]


def _t(matrix: tf.Tensor) -> tf.Tensor:
    return tf.linalg.matrix_transpose(matrix)


def _symmetric(matrix: tf.Tensor) -> tf.Tensor:
    return 0.5 * (matrix + _t(matrix))


def filtered(
    A: tf.Tensor,
    Q: tf.Tensor,
    H: tf.Tensor,
    y: tf.Tensor,
    precision: tf.Tensor,
    *,
    parallel: bool = True,
) -> Filtered:
    """Return filtering moments of the states and predictions of the observations.

    :param A: [..., N, d, d]; the first is not used.
    :param Q: [..., N, d, d]; the first is the covariance of the first state.
    :param H: [d].
    :param y: [..., N, columns], observations with the same A, Q, H and precision.
    :param precision: 1 / R, [..., N]; 0 for missing observations.
    :param parallel: use a scan of depth log N instead of a sequential loop.
    """
    first = tf.zeros_like(A[..., :1, :, :])
    A = tf.concat([first, A[..., 1:, :, :]], axis=-3)
    column = H[:, None]
    QH = tf.linalg.matmul(Q, column)  # [..., N, d, 1]
    HQH = tf.linalg.matmul(column, QH, transpose_a=True)  # [..., N, 1, 1]
    w = precision[..., None, None]
    weight = w / (1.0 + w * HQH)  # 1 / S
    gain = weight * QH
    AtH = tf.linalg.matmul(A, column, transpose_a=True)
    y = y[..., None, :]  # [..., N, 1, columns]
    element = _Element(
        A - tf.linalg.matmul(gain, AtH, transpose_b=True),
        tf.linalg.matmul(gain, y),
        Q - weight * tf.linalg.matmul(QH, QH, transpose_b=True),
        tf.linalg.matmul(AtH, weight * y),
        weight * tf.linalg.matmul(AtH, AtH, transpose_b=True),
    )
    found = _prefixes(_combined, _same_batch(element), parallel)
    mean, covariance = found.b, _symmetric(found.C)
    before = tf.concat([tf.zeros_like(mean[..., :1, :, :]), mean[..., :-1, :, :]], axis=-3)
    moved = tf.linalg.matmul(A, before)
    spread = tf.concat([tf.zeros_like(covariance[..., :1, :, :]), covariance[..., :-1, :, :]], -3)
    predicted = tf.linalg.matmul(tf.linalg.matmul(A, spread), A, transpose_b=True) + Q
    return Filtered(
        mean,
        covariance,
        tf.linalg.matmul(column, moved, transpose_a=True)[..., 0, :],
        tf.einsum("d,...de,e->...", H, predicted, H),
    )


def _prefixes(combined: Callable[[Any, Any], Any], elements: Any, parallel: bool) -> Any:
    """Return all prefixes of elements under an associative operation, along the time axis."""
    axis = elements[0].shape.rank - 3
    # The recursion needs the number of times, which the graph of a served model does not know.
    if parallel and elements[0].shape[axis] is not None:
        return _parallel_prefixes(combined, elements, axis)
    front = [axis, *(i for i in range(axis + 3) if i != axis)]
    in_front = type(elements)(*(tf.transpose(part, front) for part in elements))
    found = _sequential_prefixes(combined, in_front)
    back = [*range(1, axis + 1), 0, axis + 1, axis + 2]
    return type(elements)(*(tf.transpose(part, back) for part in found))


def _parallel_prefixes(combined: Callable[[Any, Any], Any], elements: Any, axis: int) -> Any:
    """Return all prefixes in logarithmic depth, with fewer than two operations for each element.

    Prefixes of neighbouring pairs are those with an even number of elements; one more operation
    gives the others (Blelloch 1990, "Prefix sums and their applications", section 1.4).
    """
    kind, length = type(elements), elements[0].shape[axis]
    if length < 2:
        return elements

    def every(parts: Any, start: int, stop: int | None = None, step: int = 1) -> Any:
        where = (*[slice(None)] * axis, slice(start, stop, step))
        return kind(*(part[where] for part in parts))

    half = length // 2
    pairs = combined(every(elements, 0, 2 * half, 2), every(elements, 1, None, 2))
    even = _parallel_prefixes(combined, pairs, axis)
    if length > 2:
        before = every(even, 0, (length - 1) // 2)
        odd = combined(before, every(elements, 2, None, 2))
        odd = kind(
            *(tf.concat(both, axis) for both in zip(every(elements, 0, 1), odd, strict=True))
        )
    else:
        odd = every(elements, 0, 1)
    return kind(*(_alternating(*both, axis) for both in zip(odd, even, strict=True)))


def _alternating(first: tf.Tensor, second: tf.Tensor, axis: int) -> tf.Tensor:
    """Take slices of two tensors in turn; the first has as many as the second, or one more."""
    count = second.shape[axis]
    shape = tf.shape(second)
    shape = tf.tensor_scatter_nd_update(shape, [[axis]], [2 * count])
    where = (*[slice(None)] * axis, slice(0, count))
    together = tf.reshape(tf.stack([first[where], second], axis + 1), shape)
    rest = first[(*[slice(None)] * axis, slice(count, None))]
    return tf.concat([together, rest], axis) if first.shape[axis] > count else together


def _sequential_prefixes(combined: Callable[[Any, Any], Any], elements: Any) -> Any:
    """Return all prefixes along the first axis by a loop, with gradients by a reverse loop.

    TensorFlow's gradient of a loop accumulates one gradient of the whole input per step, so its
    time grows with the square of the length. Here each step, prefix k = combined(prefix k - 1,
    element k), is differentiated at the stored prefixes: with respect to the prefix step by step,
    then with respect to all elements at once.
    """
    kind = type(elements)

    def gradients(one: Any, other: Any, upstream: Any, by: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(by)
            both = combined(one, other)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(both, by, upstream, unconnected_gradients=zero)

    @tf.custom_gradient
    def prefixes(*parts: tf.Tensor) -> tuple[Any, Callable[..., Any]]:
        found = tf.scan(combined, kind(*parts))

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            before = kind(*(part[:-1] for part in found))
            element = kind(*(part[1:] for part in parts))
            own = kind(*(part[:-1] for part in upstream))
            last = kind(*(part[-1] for part in upstream))

            def previous(later: Any, now: tuple[Any, Any, Any]) -> Any:
                one, other, direct = now
                through = gradients(one, other, later, by=one)
                return kind(*(tf.add(*pair) for pair in zip(direct, through, strict=True)))

            earlier = tf.scan(previous, (before, element, own), last, reverse=True)
            total = kind(*(tf.concat([e, v[None]], 0) for e, v in zip(earlier, last, strict=True)))
            rest = gradients(before, element, kind(*(part[1:] for part in total)), by=element)
            # The first prefix is the first element.
            return [tf.concat([t[:1], r], 0) for t, r in zip(total, rest, strict=True)]

        return tuple(found), gradient

    return kind(*prefixes(*elements))


def _same_batch(element: Any) -> Any:
    """Broadcast all parts to the same leading dimensions, which a scan requires."""
    lead = tf.shape(element[0])[:-2]
    for part in element[1:]:
        lead = tf.broadcast_dynamic_shape(lead, tf.shape(part)[:-2])
    return type(element)(
        *(tf.broadcast_to(p, tf.concat([lead, tf.shape(p)[-2:]], 0)) for p in element)
    )


def _combined(i: _Element, j: _Element) -> _Element:
    """Combine an earlier and a later element, eq. 15."""
    # (I + C_i J_j)^-1, and its transpose (I + J_j C_i)^-1.
    eye = tf.eye(int(i.A.shape[-1]), dtype=i.A.dtype)
    inverse = _inverse(eye + tf.linalg.matmul(i.C, j.J))
    later = tf.linalg.matmul(j.A, inverse)  # A_j (I + C_i J_j)^-1
    earlier = tf.linalg.matmul(inverse, i.A)  # its transpose is A_i^T (I + J_j C_i)^-1
    return _Element(
        tf.linalg.matmul(later, i.A),
        tf.linalg.matmul(later, i.b + tf.linalg.matmul(i.C, j.eta)) + j.b,
        tf.linalg.matmul(tf.linalg.matmul(later, i.C), j.A, transpose_b=True) + j.C,
        tf.linalg.matmul(earlier, j.eta - tf.linalg.matmul(j.J, i.b), transpose_a=True) + i.eta,
        tf.linalg.matmul(earlier, tf.linalg.matmul(j.J, i.A), transpose_a=True) + i.J,
    )


def _inverse(matrix: tf.Tensor) -> tf.Tensor:
    """Invert matrices [..., d, d]; in closed form up to d = 3, where LAPACK calls would be slow.

    The matrices are I + C J with C and J positive semi-definite, so eigenvalues are at least 1.
    """
    size = int(matrix.shape[-1])
    if size > 3:
        return tf.linalg.inv(matrix)
    if size == 1:
        return 1.0 / matrix
    if size == 2:
        a, b = matrix[..., 0, 0], matrix[..., 0, 1]
        c, d = matrix[..., 1, 0], matrix[..., 1, 1]
        adjugate = tf.stack([tf.stack([d, -b], -1), tf.stack([-c, a], -1)], -2)
        return adjugate / (a * d - b * c)[..., None, None]
    x, y, z = (matrix[..., i, :] for i in range(3))  # rows
    columns = [tf.linalg.cross(y, z), tf.linalg.cross(z, x), tf.linalg.cross(x, y)]
    determinant = tf.reduce_sum(x * columns[0], axis=-1)
    return tf.stack(columns, axis=-1) / determinant[..., None, None]


def smoothed(
    found: Filtered, A: tf.Tensor, Q: tf.Tensor, *, parallel: bool = True
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return means [..., N, d, columns] and covariances [..., N, d, d] given all observations.

    :param A: and ``Q``, the same as for :func:`filtered`.
    """
    element = _smoothing_elements(found, A, Q)
    axis = element.E.shape.rank - 3
    reverse = _SmoothingElement(*(tf.reverse(part, [axis]) for part in element))
    summed = _prefixes(_combined_smoothing, reverse, parallel)
    return tf.reverse(summed.g, [axis]), _symmetric(tf.reverse(summed.L, [axis]))


def _smoothing_elements(found: Filtered, A: tf.Tensor, Q: tf.Tensor) -> _SmoothingElement:
    """Return the element of each time; that of the last time holds its filtering moments."""
    m, P = found.mean, found.covariance
    A, Q = (tf.broadcast_to(v, tf.shape(P))[..., 1:, :, :] for v in (A, Q))
    mean, before = m[..., :-1, :, :], P[..., :-1, :, :]
    AP = tf.linalg.matmul(A, before)
    predicted = _symmetric(tf.linalg.matmul(AP, A, transpose_b=True) + Q)
    gain = _t(tf.linalg.solve(predicted, AP))
    parts = _SmoothingElement(
        gain,
        mean - tf.linalg.matmul(gain, tf.linalg.matmul(A, mean)),
        before - tf.linalg.matmul(gain, AP),
    )
    last = (tf.zeros_like(P[..., -1:, :, :]), m[..., -1:, :, :], P[..., -1:, :, :])
    both = (tf.concat(pair, axis=-3) for pair in zip(parts, last, strict=True))
    return _same_batch(_SmoothingElement(*both))


def _combined_smoothing(j: _SmoothingElement, i: _SmoothingElement) -> _SmoothingElement:
    """Combine a later and an earlier element, eq. 19."""
    return _SmoothingElement(
        tf.linalg.matmul(i.E, j.E),
        tf.linalg.matmul(i.E, j.g) + i.g,
        tf.linalg.matmul(tf.linalg.matmul(i.E, j.L), i.E, transpose_b=True) + i.L,
    )
