"""The posterior of two-dimensional codes that a flow approximates, integrated numerically.

Given q(f) the bound of a row is largest where q(x_n) is proportional to
p(x_n) exp(E_q(f)[log p(y_n | f(x_n))]), and then is the logarithm of that density's integral: no
flow has a larger one under the same functions, whatever it is conditioned on. The log density of
hidden cells has no such largest value: where the model is wrong a wider posterior may score more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_bae.inference.optimise.relocation import expected_log_likelihoods

__all__ = ["compare", "grid_of_codes", "posterior_on_grid"]

_CHUNK = 2000  # cells of the grid whose functions are computed together


def grid_of_codes(side: int, bound: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    """Cells [side^2, 2] of the square [-bound, bound]^2, and their log prior masses.

    :param bound: N(0, I) leaves 1e-4 outside of 4.
    """
    axis = np.linspace(-bound, bound, side)
    cells = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    log_mass = -0.5 * np.square(cells).sum(-1)
    return cells, log_mass - np.log(np.exp(log_mass).sum())


def posterior_on_grid(
    model: Any, batch: Any, moments: tuple[np.ndarray, np.ndarray], log_mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [B, C] of the cells for each row, and the bound's largest value [B], in nats.

    :param moments: of the functions at the cells, [C, P] each.
    """
    mean, variance = (tf.constant(v) for v in moments)
    log_joint = expected_log_likelihoods(model, batch, mean, variance).numpy() + log_mass
    top = log_joint.max(-1, keepdims=True)
    weights = np.exp(log_joint - top)
    total = weights.sum(-1, keepdims=True)
    return weights / total, (top + np.log(total))[:, 0]


def compare(posterior: Any, truth: np.ndarray, rows: np.ndarray, side: int = 170) -> dict[str, Any]:
    """The fitted posterior of some rows beside the exact one under the same functions.

    :param posterior: a :class:`~gpflow_bae.posteriors.GPLVMPosterior` with two latent dimensions.
    :param truth: the table without holes [N, P].
    :param side: cells of the grid along an axis, closer together than posteriors are wide.
    :return: of both the bound per row without q(v)'s share and the log density of a hidden cell;
        and the share of rows with more than a twentieth of their mass farther than 0.6 from their
        most probable code.
    """
    model = posterior.model
    cells, log_mass = grid_of_codes(side)
    parts = [model.predict_f(cells[i : i + _CHUNK]) for i in range(0, len(cells), _CHUNK)]
    mean, variance = (np.concatenate([p[k].numpy() for p in parts]) for k in (0, 1))
    batch = posterior.data.gather(tf.constant(rows, tf.int32))
    probabilities, bound = posterior_on_grid(model, batch, (mean, variance), log_mass)
    noise = float(model.likelihood.variance.numpy())
    densities, elsewhere = [], []
    hidden = np.isnan(posterior.data.to_numpy()[1][0][rows])
    for p, row, cut in zip(probabilities, truth[rows], hidden, strict=True):
        kept = np.flatnonzero(p > 1e-8)
        spread = variance[kept][:, cut] + noise
        off = np.square(row[cut] - mean[kept][:, cut]) / spread
        density = np.exp(-0.5 * off) / np.sqrt(2.0 * np.pi * spread)
        densities.append(np.log(p[kept] @ density))
        far = np.linalg.norm(cells[kept] - cells[p.argmax()], axis=-1) > 0.6
        elsewhere.append(p[kept][far].sum())
    which, columns = np.nonzero(hidden)
    fitted = posterior.predict_log_density(
        rows[which], columns, truth[rows[which], columns], num_draws=200
    )
    return {
        "rows": len(rows),
        "bound_fitted": _own_bound(model, batch) / len(rows),
        "bound_exact": float(bound.mean()),
        "log_density_missing_fitted": float(fitted.mean()),
        "log_density_missing_exact": float(np.concatenate(densities).mean()),
        "share_of_rows_with_mass_elsewhere": float((np.array(elsewhere) > 0.05).mean()),
    }


def _own_bound(model: Any, batch: Any, count: int = 100) -> float:
    """The fitted posterior's bound of a batch without q(v)'s divergence, an average of draws."""
    draws = model.guide.draw(model.latent_prior, batch, count, tf.constant([7, 7]))
    values = []
    for latents in draws.latents[:, 0]:
        mean, variance = model.decoder.moments(latents[None])
        values.append(float(model.expected_log_density(mean, variance, batch)))
    return float(np.mean(values) - float(draws.divergence))
