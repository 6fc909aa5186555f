"""What models are given: observations with holes, and minibatches of them."""

from .minibatches import draw_indices
from .observations import Observations, check_columns, prepare_data
from .sparse_table import SparseTable

__all__ = ["Observations", "SparseTable", "check_columns", "draw_indices", "prepare_data"]
