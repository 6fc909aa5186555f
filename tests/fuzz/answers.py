"""What counts as an answer of ours: a finite result, or an error that this package raised in words.

``GPFLOW_BAE_FUZZ=10`` makes ten times as many cases of each test as CI has, from a seed of its own
(``--hypothesis-seed``); ``python -m benchmarks.fuzz`` runs and counts them.
"""

from __future__ import annotations

import linecache
import os
import pathlib
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import check_shapes
import hypothesis
import numpy as np
import sklearn.utils
import tensorflow as tf

import gpflow_bae
from gpflow_bae.impute.reading.problems import TableError

OURS = pathlib.Path(gpflow_bae.__file__).parent
# Whose words name the argument and what it has to be: of shapes, and of an estimator's tables.
THEIRS = tuple(pathlib.Path(m.__file__).parent for m in (check_shapes, sklearn.utils))
EXPECTED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    OSError,
    TableError,
    TypeError,
    ValueError,
    check_shapes.exceptions.CheckShapesError,
)
COUNTS: Counter[str] = Counter()
"""Calls that were judged, by test."""
LONGEST = 300  # seconds of a case; what takes longer hangs


def cases(fewest: int) -> hypothesis.settings:
    """Settings of a test: so many cases, or as many times that as the environment says."""
    times = os.environ.get("GPFLOW_BAE_FUZZ")
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # what fails is not made small
    return hypothesis.settings(
        max_examples=fewest * int(times or 1),
        phases=phases if times else tuple(hypothesis.Phase),
        deadline=None,
        database=None,
        derandomize=not times,  # CI has the same cases every time
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def answered(call: Callable[[], Any]) -> Any:
    """The result of a call; None where it raised an error of ours.

    Ours is what a ``raise`` of this package raised, or a check of shapes: an error that NumPy or
    Python raise in a line of this package is not.

    :raises AssertionError: for an error of anybody else's, or a call that does not come back.
    """
    COUNTS[os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" (", 1)[0]] += 1
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(LONGEST)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except EXPECTED as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raised = pathlib.Path(frame.filename)
        line = linecache.getline(frame.filename, frame.lineno or 0).strip()
        ours = OURS in raised.parents and line.startswith("raise ")
        words = f"{type(error).__name__} of {raised}, line {frame.lineno}: {error}"
        assert ours or any(theirs in raised.parents for theirs in THEIRS), words
        assert str(error).strip(), words
        return None
    except tf.errors.InvalidArgumentError as error:  # of an assertion that an exported graph has
        said = ("assertion failed", "to be true. Summarized data")  # in a graph, and out of one
        assert any(words in error.message for words in said), error.message
        return None
    finally:
        signal.alarm(0)


def _hangs(*_: Any) -> None:
    raise AssertionError(f"no answer within {LONGEST} seconds")


def assert_finite(values: Any) -> None:
    """All numbers of a structure."""
    for value in tf.nest.flatten(values):
        assert np.isfinite(np.asarray(value)).all(), value
