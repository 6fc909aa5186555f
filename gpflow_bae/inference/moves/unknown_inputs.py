"""A move of missing inputs given everything else, entry by entry."""

from __future__ import annotations

from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from ...base import Batch
from ...inputs import InputTable, MissingInputs, UniformOnCircle
from ...latent_priors.base import gaussian_log_density
from ...mcmc.noise import fold_in, split, standard_noise
from ...models import BayesianAutoencoder
from ..loops import repeat
from .base import Move, Moved

__all__ = ["UnknownInputs"]

_UPDATES = 8  # of each column in a round
_PRIOR_EVERY = 4  # a proposal is a prior draw with probability 1 / 4, else a random-walk step
_NARROWEST = 0.003  # smallest width of steps, in prior standard deviations; the largest is 1
_MOST_TURNS = 8  # largest number of entries of a task that multiplies _UPDATES


class UnknownInputs(Move):
    r"""Metropolis updates of missing inputs, which the sampler does not update.

    The conditional distribution of an entry of X is narrow and may have several modes (an angle and
    its opposite), so step sizes that suit networks are both too long and too short for it.
    Proposals are draws from its prior, and random-walk steps with random widths from 0.003 to 1
    prior standard deviations.

    If codes are independent given sampled inducing outputs, all entries of a column are updated at
    once, each with its own Metropolis test, alternating two updates: with the code fixed
    (accepted by :math:`p(latent | x)`), which suits codes with much noise, and with the code's
    residual :math:`(latent - m(x)) / \sqrt{v(x)}` fixed (accepted by :math:`p(y | latent)`), which
    suits codes with little. Under other priors one entry of each task is updated at a time, then
    two together, with the codes fixed. The chain seldom crosses between modes that differ in more
    than two entries of a task, or that are narrow because of many channels: run several chains and
    compare them.
    """

    name = "unknown_inputs"

    def __init__(self, model: BayesianAutoencoder):
        super().__init__(model)
        inputs, prior = model.inputs, model.latent_prior
        if not isinstance(inputs, MissingInputs):
            raise self._refuse("it has no inputs with missing entries (MissingInputs).")
        self.inputs = inputs
        numbers = {id(p): i for i, p in enumerate(self.sampled.parameters)}
        #: For each sampled column: its index in model.sampled, its table, tasks and points.
        self._columns = [
            (numbers[id(table.values)], table, inputs.places[np.asarray(own.rows)])
            for own, table in zip(inputs.columns, inputs.tables, strict=True)
            if id(table.values) in numbers
        ]
        self._apart = prior.splits_over_points

    @property
    def owned(self) -> tuple[str, ...]:
        return tuple(self.sampled.paths[number] for number, *_ in self._columns)

    def __call__(self, state: Moved, batch: Batch, seed: tf.Tensor) -> Moved:
        for number, table, places in self._columns:
            own_seed = fold_in(seed, number)
            of_column: Any = _IndependentPoints if self._apart else _CoupledPoints
            step = of_column(self.model, number, table, state, places=places, batch=batch)
            state = step(own_seed)
        return state


class _Proposal(NamedTuple):
    """Proposed entries."""

    values: tf.Tensor  # [H, 1]
    log_ratio: tf.Tensor  # [H], of the prior; 0 for proposals drawn from it
    log_uniform: tf.Tensor  # [H], accept if smaller than the log acceptance ratio


class _ColumnUpdate:
    """Updates of the H missing entries of one column, from a given state."""

    def __init__(self, model: BayesianAutoencoder, number: int, table: InputTable, state: Moved):
        """
        :param number: index of the values in ``model.sampled``.
        """
        self.model, self.number, self.table, self.state = model, number, table, state

    def _with(self, values: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return all parameters, with new entries [H, 1]."""
        parameters = list(self.state.parameters)
        parameters[self.number] = values
        return tuple(parameters)


class _IndependentPoints(_ColumnUpdate):
    """Updates for points whose codes are independent given inducing outputs."""

    def __init__(self, *arguments: Any, places: np.ndarray, batch: Batch):
        super().__init__(*arguments)
        self.places = tf.constant(places, tf.int32)
        self.bound = self.model.bind(self.state.parameters)
        assert batch.X is not None
        if batch.X.shape[0] < batch.Y.shape[0]:
            raise ValueError(
                "moves holds 'unknown_inputs', and tasks share the inputs that are missing as well "
                "as inducing outputs: give tasks inputs of their own, or "
                'inducing_outputs="integrated".'
            )
        gathered = (batch.X, self.state.codes, batch.Y, batch.mask)
        X, codes, Y, mask = (None if v is None else tf.gather_nd(v, places)[None] for v in gathered)
        self.X, self.codes, self.Y, self.mask = X, codes, Y, mask

    def _moments(self, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return prior moments [1, H, L] of the codes at entries [H, 1]."""
        return self.model.bind(self._with(values)).latent_prior.given_inducing_outputs(self.X)

    def _log_likelihood(self, codes: tf.Tensor) -> tf.Tensor:
        """Return the log likelihood [H] of the points at codes [1, H, L]."""
        found = self.bound.likelihood.masked_log_prob(
            self.bound.decode(self.X, codes), self.Y, self.mask
        )
        return tf.cast(found, codes.dtype)[0]

    def __call__(self, seed: tf.Tensor) -> Moved:
        values = self.state.parameters[self.number]
        mean, variance = self._moments(values)
        whitened = self.model.whitened_codes
        codes = mean + tf.sqrt(variance) * self.codes if whitened else self.codes
        start = (values, codes, mean, variance, self._log_likelihood(codes))

        def update(i: tf.Tensor, current: Any) -> Any:
            seeds = tf.unstack(split(fold_in(seed, i), 2))
            current = self._code_stays(current, seeds[0])
            return self._residual_stays(current, seeds[1])

        found = repeat(_UPDATES, update, start)
        values, codes, mean, variance, _ = found
        if whitened:
            codes = (codes - mean) / tf.sqrt(variance)
        all_codes = tf.tensor_scatter_nd_update(self.state.codes, self.places, codes[0])
        return self.state._replace(parameters=self._with(values), codes=all_codes)

    def _code_stays(self, current: Any, seed: tf.Tensor) -> Any:
        values, codes, mean, variance, weight = current
        offer = offered(values, self.table, seed)
        new_mean, new_variance = self._moments(offer.values)
        ratio = gaussian_log_density(codes - new_mean, new_variance)
        ratio -= gaussian_log_density(codes - mean, variance)
        yes = offer.log_uniform < tf.reduce_sum(ratio, -1)[0] + offer.log_ratio
        mean, variance = (
            tf.where(yes[None, :, None], new, old)
            for new, old in ((new_mean, mean), (new_variance, variance))
        )
        return tf.where(yes[:, None], offer.values, values), codes, mean, variance, weight

    def _residual_stays(self, current: Any, seed: tf.Tensor) -> Any:
        values, codes, mean, variance, weight = current
        offer = offered(values, self.table, seed)
        new_mean, new_variance = self._moments(offer.values)
        new_codes = new_mean + tf.sqrt(new_variance / variance) * (codes - mean)
        new_weight = self._log_likelihood(new_codes)
        yes = offer.log_uniform < new_weight - weight + offer.log_ratio
        codes, mean, variance = (
            tf.where(yes[None, :, None], new, old)
            for new, old in ((new_codes, codes), (new_mean, mean), (new_variance, variance))
        )
        values = tf.where(yes[:, None], offer.values, values)
        return values, codes, mean, variance, tf.where(yes, new_weight, weight)


class _CoupledPoints(_ColumnUpdate):
    """Updates for points that the prior couples with the others of their task."""

    def __init__(self, *arguments: Any, places: np.ndarray, batch: Batch):
        super().__init__(*arguments)
        self.X: Any = batch.X
        self.tasks = tf.constant(places[:, 0], tf.int32)
        most = int(np.bincount(places[:, 0]).max())
        self.updates = _UPDATES * min(most, _MOST_TURNS)

    def _log_density(self, values: tf.Tensor) -> tf.Tensor:
        """Return log densities [H] of the codes of each entry's task, given entries [H, 1]."""
        prior = self.model.bind(self._with(values)).latent_prior
        found = prior.log_prob(self.X, self.state.codes)
        if self.X.shape[0] == 1:  # all tasks share these inputs
            found = tf.reduce_sum(found, keepdims=True)
        return tf.gather(found, self.tasks)

    def _of_task(self, reduced: Any, values: tf.Tensor) -> tf.Tensor:
        """Reduce values [H] over the entries of each task; return the result at each entry [H]."""
        return tf.gather(reduced(values, self.tasks, int(self.X.shape[0])), self.tasks)

    def __call__(self, seed: tf.Tensor) -> Moved:
        values = self.state.parameters[self.number]
        count, num_tasks = int(values.shape[0]), int(self.X.shape[0])

        def update(i: tf.Tensor, current: Any) -> Any:
            values, weight = current
            seeds = tf.unstack(split(fold_in(seed, i), 3))
            offer = offered(values, self.table, seeds[0])
            keys = _uniform(seeds[1], count, values.dtype)
            first = self._of_task(tf.math.unsorted_segment_max, keys)
            second = self._of_task(
                tf.math.unsorted_segment_max, tf.where(keys < first, keys, tf.zeros_like(keys))
            )
            turn = keys >= tf.where(tf.equal(i % 2, 0), first, second)  # one or two of each task
            new = tf.where(turn[:, None], offer.values, values)
            new_weight = self._log_density(new)
            ratios = tf.where(turn, offer.log_ratio, tf.zeros_like(offer.log_ratio))
            ratio = new_weight - weight + self._of_task(tf.math.unsorted_segment_sum, ratios)
            uniform = tf.math.log(_uniform(seeds[2], num_tasks, values.dtype))
            yes = tf.gather(uniform, self.tasks) < ratio  # the same for all entries of a task
            weight = tf.where(yes, new_weight, weight)
            return tf.where((yes & turn)[:, None], offer.values, values), weight

        values, _ = repeat(self.updates, update, (values, self._log_density(values)))
        return self.state._replace(parameters=self._with(values))


def offered(values: tf.Tensor, table: InputTable, seed: tf.Tensor) -> _Proposal:
    """Propose prior draws for a fourth of the entries, else random-walk steps from ``values``."""
    prior, count, dtype = table.prior, int(values.shape[0]), values.dtype
    seeds = tf.unstack(split(seed, 5))
    spread = tf.cast(prior.stddev(), dtype)
    widths = spread * tf.exp(_uniform(seeds[0], count, dtype) * np.log(_NARROWEST))
    near = values + widths[:, None] * standard_noise([count, 1], seeds[1], dtype)
    if isinstance(prior, UniformOnCircle):
        near = prior.wrap(near)
    drawn = tf.cast(prior.sample([count, 1], seed=seeds[2]), dtype)
    is_drawn = _uniform(seeds[4], count, dtype) < 1.0 / _PRIOR_EVERY
    new = tf.where(is_drawn[:, None], drawn, near)
    # The proposal density of a prior draw cancels the prior in the acceptance ratio.
    ratio = (prior.log_prob(new) - prior.log_prob(values))[:, 0]
    ratio = tf.where(is_drawn, tf.zeros_like(ratio), tf.cast(ratio, dtype))
    return _Proposal(new, ratio, tf.math.log(_uniform(seeds[3], count, dtype)))


def _uniform(seed: tf.Tensor, count: int, dtype: tf.DType) -> tf.Tensor:
    """Return uniform numbers [count] in (0, 1), the same with and without XLA."""
    bits = tf.random.stateless_uniform(
        [count], seed, minval=0, maxval=2**31 - 1, dtype=tf.int32, alg="philox"
    )
    return (tf.cast(bits, gpflow.default_float()) + 0.5) / (2.0**31 - 1.0)
