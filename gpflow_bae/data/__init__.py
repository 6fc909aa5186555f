"""Data of models: observations with missing entries, tables, streams and minibatches."""

from .compressed_rows import CompressedRows, dense_rows
from .minibatches import draw_indices
from .observations import Observations, as_inputs, in_memory, mask_missing
from .preparation import check_columns, prepare_data
from .sparse_table import SparseTable
from .standardiser import Standardiser
from .streams import BatchReader, StreamedObservations, write_tfrecords
from .tables import MultiOutputTable, hold_out, pad_tasks
from .unequal_tasks import as_pair

__all__ = [
    "BatchReader",
    "CompressedRows",
    "MultiOutputTable",
    "Observations",
    "SparseTable",
    "Standardiser",
    "StreamedObservations",
    "as_inputs",
    "as_pair",
    "check_columns",
    "dense_rows",
    "draw_indices",
    "hold_out",
    "in_memory",
    "mask_missing",
    "pad_tasks",
    "prepare_data",
    "write_tfrecords",
]
