"""Inputs that are not known, or not as vectors: missing entries of X, and objects by their ids.

A kernel of :class:`CompletedInputs` takes covariances of inputs that an :class:`InputModel` has
completed, so every prior over codes and every GPflow model takes what has such a kernel.
"""

from .base import InputModel
from .circle import UniformOnCircle
from .condition import Condition
from .kernel import CompletedInputs
from .missing import MissingInputs
from .representation import RepresentationNetwork
from .tables import InputTable
from .vectors import LearntVectors

__all__ = [
    "CompletedInputs",
    "Condition",
    "InputModel",
    "InputTable",
    "LearntVectors",
    "MissingInputs",
    "RepresentationNetwork",
    "UniformOnCircle",
]
