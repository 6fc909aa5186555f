"""Commands in the test's own process: TensorFlow is there already, and takes seconds to load."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

import experiments
from experiments.common import driver, results
from experiments.export import runs as export_runs
from experiments.imputation import command as imputation
from experiments.imputation.tables import TABLES
from gpflow_bae import serving
from gpflow_bae.posteriors import FittedModel


@functools.cache
def study(name: str) -> driver.Study:
    """The study of a command, ``python -m experiments.<name>``."""
    if name in TABLES:
        return imputation.study(name)
    folder = pathlib.Path(experiments.__file__).parent / name
    main = ".__main__" if folder.is_dir() else ""
    return importlib.import_module(f"experiments.{name}{main}").STUDY


@contextlib.contextmanager
def parsed(define: Callable[[], Any], *arguments: str) -> Iterator[flags.FlagValues]:
    """The flags that ``define`` makes, parsed from a command line, and gone again afterwards."""
    before = set(flags.FLAGS)
    try:
        define()
        flags.FLAGS(["command", *arguments])
        yield flags.FLAGS
    finally:
        flags.FLAGS.remove_flag_values(set(flags.FLAGS) - before)
        flags.FLAGS.unparse_flags()


def call(study: driver.Study, out_dir: pathlib.Path, *arguments: str) -> dict[str, Any]:
    """Runs a study's command as a shell would, and gives its results.json."""
    line = [*arguments, f"--out_dir={out_dir}"]
    with parsed(lambda: driver.define(study), *line):
        driver.run(study, ["command"], line)
    return json.loads((out_dir / results.RESULTS).read_text())


def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[driver.Outcome]:
    """A list to which the driver adds what runs come to."""
    found: list[driver.Outcome] = []
    write = driver.write_figures

    def keep(outcome: driver.Outcome, out_dir: pathlib.Path) -> None:
        found.append(outcome)
        write(outcome, out_dir)

    monkeypatch.setattr(driver, "write_figures", keep)
    return found


def goes_round(folder: pathlib.Path, posterior: Any, is_exported: bool = True) -> export_runs.Run:
    """The run's folder gives its posterior back, and an export answers as it does."""
    found = export_runs.read(folder)
    loaded = found.posterior
    assert type(loaded) is type(posterior) and loaded.model is not posterior.model
    if not isinstance(loaded, FittedModel):
        (_, one), (_, other) = loaded.bank.contents(), posterior.bank.contents()
        assert list(one) == list(other)
        for name, values in other.items():
            np.testing.assert_array_equal(one[name], values, err_msg=name)
    if not is_exported:
        return found
    served = serving.serve(posterior, num_draws=2)
    codes = np.random.default_rng(0).standard_normal((3, served.latent_dim)).astype(np.float32)
    expected = served.answer("decode", latents=codes)
    options = {"signatures": ["decode"], "num_draws": 2, "verbose": False}
    written = serving.export(loaded, folder / "model", **options)
    model = tf.saved_model.load(str(written.path))
    answer = model.signatures["decode"](latents=tf.constant(codes))
    for name, values in expected.items():  # rounding of float32 in another order
        np.testing.assert_allclose(answer[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
    return found
