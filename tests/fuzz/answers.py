"""What counts as an answer of ours: a finite result, or an error that this package raised in words.

``GPFLOW_BAE_FUZZ=10000`` sets how many cases each test has in all (default: few, for CI).
"""

from __future__ import annotations

import os
import pathlib
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import check_shapes
import hypothesis
import numpy as np
import tensorflow as tf

import gpflow_bae
from gpflow_bae.impute.problems import TableError

OURS = pathlib.Path(gpflow_bae.__file__).parent
THEIRS = pathlib.Path(check_shapes.__file__).parent  # whose words name the argument and its shapes
EXPECTED = (ValueError, TypeError, FloatingPointError, TableError, np.linalg.LinAlgError)


def cases(fewest: int) -> hypothesis.settings:
    """Settings of a test: so many cases, or as many as the environment says."""
    return hypothesis.settings(
        max_examples=int(os.environ.get("GPFLOW_BAE_FUZZ", fewest)),
        deadline=None,
        database=None,
        derandomize="GPFLOW_BAE_FUZZ" not in os.environ,  # CI has the same cases every time
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def answered(call: Callable[[], Any]) -> Any:
    """The result of a call; None where it raised an error of ours.

    :raises AssertionError: for an error of anybody else's.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except EXPECTED as error:
        frames = traceback.extract_tb(error.__traceback__)
        raised = pathlib.Path(frames[-1].filename)
        said = isinstance(error, TableError) or OURS in raised.parents or THEIRS in raised.parents
        words = f"{type(error).__name__} of {raised}, line {frames[-1].lineno}: {error}"
        assert said, words
        assert str(error).strip(), words
        return None
    except tf.errors.InvalidArgumentError as error:  # of an assertion that an exported graph has
        assert "assertion failed" in error.message, error.message
        return None


def assert_finite(values: Any) -> None:
    """All numbers of a structure."""
    for value in tf.nest.flatten(values):
        assert np.isfinite(np.asarray(value)).all(), value
