"""What holds for every test: fixed seeds, float64 GP algebra, and no silent AutoGraph failure."""

import contextlib
import ctypes
import gc
import os
import pathlib

# Before TensorFlow and matplotlib are imported: they read these once.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "Agg")

from collections.abc import Iterator

import pytest

SLOW_TESTS = pathlib.Path(__file__).with_name("slow_tests.txt")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Load the libraries where tests run: xdist's first process only hands them out.

    Imports of this file are inside of functions for that: TensorFlow's takes ten seconds.
    """
    if session.config.getoption("numprocesses", None):
        return
    import keras  # noqa: F401
    import tensorflow as tf
    from check_shapes.config import ShapeCheckingState, set_enable_check_shapes

    import gpflow_bae.posteriors  # noqa: F401

    # Fixed, so that timings and summation orders do not depend on the machine's number of cores.
    tf.config.threading.set_intra_op_parallelism_threads(2)
    set_enable_check_shapes(ShapeCheckingState.ENABLED)


def slow_tests() -> set[str]:
    """Names of those that are measured to take long, from ``tests/`` on."""
    lines = SLOW_TESTS.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def name_of(item: pytest.Item) -> str:
    """Of a test, from ``tests/`` on, wherever pytest's root is."""
    return "tests/" + item.nodeid.split("tests/", 1)[-1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests are marked so by their names: which are slow is measured, not known."""
    slow = slow_tests()
    for item in items:
        if name_of(item) in slow:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Half a million objects of the libraries are no longer walked over by each collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs and traces that a file keeps for its tests go with it; a process would hold them all."""
    from gpflow_bae.core.tracing import forget_symbolic_tensors

    yield
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    forget_symbolic_tensors()  # of functions that the tests themselves compiled
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # where the C library is not glibc
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Seed Python, NumPy and TensorFlow, so that no test depends on those that ran before it."""
    import keras

    keras.utils.set_random_seed(20240229)


@pytest.fixture(autouse=True)
def gpflow_float64() -> Iterator[None]:
    """Give every test GPflow's float64 default, and undo what the test changed in the settings."""
    import gpflow
    import numpy as np

    with gpflow.config.as_context(gpflow.config.Config(float=np.float64)):
        yield


@pytest.fixture
def untraced() -> Iterator[None]:
    """Compiled functions run as the Python that they are made of.

    For tests that take a few steps of an algorithm and ask nothing of how it is compiled: to trace
    and optimise a round takes as long as twenty of its steps.
    """
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def untraced_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Posteriors that are made in a test predict as Python: for a few samples, as ``untraced``."""
    import tensorflow as tf

    from gpflow_bae.posteriors import sample_loop

    monkeypatch.setattr(sample_loop, "compiled", tf.autograph.experimental.do_not_convert)


@pytest.fixture(autouse=True)
def no_autograph_failure(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which AutoGraph gave up: the code then runs, but not as it was written."""
    yield
    for when in ("setup", "call", "teardown"):
        for record in caplog.get_records(when):
            message = record.getMessage()
            if message.startswith("AutoGraph could not transform"):
                pytest.fail(message)
