r"""State-space forms of kernels over time (linear stochastic differential equations).

Hartikainen and Särkkä (2010), "Kalman filtering and smoothing solutions to temporal Gaussian
process regression models"; Solin and Särkkä (2014), "Explicit link between periodic covariance
functions and state space models". Such a stationary kernel is the covariance of H s(t), where s is
a Markov process of a few dimensions d::

    s(t + r) = A(r) s(t) + q,    q ~ N(0, P - A(r) P A(r)^T),    s(t) ~ N(0, P)

Derivatives in ``s`` are in units of the kernel's rate, so that P is of the order of the variance
in any unit of time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from scipy import special

__all__ = ["StateSpace", "check_state_space", "harmonics_of", "state_space"]

_MAX_OMITTED = 1e-9  # fraction of a periodic kernel's variance in the omitted harmonics
_MAX_HARMONICS = 30


class StateSpace(NamedTuple):
    """A stationary Markov process of dimension d, whose projection has the kernel."""

    transition: Callable[[tf.Tensor], tf.Tensor]  # gaps in time [...] -> A, [..., d, d]
    covariance: tf.Tensor  # P [d, d]
    projection: tf.Tensor  # H [d]

    def noise(self, transition: TensorType) -> tf.Tensor:
        """Return the process noise covariance [..., d, d] of transition matrices A."""
        P = self.covariance
        moved = tf.linalg.matmul(tf.linalg.matmul(transition, P), transition, transpose_b=True)
        noise = P - moved
        return 0.5 * (noise + tf.linalg.matrix_transpose(noise))


def state_space(kernel: gpflow.kernels.Kernel, num_harmonics: int = 0) -> StateSpace:
    """Return the state-space form of a kernel.

    Matérn, periodic, cosine and constant kernels have one, and their sums and products. It is exact
    but for ``Periodic`` over a squared exponential, whose Fourier series is truncated.

    :param num_harmonics: number of harmonics of periodic kernels, see :func:`harmonics_of`.
    :raises ValueError: for another kernel, with its name.
    """
    if isinstance(kernel, gpflow.kernels.Sum):
        return _sum([state_space(k, num_harmonics) for k in kernel.kernels])
    if isinstance(kernel, gpflow.kernels.Product):
        return functools.reduce(_product, [state_space(k, num_harmonics) for k in kernel.kernels])
    if isinstance(kernel, gpflow.kernels.Periodic):
        if type(kernel.base_kernel) is gpflow.kernels.SquaredExponential:
            return _periodic(kernel, num_harmonics)
    elif type(kernel) in _KINDS:
        return _KINDS[type(kernel)](kernel)
    known = ", ".join(kind.__name__ for kind in _KINDS)
    raise ValueError(
        f"{_kernel_name(kernel)} has no state-space form here. Those that have one: {known}, "
        "Periodic over SquaredExponential, and sums and products of them; the nearest to a "
        "SquaredExponential is Matern52. Or take latent_priors.GP or SparseGP."
    )


def harmonics_of(kernel: gpflow.kernels.Kernel) -> int:
    """Return the number of harmonics that hold all but 1e-9 of periodic kernels' variance.

    It is computed at half their lengthscale, because this may shrink in a fit or a chain.

    :raises ValueError: for a lengthscale so short that more than thirty would be needed.
    """
    periodic = [part for part in _parts(kernel) if isinstance(part, gpflow.kernels.Periodic)]
    scales = [float(np.ravel(part.base_kernel.lengthscales.numpy())[0]) for part in periodic]
    return max((_num_harmonics(scale / 2.0) for scale in scales), default=0)


def check_state_space(kernel: gpflow.kernels.Kernel) -> None:
    """Raise an error for a kernel without a state-space form, or of more than one input.

    :raises ValueError: with the kernel's name.
    """
    for part in _parts(kernel):
        scales = getattr(getattr(part, "base_kernel", part), "lengthscales", None)
        if scales is not None and int(np.prod(scales.shape)) != 1:
            raise ValueError(
                f"{type(part).__name__} has {int(np.prod(scales.shape))} lengthscales, one for "
                "each input column; a state-space form is over time alone: give it one."
            )
    state_space(kernel)


def _kernel_name(kernel: gpflow.kernels.Kernel) -> str:
    if isinstance(kernel, gpflow.kernels.Periodic):
        return f"Periodic over {type(kernel.base_kernel).__name__}"
    return type(kernel).__name__


def _parts(kernel: gpflow.kernels.Kernel) -> list[gpflow.kernels.Kernel]:
    if isinstance(kernel, gpflow.kernels.Combination):
        return [part for k in kernel.kernels for part in _parts(k)]
    return [kernel]


def _scalar(value: TensorType) -> tf.Tensor:
    return tf.reshape(tf.convert_to_tensor(value), [])


def _matern(
    kernel: gpflow.kernels.IsotropicStationary, order: int, unit_rate: float | None = None
) -> StateSpace:
    r"""Return the process with states f, f'/r, f''/r^2, rate r = sqrt(2 order - 1) / lengthscale.

    Their generator over r is N - I, with N nilpotent, so A = exp(-r t) sum_i (r t N)^i / i!.
    """
    unit_rate = np.sqrt(2.0 * order - 1.0) if unit_rate is None else unit_rate
    rate = unit_rate / _scalar(kernel.lengthscales)
    generator = {
        1: [[-1.0]],
        2: [[0.0, 1.0], [-1.0, -2.0]],
        3: [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, -3.0, -3.0]],
    }[order]
    unit = {
        1: [[1.0]],
        2: [[1.0, 0.0], [0.0, 1.0]],
        3: [[1.0, 0.0, -1.0 / 3.0], [0.0, 1.0 / 3.0, 0.0], [-1.0 / 3.0, 0.0, 1.0]],
    }[order]
    nilpotent = np.array(generator) + np.eye(order)
    powers = [np.linalg.matrix_power(nilpotent, i) for i in range(order)]
    factorials = [1.0, 1.0, 2.0]

    def transition(gaps: tf.Tensor) -> tf.Tensor:
        t = (rate * tf.cast(gaps, rate.dtype))[..., None, None]
        total = tf.ones_like(t) * np.eye(order)
        for i in range(1, order):
            total += t**i * powers[i] / factorials[i]
        return tf.exp(-t) * total

    first = np.eye(order)[0]
    variance = _scalar(kernel.variance)
    return StateSpace(transition, variance * np.array(unit), tf.constant(first, variance.dtype))


def _constant(kernel: gpflow.kernels.Constant) -> StateSpace:
    variance = _scalar(kernel.variance)

    def transition(gaps: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(tf.cast(gaps, variance.dtype))[..., None, None]

    one = tf.ones([1], variance.dtype)
    return StateSpace(transition, tf.reshape(variance, [1, 1]), one)


def _rotations(rates: tf.Tensor, variances: tf.Tensor) -> StateSpace:
    """Return pairs of rotating states with the kernel sum_j variances_j cos(rates_j t)."""
    number = int(rates.shape[0])
    places = np.eye(number)

    def transition(gaps: tf.Tensor) -> tf.Tensor:
        angles = tf.cast(gaps, rates.dtype)[..., None] * rates
        cos, sin = tf.cos(angles), tf.sin(angles)
        blocks = tf.stack([tf.stack([cos, -sin], -1), tf.stack([sin, cos], -1)], -2)
        spread = tf.einsum("...jab,jk->...jakb", blocks, tf.constant(places, rates.dtype))
        shape = tf.concat([tf.shape(angles)[:-1], [2 * number, 2 * number]], 0)
        return tf.reshape(spread, shape)

    covariance = tf.linalg.diag(tf.repeat(variances, 2))
    first = np.tile([1.0, 0.0], number)
    return StateSpace(transition, covariance, tf.constant(first, rates.dtype))


def _cosine(kernel: gpflow.kernels.Cosine) -> StateSpace:
    rate = 2.0 * np.pi / _scalar(kernel.lengthscales)
    return _rotations(rate[None], _scalar(kernel.variance)[None])


def _periodic(kernel: gpflow.kernels.Periodic, num_harmonics: int) -> StateSpace:
    """Expand exp(-sin^2(pi t / p) / (2 l^2)) in a Fourier series, with a = 1 / (4 l^2)::

    exp(-a) (I_0(a) + 2 sum_j I_j(a) cos(2 pi j t / p))
    """
    base = kernel.base_kernel
    a = 0.25 / tf.square(_scalar(base.lengthscales))
    weights = _scaled_bessel(a, num_harmonics)
    variances = _scalar(base.variance) * tf.stack([weights[0], *(2.0 * w for w in weights[1:])])
    rates = 2.0 * np.pi / _scalar(kernel.period) * tf.range(num_harmonics + 1, dtype=a.dtype)
    return _rotations(rates, variances)


def _scaled_bessel(a: tf.Tensor, highest: int) -> list[tf.Tensor]:
    """Return exp(-a) I_j(a) for j = 0, ..., ``highest``, by Miller's algorithm.

    The ratio I_{j+1} / I_j is 1 / (2 (j + 1) / a + the next ratio), from high orders downwards. The
    first is Amos's bound (1974, "Computation of modified Bessel functions and their ratios", eq.
    9), whose error sixty steps reduce to rounding for a below 100. Thirty harmonics reach to 25.
    """
    order = highest + 60
    ratio = a / (order + 0.5 + tf.sqrt(tf.square(a) + (order + 1.5) ** 2))
    ratios = []
    for j in range(order - 1, -1, -1):
        ratio = a / (2.0 * (j + 1) + a * ratio)
        ratios.append(ratio)
    values = [tf.math.bessel_i0e(a)]
    for ratio in ratios[::-1][:highest]:
        values.append(values[-1] * ratio)
    return values


def _num_harmonics(lengthscale: float) -> int:
    weights = special.ive(np.arange(_MAX_HARMONICS + 1), 0.25 / lengthscale**2)
    left_out = 1.0 - np.cumsum(weights * np.r_[1.0, np.full(_MAX_HARMONICS, 2.0)])
    if left_out[-1] > _MAX_OMITTED:
        raise ValueError(
            f"Periodic with a lengthscale of {2.0 * lengthscale:.3g}, in units of its sine, would "
            f"need more than {_MAX_HARMONICS} harmonics as a state-space form: make it longer, or "
            "take latent_priors.GP or SparseGP."
        )
    return int(np.argmax(left_out <= _MAX_OMITTED))


def _sum(parts: list[StateSpace]) -> StateSpace:
    def transition(gaps: tf.Tensor) -> tf.Tensor:
        return _block_diagonal([part.transition(gaps) for part in parts])

    return StateSpace(
        transition,
        _block_diagonal([part.covariance for part in parts]),
        tf.concat([part.projection for part in parts], 0),
    )


def _block_diagonal(blocks: list[tf.Tensor]) -> tf.Tensor:
    sizes = [int(block.shape[-1]) for block in blocks]
    rows = []
    for i, block in enumerate(blocks):
        before, after = sum(sizes[:i]), sum(sizes[i + 1 :])
        lead = [[0, 0]] * (block.shape.rank - 1)
        rows.append(tf.pad(block, [*lead, [before, after]]))
    return tf.concat(rows, axis=-2)


def _product(a: StateSpace, b: StateSpace) -> StateSpace:
    """Return the process of a product kernel: the Kronecker product of independent states."""

    def transition(gaps: tf.Tensor) -> tf.Tensor:
        return _kronecker(a.transition(gaps), b.transition(gaps))

    projection = tf.reshape(a.projection[:, None] * b.projection, [-1])
    return StateSpace(transition, _kronecker(a.covariance, b.covariance), projection)


def _kronecker(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    product = tf.einsum("...ij,...kl->...ikjl", a, b)
    size = int(a.shape[-1]) * int(b.shape[-1])
    return tf.reshape(product, tf.concat([tf.shape(product)[:-4], [size, size]], 0))


_KINDS: dict[type, Callable[..., StateSpace]] = {
    gpflow.kernels.Matern12: lambda kernel: _matern(kernel, 1),
    gpflow.kernels.Matern32: lambda kernel: _matern(kernel, 2),
    gpflow.kernels.Matern52: lambda kernel: _matern(kernel, 3),
    gpflow.kernels.Exponential: lambda kernel: _matern(kernel, 1, unit_rate=0.5),
    gpflow.kernels.Cosine: _cosine,
    gpflow.kernels.Constant: _constant,
}
