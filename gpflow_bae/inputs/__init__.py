"""Models of unknown inputs: missing entries of X, and vectors of objects that are given by ids.

The kernel :class:`CompletedInputs` computes covariances of inputs that an :class:`InputModel`
completes, and can be used in any GPflow model, and in priors over codes.
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
