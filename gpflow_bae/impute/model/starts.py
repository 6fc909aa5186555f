"""Initial values of a fit: principal directions of the outputs, kernels of two lengthscales."""

from __future__ import annotations

import gpflow
import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable
from ...inference.optimise.coregionalisation_fit import Start
from ...models import LinearCoregionalisation
from ...models.linear_coregionalisation import NOISE_FLOOR, principal_directions
from .plan import Plan

__all__ = ["LEAST_NOISE", "alternatives", "initial_model", "noise_floor"]

# Shares of the codes' variance: of the kernel with the long lengthscale, of that with the short
# one, and of the code noise. The kernel of daily cycles, where there is one, has a tenth. Tables of
# each kind exist, and a fit that starts at the wrong shares takes many steps.
_SHARES = ((0.45, 0.3, 0.15), (0.05, 0.05, 0.8), (0.8, 0.05, 0.05), (0.05, 0.8, 0.05))
_LENGTHS = (1.0, 4.0, 0.3)
_CYCLE = 0.1
LEAST_NOISE = 1e-6  # variance, as small as GPflow's jitter
_NOISE = 0.1  # variance, of standardised outputs
_STEPS = (30.0, 4.0)  # lengthscales along a series, in steps of it
_RANGES = (0.25, 0.05)  # lengthscales along coordinates, in their ranges
_CYCLE_LENGTHSCALE = 10.0  # periods for which a cycle keeps its shape


@check_shapes("X: [N, D]", "Z: [N, P]")
def initial_model(
    X: np.ndarray, Z: np.ndarray, plan: Plan, seed: int, floor: np.ndarray | float
) -> LinearCoregionalisation:
    """The model of a plan before its fit.

    :param X: inputs of all rows.
    :param Z: standardised outputs; NaN where missing.
    :param floor: least variance of the noise, see :func:`noise_floor`.
    """
    step, period, latent_dim = plan.step, plan.day, plan.latent_dim
    D = X.shape[1]
    scales = [np.maximum(share * np.ptp(X, axis=0), 1e-3) for share in _RANGES]
    if step is not None:
        for lengthscales, steps in zip(scales, _STEPS, strict=True):
            lengthscales[0] = steps * step
    kernels: list[gpflow.kernels.Kernel] = [
        gpflow.kernels.Matern32(lengthscales=scales[0]),
        gpflow.kernels.Matern12(lengthscales=scales[1]),
    ]
    if period is not None:
        cycle = gpflow.kernels.Periodic(
            gpflow.kernels.SquaredExponential(lengthscales=np.ones(1), active_dims=[0]),
            period=period,
        )
        slow = np.maximum(2.0 * np.ptp(X, axis=0), 1e-3)
        slow[0] = _CYCLE_LENGTHSCALE * period
        gpflow.set_trainable(cycle.period, False)
        kernels.append(cycle * gpflow.kernels.Matern32(lengthscales=slow))
    for kernel in kernels:
        for part in getattr(kernel, "kernels", [kernel]):
            gpflow.set_trainable(getattr(part, "base_kernel", part).variance, False)
    assert all(kernel.active_dims is not None for kernel in kernels) and D > 0
    # Channels with equal shares would stay equal, so they start at different ones.
    shape = (len(kernels) + 1, latent_dim)
    spread = np.exp(0.3 * np.random.default_rng(seed).standard_normal(shape))
    return LinearCoregionalisation(
        kernels,
        principal_directions(Z, latent_dim),
        _scales(_SHARES[0], len(kernels)) * spread,
        np.full(Z.shape[1], _NOISE),
        plan.deviation,
        floor,
    )


def noise_floor(table: MultiOutputTable, plan: Plan) -> np.ndarray:
    """Return the least noise variance of each output [P] of a table of standardised values.

    Along a series it is a hundredth of the mean square of a step, so that small changes from one
    time to the next, such as the daily use in the readings of a meter, are not taken as noise.
    """
    if plan.step is None:
        return np.full(table.num_outputs, NOISE_FLOOR)
    squares = []
    for X, Y, length in zip(table.X, table.Y, table.lengths, strict=True):
        order = np.argsort(X[:length, 0], kind="stable")
        squares.append(np.square(np.diff(Y[:length][order], axis=0)))
    steps = np.concatenate(squares)
    count = np.count_nonzero(~np.isnan(steps), axis=0)
    mean = np.nansum(steps, axis=0) / np.maximum(count, 1)
    return np.where(count > 0, np.clip(0.01 * mean, LEAST_NOISE, NOISE_FLOOR), NOISE_FLOOR)


def _scales(shares: tuple[float, ...], num_kernels: int) -> np.ndarray:
    """Scales of all kernels and of the code noise [Q + 1, 1]."""
    *smooth, noise = shares
    cycle = [_CYCLE] * (num_kernels - len(smooth))
    return np.sqrt([*smooth, *cycle, noise])[:, None]


def alternatives(model: LinearCoregionalisation) -> list[Start]:
    """Alternative values to start from: four divisions of the variance, three lengthscales."""
    spread = model.scales.numpy() / _scales(_SHARES[0], len(model.kernels))
    lengths = [(k.lengthscales, k.lengthscales.numpy()) for k in model.kernels[:2]]
    return [
        [
            (model.scales, _scales(shares, len(model.kernels)) * spread),
            *((parameter, factor * value) for parameter, value in lengths),
        ]
        for shares in _SHARES
        for factor in _LENGTHS
        if factor == 1.0 or shares[-1] < 0.5
    ]
