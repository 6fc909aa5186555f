"""Check whether a fit predicts its training data better than column means."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ...core.arguments import warn_caller
from ...core.scales import varies
from ...data import CompressedRows
from ...posteriors import Posterior
from ...posteriors.conditionals import latent_moments

__all__ = ["largest_fall", "share_explained", "warn_of_useless_fit"]

_MAX_POINTS = 20_000  # of the training data that are used
_MAX_CELLS = 40_000_000
_MAX_SAMPLES = 8
_USEFUL = 0.1
_COLLAPSE = 0.5  # nats per observed cell, from one round to the next
_UNUSUAL = 10.0  # times the median change of a round: with few cells changes of 0.5 are random


def share_explained(posterior: Posterior) -> float:
    """Return the share of the variance of observed training cells that reconstructions explain.

    This is 1 minus the mean squared error of the reconstruction divided by that of the column
    means: 0 for a model that predicts these, 1 for one that returns its data. Codes are those of
    the chain, or posterior means of a variational model. Only the first part of large data and the
    last samples are used.
    """
    model, data = posterior.model, posterior.data
    num_tasks, num_points, num_outputs = data.Y.shape
    tasks, points = slice(None), slice(None)
    if not model.encoder.takes_indices:  # free codes need all of the data
        most = min(_MAX_POINTS, max(1, _MAX_CELLS // num_outputs))
        tasks, points = slice(max(1, most // num_points)), slice(most)

    def some(values: Any) -> Any:
        if isinstance(values, CompressedRows):  # always a single task
            return values[..., points, :]
        return None if values is None else values[tasks, points]

    X, Y, mask = (some(values) for values in (data.X, data.Y, data.mask))
    last = range(posterior.num_samples)[-_MAX_SAMPLES:]
    mean = np.zeros(Y.shape)
    for number in last:
        values = [tf.constant(v[number]) for v in posterior.parameters]
        weights = [tf.constant(v[number]) for v in posterior.encoder]
        if posterior.latents is not None:
            latents = tf.constant(posterior.latents[number][tasks, points])
        else:
            seed = tf.constant([0, number], tf.int32)
            latents, _ = latent_moments(
                model, values, weights, [], seed, (X, Y, mask), None, num_draws=4
            )
        bound = model.bind(values)
        mean += bound.likelihood.moments(bound.decode(X, latents))[0].numpy() / len(last)
    truth = Y.numpy() if mask is None else np.where(mask, Y, np.nan)
    centred = (truth - np.nanmean(truth, axis=(0, 1))) * varies(truth, axis=(0, 1))
    spread = np.nanmean(np.square(centred))
    return float(1.0 - np.nanmean(np.square(truth - mean)) / spread) if spread > 0 else 1.0


def largest_fall(posterior: Posterior) -> float:
    """Return the largest fall of a chain's log likelihood in one round, in nats per observed cell.

    At stationarity it changes by fractions of a nat per cell; if steps become too large for the
    curvature, the chain leaves the typical set and it falls by several. The result is 0 without a
    trace, and for falls below ten times the median change of a round, because with few cells a
    sound chain's log likelihood changes by as much.
    """
    trace = posterior.bank.trace.get("log_likelihood")
    if trace is None or trace.shape[1] < 2:
        return 0.0
    data = posterior.data
    # The posterior of a stream holds only part of the data.
    cells = data.num_observed * posterior.num_points / data.num_points
    changes = np.diff(trace, axis=1)
    usual = np.median(np.abs(changes), axis=1, keepdims=True)
    falls = np.where(-changes > _UNUSUAL * usual, -changes, 0.0)
    return float(np.max(falls) / cells)


def warn_of_useless_fit(posterior: Posterior) -> None:
    """Warn if a fit is hardly better than column means or its chain diverged, with advice.

    :warns UserWarning: if it explains less than a tenth of the variance of its training data, or
        its log likelihood fell by more than half a nat per observed cell in one round.
    """
    fall = largest_fall(posterior)
    if fall > _COLLAPSE:
        warn_caller(
            f"The chain broke: its log likelihood fell by {fall:.1f} nats per observed cell within "
            "one round, which is what steps do that are too large for the posterior (often because "
            "the noise of the likelihood has become very small). What was sampled after that is "
            "not the posterior. Try a smaller step, "
            "sampler=gpflow_bae.mcmc.adaptive_sghmc.build(step_size=...), or a likelihood whose "
            "noise cannot vanish, likelihoods.Gaussian(0.1, variance_lower_bound=1e-3).",
        )
    share = share_explained(posterior)
    if share >= _USEFUL:
        return
    warn_caller(
        f"The fit reconstructs its own training data hardly better than column means do: it "
        f"explains {max(share, 0.0):.0%} of their variance. Its predictions are of little use. Try "
        "outputs of zero mean and unit variance, another initial lengthscale (about the distance "
        'over which the data change), more steps, and warm_start="default" if it was replaced. If '
        "nothing helps, the outputs may have nothing in common that such a latent could hold.",
    )
