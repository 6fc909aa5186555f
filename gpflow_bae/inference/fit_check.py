"""Whether a fit says more of its data than column means do, and what to try where it does not."""

from __future__ import annotations

import warnings

import numpy as np
import tensorflow as tf

from ..posteriors import Posterior
from ..posteriors.conditionals import latent_given_pseudo

__all__ = ["share_explained", "warn_of_useless_fit"]

_MAX_POINTS = 20_000  # of the training data that are looked at
_MAX_SAMPLES = 8
_USEFUL = 0.1


def share_explained(posterior: Posterior) -> float:
    """Share of the variance of the observed training cells that reconstructions explain.

    1 less the mean squared error of the reconstruction over that of the column means: 0 for a model
    that knows no more than those, 1 for one that returns its data. Codes are those of the chain,
    or of a variational model the posterior means. Of large data the first part is looked at, of
    many samples the last ones.
    """
    model, data = posterior.model, posterior.data
    num_tasks, num_points, _ = data.Y.shape
    tasks, points = slice(None), slice(None)
    if not model.encoder.takes_indices:  # whose codes are for all of the data or none
        tasks, points = slice(max(1, _MAX_POINTS // num_points)), slice(_MAX_POINTS)
    X, mask = (None if v is None else v[tasks, points] for v in (data.X, data.mask))
    Y = data.Y[tasks, points]
    last = range(posterior.num_samples)[-_MAX_SAMPLES:]
    mean = np.zeros(Y.shape)
    for number in last:
        values = [tf.constant(v[number]) for v in posterior.parameters]
        weights = [tf.constant(v[number]) for v in posterior.encoder]
        if posterior.latents is not None:
            latents = tf.constant(posterior.latents[number][tasks, points])
        else:
            seed = tf.constant([0, number], tf.int32)
            latents, _ = latent_given_pseudo(model, values, weights, seed, (X, Y, mask), None, 4)
        bound = model.bind(values)
        mean += bound.likelihood.moments(bound.decode(X, latents))[0].numpy() / len(last)
    truth = Y.numpy() if mask is None else np.where(mask, Y, np.nan)
    spread = np.nanmean(np.square(truth - np.nanmean(truth, axis=(0, 1))))
    return float(1.0 - np.nanmean(np.square(truth - mean)) / spread) if spread > 0 else 1.0


def warn_of_useless_fit(posterior: Posterior) -> None:
    """Say so where a fit is no better than column means, and what to try.

    :warns UserWarning: if it explains less than a tenth of the variance of its own data.
    """
    share = share_explained(posterior)
    if share >= _USEFUL:
        return
    warnings.warn(
        f"The fit reconstructs its own training data hardly better than column means do: it "
        f"explains {max(share, 0.0):.0%} of their variance. Its predictions are of little use. Try "
        "outputs of zero mean and unit variance, another initial lengthscale (about the distance "
        'over which the data change), more steps, and warm_start="default" if it was replaced. If '
        "nothing helps, the outputs may have nothing in common that such a latent could hold.",
        UserWarning,
        stacklevel=3,
    )
