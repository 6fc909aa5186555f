"""A compiled round of a sampler as StableHLO with its arrays, for a GPU without TensorFlow.

python -m benchmarks.gpu --out_dir=gpu --data_dir=DATA

writes a folder for each model: ``round.mlir`` (the program), ``arrays.npz`` (its arguments, and
what it returned on this machine's CPU), ``about.json``. Copy these folders and
``benchmarks/gpu_runner.py`` to a machine with JAX and a GPU (``pip install "jax[cuda12]"``), where

python gpu_runner.py gpu/* --out=gpu.json

compares its numbers with those of the CPU and times it. Neither TensorFlow nor this project is
needed there. TensorFlow's XLA and JAX's are one compiler, so what is timed is the round that
``jit_compile=True`` runs under TensorFlow on that GPU, less TensorFlow's own cost of a call.

tests/benchmarks/test_gpu.py runs both where GPFLOW_BAE_JAX_PYTHON names a Python that has JAX.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from benchmarks.common import commands

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_string("out_dir", None, "Where the folders go.", required=True)
    flags.DEFINE_string("data_dir", None, "Folder of the data sets; without it no rotated MNIST.")
    flags.DEFINE_integer("steps", 20, "Of the sampler in a round.", lower_bound=1)
    flags.DEFINE_integer("threads", 2, "Threads of TensorFlow.", lower_bound=1)


class Program(NamedTuple):
    """A function of arrays, compiled for no device yet."""

    text: str
    """StableHLO, whose function ``main`` takes ``arguments`` and returns ``results``."""
    arguments: list[np.ndarray]
    """The function's own in the order of ``tf.nest.flatten``, then what it captured."""
    results: dict[str, np.ndarray]
    """By name, in the order in which they are returned: what this machine found."""


def export(
    function: Callable[..., Any], arguments: Sequence[Any], paths: Mapping[str, Sequence[str]]
) -> Program:
    """A function at its arguments, as a program.

    :param function: of tensors in any nest; what it captures becomes arguments, variables too.
    :param paths: names of results, as in :func:`~gpflow_bae.inference.runs.naming.leaf_names`.
    """
    import tensorflow as tf

    from gpflow_bae.inference.runs.naming import to_arrays

    # In a list of leaves of our own, whose order does not hang on TensorFlow's for nests.
    leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(arguments)]
    found: list[Any] = []

    @tf.function(jit_compile=True, autograph=False)
    def flat(*leaves: tf.Tensor) -> list[tf.Tensor]:
        found[:] = [function(*tf.nest.pack_sequence_as(arguments, leaves))]
        return tf.nest.flatten(found[0])

    traced = flat.get_concrete_function(*leaves)
    variables = {id(variable.handle): variable for variable in traced.graph.variables}
    captured = [variables.get(id(tensor), tensor) for tensor in traced.captured_inputs]
    text = flat.experimental_get_compiler_ir(*leaves)(stage="stablehlo")
    results = tf.nest.pack_sequence_as(found[0], flat(*leaves))
    return Program(
        text, [np.asarray(value) for value in [*leaves, *captured]], to_arrays(results, paths)
    )


def sampler_round(parts: Any, steps: int) -> Program:
    """The first ``steps`` steps of the sampler of :class:`benchmarks.common.cases.Parts`."""
    import tensorflow as tf

    from benchmarks.common import cases

    engine = cases.engine(parts, steps, jit_compile=True)
    seeds = engine.seed_of(0, 0)[None]
    arguments = (engine.initial(), seeds, tf.constant(0), tf.constant(False))
    program = export(engine.advance, arguments, {"parameters": engine.sampled.paths})
    wrong = [name for name, value in program.results.items() if not np.isfinite(value).all()]
    if wrong:
        raise FloatingPointError(f"The round diverged, and cannot be compared: {', '.join(wrong)}.")
    return program


def write(folder: pathlib.Path, program: Program, about: Mapping[str, Any]) -> None:
    """The files of a model."""
    from gpflow_bae.core.files import save_arrays, write_atomically

    numbered = {f"argument_{i}": value for i, value in enumerate(program.arguments)}
    numbered |= {f"result_{i}": value for i, value in enumerate(program.results.values())}
    write_atomically(folder / "round.mlir", lambda f: f.write(program.text.encode()))
    write_atomically(folder / "arrays.npz", lambda f: save_arrays(f, numbered))
    commands.write(folder / "about.json", {**about, "results": list(program.results)})


def main() -> None:
    """Export all models."""
    from benchmarks.common import cases, machine

    machine.set_threads(FLAGS.threads)
    models: dict[str, Callable[[], Any]] = {"moving ball": cases.ball_parts, "EEG": cases.eeg_parts}
    if FLAGS.data_dir is not None:
        models["rotated MNIST, B = 512"] = lambda: cases.rotated_mnist_parts(FLAGS.data_dir, 512)
    for name, build in models.items():
        about = {
            "model": name,
            "steps": FLAGS.steps,
            "command": f"python -m benchmarks.gpu --steps={FLAGS.steps} --threads={FLAGS.threads}",
            "processor": machine.processor(),
            **commands.made_with(),
        }
        folder = pathlib.Path(FLAGS.out_dir) / re.sub(r"\W+", "_", name)
        program = sampler_round(build(), FLAGS.steps)
        write(folder, program, about)
        print(f"{folder}: {len(program.arguments)} arguments, {len(program.text)} characters")


if __name__ == "__main__":
    commands.start(define_flags, main)
