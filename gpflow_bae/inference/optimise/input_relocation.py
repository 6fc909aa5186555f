"""Move missing inputs to the values that fit the observations best."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ...core.annotations import check_arguments
from ...core.tracing import compiled
from ...data import prepare_data
from ...inputs import MissingInputs
from ...latent_priors import LatentProcess
from ...latent_priors.base import gaussian_log_density
from ...models import VariationalAutoencoder

__all__ = ["has_relocatable_inputs", "relocate_inputs"]

NUM_CANDIDATES = 64
_MIN_GAIN = 1.0  # nats; gradients find smaller gains, and a move would invalidate Adam's moments
_MIN_DISTANCE = 2.0  # in standard deviations of the entry's Gaussian
_POINTS_PER_CALL = 16384


def has_relocatable_inputs(model: Any) -> bool:
    """Return whether :func:`relocate_inputs` supports the model."""
    return isinstance(model, VariationalAutoencoder) and isinstance(model.inputs, MissingInputs)


@check_arguments(num_candidates=1, seed=0)
def relocate_inputs(
    model: VariationalAutoencoder, data: Any, *, num_candidates: int = NUM_CANDIDATES, seed: int = 0
) -> float:
    r"""Move missing inputs to candidate values with a higher density.

    Gradients cannot cross values of low density: an angle that starts on the opposite side of the
    circle stays there. For each missing entry this draws candidates :math:`x_c` from its prior, and
    takes the one with the largest

    .. math:: \log p(x_c) + \sum_l \log N(\mu_{nl} | m_l(x_c), v_l(x_c) + s_{nl}^2),

    the log density of the point's pseudo-observations under the latent function given those of all
    points (this one included, at its current input), if it is more than a nat above that of the
    current value. An entry with a Gaussian moves by at least two of its standard deviations or not
    at all; a moved Gaussian gets its initial standard deviation.

    :param model: a model with :class:`~gpflow_bae.inputs.MissingInputs` in its kernel.
    :param data: the training data, with the inputs that have missing entries.
    :return: the share of the missing entries that moved.
    :raises TypeError: for a model without missing inputs, or one that is not a variational
        autoencoder.
    """
    if not has_relocatable_inputs(model):
        raise TypeError(
            "relocate_inputs needs a variational autoencoder whose kernel is "
            f"CompletedInputs(kernel, MissingInputs(X)), got {type(model).__name__}: leave "
            "relocations out."
        )
    data = prepare_data(model, data)
    inputs: MissingInputs = model.inputs  # type: ignore[assignment]
    score = _Scores(model, data)
    moved, total = 0, 0
    for i, (own, table) in enumerate(zip(inputs.columns, inputs.tables, strict=True)):
        seeds = tf.constant([seed, 0x1D0 + i], tf.int32)
        drawn = tf.cast(table.prior.sample([num_candidates], seed=seeds), gpflow.default_float())
        places = inputs.places[np.asarray(own.rows)]
        here = table.location.numpy()[:, 0]
        candidates = np.concatenate([here[None], np.tile(drawn.numpy()[:, None], (1, len(here)))])
        found = score(own.column, places, candidates)
        found += table.prior.log_prob(candidates).numpy()
        if table.has_density:
            away = table.distance(candidates, here) / table.scale.numpy()[:, 0]
            found[1:][away[1:] < _MIN_DISTANCE] = -np.inf
        best = np.argmax(found, 0)
        better = found.max(0) > found[0] + _MIN_GAIN
        new = np.where(better, candidates[best, np.arange(len(here))], here)
        table.location.assign(new[:, None])
        table.reset_scale(better)
        moved, total = moved + int(better.sum()), total + len(here)
    return moved / total


class _Scores:
    """Log densities of pseudo-observations at candidate inputs."""

    def __init__(self, model: VariationalAutoencoder, data: Any):
        batch = data.gather(None)
        self._prior: LatentProcess = model.latent_prior
        self._inputs: MissingInputs = model.inputs  # type: ignore[assignment]
        self._X = batch.X
        self._pseudo = model.guide.pseudo_observations(
            self._prior, batch, tf.constant([0, 0], tf.int32)
        )
        self._predict = compiled(self._prior.predict)

    def __call__(self, column: int, places: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Return log densities [C, H] of candidates [C, H] for a column at ``places`` [H, 2]."""
        complete = self._inputs.complete(self._X).numpy()
        if len(complete) > 1 or self._pseudo[0].shape[0] > 1:
            return np.stack([self._of_tasks(complete, column, places, v) for v in candidates])
        points = places[:, 1]
        rows, size = complete[0, points], max(1, _POINTS_PER_CALL // len(points))
        found = []
        for start in range(0, len(candidates), size):
            chosen = candidates[start : start + size]
            X = np.tile(rows, (len(chosen), 1, 1))
            X[..., column] = chosen
            pseudo = [
                tf.tile(tf.gather(v[0], points), [len(chosen), 1])[None] for v in self._pseudo
            ]
            density = self._density(X.reshape(1, -1, X.shape[-1]), pseudo)
            found.append(density.reshape(len(chosen), -1))
        return np.concatenate(found)

    def _of_tasks(
        self, complete: np.ndarray, column: int, places: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Return log densities [H] with all entries moved; for shared inputs, sums over tasks."""
        X = complete.copy()
        X[places[:, 0], places[:, 1], column] = values
        density = self._density(X, self._pseudo)
        if len(complete) == 1:
            density = density.sum(0, keepdims=True)
        return density[places[:, 0], places[:, 1]]

    def _density(self, X: np.ndarray, pseudo: Any) -> np.ndarray:
        """Return log densities [T, N'] of pseudo-observations [T, N', L] at X [T, N', D]."""
        at = self._inputs.prepare_tensor(tf.constant(X, gpflow.default_float()))
        mean, variance = self._predict(at, self._X, *self._pseudo)
        total = variance + self._prior.code_noise + pseudo[1]
        return tf.reduce_sum(gaussian_log_density(pseudo[0] - mean, total), -1).numpy()
