"""Runs what ``benchmarks.gpu`` wrote on the device that JAX has: right numbers, and milliseconds.

python gpu_runner.py FOLDER... --out=gpu.json

Needs JAX (run with 0.10 and 0.11) and NumPy, neither TensorFlow nor this project. Each program is
compiled, called once to warm up, and its results are compared with those that TensorFlow found on
the CPU of the machine that wrote it; then it is timed, each call until its results are there.

The difference that is printed is the largest over all arrays that a round returns, each over the
largest number of its array. Both sides draw the same bits, so that they differ by rounding alone:
sums are taken in another order. A gradient sums a thousand terms in float32, whose rounding is
6e-8: sqrt(1000) times that is 2e-6, and 20 steps that each add as much have 4e-5. ``TOLERANCE`` is
1e-3, a factor of 25 above that, for what the dynamics stretch. An argument, a seed or a result in
another's place is off by 1e-2 and more.

GPUs multiply float32 matrices as TF32, with 10 bits of mantissa, where a program leaves its
precision open, as this one does. ``--precision float32``, which is the default, asks for float32,
as the CPU has it; ``--precision float32 default`` times the other too, which may be faster, and may
differ by 1e-3 a product and more than the tolerance.

``--peers plain_torch plain_torch_images`` times these of ``peer_worker.py``, which must lie beside
this file, on the same GPU, if this Python has PyTorch.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import backend
from jax.extend.mlir import ir

TOLERANCE = 1e-3
PRECISIONS = ("float32", "default")
PEERS = {"plain_torch": "moving ball", "plain_torch_images": "rotated MNIST, B = 512"}


def compiled(text: str, device: Any) -> Callable[..., list[jax.Array]]:
    """The function ``main`` of a StableHLO program, of arrays on a device."""
    # Of any lowered function, for its context, which knows the dialects that JAX compiles.
    context = jax.jit(lambda: 0).lower().compiler_ir("stablehlo").context
    bytecode = io.BytesIO()
    ir.Module.parse(text, context).operation.write_bytecode(bytecode)
    options = backend.get_compile_options(1, 1)
    client = backend.get_backend()
    program = client.compile_and_load(bytecode.getvalue(), [device], options)
    return lambda *arguments: program.execute(list(arguments))


def at_precision(text: str, precision: str) -> str:
    """The program, with matrix products in float32 if that is asked for."""
    return text if precision == "default" else re.sub(r"\bDEFAULT\b", "HIGHEST", text)


def portable(text: str) -> str:
    """The program without copies of arrays, which TensorFlow writes in a dialect of its own and JAX
    compiles for a CPU alone: as reshapes to the shapes that they have.
    """
    copies = re.compile(r"\bmhlo\.copy (%\S+) : (tensor<[^>]*>)")
    return copies.sub(r"stablehlo.reshape \1 : (\2) -> \2", text)


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest, over the largest number that is expected; infinite for other shapes or NaN."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if not expected.size:
        return 0.0
    if expected.dtype == bool:
        return float(np.any(found != expected))
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    largest = np.max(np.abs(expected)) or 1.0
    apart = float(np.max(np.abs(found - expected))) / largest
    return apart if np.isfinite(apart) else float("inf")


def run(folder: pathlib.Path, precision: str, repeats: int) -> dict[str, Any]:
    """One program's row."""
    about = json.loads((folder / "about.json").read_text())
    names = about["results"]
    text = at_precision(portable((folder / "round.mlir").read_text()), precision)
    with np.load(folder / "arrays.npz") as arrays:
        expected = [arrays[f"result_{i}"] for i in range(len(names))]
        count = sum(name.startswith("argument_") for name in arrays.files)
        device = jax.local_devices()[0]
        arguments = [jax.device_put(arrays[f"argument_{i}"], device) for i in range(count)]
    began = time.perf_counter()
    call = compiled(text, device)
    compilation = time.perf_counter() - began
    found = [np.asarray(value) for value in jax.block_until_ready(call(*arguments))]
    if len(found) != len(names):
        raise ValueError(f"{folder}: the program returns {len(found)} arrays, not {len(names)}.")
    apart = {n: difference(f, e) for n, f, e in zip(names, found, expected, strict=True)}
    worst = max(apart, key=lambda name: apart[name])
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call(*arguments))
        seconds.append(time.perf_counter() - began)
    return {
        "model": about["model"],
        "precision": precision,
        "step_ms": quartiles(seconds, about["steps"]),
        "compilation_s": compilation,
        "largest_difference": apart[worst],
        "differs_most": worst,
        "tolerance": TOLERANCE,
        "agrees": bool(apart[worst] <= TOLERANCE),
        "written_by": {key: about[key] for key in ("command", "processor", "versions")},
        "git_commit": about["git_commit"],
    }


def quartiles(seconds: Sequence[float], steps: int) -> dict[str, float]:
    """Median and quartiles of milliseconds a step, of calls that have so many steps."""
    names = ("lower_quartile", "median", "upper_quartile")
    found = 1e3 * np.quantile(seconds, (0.25, 0.5, 0.75)) / steps
    return dict(zip(names, found.tolist(), strict=True))


def run_peer(peer: str, repeats: int, steps: int = 20) -> dict[str, Any]:
    """The row of another library, on the same GPU."""
    worker = pathlib.Path(__file__).with_name("peer_worker.py")
    command = [sys.executable, str(worker), peer, f"--steps={steps}", "--device=cuda"]
    lines = "\n" * (repeats + 2)  # the first two warm up
    answer = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    code, *seconds = answer.stdout.split("\n")[: repeats + 3]
    step_ms = quartiles([*map(float, seconds[2:])], steps)
    return {"peer": peer, "model": PEERS[peer], "code": code, "step_ms": step_ms}


def processor(device: Any) -> str:
    """The device's name; of a CPU that of its maker (Linux), and that it is one."""
    if device.platform != "cpu":
        return device.device_kind
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    return f"CPU, no GPU: {names[0] if names else platform.machine()}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all, prints and writes; 1 where numbers differ by more than the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=["float32"])
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path, default=None)
    options = parser.parse_args(arguments)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # peers want memory, too
    jax.config.update("jax_enable_x64", True)  # codes and kernels are float64
    began = time.monotonic()
    rows = []
    for folder in options.folders:
        for precision in options.precision:
            row = run(folder, precision, options.repeats)
            rows.append(row)
            print(
                f"{row['model']}, {precision}: {row['step_ms']['median']:.3g} ms a step; largest "
                f"difference from TensorFlow's CPU {row['largest_difference']:.2g} "
                f"({row['differs_most']}), tolerance {TOLERANCE:g}: "
                f"{'agrees' if row['agrees'] else 'DIFFERS'}",
                flush=True,
            )
    peers = [run_peer(peer, options.repeats) for peer in options.peers]
    for row in peers:
        print(f"{row['peer']}, {row['code']}: {row['step_ms']['median']:.3g} ms a step", flush=True)
    words = [f"--repeats={options.repeats}", f"--precision {' '.join(options.precision)}"]
    words += [f"--peers {' '.join(options.peers)}"] if peers else []
    record = {
        "suite": "gpu",
        "command": f"python gpu_runner.py gpu/* {' '.join(words)}",
        "processor": processor(jax.local_devices()[0]),
        "repeats": options.repeats,
        "rows": rows,
        "peers": peers,
        "seconds": round(time.monotonic() - began),
        "versions": {"python": platform.python_version(), "jax": jax.__version__},
        "git_commit": rows[0]["git_commit"],
    }
    if options.out is not None:
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    # Where the precision is left open, a difference is no fault.
    return int(any(not row["agrees"] for row in rows if row["precision"] == "float32"))


if __name__ == "__main__":
    sys.exit(main())
