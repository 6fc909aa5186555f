"""The limits of this machine, measured in the run whose numbers are compared with them."""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import pathlib
import traceback
from collections.abc import Callable, Sequence

from benchmarks.common import timing


def set_threads(threads: int, operations: int = 1) -> None:
    """Set TensorFlow's threads of an operation, and operations at a time, before it computes."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(operations)


def processor() -> str:
    """The processor's name, and how many cores this process may use (Linux)."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return f"{names[0] if names else 'unknown'}, {len(os.sched_getaffinity(0))} cores"


def limits(repeats: int) -> dict[str, float]:
    """Matrix products, random numbers and memory: the best of some turns, as a limit is."""
    import numpy as np
    import tensorflow as tf

    size, numbers, loops = 1024, 2**21, 4
    runs: dict[str, timing.Run] = {}
    for dtype in ("float32", "bfloat16", "float64"):
        runs[dtype] = network_products(size, [size, size], steps=loops, dtype=dtype)
    words = tf.Variable(tf.zeros([2**26]))  # 256 MB: no cache holds it

    @tf.function(autograph=False)
    def draw(seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_normal([numbers], seed, alg="philox")[0]

    @tf.function(autograph=False)
    def add() -> tf.Tensor:
        words.assign_add(words, read_value=False)
        return words[0]

    seed = tf.constant([0, 0])
    runs["normals"] = lambda: draw(seed).numpy()
    runs["memory"] = lambda: add().numpy()
    best = {name: float(np.min(s)) for name, s in timing.interleaved(runs, repeats).items()}
    # Forward and two products backward.
    flops = 3 * 2 * size**3 * loops
    found = {f"gflops_{d}": flops / best[d] / 1e9 for d in ("float32", "bfloat16", "float64")}
    found["million_normals_per_second"] = numbers / best["normals"] / 1e6
    # Each number is read twice and written once.
    found["gigabytes_per_second"] = 3 * 4 * 2**26 / best["memory"] / 1e9
    return found


def network_products(
    rows: int,
    widths: Sequence[int],
    *,
    steps: int,
    copies: int = 1,
    dtype: str = "float32",
    input_gradient: bool = True,
) -> timing.Run:
    """A compiled loop of the matrix products in gradients of a fully connected network.

    :param rows: of the batch.
    :param widths: of the network's layers, its inputs first.
    :param steps: gradients in a call.
    :param copies: networks side by side.
    :param input_gradient: whether the inputs (codes, not data) have a gradient too.
    """
    import tensorflow as tf

    layers = list(itertools.pairwise(widths))

    def normal(*shape: int) -> tf.Tensor:
        return tf.cast(tf.random.normal(shape, stddev=shape[-2] ** -0.5), dtype)

    values = [normal(rows, width) for width in widths]
    weights = [normal(copies, a, b) for a, b in layers]

    @tf.function(autograph=False)
    def loop(shift: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, shift: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            picked = []
            for copy, (layer, weight) in itertools.product(range(copies), enumerate(weights)):
                inputs, outputs = values[layer] + shift, values[layer + 1]
                products = [
                    tf.matmul(inputs, weight[copy]),
                    tf.matmul(inputs, outputs, transpose_a=True),
                ]
                if layer or input_gradient:
                    products.append(tf.matmul(outputs, weight[copy], transpose_b=True))
                picked += [product[0, 0] for product in products]
            # A dependence on every product, or the loop would be hoisted away.
            return i + 1, shift + tf.cast(1e-12, dtype) * tf.add_n(picked)

        start = (tf.constant(0), shift)
        return tf.while_loop(lambda i, _: i < steps, body, start, parallel_iterations=1)[1]

    zero = tf.zeros([], dtype)
    return lambda: loop(zero).numpy()


def working_memory(run: Callable[[], object]) -> float:
    """Megabytes that a call holds at most, beyond what this process held before it (Linux)."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what is free is given back, or it would be used
    before = megabytes("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the most is counted anew from here
    run()
    return megabytes("VmHWM") - before


def in_child(work: Callable[[], float]) -> float:
    """The result of a call in a process of its own, forked from this one.

    TensorFlow must be imported at most, and not used: its threads do not survive a fork.

    :raises RuntimeError: where it fails, with its traceback.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        code = 0
        try:
            answer = json.dumps({"found": work()})
        except BaseException:
            answer, code = json.dumps({"error": traceback.format_exc()}), 1
        os.write(write, answer.encode())
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    found = json.loads(answer) if answer else {"error": "it died"}
    if "error" in found:
        raise RuntimeError(found["error"])
    return found["found"]


def megabytes(name: str) -> float:
    """Memory of this process as Linux counts it: ``VmRSS`` now, ``VmHWM`` at most."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return float(line.split()[1]) * 1024 / 1e6
    raise OSError(f"/proc/self/status has no {name}: this needs Linux.")
