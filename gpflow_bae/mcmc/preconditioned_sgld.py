r"""Stochastic-gradient Langevin dynamics with RMSprop's preconditioner.

SGLD with a diagonal preconditioner P learnt from the gradients during burn-in (Li et al. 2016,
algorithm 1). With step size e, temperature T, gradient g of the log density, independent standard
noise xi, and everything elementwise::

    P = 1 / (jitter + sqrt(V))
    position <- position + (e / 2) P g + sqrt(e T P) xi

where V, ``mean_square_gradient``, is an exponential mean of g^2. While ``adapt`` is true, first::

    V <- d V + (1 - d) g^2                    d = ``gradient_decay``

from V = 1. (Published: from V = 0, which makes P as large as 1 / (sqrt(1 - d) |g|) in the first
step, ten times the intended size at d = 0.99. There, too, g is divided by the number of data in V,
which is a change of the units of e.)

**The term Gamma is left out.** Langevin dynamics with a preconditioner that depends on the position
needs a drift Gamma_i = sum_j dP_ij / dposition_j as well. Li et al. leave it out, as it is of order
1 - d; the chain that is run is then biased however small e is. Here V is frozen when adaptation has
ended: P is a constant, Gamma is exactly zero, and nothing has been left out. During adaptation
nothing is claimed: discard those draws.

**Stationary distribution** after burn-in, at a fixed P: that of :mod:`gpflow_bae.mcmc.sgld` in the
coordinates position / sqrt(P), hence density ** (1 / T) as e goes to 0.

**Step-size bias.** Of first order in e. On a Gaussian with precision A the stationary mean is exact
and the covariance is T [A - e A P A / 4]^-1. The chain is stable if e times the largest eigenvalue
of sqrt(P) A sqrt(P) is below 4. As P is about 1 / rms(g), e is not in the units of plain SGLD's.

References:

- Li, Chen, Carlson, Carin (2016). Preconditioned stochastic gradient Langevin dynamics for deep
  neural networks. AAAI.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.arguments import check_arguments
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, Setting
from gpflow_bae.mcmc.building import build_sampler
from gpflow_bae.mcmc.noise import noise_like
from gpflow_bae.mcmc.structures import leaf_temperatures, when
from gpflow_bae.mcmc.types import Position, Scalar, Seed, cast_scalar, validate

__all__ = ["State", "build", "init", "update"]


class State(NamedTuple):
    """Position and the running mean of the squared gradient: two structures alike."""

    position: Position
    mean_square_gradient: Position


def init(position: Position) -> State:
    """Start at ``position``, with ones for the squared gradient (so P starts at 1)."""
    position = tf.nest.map_structure(tf.convert_to_tensor, position)
    return State(position, tf.nest.map_structure(tf.ones_like, position))


def update(
    state: State,
    gradient: Position,
    seed: Seed,
    *,
    step_size: Scalar,
    temperature: Scalar | Position = 1.0,
    adapt: bool | TensorType,
    noise: str = "gaussian",
    gradient_decay: Scalar = 0.99,
    jitter: Scalar = 1e-5,
) -> State:
    """One step; gradient, seed and noise are as :mod:`gpflow_bae.mcmc.types` describes them.

    :param step_size: e > 0.
    :param temperature: T >= 0, or a structure like the position with one for each leaf.
    :param adapt: whether to update V first; true during burn-in. A scalar boolean tensor is a
        branch of the graph: nothing is retraced when it turns false.
    :param gradient_decay: d in [0, 1).
    :param jitter: added to sqrt(V) in P.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """
    validate(step_size=step_size, gradient_decay=gradient_decay, jitter=jitter)
    temperatures = leaf_temperatures(temperature, state.position)

    def adapted() -> Position:
        def one_leaf(v: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
            past, present = (cast_scalar(d, v.dtype) for d in (gradient_decay, 1 - gradient_decay))
            return past * v + present * g**2

        return tf.nest.map_structure(one_leaf, state.mean_square_gradient, gradient)

    mean_square_gradient = when(adapt, adapted, state.mean_square_gradient)
    xi = noise_like(state.position, seed, noise)

    def next_position(
        q: tf.Tensor, g: tf.Tensor, v: tf.Tensor, xi: tf.Tensor, t: Scalar
    ) -> tf.Tensor:
        e, t, small = (cast_scalar(s, q.dtype) for s in (step_size, t, jitter))
        scaled = e / (small + tf.sqrt(v))  # e P
        return q + scaled / 2 * g + tf.sqrt(scaled * t) * xi

    position = tf.nest.map_structure(
        next_position, state.position, gradient, mean_square_gradient, xi, temperatures
    )
    return State(position, mean_square_gradient)


@check_arguments()
def build(
    step_size: Setting = 1e-3,
    temperature: Setting = 1.0,
    noise: str = "gaussian",
    gradient_decay: Setting = 0.99,
    jitter: Setting = 1e-5,
) -> SamplingAlgorithm:
    """The sampler as one object: settings of :func:`update`, or schedules of the step."""
    return build_sampler(
        "preconditioned_sgld", State, init, update, locals(), adapted=("mean_square_gradient",)
    )
