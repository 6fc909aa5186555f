"""How a spatial autoencoder is fitted: its bound climbed, and its parameters sampled from there."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import tensorflow as tf
from gpflow import Parameter

from .. import inference, mcmc
from ..core.parameter_set import ParameterSet
from ..data import Observations, prepare_data
from ..inference import variational
from ..models import MeanFieldParameters, VariationalAutoencoder
from ..posteriors import Bank, Posterior
from .held_out import HeldOut, held_back
from .networks import cell_loadings
from .plans import SpatialPlan

__all__ = ["FoundFit", "fitted_posterior", "restart_seed"]

_FIRST_SCALE = 0.03  # of the parameters' Gaussians
_MOST_SEEDS = 2_000_000_000


class _Phase(NamedTuple):
    """Steps of one kind, of the model's parameters or of their Gaussians."""

    q: MeanFieldParameters | None
    fit: inference.VariationalFit


class _Climb:
    """A model on its way up its bound, or Gaussians of its parameters on theirs; traced once."""

    def __init__(
        self, model: VariationalAutoencoder, data: Observations, plan: SpatialPlan, gaussian: bool
    ):
        self._model, self._data, self._plan = model, data, plan
        self._gaussian = gaussian
        self._phases: dict[str, _Phase] = {}
        self._at: _Phase | None = None
        self.options: dict[str, Any] = {}
        self.label, self.seed = "", 0

    def _phase(self) -> _Phase:
        assert self._at is not None
        return self._at

    @property
    def fitted(self) -> Any:
        """What is fitted, the model or Gaussians."""
        return self._phase().fit.model

    def values(self) -> Sequence[Any]:
        """The model's unconstrained parameters, at present."""
        q = self._phase().q
        if q is None:
            return list(self._model.sampled.values())
        return [tf.convert_to_tensor(mean) for mean in q.means]

    def begin(self, name: str, number: int, scales: Mapping[int, Any] | None = None) -> None:
        """So many steps are to come, of Gaussians around the parameters, if there are to be any.

        :param name: of the phase, in which the same parameters are trainable every time.
        :param scales: of some Gaussians, by the parameter's ``id``.
        """
        found = self._phases.get(name)
        if found is None:
            size = self._data.num_points
            settings = self._plan.settings(size, number)
            q = MeanFieldParameters(self._model, size, _FIRST_SCALE) if self._gaussian else None
            fit = inference.VariationalFit(q or self._model, self._data, settings, seed=self.seed)
            found = self._phases[name] = _Phase(q, fit)
        self._at = found
        if found.q is not None:
            sampled = self._model.sampled
            for mean, value in zip(found.q.means, sampled.values(), strict=True):
                mean.assign(value)
            for parameter, scale in zip(sampled.parameters, found.q.scales, strict=True):
                first = np.full(scale.shape, _FIRST_SCALE)
                scale.assign((scales or {}).get(id(parameter), first))
        found.fit.refit(self.seed)

    def steps(self, out_dir: str | None, callback: Any = None, label: str = "") -> np.ndarray:
        """All steps of the phase; their losses."""
        fit = self._phase().fit
        fit.label = self.label + label
        return variational.climb(fit, out_dir=out_dir, callback=callback, **self.options)

    def without(
        self, parameter: Parameter, number: int, out_dir: str | None
    ) -> tuple[np.ndarray, dict[int, Any]]:
        """Steps with a parameter at zero, which then is what it was.

        :return: their losses, and the scales of the others' Gaussians, by ``id``.
        """
        values = parameter.numpy()
        parameter.assign(np.zeros_like(values))
        gpflow.set_trainable(parameter, False)
        self.begin("without", number)
        losses = self.steps(out_dir, label=", places first")
        scales: dict[int, Any] = {}
        q = self._phase().q
        if q is not None:
            scales = dict(zip(map(id, self._model.sampled.parameters), q.scales, strict=True))
            self._model.sampled.assign(self.values())
        gpflow.set_trainable(parameter, True)
        parameter.assign(values)
        return losses, scales

    def ended(self) -> list[np.ndarray] | None:
        """Means into the model; draws of its parameters, if those have Gaussians."""
        q = self._phase().q
        if q is None:
            return None
        draws = q.draws(self._plan.num_draws, self.seed)
        self._model.sampled.assign(self.values())
        return draws


class FoundFit(NamedTuple):
    """Fits, whose samples are the posterior's chains; losses of the steps of the first, and scores
    of places that were held back from it, if any were.
    """

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
    """Climbs the bound, of parameters or of their Gaussians, and samples them from there if asked.

    As often as the plan has restarts, from first weights of their own.

    :param build: makes a model, with random first weights.
    :param data: X [N, D + 2] and counts [N, P], an array or a sparse matrix.
    :param options: of :class:`_Fits`.
    """
    fits: _Fits | None = None
    found: list[FoundFit] = []
    first: Sequence[tf.Tensor] = ()
    plans = plan.of_restarts(len(data[0]))
    for number, part in enumerate(plans):
        own = restart_seed(seed, number)
        keras.utils.set_random_seed(own)
        fresh = build()
        if fits is None:
            fits = _Fits(fresh, data, part, held_back_by=seed, **options)
        else:  # one model, whose steps are traced
            fits.parameters.assign(ParameterSet(fresh).values())
        folder = None if out_dir is None else pathlib.Path(out_dir)
        if folder is not None and number:
            folder /= f"restart_{number}"
        found.append(fits.once(own, folder, f"fit {number + 1} of {len(plans)}"))
        first = first or fits.parameters.values()
    assert fits is not None
    fits.parameters.assign(first)
    if len(found) == 1:
        return found[0]
    bank = Bank.pool(*(each.posterior.bank for each in found))
    return found[0]._replace(posterior=Posterior(fits.model, bank, fits.everything))


def restart_seed(seed: int, number: int) -> int:
    """Of a fit among several; the first is the fit without restarts.

    In 32 bits with room to spare, as engines want seeds.
    """
    if number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0] >> 1) % _MOST_SEEDS


class _Fits:
    """Fits of one model, which differ by its values at the start and by their seeds.

    Channels of cells come in when those of space have found what they can: counts can be explained
    by either, and what channels of cells have learnt first says nothing of other places.
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
        :param held_back_by: seed of which places early stopping holds back.
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
            rest, asked = held_back(number, plan.validation_fraction, held_back_by)
            self._kept, self._others = ((data[0][rows], data[1][rows]) for rows in (rest, asked))
            fitted_to = prepare_data(model, self._kept)
        gaussian = plan.has_gaussian_parameters(number)  # by all cells
        self._climb = _Climb(model, fitted_to, plan, gaussian)
        self._climb.options = {"progress": progress, "resume": resume}
        self._held: HeldOut | None = None

    def once(self, seed: int, folder: pathlib.Path | None, label: str) -> FoundFit:
        """A fit from the model's values."""

        def within(name: str) -> str | None:
            return None if folder is None else os.path.join(folder, name)

        climb, losses, scales = self._climb, [], None
        climb.seed, climb.label = seed, label
        if self._cells is not None:
            found, scales = climb.without(self._cells, self._first, within("space"))
            losses.append(found)
        climb.begin("all", self._rest, scales)
        held = self._held_out()
        losses.append(climb.steps(within("variational"), None if held is None else held.enough))
        scores = None
        if held is not None:
            held.restore()
            scores = np.array(held.scores)
        draws = climb.ended()
        trace = np.concatenate(losses)
        if not self._sampled:
            return FoundFit(Posterior.from_point(self.model, self.everything, draws), trace, scores)
        posterior = inference.sample_amortized(
            self.model,
            self.everything,
            self._plan.sampling(self.everything.num_points),
            sampler=mcmc.adaptive_sghmc.build(step_size=self._plan.step_size),
            warm_start=None,
            seed=seed,
            out_dir=within("sampled"),
            **climb.options,
        )
        return FoundFit(posterior, trace, scores)

    def _held_out(self) -> HeldOut | None:
        """Cells that are held back, if any are, without scores."""
        if self._others is None:
            return None
        if self._held is None:
            climb, kept = self._climb, self._kept
            self._held = HeldOut(
                self.model, climb.fitted, climb.values, kept, self._others, self._plan.patience
            )
        self._held.begin()
        return self._held
