"""What models are given: observations with holes, tables of them, and minibatches."""

from .minibatches import draw_indices
from .observations import (
    Observations,
    as_inputs,
    as_pair,
    check_columns,
    mask_missing,
    prepare_data,
)
from .sparse_table import SparseTable
from .standardiser import Standardiser
from .tables import MultiOutputTable, hold_out, pad_tasks

__all__ = [
    "MultiOutputTable",
    "Observations",
    "SparseTable",
    "Standardiser",
    "as_inputs",
    "as_pair",
    "check_columns",
    "draw_indices",
    "hold_out",
    "mask_missing",
    "pad_tasks",
    "prepare_data",
]
