"""Fit hyperparameters of a linear model of coregionalisation by L-BFGS on blocks of rows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from tqdm.auto import tqdm

from ...core.annotations import check_arguments, check_fields
from ...core.arguments import kind_of
from ...core.row_blocks import in_threads
from ...core.tracing import compiled
from ...data import MultiOutputTable, hold_out
from ...data.blocks import Block, block_at, joined, places_of_blocks
from ...models import LinearCoregionalisation
from ...posteriors import CoregionalisationPosterior
from ...posteriors.coregionalisation import SIGNATURE, as_table
from ..runs.progress import shows_bars
from .lbfgs import assign_vector, lbfgs, loss_with_gradient, vector_of

__all__ = ["BlockFit", "fit_coregionalisation"]

_HIDDEN = 0.15  # share of the cells that are hidden from a block and predicted
_MASKS = 4  # number of different sets of hidden cells in a fit

#: Values of some parameters, from which a fit may start.
Start: TypeAlias = Sequence[tuple[Parameter, np.ndarray]]

#: Given a seed, returns a table with further cells hidden, or None if too few are left.
Hide: TypeAlias = Callable[[int], MultiOutputTable | None]


@dataclasses.dataclass(frozen=True)
class BlockFit:
    """Settings of a fit of a linear model of coregionalisation to blocks of neighbouring rows."""

    num_steps: int = 40
    """Number of L-BFGS steps."""
    cells_per_fit_block: int = 350
    """Observed cells in a block of the fit."""
    cells_in_fit: int | None = None
    """Observed cells in all blocks with hidden cells; those of the density have half as many.

    None for 1,200 for each output, at least 8,000 and at most 24,000: with more outputs there are
    more parameters.
    """
    cells_per_block: int = 900
    """Observed cells that a prediction is conditioned on."""

    def __post_init__(self) -> None:
        check_fields(self, num_steps=1, cells_per_fit_block=1, cells_in_fit=1, cells_per_block=1)

    def for_outputs(self, num_outputs: int) -> BlockFit:
        """Return these settings with the number of cells for a table of so many outputs."""
        if self.cells_in_fit is not None:
            return self
        return dataclasses.replace(self, cells_in_fit=min(max(1_200 * num_outputs, 8_000), 24_000))


@check_arguments()
def fit_coregionalisation(
    model: LinearCoregionalisation,
    data: Any,
    settings: BlockFit | None = None,
    *,
    seed: Any = 0,
    progress: bool = True,
    starts: Any = ((),),
    hide: Hide | None = None,
) -> CoregionalisationPosterior:
    """Fit a model's hyperparameters to the density of blocks and to predictions of hidden cells.

    The objective is the mean log density of observed cells, plus the mean log predictive density of
    hidden cells given the observed ones around them, with equal weights, plus the log prior. The
    density alone is dominated by changes from one row to the next, while long gaps are filled from
    slow components; for a misspecified model, as with real data, the two have different optima. So
    the fit includes predictions of gaps (Rasmussen and Williams 2006, section 5.4.2, with gaps
    instead of single cells); the density prevents overfitting of small data sets.

    :param model: changed in place; the posterior holds it.
    :param data: ``(X, Y)``: inputs [N, D] or [T, N, D], and outputs [N, P] or [T, N, P], about
        standardised, NaN where missing; or a :class:`~gpflow_bae.data.MultiOutputTable`. Tasks are
        independent given the hyperparameters.
    :param settings: :class:`BlockFit` with its defaults if None.
    :param seed: seed of blocks and hidden cells, or a ``numpy.random.Generator``.
    :param progress: whether to show a progress bar.
    :param starts: initial points, each a sequence of (parameter, value) pairs; the one with the
        best objective is used. The default is the model's current values.
    :param hide: returns the table with further cells hidden, given a seed; by default 15 % of each
        output at random. If gaps are long, hide gaps of the same length.
    :return: posterior that predicts ``data`` and other rows
        (:meth:`CoregionalisationPosterior.predict_y`).
    :raises TypeError: if ``model`` is not a ``LinearCoregionalisation``.
    :raises ValueError: for data of other shapes, or without an observation.
    """
    if not isinstance(model, LinearCoregionalisation):
        raise TypeError(f"model must be a LinearCoregionalisation, got {kind_of(model)}.")
    table = as_table(data, model.num_outputs)
    settings = (BlockFit() if settings is None else settings).for_outputs(model.num_outputs)
    if table is not data:  # the caller has checked the inputs of a table
        model.check_inputs(table.X[table.rows])
    if not table.observed.any():
        raise ValueError("Y has no observation, so there is nothing to fit a model to.")
    rng = np.random.default_rng(seed)
    hide = functools.partial(_hidden_at_random, table) if hide is None else hide
    blocks = _density_blocks(settings, table, rng)
    examples = _examples(settings, table, rng, hide)
    _maximise(model, blocks, examples, settings.num_steps, progress, starts)
    return CoregionalisationPosterior((model,), settings.cells_per_block, table)


def _hidden_at_random(table: MultiOutputTable, seed: int) -> MultiOutputTable | None:
    """Return the table with some cells hidden; None if an output would have none left."""
    try:
        return hold_out(table, _HIDDEN, seed)
    except ValueError:
        return None


def _density_blocks(
    settings: BlockFit, table: MultiOutputTable, rng: np.random.Generator
) -> list[Block]:
    """Draw blocks until they hold half of ``settings.cells_in_fit`` observed cells."""
    assert settings.cells_in_fit is not None
    arrays = table.X, table.Y, table.lengths
    places = places_of_blocks(*arrays, settings.cells_per_fit_block)
    found: list[Block] = []
    for i in rng.permutation(len(places)):
        if sum(len(block.value) for block in found) >= settings.cells_in_fit // 2:
            break
        found.append(block_at(*arrays, places[i])[0])
    return [block for block, _ in joined(found)]


def _examples(
    settings: BlockFit, table: MultiOutputTable, rng: np.random.Generator, hide: Hide
) -> list[tuple[Block, np.ndarray]]:
    """Draw blocks with hidden cells, until they hold ``settings.cells_in_fit`` observed cells.

    :return: pairs of a block and the true values of its hidden cells.
    """
    assert settings.cells_in_fit is not None
    found: list[tuple[Block, np.ndarray]] = []
    cells = 0
    for _ in range(_MASKS):
        hidden = hide(int(rng.integers(2**31)))
        if hidden is None or cells >= settings.cells_in_fit:
            break
        arrays, mask = (hidden.X, hidden.Y, hidden.lengths), hidden.test_mask
        places = places_of_blocks(*arrays, settings.cells_per_fit_block)
        for i in rng.permutation(len(places)):
            if cells >= settings.cells_in_fit:
                break
            block, targets = block_at(*arrays, places[i], mask)
            if len(targets):
                found.append((block, table.Y[places[i].task, targets[:, 0], targets[:, 1]]))
                cells += len(block.value)
    groups = joined([block for block, _ in found])
    return [(block, np.concatenate([found[i][1] for i in members])) for block, members in groups]


def _maximise(
    model: LinearCoregionalisation,
    blocks: Sequence[Block],
    examples: Sequence[tuple[Block, np.ndarray]],
    num_steps: int,
    progress: bool,
    starts: Sequence[Start],
) -> None:
    """Run L-BFGS on the sum of mean losses per cell; every step uses all blocks and examples.

    :param blocks: blocks whose observed cells enter by their density.
    :param examples: blocks, with the true values of their targets.
    """
    variables = list(model.trainable_variables)

    def density(X, task, row, column, value, target_row, target_column, truth):  # type: ignore[no-untyped-def]
        return -model.log_marginal(X, row, column, value, task)

    def prediction(X, task, row, column, value, target_row, target_column, truth):  # type: ignore[no-untyped-def]
        mean, variance = model.predict(X, row, column, value, target_row, target_column, task)
        return 0.5 * tf.reduce_sum(tf.math.log(variance) + tf.square(truth - mean) / variance)

    signature = (*SIGNATURE, tf.TensorSpec([None], tf.float64))
    terms = [
        (compiled(loss_with_gradient(loss, variables), input_signature=signature), cases, cells)
        for loss, cases, cells in (
            (
                density,
                [(*block, np.zeros(0)) for block in blocks],
                sum(len(block.value) for block in blocks),
            ),
            (
                prediction,
                [(*block, truth) for block, truth in examples],
                sum(len(truth) for _, truth in examples),
            ),
        )
        if cells
    ]
    of_prior = compiled(loss_with_gradient(lambda: -model.log_prior_density(), variables))
    weight = max(cells for _, _, cells in terms)

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        assign_vector(variables, x)
        results = [(*of_prior(), weight)]
        for function, cases, cells in terms:
            results += [(v, g, cells) for v, g in in_threads(function, cases)]
        value = sum(float(v) / cells for v, _, cells in results)
        return value, np.sum([g.numpy() / cells for _, g, cells in results], axis=0)

    vectors = []
    for values in starts:
        for parameter, value in values:
            parameter.assign(value)
        vectors.append(vector_of(variables))
    hidden = not (progress and shows_bars())
    with tqdm(total=num_steps, desc="fit", disable=hidden, leave=False) as bar:
        found = lbfgs(
            evaluate,
            vectors,
            num_steps,
            max_evaluations=2 * num_steps,
            callback=lambda _: bar.update(),
        )
    assign_vector(variables, found.vector)
