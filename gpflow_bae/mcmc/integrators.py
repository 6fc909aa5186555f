r"""Integrators of underdamped Langevin dynamics with one gradient per step.

Notation of :mod:`gpflow_bae.mcmc.sghmc`: step size h, momentum decay a, temperature T, a diagonal
preconditioner P (1 for plain SGHMC), momentum = h times the velocity, c = 1 - a. The exact flows of
the parts of the dynamics are::

    A    position <- position + momentum                     (A/2: half the momentum)
    B    momentum <- momentum + h^2 P g(position)            (B/2: half of it)
    O    momentum <- c momentum + sqrt((1 - c^2) T h^2 P) xi

``"euler"`` is not composed of them: decay, kick and noise are simultaneous, then A (Chen et al.
2014); the samplers implement it.

``"obabo"`` (Bussi and Parrinello 2007) is O/2 B/2 A B/2 O/2, where the two halves O/2 have c^(1/2)
each. Between two steps this is B/2 O/2 O/2 B/2: both kicks are at one position, so they
use the same gradient, and both halves of O are one O. ``"baoab"`` (Leimkuhler and Matthews 2013)
is B/2 A/2 O A/2 B/2; between two steps there are two half kicks at one position, one B. A step here
begins with these::

    obabo    B/2  O  B/2  A
    baoab    B  A/2  O  A/2

These are cyclic permutations. Positions change only in A, and the position after a step here is the
position after a step of the original: the chain of positions, its autocorrelations and its
stationary distribution are exactly those of OBABO and BAOAB. Only the returned momentum
is from another point of the cycle, and the first step has a full kick instead of a half one.

**Step-size bias of positions.** All three are of second order in h, at a fixed a (the law of a step
does not change with the sign of h, so only even powers occur) and at a fixed friction a / h.
On a Gaussian with precision A the mean is exact and the covariance is::

    euler    T [A - h^2 A P A / (2 (2 - a))]^-1    stable for h^2 A P < 2 (2 - a)
    obabo    T [A - h^2 A P A / 4]^-1              stable for h^2 A P < 4, for any a
    baoab    T A^-1, exactly                       stable for h^2 A P < 4, for any a

The momentum that ``"baoab"`` returns, taken after O, has exactly the variance T h^2 P on a
Gaussian, at every stable h, so a higher kinetic temperature is due to heating, not to the step
size.

At a = 1, the limit of high friction, BAOAB is of fourth order on any smooth target (Leimkuhler and
Matthews 2013). On an anharmonic density on a circle, at h = 0.5 and friction 0.5, the bias of a
mean was 0.028 for Euler, 0.024 for OBABO and 0.0024 for BAOAB.

Gradient noise of variance v per scalar adds h^4 P^2 v to the noise of a step in all of them. In the
splitting schemes it acts on positions as a temperature higher by h^2 P v (2 - a) / (4 a), for small
a as in SGHMC; no integrator avoids this. (This holds at every h with ``"obabo"``; with ``"baoab"``
for small h^2 A P, and the returned momentum has the fraction 4 (1 - a)^2 / (2 - a)^2 of that
heat.)

With ``"binomial"`` noise, whose kurtosis is 4 per cent short, the statements for a Gaussian still
hold for means and covariances; the fourth order does not.

References:

- Bussi, Parrinello (2007). Accurate sampling using Langevin dynamics. Physical Review E 75.
- Leimkuhler, Matthews (2013). Rational construction of stochastic numerical methods for molecular
  sampling. Applied Mathematics Research eXpress.
"""

from __future__ import annotations

import tensorflow as tf

__all__ = ["INTEGRATORS", "check_integrator", "splitting_step"]

INTEGRATORS = ("euler", "obabo", "baoab")


def check_integrator(integrator: str, subtract_gradient_noise: bool = False) -> None:
    """Check that an integrator is known, and compatible with eq. 17's term - h^4.

    :raises ValueError: if ``integrator`` is not one of :data:`INTEGRATORS`, or is not ``"euler"``
        although ``subtract_gradient_noise``.
    """
    if integrator not in INTEGRATORS:
        raise ValueError(f"integrator must be one of {INTEGRATORS}, got {integrator!r}.")
    if subtract_gradient_noise and integrator != "euler":
        raise ValueError(
            "subtract_gradient_noise takes h^4 off the noise variance of the Euler step (Tran et "
            f"al. 2023, eq. 17) and is not defined for integrator={integrator!r}: use "
            "integrator='euler', or subtract_gradient_noise=False."
        )


def splitting_step(
    integrator: str,
    position: tf.Tensor,
    momentum: tf.Tensor,
    kick: tf.Tensor,
    xi: tf.Tensor,
    *,
    momentum_decay: tf.Tensor,
    noise_scale: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return position and momentum of one leaf after one step of OBABO or BAOAB.

    :param integrator: ``"obabo"`` or ``"baoab"``.
    :param momentum: h times the velocity.
    :param kick: h^2 P g.
    :param xi: standard noise.
    :param momentum_decay: a = 1 - c.
    :param noise_scale: h sqrt(T P), the standard deviation of the momentum.
    """
    a = momentum_decay
    fresh = tf.sqrt(a * (2 - a)) * noise_scale * xi  # 1 - c^2 = a (2 - a)
    if integrator == "obabo":
        momentum = (1 - a) * (momentum + kick / 2) + fresh + kick / 2
        return position + momentum, momentum
    momentum += kick
    next_momentum = (1 - a) * momentum + fresh
    return position + (momentum + next_momentum) / 2, next_momentum
