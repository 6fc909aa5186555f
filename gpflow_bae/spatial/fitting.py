"""How a spatial autoencoder is fitted: its bound climbed, and its parameters sampled from there."""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import scipy.sparse
import tensorflow as tf
from gpflow import Parameter

from .. import inference, mcmc
from ..data import Observations, mask_missing, prepare_data
from ..models import MeanFieldParameters, VariationalAutoencoder
from ..posteriors import Bank, Posterior
from ..posteriors.conditionals import latent_given_pseudo, log_density_of
from ..tracing import compiled
from .networks import cell_loadings
from .plans import SpatialPlan

__all__ = ["FoundFit", "fitted_posterior", "restart_seed"]

_MOST_GIVEN, _MOST_ASKED = 20_000, 1000  # cells by which held-out ones are predicted, and of those
_CODES = 32
_FIRST_SCALE = 0.03  # of the parameters' Gaussians
_MOST_SEEDS = 2_000_000_000


class _HeldOut:
    """Density of cells at places that a fit does not see, and its best values so far."""

    def __init__(
        self,
        model: VariationalAutoencoder,
        fitted: Any,
        values: Callable[[], Sequence[Any]],
        data: Any,
        held: Any,
        patience: int,
    ):
        """
        :param fitted: what is fitted, the model or Gaussians of its parameters.
        :param values: the model's unconstrained parameters, at present.
        :param data: X [N, D + 2] and counts [N, P] that are fitted to.
        :param held: the same of the others.
        :param patience: calls without a better density after which it is enough.
        """
        self._fitted, self._patience = fitted, patience
        self.scores: list[float] = []
        self._best, self._best_values = -math.inf, self._values()
        given = prepare_data(model, tuple(_some(v, _MOST_GIVEN) for v in data))
        X, Y = (_some(v, _MOST_ASKED) for v in held)
        counts, seen = mask_missing((Y.toarray() if scipy.sparse.issparse(Y) else Y)[None])
        at = tf.constant(X[None])

        def density() -> tf.Tensor:
            parameters, weights = list(values()), list(model.amortized.variables)
            seed = tf.constant([0, 0x4E1D])
            moments = latent_given_pseudo(
                model, parameters, weights, seed, (given.X, given.Y, given.mask), at, 1
            )
            cells = log_density_of(
                model, parameters, weights, moments, seed, at, tf.constant(counts),
                tf.constant(seen), _CODES, True, True,
            )  # fmt: skip
            weight = tf.cast(seen, cells.dtype)
            return tf.reduce_sum(cells * weight) / tf.reduce_sum(weight)

        self._density = compiled(density)

    def _values(self) -> list[np.ndarray]:
        return [v.numpy() for v in self._fitted.variables]

    def enough(self, number: int, loss: float) -> bool:
        """After each call of a fit: whether its last ones were no better."""
        self.scores.append(float(self._density()))
        if self.scores[-1] > self._best:
            self._best, self._best_values = self.scores[-1], self._values()
        since = len(self.scores) - 1 - int(np.argmax(self.scores))
        return since >= self._patience

    def restore(self) -> None:
        """The best values, into the model."""
        for variable, value in zip(self._fitted.variables, self._best_values, strict=True):
            variable.assign(value)


def _some(values: Any, most: int) -> Any:
    """Rows at equal distances, of all places as rows are in their order."""
    return values[:: -(-values.shape[0] // most)]


class _Climb:
    """A model on its way up its bound, or Gaussians of its parameters on theirs."""

    def __init__(
        self,
        model: VariationalAutoencoder,
        data: Observations,
        plan: SpatialPlan,
        gaussian: bool,
        options: dict[str, Any],
        label: str,
    ):
        self._label = label
        self._model, self._data, self._plan, self._options = model, data, plan, options
        self._gaussian = gaussian
        self._q: MeanFieldParameters | None = None

    @property
    def fitted(self) -> Any:
        """What is fitted."""
        return self._model if self._q is None else self._q

    def values(self) -> Sequence[Any]:
        """The model's unconstrained parameters, at present."""
        if self._q is None:
            return list(self._model.sampled.values())
        return [tf.convert_to_tensor(mean) for mean in self._q.means]

    def begin(self, scales: Mapping[int, Any] | None = None) -> None:
        """Gaussians, if there are to be any, around the parameters that are trainable.

        :param scales: of some of them, by the parameter's ``id``.
        """
        if not self._gaussian:
            return
        self._q = MeanFieldParameters(self._model, self._data.num_points, _FIRST_SCALE)
        for parameter, scale in zip(self._model.sampled.parameters, self._q.scales, strict=True):
            scale.assign((scales or {}).get(id(parameter), scale))

    def steps(
        self, number: int, out_dir: str | None, callback: Any = None, label: str = ""
    ) -> np.ndarray:
        """So many steps; their losses."""
        size = self._data.num_points
        return inference.fit_variational(
            self.fitted,
            self._data,
            self._plan.settings(size, number),
            out_dir=out_dir,
            callback=callback,
            label=self._label + label,
            **self._options,
        )

    def without(self, parameter: Parameter, number: int, out_dir: str | None) -> np.ndarray:
        """Steps with a parameter at zero, which then is what it was, and begins anew."""
        values = parameter.numpy()
        parameter.assign(np.zeros_like(values))
        gpflow.set_trainable(parameter, False)
        self.begin()
        losses = self.steps(number, out_dir, label=", places first")
        known: dict[int, Any] = {}
        if self._q is not None:
            known = dict(zip(map(id, self._model.sampled.parameters), self._q.scales, strict=True))
            self._take_means(self._q)
        gpflow.set_trainable(parameter, True)
        parameter.assign(values)
        self.begin(known)
        return losses

    def ended(self, seed: int) -> list[np.ndarray] | None:
        """Means into the model; draws of its parameters, if those have Gaussians."""
        if self._q is None:
            return None
        draws = self._q.draws(self._plan.num_draws, seed)
        self._take_means(self._q)
        return draws

    def _take_means(self, q: MeanFieldParameters) -> None:
        for parameter, mean in zip(self._model.sampled.parameters, q.means, strict=True):
            parameter.unconstrained_variable.assign(mean)


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
    :param options: of :func:`_fitted_once`.
    """
    found: list[FoundFit] = []
    everything = None
    plans = plan.of_restarts(len(data[0]))
    for number, part in enumerate(plans):
        own = restart_seed(seed, number)
        keras.utils.set_random_seed(own)
        model = build()
        if everything is None:
            everything = prepare_data(model, data)
        folder = None if out_dir is None else pathlib.Path(out_dir)
        if folder is not None and number:
            folder /= f"restart_{number}"
        found.append(
            _fitted_once(
                model, everything, data, part,
                seed=own, held_back_by=seed, folder=folder,
                label=f"fit {number + 1} of {len(plans)}", **options,
            )
        )  # fmt: skip
    first = found[0]
    if len(found) == 1:
        return first
    bank = Bank.pool(*(each.posterior.bank for each in found))
    posterior = Posterior(first.posterior.model, bank, everything)
    return first._replace(posterior=posterior)


def restart_seed(seed: int, number: int) -> int:
    """Of a fit among several; the first is the fit without restarts.

    In 32 bits with room to spare, as engines want seeds.
    """
    if number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0] >> 1) % _MOST_SEEDS


def _fitted_once(
    model: VariationalAutoencoder,
    everything: Observations,
    data: tuple[np.ndarray, Any],
    plan: SpatialPlan,
    *,
    num_steps: int,
    sampled: bool,
    early_stopping: bool,
    seed: int,
    held_back_by: int,
    progress: bool,
    folder: pathlib.Path | None,
    label: str,
    resume: bool,
) -> FoundFit:
    """A fit from the model's first weights.

    Channels of cells come in when those of space have found what they can: counts can be explained
    by either, and what channels of cells have learnt first says nothing of other places.

    :param everything: what :func:`~gpflow_bae.data.prepare_data` made of ``data``.
    :param held_back_by: seed of which places early stopping holds back.
    """
    number = len(data[0])

    def within(name: str) -> str | None:
        return None if folder is None else os.path.join(folder, name)

    options: dict[str, Any] = {"seed": seed, "progress": progress, "resume": resume}
    kept, others = data, None
    if early_stopping:
        rest, asked = _held_back(number, plan.validation_fraction, held_back_by)
        kept, others = ((data[0][rows], data[1][rows]) for rows in (rest, asked))
    fitted_to = everything if others is None else prepare_data(model, kept)
    climb = _Climb(model, fitted_to, plan, plan.has_gaussian_parameters(number), options, label)
    first, losses = round(plan.space_first * num_steps), []
    cells = cell_loadings(model.decoder) if first else None
    if cells is None:
        climb.begin()
    else:
        losses.append(climb.without(cells, first, within("space")))
        num_steps -= first
    held, callback = None, None
    if others is not None:
        held = _HeldOut(model, climb.fitted, climb.values, kept, others, plan.patience)
        callback = held.enough
    losses.append(climb.steps(num_steps, within("variational"), callback))
    scores = None
    if held is not None:
        held.restore()
        scores = np.array(held.scores)
    draws = climb.ended(seed)
    trace = np.concatenate(losses)
    if not sampled:
        return FoundFit(Posterior.from_point(model, everything, draws), trace, scores)
    posterior = inference.sample_amortized(
        model,
        everything,
        plan.sampling(number),
        sampler=mcmc.adaptive_sghmc.build(step_size=plan.step_size),
        warm_start=None,
        out_dir=within("sampled"),
        **options,
    )
    return FoundFit(posterior, trace, scores)


def _held_back(number: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are fitted to, and others, at least one of either."""
    order = np.random.default_rng([seed, 0x4E1D]).permutation(number)
    count = min(max(1, round(fraction * number)), number - 1)
    return np.sort(order[count:]), np.sort(order[:count])
