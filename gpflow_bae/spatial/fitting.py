"""Fit a spatial autoencoder: maximise its bound, and optionally sample its parameters."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf

from .. import inference
from ..core.parameter_set import ParameterSet
from ..data import prepare_data
from ..inference.optimise.phased_fit import PhasedFit
from ..inference.starts.restarts import fresh_starts, restart_seed
from ..models import VariationalAutoencoder
from ..posteriors import Bank, Posterior
from .held_out import HeldOut, held_back
from .networks import cell_loadings
from .plans import SpatialPlan

__all__ = ["FoundFit", "check_descended", "counts_per_gene", "fitted_posterior"]


class FoundFit(NamedTuple):
    """Posterior of all fits, a chain for each; losses and held-out scores of the first fit."""

    posterior: Posterior
    losses: np.ndarray
    scores: np.ndarray | None


def fitted_posterior(
    build: Callable[[], VariationalAutoencoder],
    data: tuple[np.ndarray, Any],
    plan: SpatialPlan,
    *,
    seed: int,
    out_dir: str | os.PathLike[str] | None,
    **options: Any,
) -> FoundFit:
    """Fit parameters, or Gaussians of them, to the bound, and optionally sample the parameters.

    The fit is made once for each of the plan's restarts, from different initial weights.

    :param build: builds a model with random initial weights.
    :param data: X [N, D + K + 2] and counts [N, P], an array or a sparse matrix.
    :param options: arguments of :class:`_Fits`.
    """
    plans = plan.of_restarts(len(data[0]))
    fits = _Fits(build(), data, plans[0], held_back_by=seed, **options)
    starts = fresh_starts(
        lambda own: ParameterSet(build()).values(),
        [restart_seed(seed, number) for number in range(len(plans))],
    )
    found: list[FoundFit] = []
    first: Sequence[tf.Tensor] = ()
    for number, (own, values) in enumerate(starts):
        fits.parameters.assign(values)  # all fits use one model, whose steps are traced once
        folder = None if out_dir is None else pathlib.Path(out_dir)
        if folder is not None and number:
            folder /= f"restart_{number}"
        found.append(fits.once(own, folder, f"fit {number + 1} of {len(plans)}"))
        first = first or fits.parameters.values()
    fits.parameters.assign(first)
    if len(found) == 1:
        return found[0]
    bank = Bank.pool(*(each.posterior.bank for each in found))
    return found[0]._replace(posterior=Posterior(fits.model, bank, fits.everything))


def check_descended(losses: np.ndarray) -> None:
    """Check that a fit ended no higher than it began; its losses are not negative.

    :param losses: mean losses of blocks of steps.
    :raises FloatingPointError: if it ended more than a tenth higher.
    """
    if len(losses) and losses[-1] > 1.1 * losses[0]:
        raise FloatingPointError(
            f"The fit diverged: its loss per cell rose from {losses[0]:.4g} to {losses[-1]:.4g}. "
            "The AnnData object is as it was. Try another seed, or leave out genes and cells whose "
            "counts are far above those of all others."
        )


def counts_per_gene(counts: Any) -> float:
    """Return the sum of counts [N, P], an array or a sparse matrix, NaN where hidden, over P."""
    stored = counts.data if scipy.sparse.issparse(counts) else counts
    return float(np.nansum(stored, dtype=float)) / counts.shape[1]


class _Fits:
    """Fits of one model from different initial values and with different seeds.

    Channels of cells are added after channels of space have been fitted: counts can be explained by
    either, and what channels of cells explain does not predict other places.
    """

    def __init__(
        self,
        model: VariationalAutoencoder,
        data: tuple[np.ndarray, Any],
        plan: SpatialPlan,
        *,
        num_steps: int,
        sampled: bool,
        early_stopping: bool,
        held_back_by: int,
        progress: bool,
        resume: bool,
    ):
        """
        :param held_back_by: seed of the choice of places that early stopping holds out.
        """
        number = len(data[0])
        self.model, self._plan, self._sampled = model, plan, sampled
        self.parameters = ParameterSet(model)
        self.everything = prepare_data(model, data)
        self._first = round(plan.space_first * num_steps)
        self._cells = cell_loadings(model.decoder) if self._first else None
        self._rest = num_steps if self._cells is None else num_steps - self._first
        self._kept, self._others = data, None
        fitted_to = self.everything
        if early_stopping:
            rest, asked = held_back(number, held_back_by)
            self._kept, self._others = ((data[0][rows], data[1][rows]) for rows in (rest, asked))
            fitted_to = prepare_data(model, self._kept)
        # Decided by all cells, those included that are held out.
        gaussian = plan.has_gaussian_parameters(number, counts_per_gene(data[1]))
        self._options: dict[str, Any] = {"progress": progress, "resume": resume}
        self._climb = PhasedFit(model, fitted_to, gaussian=gaussian, **self._options)
        self._settings = {
            name: plan.settings(fitted_to.num_points, data[1].shape[1], steps)
            for name, steps in (("first", self._first), ("rest", self._rest))
            if steps
        }
        self._held: HeldOut | None = None

    def once(self, seed: int, folder: pathlib.Path | None, label: str) -> FoundFit:
        """Make one fit from the model's current values."""

        def within(name: str) -> str | None:
            return None if folder is None else os.path.join(folder, name)

        climb, losses, scales = self._climb, [], None
        climb.seed, climb.label = seed, label
        if self._cells is not None:
            found, scales = climb.steps_without(
                self._cells, self._settings["first"], within("space"), ", places first"
            )
            losses.append(found)
        climb.begin("all", self._settings["rest"], scales)
        held = self._held_out()
        losses.append(climb.steps(within("variational"), None if held is None else held.enough))
        scores = None
        if held is not None:
            held.restore()
            scores = np.array(held.scores)
        draws = climb.finish(self._plan.num_draws)
        trace = np.concatenate(losses)
        check_descended(trace)
        if not self._sampled:
            return FoundFit(Posterior.from_point(self.model, self.everything, draws), trace, scores)
        posterior = inference.sample_amortized(
            self.model,
            self.everything,
            self._plan.rounds(*self.everything.Y.shape[-2:]),
            warm_start=None,
            seed=seed,
            out_dir=within("sampled"),
            **self._options,
        )
        return FoundFit(posterior, trace, scores)

    def _held_out(self) -> HeldOut | None:
        """Return the held-out cells, if there are any, with their scores reset."""
        if self._others is None:
            return None
        if self._held is None:
            climb, kept = self._climb, self._kept
            self._held = HeldOut(self.model, climb.fitted, climb.values, kept, self._others)
        self._held.begin()
        return self._held
