"""Whether rounds of the sampler on a GPU give the numbers of the CPU, and how long a step takes.

python -m benchmarks.gpu_check --data_dir=DATA --out=gpu_check.json

runs the same round of three models by TensorFlow itself on the CPU and on the first GPU, compiled
by XLA (``jit_compile``) and not, from one start and with the same random bits. It prints
milliseconds a step, and the largest difference from the CPU's round that is not compiled, over all
arrays that a round returns, each over the largest number of its array. Rounding alone may differ:
:mod:`benchmarks.gpu_runner` says why ``TOLERANCE`` is enough for that. Matrix products are in
float32, not TF32, as the CPU's are. It ends with status 1 where a difference is larger, and where
TensorFlow finds no GPU, after it has compared the CPU's two rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from benchmarks.common import commands

FLAGS = flags.FLAGS
TOLERANCE = 1e-3


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_string("out", None, "JSON to write; none where not given.")
    flags.DEFINE_string("data_dir", None, "Folder of the data sets; without it no rotated MNIST.")
    flags.DEFINE_integer("steps", 20, "Of the sampler in a round.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Timed rounds of each variant.", lower_bound=1)


def difference(found: Any, expected: Any) -> float:
    """The largest difference of two nests of arrays, each over its array's largest number.

    :return: infinity where a number is not finite on one side alone.
    """
    import tensorflow as tf

    largest = 0.0
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True)
    for ours, theirs in pairs:
        a, b = (np.asarray(value, np.float64) for value in (ours, theirs))
        if not a.size:
            continue
        apart = np.max(np.abs(a - b)) / (np.max(np.abs(b)) or 1.0)
        largest = max(largest, float(apart) if np.isfinite(apart) else float("inf"))
    return largest


def compare(parts: Any, devices: list[str], steps: int, repeats: int) -> list[dict[str, Any]]:
    """Run a model's first round on each device, compiled and not.

    :param parts: a model with its data and settings (:class:`benchmarks.common.cases.Parts`).
    :param devices: TensorFlow's names; the first is the one that others are compared with.
    :return: a row for each variant: milliseconds a step, and the largest difference.
    """
    import tensorflow as tf

    from benchmarks.common import cases, timing

    with tf.device(devices[0]):
        start = tf.nest.map_structure(np.asarray, cases.engine(parts, steps).initial())
    rows: list[dict[str, Any]] = []
    expected: Any = None
    for device in devices:
        for jit_compile in (False, True):
            with tf.device(device):
                engine = cases.engine(parts, steps, jit_compile=jit_compile)
                chains = tf.nest.map_structure(tf.convert_to_tensor, start)

                def run(engine: Any = engine, chains: Any = chains) -> Any:
                    return tf.nest.map_structure(np.asarray, engine.round(chains, 0)[0])

                found = run()
                expected = found if expected is None else expected
                seconds = timing.interleaved({"round": run}, repeats)["round"]
            apart = difference(found, expected)
            rows.append(
                {
                    "device": device,
                    "jit_compile": jit_compile,
                    "step_ms": timing.milliseconds(seconds, steps),
                    "largest_difference": apart,
                    "agrees": apart <= TOLERANCE,
                }
            )
    return rows


def main() -> None:
    """Run all models, print, and write."""
    import tensorflow as tf

    from benchmarks.common import cases, machine

    tf.config.experimental.enable_tensor_float_32_execution(False)
    gpus = tf.config.list_logical_devices("GPU")
    devices = ["/CPU:0", *(gpu.name for gpu in gpus[:1])]
    models: dict[str, Callable[[], Any]] = {"moving ball": cases.ball_parts, "EEG": cases.eeg_parts}
    if FLAGS.data_dir is not None:
        models["rotated MNIST, B = 512"] = lambda: cases.rotated_mnist_parts(FLAGS.data_dir, 512)
    rows = []
    for name, build in models.items():
        for row in compare(build(), devices, FLAGS.steps, FLAGS.repeats):
            rows.append({"model": name, **row})
            print(
                f"{name}, {row['device']}, jit_compile={row['jit_compile']}: "
                f"{row['step_ms']:.3g} ms a step; largest difference "
                f"{row['largest_difference']:.2g}, tolerance {TOLERANCE:g}: "
                f"{'agrees' if row['agrees'] else 'DIFFERS'}",
                flush=True,
            )
    if FLAGS.out is not None:
        details = tf.config.experimental.get_device_details
        physical = tf.config.list_physical_devices("GPU")
        record = {
            "suite": "gpu_check",
            "processor": machine.processor(),
            "gpu": details(physical[0]).get("device_name") if physical else None,
            "steps": FLAGS.steps,
            "repeats": FLAGS.repeats,
            "rows": rows,
            **commands.made_with(),
        }
        commands.write(FLAGS.out, record)
    if not gpus:
        print("TensorFlow found no GPU: only rounds on the CPU were compared.")
    if not gpus or not all(row["agrees"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    commands.start(define_flags, main)
