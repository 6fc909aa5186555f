"""Hyperparameters of a linear model of coregionalisation, by L-BFGS on blocks of rows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from tqdm.auto import tqdm

from ...core.arguments import check_arguments, check_fields, kind_of
from ...core.row_blocks import in_threads
from ...core.tracing import compiled
from ...data import MultiOutputTable, hold_out
from ...data.blocks import Block, block_at, places_of_blocks
from ...models import LinearCoregionalisation
from ...posteriors import CoregionalisationPosterior
from ...posteriors.coregionalisation import SIGNATURE, as_table
from .lbfgs import assign_vector, lbfgs, loss_with_gradient, vector_of

__all__ = ["BlockFit", "fit_coregionalisation"]

_HIDDEN = 0.15  # share of the cells that are hidden from a block, and predicted
_MASKS = 4  # different sets of hidden cells that a fit sees

#: Values of some parameters, from which a fit may start.
Start: TypeAlias = Sequence[tuple[Parameter, np.ndarray]]

#: A table with further cells hidden, of a seed; None where too few are left.
Hide: TypeAlias = Callable[[int], MultiOutputTable | None]


@dataclasses.dataclass(frozen=True)
class BlockFit:
    """How a linear model of coregionalisation is fitted, in blocks of neighbouring rows."""

    num_steps: int = 40
    """Of L-BFGS."""
    cells_per_fit_block: int = 350
    """Observed cells of a block that hyperparameters are fitted to."""
    cells_in_fit: int = 8_000
    """Observed cells of all such blocks together."""
    cells_per_block: int = 900
    """Observed cells that a prediction is given."""

    def __post_init__(self) -> None:
        check_fields(self, num_steps=1, cells_per_fit_block=1, cells_in_fit=1, cells_per_block=1)


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
    """Move a model to blocks of high density that predict hidden cells well, by L-BFGS.

    The objective is the mean log density of an observed cell, and of a hidden cell given what is
    observed around it, with equal weights, and the prior. A density alone is dominated by what
    changes from one row to the next, while gaps are filled by what goes slowly; and where the model
    is wrong, which it is for real data, the two want other hyperparameters. So blocks are trained
    as they are used (Rasmussen and Williams 2006, section 5.4.2, with gaps in the place of single
    cells); the density keeps small data sets from being learnt by heart.

    :param model: changed in place; the posterior holds it.
    :param data: ``(X, Y)``: inputs [N, D] or [T, N, D], and outputs [N, P] or [T, N, P], about
        standardised, NaN where missing; or a :class:`~gpflow_bae.data.MultiOutputTable`. Tasks are
        independent given the hyperparameters.
    :param settings: :class:`BlockFit` with its defaults if None.
    :param seed: of the choice of blocks and of hidden cells, or a ``numpy.random.Generator``.
    :param progress: whether to show a bar.
    :param starts: pairs of a parameter and its value, for each place to start from; the one with
        the best objective is taken. By default the values that the model has.
    :param hide: returns the table with further cells hidden, of a seed; by default 15 % of each
        output at random. Where gaps are long, hide gaps as long.
    :return: what predicts ``data`` and other rows (:meth:`CoregionalisationPosterior.predict_y`).
    :raises TypeError: for another model.
    :raises ValueError: for data of other shapes, or without an observation.
    """
    if not isinstance(model, LinearCoregionalisation):
        raise TypeError(f"model must be a LinearCoregionalisation, got {kind_of(model)}.")
    settings = BlockFit() if settings is None else settings
    table = as_table(data, model.num_outputs)
    if table is not data:  # of a table others have looked
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
    """The table with some cells hidden; None where an output would have none left."""
    try:
        return hold_out(table, _HIDDEN, seed)
    except ValueError:
        return None


def _density_blocks(
    settings: BlockFit, table: MultiOutputTable, rng: np.random.Generator
) -> list[Block]:
    """Blocks in a random order, until there are half as many cells as a fit sees."""
    arrays = table.X, table.Y, table.lengths
    places = places_of_blocks(*arrays, settings.cells_per_fit_block)
    found: list[Block] = []
    for i in rng.permutation(len(places)):
        if sum(len(block.value) for block in found) >= settings.cells_in_fit // 2:
            break
        found.append(block_at(*arrays, places[i])[0])
    return found


def _examples(
    settings: BlockFit, table: MultiOutputTable, rng: np.random.Generator, hide: Hide
) -> list[tuple[Block, np.ndarray]]:
    """Blocks of which cells are hidden, with their truth, until there are enough of them."""
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
    return found


def _maximise(
    model: LinearCoregionalisation,
    blocks: Sequence[Block],
    examples: Sequence[tuple[Block, np.ndarray]],
    num_steps: int,
    progress: bool,
    starts: Sequence[Start],
) -> None:
    """L-BFGS on a sum of mean losses of a cell; every step sees all blocks and examples.

    :param blocks: whose observed cells have a density.
    :param examples: blocks, with the truth of their targets.
    """
    variables = list(model.trainable_variables)

    def density(X, row, column, value, target_row, target_column, truth):  # type: ignore[no-untyped-def]
        return -model.log_marginal(X, row, column, value)

    def prediction(X, row, column, value, target_row, target_column, truth):  # type: ignore[no-untyped-def]
        mean, variance = model.predict(X, row, column, value, target_row, target_column)
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
    with tqdm(total=num_steps, desc="fit", disable=not progress, leave=False) as bar:
        found = lbfgs(
            evaluate,
            vectors,
            num_steps,
            max_evaluations=2 * num_steps,
            callback=lambda _: bar.update(),
        )
    assign_vector(variables, found.vector)
