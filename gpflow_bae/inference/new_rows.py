"""Infer codes of new rows under a fitted GPLVM, with all other parameters held fixed."""

from __future__ import annotations

import copy
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ..base import Batch, Snapshot, VariationalModel, VariationalTerms
from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from ..data import Observations, SparseTable, mask_missing
from ..encoders import FreeFormEncoder
from ..guides import BoundGuide, FlowGuide
from ..models import StochasticGPLVM
from ..posteriors import GPLVMPosterior
from .optimise.relocation import best_codes
from .settings import VariationalSettings
from .variational import fit_variational

__all__ = ["latents_for_new"]

_NUM_CANDIDATES = 200
_DEFAULT = VariationalSettings(num_steps=500, learning_rate=0.05, final_learning_rate_fraction=0.05)


class _FrozenGPLVM(VariationalModel):
    """The bound of new rows as a function of the posterior of their codes only."""

    splits_over_outputs = True
    is_amortized = False

    def __init__(self, model: StochasticGPLVM, guide: BoundGuide):
        self.model, self.guide, self.decoder = model, guide, model.decoder

    @property
    def observation_likelihood(self) -> Any:
        return self.model.observation_likelihood

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        return self.guide.row_variables

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        return self.guide.row_variables

    def terms(
        self, batch: Batch, seed: tf.Tensor, snapshot: Snapshot | None = None
    ) -> VariationalTerms:
        draws = self.guide.draw(self.model.latent_prior, batch, self.model.num_draws or 1, seed)
        columns = None if batch.cells is None else batch.cells.columns
        mean, variance = self.decoder.moments(draws.latents[:, 0], columns)
        expected = self.model.expected_log_density(mean, variance, batch)
        return VariationalTerms(expected, draws.divergence, tf.reduce_mean(mean, 0, keepdims=True))


@check_arguments()
def latents_for_new(
    model: StochasticGPLVM,
    Ynew: Any,
    settings: VariationalSettings | None = None,
    *,
    seed: int = 0,
    progress: bool = False,
) -> GPLVMPosterior:
    """Infer codes of new, partly observed rows under a fitted GPLVM with everything else frozen.

    A free-form code starts at the code, among those of 200 random training rows, that explains the
    row best, and is fitted by Adam; a flow stays fixed. Codes of an encoder network need no fit.

    :param model: a :class:`~gpflow_bae.models.StochasticGPLVM`.
    :param Ynew: [N, P], NaN where missing, or a :class:`SparseTable` of as many columns.
    :param settings: settings of the fit; by default 500 steps on all rows.
    :return: the posterior of these rows, with predictions for their cells.
    :raises ValueError: for another number of columns, infinite values, or a row without any
        observation, whose codes would have the prior as their posterior.
    """
    data = Ynew if isinstance(Ynew, SparseTable) else _prepare(model, Ynew)
    if model.is_amortized:
        return GPLVMPosterior(model, data)
    start = _best_candidates(model, data, seed)
    encoder = FreeFormEncoder(1, data.num_items, model.latent_dim, start[None], 0.1)
    guide = copy.copy(model.guide)  # shares the flow
    guide.encoder = encoder
    frozen = _FrozenGPLVM(model, guide)
    fit_variational(frozen, data, settings or _DEFAULT, seed=seed, progress=progress)
    return GPLVMPosterior(model, data, guide)


def _prepare(model: Any, Ynew: Any) -> Observations:
    """Check new rows like ``prepare_data``, but allow columns without observations."""
    Y = as_numbers(Ynew, "Ynew", np.float32)
    P = model.decoder.output_dim
    if Y.ndim != 2 or Y.shape[1] != P:
        raise ValueError(f"Ynew must have shape [N, {P}], got {Y.shape}.")
    values, mask = mask_missing(Y[None], "Ynew")
    empty = np.flatnonzero(~mask[0].any(1))
    if empty.size:
        raise ValueError(
            f"Ynew has no observation in row(s) {empty[:10].tolist()}: their codes are the prior, "
            "N(0, I). Drop those rows."
        )
    return Observations(None, tf.constant(values), tf.constant(mask))


def _best_candidates(model: Any, data: Any, seed: int) -> np.ndarray:
    """Return, for each row, the training row's base code that explains it best, [N, L]."""
    means = np.asarray(model.guide.encoder.mean)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(means), min(_NUM_CANDIDATES, len(means)), replace=False)
    base = tf.constant(means[chosen], gpflow.default_float())
    codes = model.guide.flow.forward(base) if isinstance(model.guide, FlowGuide) else base
    best, _ = best_codes(model, data, codes)
    return base.numpy()[best]
