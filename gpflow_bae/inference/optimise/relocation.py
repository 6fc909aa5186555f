"""Move free-form codes of a GPLVM to where the decoder explains their rows best."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ...base import Batch
from ...core.annotations import check_arguments
from ...data import Observations, prepare_data
from ...encoders import FreeFormEncoder
from ...guides import MeanFieldGuide, PointEstimate
from ...mcmc.noise import standard_noise
from ...models import StochasticGPLVM
from .input_relocation import has_relocatable_inputs, relocate_inputs

__all__ = ["Relocations", "best_codes", "expected_log_likelihoods", "relocate_codes"]

NUM_CANDIDATES = 1000
_SHARE = 0.8  # first part of a fit's steps, with relocations; codes converge in the rest
_INPUT_RELOCATIONS = 8  # default number for missing inputs
_ROUNDING = 1e-3  # nats; smaller gains may be rounding errors
_MAX_ELEMENTS = 2**22  # of an array over candidates, rows and cells: 32 MB


def best_codes(
    model: StochasticGPLVM, data: Any, codes: tf.Tensor, weights: Any = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the candidate code that explains each row best, and its score.

    :param data: rows, as :func:`gpflow_bae.data.prepare_data` returns them.
    :param codes: candidates [C, L], the same for all rows.
    :param weights: terms [C] that are added to the log likelihoods, such as a log prior.
    :return: indices [N] of candidates, and their E_q(f)[log p(y_n | f(code))] + weight, in nats.
    """
    mean, variance = model.predict_f(codes)  # [C, P]
    size = max(1, _MAX_ELEMENTS // int(mean.shape[0] * mean.shape[1]))
    indices, values = [], []
    for start in range(0, data.num_items, size):
        batch = data.gather(tf.range(start, min(start + size, data.num_items)))
        scores = expected_log_likelihoods(model, batch, mean, variance) + weights
        indices.append(tf.argmax(scores, -1).numpy())
        values.append(tf.reduce_max(scores, -1).numpy())
    return np.concatenate(indices), np.concatenate(values)


def expected_log_likelihoods(
    model: StochasticGPLVM, batch: Batch, mean: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    """Return E[log p(y_n | f)] [B, C] of rows, for f with moments [C, P] at the candidates."""
    likelihood = model.likelihood
    if batch.cells is None and isinstance(likelihood, gpflow.likelihoods.Gaussian):
        noise = likelihood.variance
        if noise is not None:
            return _gaussian_scores(batch, mean, variance, tf.convert_to_tensor(noise))
    if batch.cells is None:
        f_mean, f_variance = mean[:, None], variance[:, None]  # [C, 1, P]
    else:
        f_mean, f_variance = (tf.gather(v, batch.cells.columns, axis=1) for v in (mean, variance))
    shape = tf.concat([tf.shape(f_mean)[:1], tf.shape(batch.Y)[1:]], 0)
    f_mean, f_variance = (tf.broadcast_to(v, shape) for v in (f_mean, f_variance))
    return tf.transpose(tf.reduce_sum(model.expected_entries(f_mean, f_variance, batch), -1))


def _gaussian_scores(
    batch: Batch, mean: tf.Tensor, variance: tf.Tensor, noise: tf.Tensor
) -> tf.Tensor:
    """Return scores [B, C] under a Gaussian by matrix products, from the expanded square."""
    Y = tf.cast(batch.Y[0], mean.dtype)
    seen = tf.ones_like(Y) if batch.mask is None else tf.cast(batch.mask[0], mean.dtype)
    Y = Y * seen
    squares = tf.matmul(seen, tf.square(mean) + variance, transpose_b=True)
    squares += tf.reduce_sum(tf.square(Y), -1, keepdims=True) - 2.0 * tf.matmul(
        Y, mean, transpose_b=True
    )
    constant = -0.5 * tf.reduce_sum(seen, -1, keepdims=True) * tf.math.log(2.0 * np.pi * noise)
    return constant - 0.5 * squares / noise


@check_arguments(num_candidates=1, seed=0)
def relocate_codes(
    model: StochasticGPLVM, data: Any, *, num_candidates: int = NUM_CANDIDATES, seed: int = 0
) -> float:
    r"""Move free-form codes to candidates with a higher density, to escape local optima.

    Gradients do not move a code across regions of low density. For each row this draws candidates
    :math:`x_c` from the prior and takes the one with the largest
    :math:`E_{q(f)}[\log p(y_n | f(x_c))] + \log p(x_c)`, if that is larger than at the current
    mean. Variances stay. With many latent dimensions hardly any draw is better.

    :param model: a GPLVM with a free Gaussian, or a free point, for each row: a
        :class:`~gpflow_bae.encoders.FreeFormEncoder` in a
        :class:`~gpflow_bae.guides.MeanFieldGuide` or :class:`~gpflow_bae.guides.PointEstimate`.
    :param data: its rows, ``(None, Y)`` or as :func:`gpflow_bae.data.prepare_data` returns them.
    :param num_candidates: number of draws; the cost is proportional to it times rows times columns.
    :return: the share of the rows whose code moved.
    :raises TypeError: for other models, guides or encoders.
    """
    check_relocatable(model)
    data = prepare_data(model, data)
    means = model.guide.encoder.mean
    noise = tf.constant([seed, 0x4E10], tf.int32)
    drawn = standard_noise([num_candidates, model.latent_dim], noise, means.dtype)
    own = tf.convert_to_tensor(means)
    new, there = best_codes(model, data, drawn, -0.5 * tf.reduce_sum(tf.square(drawn), -1))
    here = _own_scores(model, data, own) - 0.5 * np.square(own.numpy()).sum(-1)
    moved = there > here + _ROUNDING
    means.assign(np.where(moved[:, None], drawn.numpy()[new], own.numpy()))
    return float(moved.mean())


def _own_scores(model: StochasticGPLVM, data: Any, codes: tf.Tensor) -> np.ndarray:
    """Return E[log p(y_n | f(x_n))] [N] of each row at its own code."""
    values = []
    for start in range(0, data.num_items, 1024):
        rows = tf.range(start, min(start + 1024, data.num_items))
        batch = data.gather(rows)
        columns = None if batch.cells is None else batch.cells.columns
        mean, variance = model.decoder.moments(tf.gather(codes, rows)[None], columns)
        entries = model.expected_entries(mean, variance, batch)
        values.append(tf.reduce_sum(entries[0], -1).numpy())
    return np.concatenate(values)


def check_relocatable(model: Any) -> None:
    """Check that :func:`relocate_codes` supports the model.

    :raises TypeError: if it does not, with the models that it supports.
    """
    words = "codes can be relocated where each row has its own, in a StochasticGPLVM with "
    words += (
        "MeanFieldGuide(FreeFormEncoder(...)) or PointEstimate(FreeFormEncoder(...)), not in a "
    )
    if not isinstance(model, StochasticGPLVM):
        raise TypeError(f"{words}{type(model).__name__}: leave relocations out.")
    free = isinstance(model.guide.encoder, FreeFormEncoder)
    if not free or not isinstance(model.guide, (MeanFieldGuide, PointEstimate)):
        raise TypeError(
            f"{words}StochasticGPLVM with {type(model.guide).__name__}("
            f"{type(model.guide.encoder).__name__}(...)): leave relocations out, or fit such codes "
            "first and then others from there."
        )


class Relocations:
    """Relocations of codes or missing inputs, evenly spaced over the first four fifths of a fit."""

    def __init__(self, model: Any, data: Any, count: int | None, num_steps: int, seed: int):
        """
        :param count: number of relocations; None for 8 with missing inputs, and else 0.
        :raises TypeError: for codes that cannot be relocated.
        """
        self._of_inputs = has_relocatable_inputs(model) and isinstance(data, Observations)
        if count is None:
            count = _INPUT_RELOCATIONS if self._of_inputs else 0
        if count and not self._of_inputs:
            check_relocatable(model)
        self._model, self._data, self._seed = model, data, seed
        self.count, self._period = count, _SHARE * num_steps / max(count, 1)

    def after(self, before: int, now: int) -> None:
        """Relocate once if a relocation is due after a block of steps.

        :param before, now: numbers of steps before and after the block.
        """
        done, due = (min(self.count, int(n / self._period + 1e-9)) for n in (before, now))
        if due > done:
            seed = (1009 * self._seed + due) % 2_000_000_000  # differs between relocations
            relocate = relocate_inputs if self._of_inputs else relocate_codes
            relocate(self._model, self._data, seed=seed)
